//! Commands that pages, help and errors print for copying: the real command lines take their words.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::process::Command;

use super::binary;

/// Where commands stand, each with the ends of the names of its files.
const PLACES: &[(&str, &[&str])] = &[
    ("README.md", &[".md"]),
    ("docs", &[".md"]),
    ("deploy", &[".md", ".yml", ".yaml", ".json", ".jsonnet", ".service"]),
    ("clients", &["README.md", ".rs"]),
    ("gateway/src", &[".rs"]),
    ("gateway/ui", &[".js"]),
];
/// Programs that the tests of the page's dialogs run.
const RUN_ELSEWHERE: &[&str] = &["gateway/ui/parts/actions.js", "gateway/ui/parts/jobactions.js"];
/// Placeholders that people fill in.
const FILLED: &str = "1";
/// No fewer commands are found than this: otherwise the search is at fault.
const LEAST: usize = 150;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

fn files_in(path: &Path, ends: &[&str], found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in std::fs::read_dir(path).unwrap() {
            let path = entry.unwrap().path();
            let skipped = ["node_modules", "target", "tests", "vendor", "decisions"];
            if !skipped.contains(&path.file_name().unwrap().to_str().unwrap_or_default()) {
                files_in(&path, ends, found);
            }
        }
    } else if ends.iter().any(|end| path.to_string_lossy().ends_with(end)) {
        found.push(path.to_owned());
    }
}

/// A text with what is filled in, `{}` of Rust and `${}` of JavaScript, replaced by a word.
fn filled(text: &str) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, behind)) = rest.split_once('{') {
        filled.push_str(before);
        let end = behind.find(['{', '}', '`', '\n', '<']);
        match end.filter(|end| behind[*end..].starts_with('}')) {
            Some(end) => {
                filled.truncate(filled.trim_end_matches('$').len());
                filled.push_str(FILLED);
                rest = &behind[end + 1..];
            }
            None => {
                filled.push('{');
                rest = behind;
            }
        }
    }
    filled + rest
}

/// The words of a command as a shell would have them, up to its end: an operator, a comment, `--`, or the quote that it stands in.
fn words(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut quote = None;
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match (letter, quote) {
            (_, Some(open)) if letter == open => quote = None,
            (_, Some(_)) => words.last_mut().unwrap().push(letter),
            ('\'' | '"', None)
                if words.last().unwrap().is_empty() || words.last().unwrap().ends_with('=') =>
            {
                quote = Some(letter);
            }
            ('\\', None) if letters.peek() == Some(&'\n') => {
                letters.next();
            }
            ('|' | '&' | ';' | ')' | '>' | '`' | '"' | '\'' | '\n' | '<' | '\\' | '…', None) => {
                break;
            }
            ('#', None) if words.last().unwrap().is_empty() => break,
            (' ', None) if words.last().unwrap() == "--" => break,
            // A stream that is sent elsewhere, such as `2>`.
            ('0'..='9', None)
                if words.last().unwrap().is_empty() && letters.peek() == Some(&'>') =>
            {
                break;
            }
            // A second column of a drawing, or a comment.
            (' ', None) if letters.peek() == Some(&' ') => break,
            (' ', None) => words.push(String::new()),
            _ => words.last_mut().unwrap().push(letter),
        }
    }
    words.retain(|word| !word.is_empty());
    let is_end = |word: &String| word == "--" || word == "..." || word.starts_with('[');
    if let Some(end) = words.iter().position(is_end) {
        words.truncate(end);
    }
    words
}

/// The commands of a line: those that begin it, and those behind a backtick.
fn commands_in(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    for program in ["fence ", "fencegate "] {
        for (at, _) in text.match_indices(program) {
            let before = text[..at].rsplit('\n').next().unwrap_or_default();
            let is_in_block = text[..at].matches("```").count() % 2 == 1;
            let marks = ["`", "$ ", "\"$(", "<code>"];
            let begins = marks.iter().any(|it| before.ends_with(it))
                || (is_in_block && before.ends_with("| "));
            let is_line = before.trim().is_empty();
            if begins
                || (is_line
                    && (is_in_block
                        || text[at..].lines().next().is_some_and(|line| line.contains(" -"))))
            {
                found.push(words(&text[at..]));
            }
        }
    }
    found
}

/// Tells if an option was only named, or has a placeholder such as NAME for its value.
fn is_only_named(said: &str) -> bool {
    let value = said.split_once("invalid value '").and_then(|(_, rest)| rest.split_once('\''));
    said.contains("a value is required for")
        || value.is_some_and(|(value, _)| {
            value == FILLED || value.chars().all(|it| it.is_ascii_uppercase())
        })
}

/// An option of another program, or prose that begins like a command, would be refused here too: only what has a known
/// command is asked.
#[tokio::test]
async fn each_printed_command_is_taken_by_the_real_command_line() {
    let gateway = fence_tests::gateway::binary();
    let mut wrong = BTreeSet::new();
    let mut asked = BTreeSet::new();
    for (place, ends) in PLACES {
        let mut files = Vec::new();
        files_in(&root().join(place), ends, &mut files);
        assert!(!files.is_empty(), "{place}");
        for file in files {
            let name = file.strip_prefix(root()).unwrap().display().to_string();
            if RUN_ELSEWHERE.contains(&name.as_str()) {
                continue;
            }
            let text = std::fs::read_to_string(&file).unwrap();
            let text = if name.ends_with(".md") { text } else { filled(&text) };
            for words in commands_in(&text) {
                let [program, rest @ ..] = words.as_slice() else { continue };
                let is_command = rest
                    .first()
                    .is_some_and(|it| it.chars().all(|it| it.is_ascii_lowercase() || it == '-'));
                if !is_command || !asked.insert(words.clone()) {
                    continue;
                }
                let path = if program == "fence" { binary() } else { gateway.clone() };
                // Help comes before anything is done, and behind all words that were not understood.
                let mut call = Command::new(path);
                call.args(rest).arg("--help").stdin(Stdio::null());
                let output = call.output().await.unwrap();
                let said = String::from_utf8_lossy(&output.stderr);
                let said = said.lines().next().unwrap_or_default().to_owned();
                if !output.status.success() && !is_only_named(&said) {
                    wrong.insert(format!("{name}: {}: {said}", words.join(" ")));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.into_iter().collect::<Vec<_>>().join("\n"));
    assert!(asked.len() >= LEAST, "{} commands: {asked:?}", asked.len());
}
