//! Gives every target its committed corpus.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

use fence_fuzz::{TARGETS, Target};

/// How many inputs a target may have, and how many bytes all of them together.
const INPUTS_MAX: usize = 200;
const BYTES_MAX: u64 = 1 << 20;

fn corpus(name: &str) -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(name);
    let entries = std::fs::read_dir(&directory).unwrap_or_else(|e| panic!("{directory:?}: {e}"));
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

fn replay(name: &str) {
    let (_, target): &(_, Target) = TARGETS.iter().find(|(target, _)| *target == name).unwrap();
    let files = corpus(name);
    assert!((5..=INPUTS_MAX).contains(&files.len()), "{} inputs", files.len());
    for file in files {
        let input = std::fs::read(&file).unwrap();
        assert!(catch_unwind(|| target(&input)).is_ok(), "{} breaks {name}", file.display());
    }
}

macro_rules! replays {
    ($($name:ident),+ $(,)?) => {
        $(#[test] fn $name() { replay(stringify!($name)); })+

        #[test]
        fn every_target_has_a_corpus_a_test_and_a_binary() {
            let tested = [$(stringify!($name)),+];
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            assert_eq!(tested[..], names[..]);
            let manifest = include_str!("../Cargo.toml");
            for name in names {
                assert!(manifest.contains(&format!("name = \"fuzz-{name}\"")), "{name}");
                let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("targets/{name}.rs"));
                let source = std::fs::read_to_string(source).unwrap();
                assert!(source.contains(&format!("fence_fuzz::{name}(input)")), "{name}");
            }
        }
    };
}

replays!(
    tokens,
    names,
    paths,
    words,
    headers,
    settings,
    bodies,
    multipart,
    framing,
    router,
    credentials,
    rules,
    strangers,
    s3_address,
    s3_operation,
    s3_bodies,
    signatures,
    chunks
);

#[test]
fn the_corpora_stay_small() {
    let files = TARGETS.iter().flat_map(|(name, _)| corpus(name));
    let bytes: u64 = files.map(|file| file.metadata().unwrap().len()).sum();
    assert!(bytes <= BYTES_MAX, "{bytes} bytes");
}
