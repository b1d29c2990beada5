//! Trees: what lies in a folder of objects or of files, and what of it has no place on the other side.

use std::cell::Cell;
use std::collections::BTreeSet;
use std::fs::FileType;
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fencegate_client::wire::ObjectKey;

use crate::app::App;
use crate::failure::{Failure, usage};
use crate::terminal;

/// The most bytes that file systems take for one name.
const NAME_BYTES_MAX: usize = 255;
/// Suffix of a download's file until it is whole.
const PART: &str = ".part";

/// One object or file to copy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pair {
    /// The key, or the path of the file.
    pub from: String,
    /// The path of the file, or the key.
    pub to: String,
}

/// Plan of a copy: the pairs, and the names of those that cannot be copied.
#[derive(Debug, Default)]
pub struct Plan {
    /// Pairs, no two of which have one target.
    pub pairs: Vec<Pair>,
    /// Names, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A count of what a command has left out, which its exit code tells.
#[derive(Debug, Default)]
pub struct LeftOut(Cell<u64>);

impl LeftOut {
    /// Names one, on standard error. Its name may hold what a terminal obeys.
    pub fn tell(&self, app: &App, name: &str, why: &str) {
        self.0.set(self.0.get() + 1);
        app.out.bars().suspend(|| terminal::say(&format!("left out {name:?}: {why}")));
    }

    /// Exit code of the command: 1 if anything was left out.
    pub fn end(&self) -> ExitCode {
        match self.0.get() {
            0 => ExitCode::SUCCESS,
            count => {
                terminal::say(&format!("{count} left out; all else is done"));
                ExitCode::FAILURE
            }
        }
    }
}

/// Prefix of all keys in a folder. A folder ends at `/`: `a/b` has nothing of `a/bc`. Without a name it is all of the resource.
pub fn folder(name: &str) -> String {
    if name.is_empty() || name.ends_with('/') { name.to_owned() } else { format!("{name}/") }
}

/// Place to copy to: the same, or below it the name of the source if it is a folder.
///
/// # Errors
/// The source has no name.
pub fn named(place: &str, from: &str) -> Result<String, Failure> {
    if !place.is_empty() && !place.ends_with('/') {
        return Ok(place.to_owned());
    }
    match from.rsplit('/').next() {
        Some(name) if !name.is_empty() => Ok(format!("{place}{name}")),
        _ => Err(usage(format!("{from:?} names no file"))),
    }
}

/// A plan for the objects of these keys, which all begin with the prefix of a folder.
///
/// 1. A key that no file can have, or that cannot be read by its path, is left out.
/// 2. One that has others below it is left out: a folder has its name.
/// 3. So is what has, or lies below, the name that the download of another one is written to.
pub fn down(keys: Vec<String>, prefix: &str, below: &Path) -> Plan {
    let mut plan = Plan::default();
    // Step 1.
    let mut sound = Vec::new();
    for key in keys {
        match checked(&key) {
            Ok(()) => sound.push(key),
            Err(why) => plan.left_out.push((key, why)),
        }
    }
    let names: Vec<&str> =
        sound.iter().map(|key| key.strip_prefix(prefix).unwrap_or(key)).collect();
    let folders: BTreeSet<&str> = names.iter().flat_map(|name| above(name)).collect();
    let files: BTreeSet<&str> =
        names.iter().copied().filter(|name| !folders.contains(name)).collect();
    for (key, name) in sound.iter().zip(&names) {
        // Step 2.
        if folders.contains(name) {
            let why = "other objects lie below it, and a folder has its name".to_owned();
            plan.left_out.push((key.clone(), why));
            continue;
        }
        // Step 3.
        let mut places = above(name).chain([*name]);
        let other = places.find_map(|it| it.strip_suffix(PART).filter(|it| files.contains(it)));
        match (other, below.join(name).to_str()) {
            (Some(other), _) => {
                let why = format!("{prefix}{other} is written there until it is whole");
                plan.left_out.push((key.clone(), why));
            }
            (None, Some(to)) => plan.pairs.push(Pair { from: key.clone(), to: to.to_owned() }),
            (None, None) => plan.left_out.push((key.clone(), "its path is not UTF-8".to_owned())),
        }
    }
    plan
}

/// A plan for the files below a folder, for keys below another. Links are not followed.
///
/// # Errors
/// The folder cannot be read.
pub fn up(from: &Path, to: &str) -> io::Result<Plan> {
    let (mut plan, mut left) = (Plan::default(), vec![PathBuf::new()]);
    let prefix = folder(to);
    while let Some(below) = left.pop() {
        let entries = match std::fs::read_dir(from.join(&below)).and_then(Iterator::collect) {
            Ok(entries) => entries,
            Err(error) if below.as_os_str().is_empty() => return Err(error),
            Err(error) => {
                plan.left_out.push((from.join(&below).display().to_string(), error.to_string()));
                continue;
            }
        };
        let entries: Vec<std::fs::DirEntry> = entries;
        for entry in entries {
            let name = below.join(entry.file_name());
            let path = from.join(&name);
            let fitting = match entry.file_type() {
                Ok(kind) if kind.is_dir() => {
                    left.push(name);
                    continue;
                }
                Ok(kind) => fitting(kind, &path, &name, &prefix),
                Err(error) => Err(error.to_string()),
            };
            match fitting {
                Ok(pair) => plan.pairs.push(pair),
                Err(why) => plan.left_out.push((path.display().to_string(), why)),
            }
        }
    }
    plan.pairs.sort_by(|one, other| one.to.cmp(&other.to));
    plan.left_out.sort();
    Ok(plan)
}

/// Pairs a file with its key.
///
/// # Errors
/// A file that can have no key; the text says why.
fn fitting(kind: FileType, path: &Path, name: &Path, prefix: &str) -> Result<Pair, String> {
    if kind.is_symlink() {
        return Err("it is a link, which is not followed".to_owned());
    }
    if !kind.is_file() {
        return Err("it is neither a file nor a folder".to_owned());
    }
    let (Some(from), Some(name)) = (path.to_str(), name.to_str()) else {
        return Err("its name is not UTF-8".to_owned());
    };
    let to = format!("{prefix}{name}");
    ObjectKey::new(&*to).map_err(|error| error.to_string())?;
    Ok(Pair { from: from.to_owned(), to })
}

/// Checks that a key can be read by its path, and can be the path of a file.
///
/// # Errors
/// A key that cannot; the text says why.
fn checked(key: &str) -> Result<(), String> {
    ObjectKey::new(key).map_err(|error| error.to_string())?;
    match key.split('/').all(|part| part.len() <= NAME_BYTES_MAX) {
        true => Ok(()),
        false => Err(format!("a part of it has more than the {NAME_BYTES_MAX} bytes of a name")),
    }
}

/// The folders that a name lies in.
fn above(name: &str) -> impl Iterator<Item = &str> {
    name.match_indices('/').map(|(at, _)| &name[..at])
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;

    use super::*;

    fn planned(keys: &[&str], prefix: &str) -> (Vec<String>, Vec<String>) {
        let keys = keys.iter().map(|key| (*key).to_owned()).collect();
        let plan = down(keys, prefix, Path::new("out"));
        let to = plan.pairs.into_iter().map(|pair| format!("{} -> {}", pair.from, pair.to));
        (to.collect(), plan.left_out.into_iter().map(|(name, _)| name).collect())
    }

    #[test]
    fn a_folder_ends_at_a_slash() {
        assert_eq!(folder("a/b"), "a/b/");
        assert_eq!((folder("a/b/"), folder("")), ("a/b/".to_owned(), String::new()));
        assert_eq!(named("k", "dir/f").unwrap(), "k");
        assert_eq!(named("dir/", "some/f").unwrap(), "dir/f");
        assert_eq!(named("", "f").unwrap(), "f");
        assert!(named("dir/", "some/").is_err());
    }

    #[test]
    fn an_odd_key_is_left_out_and_stops_nothing() {
        let long = format!("d/{}", "x".repeat(256));
        let odd = ["d/", "d//x", "d/./x", "d/../../x", "d/..", "d/a\nb", "d/\u{1}", &long];
        let keys = [&["d/good"][..], &odd, &["d/too/deep"]].concat();
        let (to, left) = planned(&keys, "d/");
        assert_eq!(to, ["d/good -> out/good", "d/too/deep -> out/too/deep"]);
        assert_eq!(left, odd);
    }

    #[test]
    fn no_two_objects_have_one_file() {
        // Each of these lost one of the two, or stopped all: a file and a folder, an object and the file that another is written to.
        let keys = ["d/a", "d/a/b", "d/x", "d/x.part", "d/y", "d/y.part/z", "d/z.part"];
        let (to, left) = planned(&keys, "d/");
        let files = ["a/b", "x", "y", "z.part"];
        assert_eq!(to, files.map(|name| format!("d/{name} -> out/{name}")));
        assert_eq!(left, ["d/a", "d/x.part", "d/y.part/z"]);
        let (to, left) = planned(&["a", "b/c"], "");
        assert_eq!((to.len(), left.len()), (2, 0));
    }

    #[test]
    fn what_is_no_file_is_named() {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        std::fs::create_dir_all(at("deep")).unwrap();
        std::fs::write(at("deep/good"), "x").unwrap();
        std::fs::write(at("line\nbreak"), "x").unwrap();
        std::fs::write(home.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "x").unwrap();
        std::os::unix::fs::symlink("deep/good", at("link")).unwrap();
        let _bound = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
        let plan = up(home.path(), "tree").unwrap();
        let to: Vec<&str> = plan.pairs.iter().map(|pair| &*pair.to).collect();
        assert_eq!(to, ["tree/deep/good"]);
        let why: Vec<&str> = plan.left_out.iter().map(|(_, why)| &**why).collect();
        assert_eq!(why.len(), 4, "{why:?}");
        for said in ["a link", "neither a file", "not UTF-8", "control"] {
            assert!(why.iter().any(|why| why.contains(said)), "{said}: {why:?}");
        }
        assert!(up(&at("nowhere"), "tree").is_err());
    }
}
