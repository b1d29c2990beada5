//! Rust.

use super::{Cursor, Kind, len_through, line_len, nested_len, quoted_len, word_len};

pub fn read(cursor: &mut Cursor<'_>) {
    while let Some((first, rest)) = cursor.next() {
        if rest.starts_with("//") {
            cursor.take(line_kind(rest), line_len(rest));
        } else if rest.starts_with("/*") {
            cursor.take(block_kind(rest), nested_len(rest));
        } else if let Some(bytes) = raw_len(rest) {
            cursor.take(Kind::Text, bytes);
        } else if first == '"' {
            cursor.take(Kind::Text, quoted_len(rest, "\""));
        } else if first == '\'' {
            match char_len(rest) {
                Some(bytes) => cursor.take(Kind::Text, bytes),
                None => cursor.take(Kind::Word, 1 + word_len(&rest[1..])),
            }
        } else {
            cursor.take_plain(first);
        }
    }
}

fn line_kind(text: &str) -> Kind {
    let doc = text.starts_with("//!") || text.starts_with("///") && !text.starts_with("////");
    if doc { Kind::Doc } else { Kind::Comment }
}

fn block_kind(text: &str) -> Kind {
    let outer = text.starts_with("/**") && !text.starts_with("/***") && !text.starts_with("/**/");
    if outer || text.starts_with("/*!") { Kind::Doc } else { Kind::Comment }
}

/// The length of a raw string; `None` where none begins.
fn raw_len(text: &str) -> Option<usize> {
    let inner = text.strip_prefix(['b', 'c']).unwrap_or(text).strip_prefix('r')?;
    let hashes = inner.len() - inner.trim_start_matches('#').len();
    inner[hashes..].strip_prefix('"')?;
    let quote = text.len() - inner.len() + hashes + 1;
    Some(len_through(text, quote, &format!("\"{}", "#".repeat(hashes))))
}

/// The length of a character in quotes; `None` for a lifetime.
fn char_len(text: &str) -> Option<usize> {
    let mut chars = text.char_indices().skip(1);
    match chars.next()? {
        (_, '\\') => Some(quoted_len(text, "'")),
        _ => chars.next().filter(|(_, c)| *c == '\'').map(|(at, _)| at + 1),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Kind, Language, lines};

    fn code(text: &str) -> Vec<&str> {
        let tokens = Language::Rust.tokens(text);
        tokens.iter().filter(|token| token.is_code()).map(|token| token.text).collect()
    }

    fn count(text: &str) -> usize {
        lines(Language::Rust.tokens(text).iter().filter(|token| token.is_code()))
    }

    #[test]
    fn comments_nest() {
        assert_eq!(code("a /* b /* c */ d\n */ e"), ["a", "e"]);
        assert_eq!(count("a\n/* b\n/* c */\nd */\ne // f\n// g"), 2);
    }

    #[test]
    fn strings_hide_comments() {
        assert_eq!(
            code(r#"a("http://b", "\"/*")"#),
            ["a", "(", "\"http://b\"", ",", r#""\"/*""#, ")"]
        );
        assert_eq!(count("let a = \"//\n// b\n\";"), 3);
    }

    #[test]
    fn raw_strings_end_with_as_many_hashes_as_they_begin_with() {
        assert_eq!(code("r#\"a\" // b\"# c"), ["r#\"a\" // b\"#", "c"]);
        assert_eq!(code("br\"\\\" d"), ["br\"\\\"", "d"]);
        assert_eq!(code("r#type"), ["r", "#", "type"]);
    }

    #[test]
    fn a_quote_begins_a_character_or_a_lifetime() {
        assert_eq!(
            code("'\"' b'\\'' &'a str 'é'"),
            ["'\"'", "b", "'\\''", "&", "'a", "str", "'é'"]
        );
    }

    #[test]
    fn doc_comments_are_told_from_others() {
        let text = "//! a\n/// b\n//// c\n// d\n/** e */\n/*** f */\n/**/";
        let kinds: Vec<_> = Language::Rust.tokens(text).iter().map(|token| token.kind).collect();
        let (doc, other) = (Kind::Doc, Kind::Comment);
        assert_eq!(kinds, [doc, doc, other, other, doc, other, other]);
    }
}
