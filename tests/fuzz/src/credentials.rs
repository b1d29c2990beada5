//! What callers show to say who they are: the input is an API key, or a token.

use fencegate_access::jwt::{BadToken, Token, TokenKeys};
use fencegate_access::{ApiKey, Rules};
use jiff::Timestamp;

/// An issuer whose key nobody has the other half of.
const RULES: &str = r#"
[[issuers]]
name = "i"
issuer = "https://issuer.example"
audience = "fencegate"
jwks_file = "keys.json"
algorithms = ["RS256", "PS256", "ES256", "ES384", "EdDSA"]
"#;
const KEYS: &str = r#"{"keys":[{"kty":"OKP","crv":"Ed25519","kid":"k","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"}]}"#;

/// A key is read in one spelling, and shows its secret to nobody; a token that nobody can have signed is nobody's.
pub fn credentials(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(key) = ApiKey::parse(text) {
        assert_eq!(key.reveal(), text);
        assert!(!format!("{key:?}").contains(&text[text.len() - 20..]));
        assert!(key.digest().is_digest_of(&key));
    }
    let now = Timestamp::UNIX_EPOCH;
    let rules = Rules::parse(RULES).unwrap();
    let Ok(keys) = TokenKeys::parse(KEYS) else { panic!("the keys can be read") };
    let Ok(token) = Token::parse(text) else { return };
    let issuer = token.issuer(rules.issuers());
    assert!(matches!(issuer, Ok(_) | Err(BadToken::Issuer)));
    for issuer in rules.issuers() {
        assert!(token.verified(issuer, &keys, now).is_err(), "somebody has signed it");
    }
}
