//! Python.

use super::{Cursor, Kind, line_len, quoted_len};

pub fn read(cursor: &mut Cursor<'_>) {
    let mut depth = 0;
    while let Some((first, rest)) = cursor.next() {
        match first {
            '#' => cursor.take(Kind::Comment, line_len(rest)),
            '"' | '\'' => {
                let quote = if rest.starts_with(&rest[..1].repeat(3)) { 3 } else { 1 };
                let bytes = quoted_len(rest, &rest[..quote]);
                // A string that is a statement of its own is documentation.
                let alone = depth == 0 && begins_line(cursor) && ends_line(&rest[bytes..]);
                cursor.take(if alone { Kind::Doc } else { Kind::Text }, bytes);
            }
            _ => {
                depth += i32::from("([{".contains(first)) - i32::from(")]}".contains(first));
                cursor.take_plain(first);
            }
        }
    }
}

fn begins_line(cursor: &Cursor<'_>) -> bool {
    let before = &cursor.text[..cursor.at];
    before[before.rfind('\n').map_or(0, |at| at + 1)..].trim().is_empty()
}

fn ends_line(rest: &str) -> bool {
    let rest = rest[..line_len(rest)].trim();
    rest.is_empty() || rest.starts_with('#')
}

#[cfg(test)]
mod tests {
    use super::super::{Language, lines};

    fn count(text: &str) -> usize {
        lines(Language::Python.tokens(text).iter().filter(|token| token.is_code()))
    }

    #[test]
    fn docstrings_and_comments_are_no_code() {
        assert_eq!(count("\"\"\"A\n\nb # c\"\"\"\nimport d  # e\n\n# f\ndef g():\n    'h'\n"), 2);
    }

    #[test]
    fn strings_that_are_used_are_code() {
        assert_eq!(count("a = '''#\nb\n'''\nc(\n    'd'\n)\n'e'.f()\n"), 7);
        assert_eq!(count("a = '\\'#' # '\n"), 1);
    }
}
