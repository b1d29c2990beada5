//! Writes the sources of the wrong client: those of `clients/rust`, with the mistakes of `patches/` put in.
//!
//! A patch has the path of the file that it changes, and hunks as `diff -u` writes them, but without the numbers of
//! lines: `@@` begins one, and its lines begin with a space (stays), `-` (goes) or `+` (comes). The lines that stay
//! or go must stand in the file exactly once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

fn main() -> Result<()> {
    let home = PathBuf::from(std::env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(std::env::var("OUT_DIR")?).join("client");
    let (sources, patches) = (home.join("../../rust/src"), home.join("patches"));
    println!("cargo::rerun-if-changed={}", sources.display());
    println!("cargo::rerun-if-changed={}", patches.display());
    let (sources_found, patches_found) = (files(&sources)?, files(&patches)?);
    for patch in &patches_found {
        let source = patch.with_extension("rs");
        ensure!(sources_found.contains(&source), "patches/{}: no such source", patch.display());
    }
    if out.exists() {
        fs::remove_dir_all(&out)?;
    }
    for path in sources_found {
        let mut text = fs::read_to_string(sources.join(&path))?;
        let patch = path.with_extension("patch");
        if patches_found.contains(&patch) {
            let hunks = fs::read_to_string(patches.join(&patch))?;
            text = patched(text, &hunks).with_context(|| format!("patches/{}", patch.display()))?;
        }
        if path == Path::new("lib.rs") {
            text = without_inner_docs(&text);
        }
        // The unit tests are about the right client.
        let text = text.replace("#[cfg(test)]", "#[cfg(any())]");
        let target = out.join(&path);
        fs::create_dir_all(target.parent().context("a file has a folder")?)?;
        fs::write(target, text)?;
    }
    Ok(())
}

/// The files below a folder, as paths from there.
fn files(folder: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).with_context(|| folder.display().to_string())? {
        let entry = entry?;
        let name = PathBuf::from(entry.file_name());
        if entry.file_type()?.is_dir() {
            found.extend(files(&entry.path())?.into_iter().map(|path| name.join(path)));
        } else {
            found.push(name);
        }
    }
    Ok(found)
}

/// A source with the hunks of a patch.
fn patched(source: String, patch: &str) -> Result<String> {
    let mut text = format!("\n{source}");
    for hunk in patch.split("@@\n").skip(1) {
        let (mut stands, mut becomes) = (String::from("\n"), String::from("\n"));
        for line in hunk.lines() {
            let (sides, rest): (&mut [&mut String], _) = match line.split_at_checked(1) {
                Some(("-", rest)) => (&mut [&mut stands], rest),
                Some(("+", rest)) => (&mut [&mut becomes], rest),
                Some((" ", rest)) => (&mut [&mut stands, &mut becomes], rest),
                _ => (&mut [&mut stands, &mut becomes], line),
            };
            for side in sides {
                side.push_str(rest);
                side.push('\n');
            }
        }
        let places = text.matches(&stands).count();
        ensure!(places == 1, "these lines stand in {places} places, not in one:{stands}");
        text = text.replacen(&stands, &becomes, 1);
    }
    Ok(text.split_off(1))
}

/// The documentation of a crate cannot be included into another.
fn without_inner_docs(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("//!"));
    lines.collect::<Vec<_>>().join("\n")
}
