//! The files of a tree: as they lie there, or as a commit has them. What git ignores is no part of it.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail, ensure};

use crate::lex::Language;

pub const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
const FOLDERS: [&str; 4] = ["gateway", "schema", "clients", "tests"];

/// A file whose lines are counted.
#[derive(Debug)]
pub struct Source {
    pub path: String,
    pub language: Language,
    pub text: String,
}

impl Source {
    pub fn new(path: &str, text: String) -> Option<Self> {
        Some(Self { path: path.to_owned(), language: Language::of(path)?, text })
    }
}

/// Reads the files that lie there, also those that are in no commit yet.
pub fn here() -> Result<Vec<Source>> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard", "--"];
    let names = git(&[&arguments[..], &FOLDERS].concat())?;
    let mut sources = Vec::new();
    for path in names.split_terminator('\0').filter(|path| Language::of(path).is_some()) {
        let file = Path::new(ROOT).join(path);
        // The index still has what was removed a moment ago.
        if file.exists() {
            let text = fs::read_to_string(&file).with_context(|| format!("cannot read {path}"))?;
            sources.extend(Source::new(path, text));
        }
    }
    ensure!(!sources.is_empty(), "git names no file in {FOLDERS:?}");
    Ok(sources)
}

/// Reads the files of a commit.
pub fn at(commit: &str) -> Result<Vec<Source>> {
    let commit =
        git(&["rev-parse", "--verify", "--end-of-options", &format!("{commit}^{{commit}}")])?;
    let rows = git(&[&["ls-tree", "-r", "-z", commit.trim(), "--"][..], &FOLDERS].concat())?;
    let files: Vec<(&str, &str)> = rows.split_terminator('\0').filter_map(blob).collect();
    let mut child = command(&["cat-file", "--batch"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("cannot start git")?;
    let (input, output) = (child.stdin.take(), child.stdout.take());
    let (Some(mut input), Some(output)) = (input, output) else { bail!("git has no pipes") };
    let asked: String = files.iter().map(|(_, id)| format!("{id}\n")).collect();
    // Both pipes are bounded, so one thread asks while another reads.
    let asking = thread::spawn(move || input.write_all(asked.as_bytes()));
    let mut output = BufReader::new(output);
    let mut sources = Vec::new();
    for (path, _) in files {
        let text = object(&mut output).with_context(|| format!("git does not show {path}"))?;
        sources.extend(Source::new(path, text));
    }
    let asked = asking.join().ok().context("nobody asked git")?;
    asked.context("git takes no questions")?;
    ensure!(child.wait()?.success(), "git cat-file failed");
    Ok(sources)
}

/// The path and the id of a file, from `MODE TYPE ID<tab>PATH`.
fn blob(row: &str) -> Option<(&str, &str)> {
    let (facts, path) = row.split_once('\t')?;
    let mut facts = facts.split(' ').skip(1);
    let is_file = facts.next()? == "blob" && Language::of(path).is_some();
    is_file.then_some((path, facts.next()?))
}

/// Reads one object, as `ID TYPE SIZE<newline>BYTES<newline>`.
fn object(output: &mut impl BufRead) -> Result<String> {
    let mut head = String::new();
    output.read_line(&mut head)?;
    let size = head.trim_end().rsplit_once(' ').context("no size")?.1.parse::<usize>()?;
    let mut bytes = vec![0; size + 1];
    output.read_exact(&mut bytes)?;
    bytes.pop();
    Ok(String::from_utf8(bytes)?)
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new("git");
    command.current_dir(ROOT).args(arguments);
    command
}

fn git(arguments: &[&str]) -> Result<String> {
    let output = command(arguments).output().context("cannot start git")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "git {}: {}", arguments[0], said.trim());
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_a_tree_name_files_of_known_languages() {
        assert_eq!(blob("100644 blob 1f\ttests/a b.rs"), Some(("tests/a b.rs", "1f")));
        assert_eq!(blob("100644 blob 1f\ttests/a.md"), None);
        assert_eq!(blob("160000 commit 1f\ttests/a.rs"), None);
    }

    #[test]
    fn an_object_is_as_long_as_its_head_says() {
        let mut output = &b"1f blob 4\na\nb\n\n2e blob 0\n\n3d missing\n"[..];
        assert_eq!(object(&mut output).unwrap(), "a\nb\n");
        assert_eq!(object(&mut output).unwrap(), "");
        assert!(object(&mut output).is_err());
    }

    #[test]
    fn a_commit_has_the_files_it_has() {
        let commit = at("HEAD").unwrap();
        assert!(commit.iter().any(|file| file.path == "gateway/core/src/rule.rs"));
        assert!(at("no such commit").is_err());
    }
}
