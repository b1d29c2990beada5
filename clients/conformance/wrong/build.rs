//! Writes the sources of the wrong client: those of `clients/rust`, with the mistakes of `patches/` put in.
//!
//! A patch has the path of the file that it changes; `tests/src/patches.rs` says what it is like.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

#[path = "../../../tests/src/patches.rs"]
mod patches;

use patches::{files, patched};

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

/// The documentation of a crate cannot be included into another.
fn without_inner_docs(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("//!"));
    lines.collect::<Vec<_>>().join("\n")
}
