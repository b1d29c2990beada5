//! Names and words of others, as a terminal and a table may show them.

use std::borrow::Cow;

use unicode_general_category::{GeneralCategory, get_general_category};

/// Tells a character that is not seen, or that a terminal obeys: a control or format character, or a separator of lines or
/// paragraphs.
pub fn is_hidden(c: char) -> bool {
    matches!(
        get_general_category(c),
        GeneralCategory::Control
            | GeneralCategory::Format
            | GeneralCategory::LineSeparator
            | GeneralCategory::ParagraphSeparator
    )
}

/// A text of one line with its hidden characters as escapes, such as `\n` and `\u{1b}`.
///
/// ```
/// assert_eq!(fencegate_wire::shown::escaped("a\x1b[2J\nb"), r"a\u{1b}[2J\nb");
/// ```
pub fn escaped(text: &str) -> Cow<'_, str> {
    escaped_but(text, |_| false)
}

/// The same of a text of several lines, which stay lines.
pub fn escaped_lines(text: &str) -> Cow<'_, str> {
    escaped_but(text, |c| c == '\n')
}

fn escaped_but(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    let is_escaped = |c: char| is_hidden(c) && !stays(c);
    if !text.chars().any(is_escaped) {
        return Cow::Borrowed(text);
    }
    let mut shown = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => shown.push(c),
            '\t' | '\n' | '\r' => shown.extend(c.escape_default()),
            c => shown.extend(c.escape_unicode()),
        }
    }
    Cow::Owned(shown)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_a_terminal_obeys_is_left() {
        let odd = [
            ("\u{1b}[2J\u{7}", r"\u{1b}[2J\u{7}"),
            ("a\nb\tc\r", r"a\nb\tc\r"),
            ("\u{7f}\u{9b}31m", r"\u{7f}\u{9b}31m"),
            ("\u{202e}\u{2066}\u{200b}\u{feff}", r"\u{202e}\u{2066}\u{200b}\u{feff}"),
            ("\u{2028}\u{2029}", r"\u{2028}\u{2029}"),
        ];
        for (text, expected) in odd {
            assert_eq!(escaped(text), expected);
        }
        assert_eq!(escaped_lines("a\nb\u{1b}"), "a\nb\\u{1b}");
        for plain in ["", "orders/17.json", r"a\b", "größe 文字 e\u{301}", "a b"] {
            assert!(matches!(escaped(plain), Cow::Borrowed(same) if same == plain), "{plain}");
        }
    }
}
