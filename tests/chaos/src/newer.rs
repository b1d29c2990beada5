//! A gateway with newer acts than this one's: built from a copy of the sources, which the patches in `newer_acts` change.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use fence_tests::patches::{files, patched};
use fencegate::ledger::postgres::acts::NUMBER;

/// Where the patches are; each has the path of the file that it changes, and this ending.
const PATCHES: &str = "tests/chaos/newer_acts";
const ENDING: &str = ".patch";
/// The program that is built.
const PROGRAM: &str = "fencegate-newer";
/// What it logs whenever a verdict came that only its acts have.
pub const TOLD: &str = "the newer acts told that a renewal was early";

/// How it is built.
#[derive(Debug, clap::Args)]
pub struct Build {
    /// In the release profile
    #[arg(long)]
    release: bool,
}

/// Makes the copy, changes it, and builds it among what was built of the clone that this runs in; returns the program.
///
/// # Errors
/// There is no clone of the repository here, a patch does not fit, or the compiler refuses.
pub fn build(plan: &Build) -> Result<PathBuf> {
    let root = std::env::current_dir()?;
    let target = root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or("target".into()));
    let copy = target.join("newer-acts");
    let sources = tracked(&root)?;
    let changed = changed(&root)?;
    for path in &sources {
        let text = changed.iter().find(|(of, _)| of == path).map(|(_, text)| text.clone().into());
        let bytes = text.map_or_else(|| fs::read(root.join(path)), Ok);
        let bytes = bytes.with_context(|| path.display().to_string())?;
        let to = copy.join(path);
        // What is as it was keeps its time, and is not compiled again.
        if fs::read(&to).is_ok_and(|there| there == bytes) {
            continue;
        }
        fs::create_dir_all(to.parent().context("a file has a folder")?)?;
        fs::write(&to, bytes).with_context(|| to.display().to_string())?;
    }
    for path in files(&copy)?.iter().filter(|path| !sources.contains(*path)) {
        fs::remove_file(copy.join(path))?;
    }
    // The same target, so that what the gateway depends on is there already. The program has another name.
    let mut cargo = Command::new("cargo");
    cargo.current_dir(&copy).env("CARGO_TARGET_DIR", &target);
    cargo.args(["build", "--locked", "--package", "fencegate", "--bin", PROGRAM]);
    cargo.args(plan.release.then_some("--release"));
    ensure!(cargo.status().context("cargo")?.success(), "the newer gateway was not built");
    Ok(target.join(if plan.release { "release" } else { "debug" }).join(PROGRAM))
}

/// The sources of a clone, as they are in its work tree.
fn tracked(root: &Path) -> Result<BTreeSet<PathBuf>> {
    let mut git = Command::new("git");
    git.current_dir(root).args(["ls-files", "-z", "--cached", "--others", "--exclude-standard"]);
    let output = git.output().context("git")?;
    ensure!(output.status.success(), "git: {}", String::from_utf8_lossy(&output.stderr).trim());
    let paths = String::from_utf8(output.stdout).context("the names of the sources")?;
    let paths = paths.split('\0').filter(|path| !path.is_empty()).map(PathBuf::from);
    Ok(paths.filter(|path| root.join(path).is_file()).collect())
}

/// The files that are other ones in the copy, and their texts.
///
/// # Errors
/// A patch of a file that is not there, or does not have the lines to be changed exactly once.
fn changed(root: &Path) -> Result<Vec<(PathBuf, String)>> {
    let folder = root.join(PATCHES);
    let mut changed = Vec::new();
    for patch in files(&folder)? {
        let name = patch.to_string_lossy();
        let Some(path) = name.strip_suffix(ENDING) else { continue };
        let hunks = fs::read_to_string(folder.join(&patch))?
            .replace("OLDER_ACTS", &NUMBER.to_string())
            .replace("NEWER_ACTS", &(NUMBER + 1).to_string());
        let text = fs::read_to_string(root.join(path)).with_context(|| path.to_owned())?;
        let text = patched(text, &hunks).with_context(|| format!("{PATCHES}/{name}"))?;
        changed.push((path.into(), text));
    }
    ensure!(!changed.is_empty(), "there are no patches in {}", folder.display());
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn root() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }

    #[test]
    fn each_line_that_is_changed_is_there_exactly_once() {
        let changed = changed(&root()).unwrap();
        let text = |end: &str| &changed.iter().find(|(path, _)| path.ends_with(end)).unwrap().1;
        let next = NUMBER + 1;
        assert!(text("acts.rs").contains(&format!("NUMBER: i64 = {next};")));
        assert!(text("acts.rs").contains(&format!("\"fencegate_acts_{next}\"")));
        assert!(text("Cargo.toml").contains(&format!("name = \"{PROGRAM}\"")));
        // What the run looks for, and both sides of the argument and the verdict.
        assert!(text("locks.rs").contains(TOLD) && text("locks.rs").contains("\"renewed_early\""));
        assert!(text("renew.sql").contains("p_early_ms bigint)"));
        assert!(text("renew.sql").contains("'renewed_early'"));
    }

    #[test]
    fn a_patch_that_does_not_fit_is_told_of() {
        let clone = tempfile::TempDir::new().unwrap();
        let folder = clone.path().join(PATCHES);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("a.sql.patch"), "@@\n-one\n+two\n").unwrap();
        for (text, fits) in [("one\n", true), ("one\none\n", false), ("three\n", false)] {
            fs::write(clone.path().join("a.sql"), text).unwrap();
            assert_eq!(changed(clone.path()).is_ok(), fits, "{text:?}");
        }
    }
}
