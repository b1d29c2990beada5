//! Counts a tree.

use std::collections::{BTreeMap, BTreeSet};

use crate::items;
use crate::lex::{Language, Token, lines};
use crate::place::{self, Section};
use crate::tree::Source;

/// Words that no doc comment begins with: those that name neither a thing nor what it does.
const NOT_FIRST: [&str; 11] = [
    "what", "whoever", "somebody", "someone", "it", "how", "who", "whether", "that", "where",
    "when",
];

/// A doc comment that begins with one of those words.
#[derive(Debug)]
pub struct Doc {
    pub place: String,
    pub word: String,
    pub line: String,
}

/// The functions of a folder of tests.
#[derive(Debug, Default, Clone, Copy)]
pub struct Functions {
    pub tests: usize,
    pub helpers: usize,
}

/// What a tree is counted to be.
#[derive(Debug, Default)]
pub struct Count {
    pub lines: BTreeMap<(Section, String), usize>,
    /// Files of production code and of clients that are written by hand, the longest first.
    pub files: Vec<(usize, String)>,
    /// Doc comments by their section: all, and those whose first word is wrong.
    pub docs: BTreeMap<Section, usize>,
    pub wrong_docs: Vec<(Section, Doc)>,
    pub functions: BTreeMap<String, Functions>,
}

/// A file, and its tokens.
type Read<'a> = (&'a Source, Vec<Token<'a>>);

pub fn count(sources: &[Source]) -> Count {
    let counted = sources.iter().filter(|source| place::is_counted(source));
    let read: Vec<Read<'_>> =
        counted.map(|source| (source, source.language.tokens(&source.text))).collect();
    let rust = read.iter().filter(|(source, _)| source.language == Language::Rust);
    let mut splits: Vec<_> = rust.map(|(source, tokens)| (*source, items::split(tokens))).collect();
    let only_tests = place::only_tests(&splits);
    let mut count = Count { functions: functions(&read), ..Count::default() };
    let mut splits = splits.drain(..);
    for (source, tokens) in &read {
        let (section, part) = place::of(source, &only_tests);
        let split = if source.language == Language::Rust {
            splits.next().map(|(_, split)| split)
        } else {
            None
        };
        let split = split.unwrap_or_else(|| items::Split {
            production: tokens.iter().filter(|token| token.is_code()).copied().collect(),
            tests: Vec::new(),
        });
        let (production, tests) = (lines(&split.production), lines(&split.tests));
        *count.lines.entry((section, part.clone())).or_default() += production;
        if tests > 0 {
            *count.lines.entry((Section::Tests, part)).or_default() += tests;
        }
        if matches!(section, Section::Production | Section::Clients) {
            count.files.push((production, source.path.clone()));
        }
        if section != Section::Generated {
            count.add_docs(section, source, tokens);
        }
    }
    count.files.sort_by(|one, other| other.cmp(one));
    count
}

impl Count {
    /// The lines of a section.
    pub fn total(&self, section: Section) -> usize {
        self.lines.iter().filter(|((of, _), _)| *of == section).map(|(_, lines)| lines).sum()
    }

    fn add_docs(&mut self, section: Section, source: &Source, tokens: &[Token<'_>]) {
        for (word, line, text) in place::docs(tokens) {
            *self.docs.entry(section).or_default() += 1;
            if NOT_FIRST.contains(&word.as_str()) {
                let place = format!("{}:{}", source.path, line + 1);
                self.wrong_docs.push((section, Doc { place, word, line: text.to_owned() }));
            }
        }
    }
}

/// The functions below `tests`, by folder. A test has the attribute of one, or is listed in its crate by a macro that
/// makes tests.
fn functions(read: &[Read<'_>]) -> BTreeMap<String, Functions> {
    let files = read.iter().filter(|(source, _)| {
        source.language == Language::Rust && source.path.starts_with("tests/")
    });
    let files: Vec<(&str, Vec<Token<'_>>)> = files
        .map(|(source, tokens)| {
            (source.path.as_str(), tokens.iter().filter(|token| token.is_code()).copied().collect())
        })
        .collect();
    let makers: Vec<&str> = files.iter().flat_map(|(_, code)| items::makers(code)).collect();
    let listed: BTreeSet<(&str, &str)> = files
        .iter()
        .flat_map(|(path, code)| {
            items::listed(code, &makers).into_iter().map(|name| (package(path), name))
        })
        .collect();
    let mut functions: BTreeMap<String, Functions> = BTreeMap::new();
    for (path, code) in &files {
        let of_folder = functions.entry(folder(path)).or_default();
        for function in items::functions(code) {
            match function.is_test || listed.contains(&(package(path), function.name)) {
                true => of_folder.tests += 1,
                false => of_folder.helpers += 1,
            }
        }
    }
    functions
}

/// The crate of a file below `tests`: a folder of its own, or `tests` itself.
fn package(path: &str) -> &str {
    match path.split('/').nth(1).unwrap_or_default() {
        "it" | "src" => "",
        package => package,
    }
}

/// The folder under which the functions of a file are counted.
fn folder(path: &str) -> String {
    let folders: Vec<&str> = path.split('/').collect();
    let depth = if package(path).is_empty() { 3 } else { 2 };
    folders[..depth.min(folders.len() - 1)].join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> Vec<Source> {
        files.iter().filter_map(|(path, text)| Source::new(path, (*text).to_owned())).collect()
    }

    #[test]
    fn lines_go_to_their_section() {
        let count = count(&tree(&[
            (
                "gateway/src/lib.rs",
                "//! A gateway.\nmod a;\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\n",
            ),
            ("gateway/src/a.rs", "fn c() {\n\n    d(); // e\n}\n#[cfg(test)]\nmod checks;\n"),
            ("gateway/src/a/checks.rs", "fn f() {}\n"),
            ("gateway/ui/app.js", "g();\n"),
            ("schema/postgres/acts/h.sql", "-- i\nSELECT 1;\n"),
            ("clients/python/src/j.py", "k()\nl()\n"),
            ("clients/python/src/m.py", "# Made by scripts/unasync.py\nk()\n"),
        ]));
        let of = |section| count.lines.iter().filter(move |((of, _), _)| *of == section);
        let parts = |section| {
            of(section).map(|((_, part), lines)| (part.as_str(), *lines)).collect::<Vec<_>>()
        };
        assert_eq!(parts(Section::Production), [("gateway", 4), ("schema/postgres", 1)]);
        assert_eq!(parts(Section::Clients), [("clients/python", 2)]);
        assert_eq!(parts(Section::Generated), [("clients/python", 1)]);
        assert_eq!(parts(Section::Tests), [("gateway", 7)]);
        assert_eq!(count.files[0], (3, "gateway/src/a.rs".to_owned()));
    }

    #[test]
    fn doc_comments_with_a_wrong_first_word_are_listed() {
        let count = count(&tree(&[(
            "gateway/src/a.rs",
            "/// Names a.\nfn b() {}\n/// What c is.\nfn d() {}\n",
        )]));
        assert_eq!(count.docs[&Section::Production], 2);
        let wrong: Vec<_> = count
            .wrong_docs
            .iter()
            .map(|(_, doc)| (doc.place.as_str(), doc.word.as_str()))
            .collect();
        assert_eq!(wrong, [("gateway/src/a.rs:3", "what")]);
    }

    #[test]
    fn functions_of_tests_are_told_from_helpers() {
        let count = count(&tree(&[
            (
                "tests/it/setup.rs",
                "macro_rules! on_both { ($($n:ident),+) => { $(#[tokio::test] async fn $n() {})+ } }",
            ),
            (
                "tests/it/locks/a.rs",
                "on_both!(one, two); async fn one() {} async fn two() {} async fn help() {}",
            ),
            ("tests/src/conformance/b.rs", "pub async fn one() {}"),
            ("tests/chaos/src/c.rs", "fn one() {} #[test] fn three() {}"),
        ]));
        let found: Vec<_> = count
            .functions
            .iter()
            .map(|(folder, of)| (folder.as_str(), of.tests, of.helpers))
            .collect();
        let expected = [
            ("tests/chaos", 1, 1),
            ("tests/it", 0, 0),
            ("tests/it/locks", 2, 1),
            ("tests/src/conformance", 1, 0),
        ];
        assert_eq!(found, expected);
    }
}
