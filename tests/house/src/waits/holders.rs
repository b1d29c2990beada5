//! Tells which function of Python, and which statement of TypeScript, holds a token.

use crate::lex::{Kind, Token};

/// For each token of Python, the innermost function that holds it; empty outside of functions.
pub fn by_indent<'a>(code: &[Token<'a>], text: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = text.split('\n').collect();
    let mut open: Vec<(usize, &str)> = Vec::new();
    let (mut depth, mut last) = (0, usize::MAX);
    let mut holders = Vec::with_capacity(code.len());
    for (at, token) in code.iter().enumerate() {
        let indent = lines[token.line].len() - lines[token.line].trim_start().len();
        if depth == 0 && token.line != last {
            open.retain(|(of, _)| *of < indent);
        }
        last = token.line + token.text.matches('\n').count();
        holders.push(open.last().map_or("", |(_, name)| *name));
        if token.text == "def"
            && let Some(name) = code.get(at + 1)
        {
            open.push((indent, name.text));
        }
        depth += change_of_depth(token);
    }
    holders
}

/// For each token of TypeScript, the name of the outermost statement that holds it; of a call like `test("...", ...)`,
/// the words of its literal.
pub fn by_statement<'a>(code: &[Token<'a>], text: &str) -> Vec<&'a str> {
    let lines: Vec<&str> = text.split('\n').collect();
    let (mut depth, mut holder) = (0, "");
    let mut holders = Vec::with_capacity(code.len());
    for (at, token) in code.iter().enumerate() {
        let is_first = at == 0 || code[at - 1].line < token.line;
        if depth == 0
            && is_first
            && token.kind == Kind::Word
            && lines[token.line].starts_with(token.text)
        {
            holder = name(&code[at..]);
        }
        holders.push(holder);
        depth += change_of_depth(token);
    }
    holders
}

fn name<'a>(statement: &[Token<'a>]) -> &'a str {
    let leading = ["export", "default", "async", "await", "const", "let", "function", "class"];
    let mut rest = statement.iter().skip_while(|token| leading.contains(&token.text));
    let name = rest.next().map_or("", |token| token.text);
    let literal =
        rest.nth(1).filter(|token| token.kind == Kind::Text && matches!(name, "test" | "it"));
    literal.map_or(name, |token| token.text.trim_matches(['"', '\'', '`']))
}

fn change_of_depth(token: &Token<'_>) -> i32 {
    match token.text {
        "(" | "[" | "{" => 1,
        ")" | "]" | "}" => -1,
        _ => 0,
    }
}
