//! Splits source text into tokens, as far as counting needs it: the parsers of four languages would be slower than the
//! whole run may be, and two of them drop comments.

mod python;
mod rust;
mod script;
mod sql;

/// The languages whose lines are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Rust,
    Sql,
    Python,
    /// TypeScript and JavaScript.
    Script,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A name, a keyword, a number, a lifetime.
    Word,
    /// One character of punctuation.
    Mark,
    /// A literal in quotes, or a regular expression.
    Text,
    Comment,
    /// A doc comment, or a docstring.
    Doc,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Token<'a> {
    pub kind: Kind,
    pub text: &'a str,
    /// The line on which it begins; the first is 0.
    pub line: usize,
}

impl Token<'_> {
    pub fn is_code(&self) -> bool {
        !matches!(self.kind, Kind::Comment | Kind::Doc)
    }
}

impl Language {
    pub fn of(path: &str) -> Option<Self> {
        match path.rsplit_once('.')?.1 {
            "rs" => Some(Self::Rust),
            "sql" => Some(Self::Sql),
            "py" => Some(Self::Python),
            "ts" | "mts" | "js" | "mjs" => Some(Self::Script),
            _ => None,
        }
    }

    pub fn tokens(self, text: &str) -> Vec<Token<'_>> {
        let mut cursor = Cursor { text, at: 0, end: text.len(), line: 0, tokens: Vec::new() };
        match self {
            Self::Rust => rust::read(&mut cursor),
            Self::Sql => sql::read(&mut cursor),
            Self::Python => python::read(&mut cursor),
            Self::Script => script::read(&mut cursor),
        }
        cursor.tokens
    }
}

/// Counts the lines that hold some of these tokens, which are in the order of the text.
pub fn lines<'a>(tokens: impl IntoIterator<Item = &'a Token<'a>>) -> usize {
    let (mut count, mut free) = (0, 0);
    for token in tokens {
        for (line, text) in (token.line..).zip(token.text.split('\n')) {
            if line >= free && !text.trim().is_empty() {
                count += 1;
                free = line + 1;
            }
        }
    }
    count
}

/// A text, and how far it is read.
struct Cursor<'a> {
    text: &'a str,
    at: usize,
    end: usize,
    line: usize,
    tokens: Vec<Token<'a>>,
}

impl<'a> Cursor<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..self.end]
    }

    /// Skips blanks, and returns the next character with all that follows.
    fn next(&mut self) -> Option<(char, &'a str)> {
        let rest = self.rest();
        let blanks = rest.len() - rest.trim_start().len();
        self.skip(blanks);
        self.rest().chars().next().map(|first| (first, self.rest()))
    }

    fn skip(&mut self, bytes: usize) {
        let skipped = &self.rest()[..bytes];
        self.line += skipped.bytes().filter(|byte| *byte == b'\n').count();
        self.at += bytes;
    }

    fn take(&mut self, kind: Kind, bytes: usize) {
        self.tokens.push(Token { kind, text: &self.rest()[..bytes], line: self.line });
        self.skip(bytes);
    }

    /// Takes a word or, where none begins, one character.
    fn take_plain(&mut self, first: char) {
        match word_len(self.rest()) {
            0 => self.take(Kind::Mark, first.len_utf8()),
            bytes => self.take(Kind::Word, bytes),
        }
    }
}

/// The length of the word that the text begins with.
fn word_len(text: &str) -> usize {
    text.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(text.len())
}

/// The length of the text up to this, and including it.
fn len_through(text: &str, from: usize, end: &str) -> usize {
    text[from..].find(end).map_or(text.len(), |at| from + at + end.len())
}

/// The length of the line that the text begins with.
fn line_len(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

/// The length of a comment that may hold others of its kind.
fn nested_len(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match &bytes[at..bytes.len().min(at + 2)] {
            b"/*" => (depth, at) = (depth + 1, at + 2),
            b"*/" if depth == 1 => return at + 2,
            b"*/" => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
    }
    text.len()
}

/// The length of a literal that begins and ends with this quote, in which a backslash escapes.
fn quoted_len(text: &str, quote: &str) -> usize {
    let mut at = quote.len();
    let bytes = text.as_bytes();
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            _ if bytes[at..].starts_with(quote.as_bytes()) => return at + quote.len(),
            _ => at += 1,
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn languages_are_known_by_the_end_of_the_name() {
        assert_eq!(Language::of("a/b.rs"), Some(Language::Rust));
        assert_eq!(Language::of("rig.test.mjs"), Some(Language::Script));
        assert_eq!(Language::of("Makefile"), None);
        assert_eq!(Language::of("notes.md"), None);
    }

    #[test]
    fn a_line_is_counted_once_and_a_blank_one_never() {
        let tokens = Language::Rust.tokens("a b\n\nc \"d\n\n  e\" f\n// g\n");
        assert_eq!(lines(tokens.iter().filter(|token| token.is_code())), 3);
    }

    #[test]
    fn what_does_not_end_ends_with_the_text() {
        for text in ["/* a", "\"a\\", "r#\"a\"", "'", "`${", "$$ a", "'''a", "/"] {
            for language in [Language::Rust, Language::Sql, Language::Python, Language::Script] {
                let tokens = language.tokens(text);
                let read: String = tokens.iter().map(|token| token.text).collect();
                assert_eq!(read.replace(' ', ""), text.replace(' ', ""), "{language:?}");
            }
        }
    }
}
