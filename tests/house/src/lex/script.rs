//! TypeScript and JavaScript.

use super::{Cursor, Kind, len_through, line_len, quoted_len};

pub fn read(cursor: &mut Cursor<'_>) {
    while let Some((first, rest)) = cursor.next() {
        if rest.starts_with("//") {
            cursor.take(Kind::Comment, line_len(rest));
        } else if rest.starts_with("/*") {
            let doc = rest.starts_with("/**") && !rest.starts_with("/**/");
            cursor.take(if doc { Kind::Doc } else { Kind::Comment }, len_through(rest, 2, "*/"));
        } else if first == '"' || first == '\'' {
            cursor.take(Kind::Text, quoted_len(rest, &rest[..1]));
        } else if first == '`' {
            cursor.take(Kind::Text, template_len(rest));
        } else if let Some(bytes) = regex_len(cursor, rest) {
            cursor.take(Kind::Text, bytes);
        } else {
            cursor.take_plain(first);
        }
    }
}

/// The length of a template, in which `${...}` holds code and so other templates.
fn template_len(text: &str) -> usize {
    let bytes = text.as_bytes();
    let mut at = 1;
    // For each template that is open, how many braces are open in its code; none in its text.
    let mut open: Vec<usize> = vec![0];
    while let (Some(byte), Some(braces)) = (bytes.get(at), open.last_mut()) {
        let in_text = *braces == 0;
        match byte {
            b'\\' => at += 1,
            b'`' if in_text => drop(open.pop()),
            b'`' => open.push(0),
            b'$' if in_text && bytes.get(at + 1) == Some(&b'{') => (*braces, at) = (1, at + 1),
            b'{' if !in_text => *braces += 1,
            b'}' if !in_text => *braces -= 1,
            b'"' | b'\'' if !in_text => at += quoted_len(&text[at..], &text[at..=at]) - 1,
            _ => {}
        }
        at += 1;
    }
    at.min(text.len())
}

/// The length of a regular expression; `None` where a slash divides, or is none.
fn regex_len(cursor: &Cursor<'_>, text: &str) -> Option<usize> {
    let divides = cursor.tokens.iter().rfind(|token| token.is_code()).is_some_and(|before| {
        match before.kind {
            Kind::Word => !matches!(before.text, "return" | "case" | "of" | "in" | "typeof"),
            Kind::Mark => matches!(before.text, ")" | "]" | "}"),
            _ => true,
        }
    });
    if divides || !text.starts_with('/') {
        return None;
    }
    let mut in_class = false;
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            '\\' => drop(chars.next()),
            '[' => in_class = true,
            ']' => in_class = false,
            '/' if !in_class => return Some(at + 1),
            '\n' => return None,
            _ => {}
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::super::{Language, lines};

    fn code(text: &str) -> Vec<&str> {
        let tokens = Language::Script.tokens(text);
        tokens.iter().filter(|token| token.is_code()).map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_no_code() {
        let text = "/** a */\nb(); // c\n/* d\n/* e */\nf\n";
        assert_eq!(code(text), ["b", "(", ")", ";", "f"]);
        assert_eq!(lines(Language::Script.tokens(text).iter().filter(|token| token.is_code())), 2);
    }

    #[test]
    fn templates_hold_code_that_holds_templates() {
        assert_eq!(code("`a // ${b({c: `}`})} \\` d` e"), ["`a // ${b({c: `}`})} \\` d`", "e"]);
        assert_eq!(code("`${'`'}` f"), ["`${'`'}`", "f"]);
    }

    #[test]
    fn a_slash_begins_a_regular_expression_or_divides() {
        assert_eq!(code("x = /[/'\"]\\//; y"), ["x", "=", "/[/'\"]\\//", ";", "y"]);
        assert_eq!(code("a / b; c) / 'd'"), ["a", "/", "b", ";", "c", ")", "/", "'d'"]);
    }
}
