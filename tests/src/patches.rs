//! Patches of sources that go on changing: a wrong client, a newer gateway.
//!
//! A patch has hunks as `diff -u` writes them, but without the numbers of lines: `@@` begins one, and its lines begin
//! with a space (stays), `-` (goes) or `+` (comes). The lines that stay or go must stand in the file exactly once.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};

/// The files below a folder, as paths from there.
///
/// # Errors
/// A folder that cannot be read.
pub fn files(folder: &Path) -> Result<Vec<PathBuf>> {
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
///
/// # Errors
/// Lines that do not stand in it exactly once.
pub fn patched(source: String, patch: &str) -> Result<String> {
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
        // Of places one after the other, each begins where the one before ends.
        let begins = text.match_indices('\n').filter(|(at, _)| text[*at..].starts_with(&stands));
        let places = begins.count();
        ensure!(places == 1, "these lines stand in {places} places, not in one:{stands}");
        text = text.replacen(&stands, &becomes, 1);
    }
    Ok(text.split_off(1))
}
