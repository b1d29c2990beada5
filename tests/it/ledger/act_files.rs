//! The files of the acts in Postgres: what is compared where, and how long a function is.

use std::path::Path;

use regex::Regex;

/// The files, by name, without comments; and with them.
fn files() -> Vec<(String, String, String)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../schema/postgres/acts");
    let comment = Regex::new("--[^\n]*").expect("a pattern");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let files: Vec<_> = entries
        .map(|entry| {
            let entry = entry.expect("an entry");
            let text = std::fs::read_to_string(entry.path()).expect("text");
            let name = entry.file_name().into_string().expect("a name");
            (name, comment.replace_all(&text, "").into_owned(), text)
        })
        .collect();
    assert!(files.len() > 10, "{}", files.len());
    files
}

/// What judges by a token or by how a lock stands. Tokens may be looked up, by `=`, anywhere.
const JUDGING: [&str; 4] = [
    r"\.hold(::text)?\s*(=|<|>|IN\b|NOT\b|IS\b)",
    r"(^|[^.\w])hold\s*(<|>|IN\b|NOT\b)",
    r"token\w*(\[\w+\])?\s*(<|>)",
    r"(<|>)=?\s*[\w.\[\]]*(token|floor)\b",
];

#[test]
fn only_the_rule_compares_tokens_and_reads_how_a_lock_stands() {
    for pattern in JUDGING {
        let pattern = Regex::new(pattern).expect("a pattern");
        let found = |name: &str| {
            let files = files();
            let lines =
                files.iter().filter(|(file, ..)| (file == "rule.sql") == (name == "rule.sql"));
            let lines = lines.flat_map(|(file, text, _)| {
                let lines = text.lines().filter(|line| pattern.is_match(line));
                lines.map(|line| format!("{file}: {}", line.trim())).collect::<Vec<_>>()
            });
            lines.collect::<Vec<_>>()
        };
        assert_eq!(found("another"), [""; 0], "{pattern}");
    }
    let rule = files().into_iter().find(|(file, ..)| file == "rule.sql").expect("it is there").1;
    let seen = JUDGING.iter().filter(|it| Regex::new(it).expect("a pattern").is_match(&rule));
    assert_eq!(seen.count(), 3, "the patterns find what they look for, where it may be");
}

/// A function that one can see at once; and of one that is not short, its steps.
#[test]
fn functions_are_short_and_those_that_are_not_have_numbered_steps() {
    let head = Regex::new(r"(?m)^CREATE (?:OR REPLACE )?FUNCTION (\S+?)\(").expect("a pattern");
    let mut seen = 0;
    for (file, _, text) in files() {
        for found in head.captures_iter(&text) {
            let (whole, name) = (found.get(0).expect("it matched"), &found[1]);
            let above = text[..whole.start()].rsplit("\n\n").next().expect("a part");
            let rest = &text[whole.start()..];
            let lines = rest.find("$$;").map(|end| rest[..end].lines().count());
            let lines = lines.unwrap_or_else(|| panic!("{file}: {name} has no end"));
            assert!(lines <= 120, "{file}: {name} has {lines} lines");
            assert!(lines <= 55 || above.contains("\n-- 1. "), "{file}: {name} names no steps");
            seen += 1;
        }
    }
    assert!(seen > 80, "{seen} functions");
}
