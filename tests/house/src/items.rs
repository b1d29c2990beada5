//! What a file of Rust consists of: items for tests and others, modules, functions.

use crate::lex::{Kind, Token};

/// A file of Rust, cut in two. Comments are left out.
#[derive(Debug, Default)]
pub struct Split<'a> {
    pub production: Vec<Token<'a>>,
    pub tests: Vec<Token<'a>>,
}

/// A function, and whether a test runner calls it.
#[derive(Debug, PartialEq, Eq)]
pub struct Function<'a> {
    pub name: &'a str,
    pub is_test: bool,
}

/// Cuts a file at the items that only a build of tests has.
pub fn split<'a>(tokens: &[Token<'a>]) -> Split<'a> {
    let code: Vec<_> = tokens.iter().filter(|token| token.is_code()).copied().collect();
    let mut split = Split::default();
    let mut at = 0;
    while at < code.len() {
        let (item, attributes) = attributes(&code, at);
        if attributes.iter().any(|attribute| is_inner(attribute) && is_for_tests(attribute)) {
            split.tests.extend(&code[at..]);
            break;
        }
        let is_test = attributes.iter().any(|attribute| is_for_tests(attribute));
        let end = if is_test { item_end(&code, item) } else { item.max(at + 1) };
        let half = if is_test { &mut split.tests } else { &mut split.production };
        half.extend(&code[at..end]);
        at = end;
    }
    split
}

/// Names the modules that have files of their own.
pub fn modules<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let declared = code.windows(3).filter(|of| of[0].text == "mod" && of[2].text == ";");
    declared.map(|of| of[1].text).collect()
}

/// Lists the functions that have a body, macros apart: those are written once for many.
pub fn functions<'a>(code: &[Token<'a>]) -> Vec<Function<'a>> {
    let mut functions = Vec::new();
    let mut is_test = false;
    let mut at = 0;
    while at < code.len() {
        if is_macro(code, at) {
            at = item_end(code, at);
            continue;
        }
        let (item, attributes) = attributes(code, at);
        if item > at {
            is_test = attributes.iter().any(|attribute| runs(attribute));
            at = item;
            continue;
        }
        match code[at].text {
            "fn" if has_name(code, at) => {
                if body(code, at).is_some() {
                    functions.push(Function { name: code[at + 1].text, is_test });
                }
                is_test = false;
            }
            "{" | "}" | ";" => is_test = false,
            _ => {}
        }
        at += 1;
    }
    functions
}

/// Lists what is named in calls of the macros that make tests, as `on_both!(a, b)` does; a name before `{` or `::` is
/// a module.
pub fn listed<'a>(code: &[Token<'a>], makers: &[&str]) -> Vec<&'a str> {
    let mut names = Vec::new();
    for at in 0..code.len().saturating_sub(2) {
        if code[at + 1].text == "!"
            && makers.contains(&code[at].text)
            && "({[".contains(code[at + 2].text)
        {
            let end = group_end(code, at + 2);
            let inside = code[at + 3..end].windows(2);
            let named = inside
                .filter(|of| of[0].kind == Kind::Word && of[1].text != "{" && of[1].text != ":");
            names.extend(named.map(|of| of[0].text));
        }
    }
    names
}

/// Names the macros whose body has the attribute of a test.
pub fn makers<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let macros = (0..code.len()).filter(|at| is_macro(code, *at) && at + 3 < code.len());
    let made = macros.filter(|at| {
        let body = *at + 3..item_end(code, *at);
        body.into_iter()
            .any(|inner| attributes(code, inner).1.iter().any(|attribute| runs(attribute)))
    });
    made.map(|at| code[at + 2].text).collect()
}

/// For each token, the innermost function that holds it; empty outside of functions.
pub fn holders<'a>(code: &[Token<'a>]) -> Vec<&'a str> {
    let mut open: Vec<(usize, &str)> = Vec::new();
    let mut holders = Vec::with_capacity(code.len());
    for at in 0..code.len() {
        open.retain(|(end, _)| *end > at);
        holders.push(open.last().map_or("", |(_, name)| *name));
        if code[at].text == "fn"
            && has_name(code, at)
            && let Some(start) = body(code, at)
        {
            open.push((group_end(code, start), code[at + 1].text));
        }
    }
    holders
}

fn is_macro(code: &[Token<'_>], at: usize) -> bool {
    code[at].text == "macro_rules" && code.get(at + 1).is_some_and(|next| next.text == "!")
}

fn has_name(code: &[Token<'_>], at: usize) -> bool {
    code.get(at + 1).is_some_and(|next| next.kind == Kind::Word)
}

/// Where the body of the function begins whose `fn` is here; `None` for one that is only declared.
fn body(code: &[Token<'_>], mut at: usize) -> Option<usize> {
    while let Some(token) = code.get(at) {
        match token.text {
            "{" => return Some(at),
            ";" | "}" => return None,
            "(" | "[" => at = group_end(code, at),
            _ => at += 1,
        }
    }
    None
}

/// The attributes that begin here, and where they end.
fn attributes<'t, 'a>(code: &'t [Token<'a>], mut at: usize) -> (usize, Vec<&'t [Token<'a>]>) {
    let mut found = Vec::new();
    while code.get(at).is_some_and(|token| token.text == "#") {
        let open =
            if code.get(at + 1).is_some_and(|token| token.text == "!") { at + 2 } else { at + 1 };
        if code.get(open).is_none_or(|token| token.text != "[") {
            break;
        }
        let end = group_end(code, open);
        found.push(&code[at..end]);
        at = end;
    }
    (at, found)
}

fn is_inner(attribute: &[Token<'_>]) -> bool {
    attribute[1].text == "!"
}

/// Whether an attribute makes a function a test: `test`, or a path that ends so.
fn runs(attribute: &[Token<'_>]) -> bool {
    let path = attribute.iter().skip(2).take_while(|token| !matches!(token.text, "(" | "]" | "="));
    path.last().is_some_and(|last| last.text == "test")
}

/// Whether what has this attribute is left out of every build but that of tests.
fn is_for_tests(attribute: &[Token<'_>]) -> bool {
    let inner = &attribute[if is_inner(attribute) { 3 } else { 2 }..];
    match inner.first() {
        Some(first) if first.text == "cfg" => needs_test(&inner[2..]),
        _ => runs(attribute),
    }
}

/// Whether a condition, which the tokens begin with, holds in builds of tests only.
fn needs_test(condition: &[Token<'_>]) -> bool {
    let any = match condition.first().map(|first| first.text) {
        Some("test") => return true,
        Some("all") => true,
        Some("any") => false,
        _ => return false,
    };
    let end = group_end(condition, 1);
    let mut parts = Vec::new();
    let mut at = 2;
    while at + 1 < end {
        parts.push(needs_test(&condition[at..end]));
        while at < end && condition[at].text != "," {
            at = if condition[at].text == "(" { group_end(condition, at) } else { at + 1 };
        }
        at += 1;
    }
    if any { parts.contains(&true) } else { !parts.contains(&false) }
}

/// Where the group ends whose bracket is here.
fn group_end(code: &[Token<'_>], start: usize) -> usize {
    let mut depth = 0_usize;
    for (at, token) in code.iter().enumerate().skip(start) {
        match token.text {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" if depth <= 1 => return at + 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
    }
    code.len()
}

/// Where the item ends that begins here: with its `;`, its braces or, for a field, a variant or an arm, its comma.
fn item_end(code: &[Token<'_>], start: usize) -> usize {
    let words = code[start..].iter().map(|token| token.text);
    let first = words
        .clone()
        .find(|text| !matches!(*text, "pub" | "(" | "crate" | "super" | "in" | ")" | "self"));
    let is_fn = words.take_while(|text| !matches!(*text, "{" | ";" | "=")).any(|text| text == "fn");
    let (to_semicolon, is_item) = match first.unwrap_or_default() {
        "use" | "static" | "let" | "type" => (true, true),
        "const" => (!is_fn, true),
        "fn" | "mod" | "impl" | "struct" | "enum" | "trait" | "async" | "unsafe" | "extern"
        | "macro_rules" => (false, true),
        _ => (false, false),
    };
    let (mut at, mut angles) = (start, 0_i32);
    while let Some(token) = code.get(at) {
        match token.text {
            "(" | "[" => at = group_end(code, at),
            "{" => {
                at = group_end(code, at);
                if !to_semicolon {
                    let comma =
                        !is_item && code.get(at).is_some_and(|next| matches!(next.text, "," | ";"));
                    return at + usize::from(comma);
                }
            }
            ";" => return at + 1,
            "," if !is_item && angles == 0 => return at + 1,
            ")" | "]" | "}" => return at,
            text => {
                let arrow = at > start && matches!(code[at - 1].text, "-" | "=");
                angles += i32::from(text == "<") - i32::from(text == ">" && !arrow);
                at += 1;
            }
        }
    }
    code.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lex::Language;

    fn code(text: &str) -> Vec<Token<'_>> {
        Language::Rust.tokens(text).into_iter().filter(Token::is_code).collect()
    }

    fn production(text: &str) -> String {
        let words: Vec<_> = split(&code(text)).production.iter().map(|token| token.text).collect();
        words.join(" ")
    }

    #[test]
    fn items_for_tests_are_cut_out() {
        let text = "a; #[cfg(test)] mod tests { fn b() {} } #[cfg(test)] use c::{d, e}; f;
            #[derive(G)] #[cfg(test)] pub(crate) struct H { i: J } #[cfg(test)] const K: [u8; 2] = [1, 2]; l;
            #[test] fn m() { n() } #[tokio::test(flavor = \"x\")] async fn o<P, Q>() -> R { s } t;
            #[cfg(test)] pub mod u; #[cfg(test)] impl V for W { } x";
        assert_eq!(production(text), "a ; f ; l ; t ; x");
    }

    #[test]
    fn parts_of_items_are_cut_out() {
        let text =
            "struct A { #[cfg(test)] b: C<D, E>, f: G } match h { #[cfg(test)] I => { j } K => l,
            #[cfg(test)] M => n(o), p => q }";
        assert_eq!(
            production(text),
            "struct A { f : G } match h { K => l , p => q }".replace("=>", "= >")
        );
    }

    #[test]
    fn conditions_that_hold_elsewhere_too_cut_nothing() {
        for kept in [
            "not(test)",
            "any(test, feature = \"x\")",
            "feature = \"test\"",
            "all(unix, not(test))",
        ] {
            assert_ne!(production(&format!("#[cfg({kept})] fn a() {{}}")), "", "{kept}");
        }
        for cut in ["all(test, unix)", "all(unix, any(test))", "any(all(unix, test), test)"] {
            assert_eq!(production(&format!("#[cfg({cut})] fn a() {{}}")), "", "{cut}");
        }
        assert_eq!(production("#![cfg(test)] fn a() {}"), "");
    }

    #[test]
    fn modules_with_files_are_named() {
        assert_eq!(modules(&code("mod a; pub mod b; mod c { } use d;")), ["a", "b"]);
    }

    #[test]
    fn functions_know_whether_they_are_tests() {
        let text = "#[test] fn a() { fn b() {} } #[tokio::test] #[expect(c)] async fn d() {} fn e(f: fn(u8)) -> [u8; 2] {}
            trait G { fn h(); fn i() {} } macro_rules! j { () => { #[test] fn k() {} } }";
        let found = functions(&code(text));
        let found: Vec<_> =
            found.iter().map(|function| (function.name, function.is_test)).collect();
        assert_eq!(found, [("a", true), ("b", false), ("d", true), ("e", false), ("i", false)]);
    }

    #[test]
    fn macros_that_make_tests_list_them() {
        let text = "macro_rules! on { ($($a:ident)+) => { $(#[tokio::test] async fn $a() {})+ } }
            macro_rules! other { () => { #[expect(b)] } } on!(c, d); on! { e { f g } h::i } other!(j);";
        assert_eq!(makers(&code(text)), ["on"]);
        assert_eq!(listed(&code(text), &["on"]), ["c", "d", "f", "g", "i"]);
    }

    #[test]
    fn the_innermost_function_holds_a_token() {
        let text = "a; fn b(c: [u8; 2]) { d; fn e() { f } g } h";
        let code = code(text);
        let holders = holders(&code);
        let of = |word| holders[code.iter().position(|token| token.text == word).unwrap()];
        assert_eq!(["a", "d", "f", "g", "h"].map(of), ["", "b", "e", "b", ""]);
    }
}
