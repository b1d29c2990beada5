//! SQL, as Postgres reads it. SQLite knows no nested comments and no dollar quotes, and needs none here.

use super::{Cursor, Kind, len_through, line_len, nested_len, quoted_len, word_len};

pub fn read(cursor: &mut Cursor<'_>) {
    while let Some((first, rest)) = cursor.next() {
        if rest.starts_with("--") {
            cursor.take(Kind::Comment, line_len(rest));
        } else if rest.starts_with("/*") {
            cursor.take(Kind::Comment, nested_len(rest));
        } else if let Some(quote) = dollar_quote(rest) {
            read_quoted(cursor, quote);
        } else if rest.starts_with("E'") || rest.starts_with("e'") {
            cursor.take(Kind::Text, 1 + quoted_len(&rest[1..], "'"));
        } else if first == '\'' || first == '"' {
            // A quote that is written twice ends one literal here, and begins the next: no line is told otherwise by that.
            cursor.take(Kind::Text, len_through(rest, 1, &rest[..1]));
        } else {
            cursor.take_plain(first);
        }
    }
}

/// Reads what stands in dollar quotes. That is the body of a function: code, with comments of its own.
fn read_quoted(cursor: &mut Cursor<'_>, quote: &str) {
    cursor.take(Kind::Mark, quote.len());
    let (end, inner) = (cursor.end, cursor.rest().find(quote));
    cursor.end = inner.map_or(end, |bytes| cursor.at + bytes);
    read(cursor);
    cursor.end = end;
    if inner.is_some() {
        cursor.take(Kind::Mark, quote.len());
    }
}

/// The `$$` or `$name$` that the text begins with.
fn dollar_quote(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('$')?;
    let name = word_len(inner);
    let quotes = inner[name..].starts_with('$') && !inner.starts_with(|c: char| c.is_ascii_digit());
    quotes.then(|| &text[..name + 2])
}

#[cfg(test)]
mod tests {
    use super::super::{Language, lines};

    fn code(text: &str) -> Vec<&str> {
        let tokens = Language::Sql.tokens(text);
        tokens.iter().filter(|token| token.is_code()).map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_left_out_of_bodies_too() {
        let text = "-- a\nCREATE\n$$\nBEGIN -- b\n\n-- c\nEND\n$$;\n/* d\n/* e */ */";
        assert_eq!(code(text), ["CREATE", "$$", "BEGIN", "END", "$$", ";"]);
        assert_eq!(lines(Language::Sql.tokens(text).iter().filter(|token| token.is_code())), 5);
    }

    #[test]
    fn dollar_quotes_end_with_their_own_name_wherever_it_stands() {
        assert_eq!(code("$a$ x $b$ y $b$ $a$ z"), ["$a$", "x", "$b$", "y", "$b$", "$a$", "z"]);
        assert_eq!(code("$$ x -- y $$ z"), ["$$", "x", "$$", "z"]);
        assert_eq!(code("$$ 'x $$ z"), ["$$", "'x ", "$$", "z"]);
        assert_eq!(code("$1 $2"), ["$", "1", "$", "2"]);
    }

    #[test]
    fn literals_hide_comments_and_quotes() {
        assert_eq!(code("'a -- b' \"/*\" 'it''s' c"), ["'a -- b'", "\"/*\"", "'it'", "'s'", "c"]);
        assert_eq!(code(r"E'\'--' 'd\' e"), [r"E'\'--'", r"'d\'", "e"]);
    }
}
