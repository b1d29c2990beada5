//! Files of these tests: each is a module of the program, since tests in one that nobody names never run.

use std::path::{Path, PathBuf};

/// Modules in this folder and below whose folder does not name them. `names` is the file that does for the folder itself.
fn unnamed(folder: &Path, names: &str) -> Vec<PathBuf> {
    let names = std::fs::read_to_string(folder.join(names)).expect("the folder has its modules");
    let entries = std::fs::read_dir(folder).expect("the folder is there");
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.expect("an entry").path()) {
        let is_folder = path.join("mod.rs").exists();
        let is_file = path.extension().is_some_and(|extension| extension == "rs");
        let name = path.file_stem().and_then(|name| name.to_str()).expect("a name");
        if !(is_folder || is_file) || ["main", "mod"].contains(&name) {
            continue;
        }
        if is_folder {
            found.extend(unnamed(&path, "mod.rs"));
        }
        if !names.lines().any(|line| line.ends_with(&format!("mod {name};"))) {
            found.push(path);
        }
    }
    found
}

#[test]
fn each_file_is_a_module() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("it");
    assert_eq!(unnamed(&root, "main.rs"), Vec::<PathBuf>::new());
}
