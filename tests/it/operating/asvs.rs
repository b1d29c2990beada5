//! The table of `docs/asvs.md`: each test that it names is there.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::fs;
use std::path::Path;

use regex::Regex;

/// The text of all Rust files below a folder.
fn sources(folder: &Path, text: &mut String) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            sources(&path, text);
        } else if path.extension().is_some_and(|it| it == "rs") {
            *text += &fs::read_to_string(&path).unwrap();
        }
    }
}

#[test]
fn each_row_names_a_test_that_is_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut text = String::new();
    for folder in ["gateway", "tests/it", "tests/src"] {
        sources(&root.join(folder), &mut text);
    }
    let page = fs::read_to_string(root.join("docs/asvs.md")).unwrap();
    let rows: Vec<&str> = page.lines().filter(|line| line.starts_with('|')).skip(2).collect();
    assert!(rows.len() > 20, "the table is there");
    let name = Regex::new("`([a-z]+_[a-z0-9_]+)`").unwrap();
    for row in rows {
        let (_, tests) = row.trim_end_matches('|').rsplit_once('|').unwrap();
        let named: Vec<&str> = name.captures_iter(tests).map(|it| it.extract::<1>().1[0]).collect();
        assert!(!named.is_empty(), "no test: {row}");
        for test in named {
            assert!(text.contains(&format!("fn {test}(")), "there is no {test}: {row}");
        }
    }
}
