//! The arrows of `ARCHITECTURE.md`, read from the imports: each part of the gateway uses only parts below it, and the
//! folders of the engine use each other in one direction. That `fence_core` uses none of them its crate sees to.
//!
//! What one part reaches in another through the fields of `Engine` is no import, and is not seen here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use regex::Regex;

/// From top to bottom, each part and all that it uses.
const USES: &str = "
    cli -> config dev drill files http telemetry wiring
    dev -> config wiring
    wiring -> blobs config data_dir engine files http ledger mint runtime s3 spans telemetry witness
    s3 -> config engine http spans
    http -> config engine files log_scope seen spans
    engine -> spans
    drill -> runtime
    telemetry -> config ledger log_scope
    log_scope -> config spans
    config -> blobs files this_machine
    ledger ->
    mint -> files
    blobs -> this_machine
    data_dir ->
    runtime ->
    seen ->
    spans -> files this_machine
    files ->
    this_machine ->
    witness ->";

/// Who uses whom.
type Arrows = BTreeMap<String, BTreeSet<String>>;

/// A module, and its text without comments and tests.
struct Source {
    module: Vec<String>,
    text: String,
}

impl Source {
    fn new(path: &str, text: &str) -> Self {
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        let tests = Regex::new(r"\n#\[cfg\(test\)\]\n(pub\(\w+\) )?mod tests \{").unwrap();
        let text = tests.split(text).next().unwrap_or_default();
        let is_code = |line: &&str| !line.trim_start().starts_with("//");
        let text = text.lines().filter(is_code).collect::<Vec<_>>().join("\n");
        Self { module: path.split('/').map(str::to_owned).collect(), text }
    }

    /// What it names by `crate::` or `super::`, from the root of the crate.
    fn names(&self) -> Vec<Vec<String>> {
        let path =
            Regex::new(r"\b(crate|(?:super::)*super)((?:::\w+)*)(?:::\{([^;]*)\};)?").unwrap();
        let names = path.captures_iter(&self.text).flat_map(|found| {
            let ups = found[1].matches("super").count();
            let kept = if ups == 0 { 0 } else { self.module.len().saturating_sub(ups) };
            let mut base = self.module[..kept].to_vec();
            base.extend(found[2].split("::").skip(1).map(str::to_owned));
            first_of_each(found.get(3).map_or("", |group| group.as_str()))
                .map(|name| base.iter().cloned().chain([name]).collect())
                .collect::<Vec<_>>()
        });
        names.collect()
    }
}

/// `a`, `b` and `c` of `a, b::{d, e}, c::f`.
fn first_of_each(group: &str) -> impl Iterator<Item = String> {
    let flat = Regex::new(r"\{[^{}]*\}").unwrap().replace_all(group, "").into_owned();
    let names = flat.split(',').map(|name| name.trim().split("::").next().unwrap().to_owned());
    names.collect::<Vec<_>>().into_iter()
}

/// Which modules of the crate, or of one part of it, use which others. What the `mod.rs` of the part hands on counts as
/// its that defines it.
fn arrows(sources: &[Source], part: Option<&str>) -> Arrows {
    let depth = part.iter().count();
    let is_inside = |path: &[String]| path.len() > depth && part.is_none_or(|it| path[0] == it);
    let hands_on = Regex::new(r"(?m)^(?:pub )?use (\w+)::(?:\{([^;]*)\}|(\w+));").unwrap();
    let mut homes = BTreeMap::new();
    let root = sources.iter().find(|source| part.is_some_and(|it| source.module == [it]));
    for found in root.iter().flat_map(|root| hands_on.captures_iter(&root.text)) {
        let names = found.get(2).or(found.get(3)).map_or("", |names| names.as_str());
        let names = first_of_each(names).filter(|name| !name.is_empty());
        homes.extend(names.map(|name| (name, found[1].to_owned())));
    }
    let inside = || sources.iter().filter(|source| is_inside(&source.module));
    let mut arrows: Arrows =
        inside().map(|source| (source.module[depth].clone(), BTreeSet::new())).collect();
    for source in inside() {
        let room = &source.module[depth];
        for name in source.names().iter().filter(|name| is_inside(name)) {
            let used = homes.get(&name[depth]).unwrap_or(&name[depth]);
            if used != room && arrows.contains_key(used) {
                arrows.get_mut(room).unwrap().insert(used.clone());
            }
        }
    }
    arrows
}

/// What is left when whatever uses nothing that is left is taken away, again and again: nothing, unless there is a circle.
fn circles(mut arrows: Arrows) -> Vec<String> {
    loop {
        let left: BTreeSet<String> = arrows.keys().cloned().collect();
        arrows.retain(|_, used| !used.is_disjoint(&left));
        if arrows.len() == left.len() {
            return left.into_iter().collect();
        }
    }
}

fn read(folder: &Path, below: &str, sources: &mut Vec<Source>) {
    for entry in folder.read_dir().unwrap().map(Result::unwrap) {
        let name = format!("{below}{}", entry.file_name().to_str().unwrap());
        if entry.path().is_dir() {
            if entry.file_name() != "tests" {
                read(&entry.path(), &format!("{name}/"), sources);
            }
        } else if name.ends_with(".rs") && !["lib.rs", "main.rs", "arrows.rs"].contains(&&*name) {
            sources.push(Source::new(&name, &std::fs::read_to_string(entry.path()).unwrap()));
        }
    }
}

#[test]
fn arrows_run_one_way() {
    let mut sources = Vec::new();
    read(&Path::new(env!("CARGO_MANIFEST_DIR")).join("src"), "", &mut sources);
    let lines = USES.lines().filter_map(|line| line.trim().split_once(" ->"));
    let words = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    let allowed: Vec<(String, BTreeSet<String>)> =
        lines.map(|(part, used)| (part.to_owned(), words(used))).collect();
    assert_eq!(arrows(&sources, None), allowed.iter().cloned().collect());
    for (at, (part, used)) in allowed.iter().enumerate() {
        let below: BTreeSet<_> = allowed[at + 1..].iter().map(|(part, _)| part.clone()).collect();
        assert!(used.is_subset(&below), "{part} uses something above it");
    }
    let engine = arrows(&sources, Some("engine"));
    assert!(engine["locks"].contains("data"), "{engine:?}");
    assert_eq!(circles(engine), [""; 0]);
}

#[test]
fn a_circle_is_found() {
    let text = [
        ("e/mod.rs", "mod a;\nmod b;\npub use a::{One, Two as Three};\npub use c::Four;"),
        ("e/a.rs", "use super::b::{self, d::{e, f}};\nuse crate::e::{Base, Four};"),
        (
            "e/b/mod.rs",
            "// super::a::X;\nuse super::c;\n#[cfg(test)]\nmod tests {\n super::super::a",
        ),
        ("e/c.rs", "fn f(_: crate::g::H) {}"),
        ("g.rs", ""),
    ];
    let sources = |more: &str| {
        let mut sources = Vec::from(text.map(|(path, text)| Source::new(path, text)));
        sources.push(Source::new("e/b/d.rs", more));
        sources
    };
    let one_way = arrows(&sources("use crate::e::Base;"), Some("e"));
    assert_eq!(one_way["a"], ["b", "c"].map(str::to_owned).into());
    assert_eq!(circles(one_way), [""; 0]);
    for back in ["use crate::e::{Base, One,};", "use super::super::a;", "crate::e::a::f()"] {
        assert_eq!(circles(arrows(&sources(back), Some("e"))), ["a", "b"], "{back}");
    }
    assert_eq!(arrows(&sources(""), None)["e"], BTreeSet::from(["g".to_owned()]));
}
