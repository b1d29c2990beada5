//! The token header: lines are the lines of `X-Fence-Token`.

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use fence_core::{ErrorCode, Token};
use fencegate::http::extract::fence_token;

/// What the grammar says, put in another way than the parser's.
fn by_the_grammar(text: &[u8]) -> Option<i64> {
    let digits = text.iter().all(u8::is_ascii_digit) && (1..=19).contains(&text.len());
    let number = || text.iter().fold(0u128, |sum, digit| sum * 10 + u128::from(digit - b'0'));
    (digits && text[0] != b'0').then(number).and_then(|number| i64::try_from(number).ok())
}

/// A token is taken exactly by its grammar, and prints as it was written; more than one line is never
/// taken, whatever the lines say.
pub fn tokens(input: &[u8]) {
    let lines: Vec<&[u8]> = input.split(|byte| *byte == b'\n').collect();
    let mut headers = HeaderMap::new();
    for line in &lines {
        let parsed = Token::parse(line).ok();
        assert_eq!(parsed.map(Token::get), by_the_grammar(line));
        if let Some(token) = parsed {
            assert_eq!(token.to_string().as_bytes(), *line);
            let json = serde_json::to_string(&token).unwrap();
            assert_eq!(serde_json::from_str::<Token>(&json).unwrap(), token);
            assert!(serde_json::from_str::<Token>(&token.to_string()).is_err(), "a bare number");
        }
        let Ok(value) = HeaderValue::from_bytes(line) else { return };
        headers.append(HeaderName::from_static("x-fence-token"), value);
    }
    let found = fence_token(&headers, false);
    match lines[..] {
        [line] => assert_eq!(found.ok(), Token::parse(line).ok()),
        _ => assert_eq!(found.unwrap_err().code(), ErrorCode::FenceTokenMalformed),
    }
}
