//! Finds the waits of the tests.

use std::collections::BTreeMap;

use super::{Place, holders};
use crate::items;
use crate::lex::{Kind, Language, Token};
use crate::tree::Source;

pub fn find(sources: &[Source]) -> BTreeMap<Place, usize> {
    let mut found = BTreeMap::new();
    for source in sources.iter().filter(|source| is_looked_at(&source.path)) {
        let tokens = source.language.tokens(&source.text);
        let code: Vec<Token<'_>> = tokens.into_iter().filter(Token::is_code).collect();
        let waits: Vec<_> = (0..code.len()).map(|at| waits(&code, at)).collect();
        if waits.iter().all(|(count, _)| *count == 0) {
            continue;
        }
        let holders = match source.language {
            Language::Python => holders::by_indent(&code, &source.text),
            Language::Script => holders::by_statement(&code, &source.text),
            Language::Rust | Language::Sql => items::holders(&code),
        };
        for (holder, (count, kind)) in holders.into_iter().zip(waits) {
            if count > 0 {
                let function = if holder.is_empty() { "-" } else { holder }.to_owned();
                let place = Place { path: source.path.clone(), function, kind: kind.to_owned() };
                *found.entry(place).or_default() += count;
            }
        }
    }
    found
}

/// Whether a file is one of the tests. This crate names waits, and has none.
fn is_looked_at(path: &str) -> bool {
    let of_clients = path.starts_with("clients/conformance/") || path.contains("/tests/");
    path.starts_with("tests/") && !path.starts_with("tests/house/")
        || path.starts_with("clients/") && of_clients
}

/// How many waits begin with this token, and of which kind: `sleep(`, `sleep_until(`, `setTimeout(`,
/// `elapsed() <`, and those in a literal, which another program runs.
fn waits(code: &[Token<'_>], at: usize) -> (usize, &'static str) {
    let next = |ahead: usize| code.get(at + ahead).map_or("", |token| token.text);
    let defined = at > 0 && matches!(code[at - 1].text, "fn" | "def" | "function");
    match (code[at].kind, code[at].text) {
        (Kind::Text, text) => {
            (text.matches("sleep(").count() + text.matches("setTimeout(").count(), "sleep")
        }
        (Kind::Word, "sleep" | "sleep_until" | "setTimeout") => {
            (usize::from(next(1) == "(" && !defined), "sleep")
        }
        (Kind::Word, "elapsed") => {
            (usize::from((next(1), next(2), next(3)) == ("(", ")", "<")), "elapsed")
        }
        _ => (0, ""),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Held = Vec<(String, String, usize)>;

    fn found(path: &str, text: &str) -> Held {
        let sources: Vec<_> = Source::new(path, text.to_owned()).into_iter().collect();
        let found = find(&sources).into_iter();
        found.map(|(place, count)| (place.function, place.kind, count)).collect()
    }

    fn held(holders: &[(&str, &str, usize)]) -> Held {
        let owned = |(function, kind, count): &(&str, &str, usize)| {
            ((*function).to_owned(), (*kind).to_owned(), *count)
        };
        holders.iter().map(owned).collect()
    }

    #[test]
    fn waits_of_rust_are_found() {
        let text = "fn sleep(a: u8) { b.sleep(a); thread::sleep(a) } // sleep(
            fn c() { sleep_until(d); run(\"pg_sleep(1)\");
                e.elapsed() < f || e.elapsed() <= g || e.elapsed() > h }";
        let expected = held(&[("c", "elapsed", 2), ("c", "sleep", 2), ("sleep", "sleep", 2)]);
        assert_eq!(found("tests/it/a.rs", text), expected);
        assert_eq!(found("clients/conformance/src/a.rs", text), expected);
        assert_eq!(found("clients/rust/tests/a.rs", text), expected);
        assert_eq!(found("clients/rust/src/a.rs", text), []);
        assert_eq!(found("gateway/s3/tests/a.rs", text), []);
    }

    #[test]
    fn waits_of_python_are_found() {
        let text = "\
time.sleep(1)
def a():
    async def b():
        await asyncio.sleep(
2)
    time.sleep(3)
# sleep(4)
sleep(5)
";
        let expected = held(&[("-", "sleep", 2), ("a", "sleep", 1), ("b", "sleep", 1)]);
        assert_eq!(found("clients/python/tests/a.py", text), expected);
    }

    #[test]
    fn waits_of_typescript_are_found() {
        let text = "\
import { setTimeout as sleep } from 'b';
test(\"c d\", async () => {
  await sleep(1);
  e(() => {
setTimeout(f, 2) });
});
export const g = async () => {
  await sleep(3);
};
";
        let expected = held(&[("c d", "sleep", 2), ("g", "sleep", 1)]);
        assert_eq!(found("tests/ui/tests/a.test.mjs", text), expected);
    }
}
