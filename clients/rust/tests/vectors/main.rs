//! The vectors of all clients (`clients/vectors`), against what this library decides. Every case that fails is
//! printed under its id, with the rules that it is about.

mod acquire;
mod encoding;
mod errors;
mod lease;
mod names;
mod retry;
mod scope;
mod slots;
mod write;

use fencegate_client::{Class, LossReason};
use fencegate_wire::ErrorCode;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors");

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File<C> {
    core: u32,
    about: String,
    request_id: Option<String>,
    cases: Vec<C>,
}

trait Case {
    /// Its id, its rules, and why it is there.
    fn head(&self) -> (&str, &[String], &str);
}

macro_rules! case {
    ($name:ident { $($(#[$attribute:meta])* $field:ident: $kind:ty,)+ }) => {
        #[derive(serde::Deserialize)]
        #[serde(deny_unknown_fields)]
        struct $name { id: String, rules: Vec<String>, why: String, $($(#[$attribute])* $field: $kind,)+ }

        impl Case for $name {
            fn head(&self) -> (&str, &[String], &str) {
                (&self.id, &self.rules, &self.why)
            }
        }
    };
}
use case;

fn load<C: DeserializeOwned>(name: &str) -> File<C> {
    let text = std::fs::read_to_string(format!("{FOLDER}/{name}.json")).expect("the file is there");
    let file: File<C> =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(file.core, 1, "{name}");
    assert!(!file.about.is_empty() && !file.cases.is_empty(), "{name}");
    file
}

/// Runs all cases, and says which failed.
fn replay<C: DeserializeOwned + Case>(
    name: &str,
    run: impl Fn(&C, &File<C>) -> Result<(), String>,
) {
    let file = load::<C>(name);
    let mut failed = 0;
    for case in &file.cases {
        if let Err(error) = run(case, &file) {
            let (id, rules, why) = case.head();
            eprintln!("{name} / {id} ({}): {why}\n    {error}", rules.join(" "));
            failed += 1;
        }
    }
    assert_eq!(failed, 0, "{failed} of {} cases of {name}.json failed", file.cases.len());
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: T, got: T) -> Result<(), String> {
    match expected == got {
        true => Ok(()),
        false => Err(format!("{what}: expected {expected:?}, got {got:?}")),
    }
}

fn at(place: usize, error: String) -> String {
    format!("[{place}] {error}")
}

/// The class of a code, known or not; `+unknown` behind it says that the outcome is unknown.
fn class_of(got: &str) -> (&str, Class) {
    match (got.strip_suffix("+unknown"), ErrorCode::parse(got)) {
        (Some(code), _) => (code, Class::of_answer(code, 503, true, true)),
        (None, Some(code)) => (got, Class::of(code)),
        (None, None) if got.starts_with("fence-") => {
            (got, Class::of_answer(got, 412, false, false))
        }
        (None, None) => panic!("{got} is no code"),
    }
}

fn foreign(got: &str) -> Option<u16> {
    got.strip_prefix("proxy-").map(|status| status.parse().expect("a status"))
}

fn is_draw(draw: f64) -> bool {
    (0.0..=1.0).contains(&draw)
}

fn reason_of(word: &str) -> LossReason {
    use LossReason as R;
    let all = [
        R::Superseded,
        R::Broken,
        R::Void,
        R::ReleasedElsewhere,
        R::HoldExceeded,
        R::Gone,
        R::OrderStale,
        R::Unconfirmed,
        R::Stalled,
        R::Transferred,
        R::Released,
        R::Closed,
    ];
    all.into_iter().find(|reason| reason.as_str() == word).unwrap_or_else(|| panic!("{word}"))
}

#[test]
fn every_case_has_an_id_of_its_own_and_names_rules_of_the_spec() {
    let spec = std::fs::read_to_string(format!("{FOLDER}/../SPEC.md")).unwrap();
    let mut files = 0;
    for entry in std::fs::read_dir(FOLDER).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap().to_owned();
        if name == "schema" || path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let file: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let mut ids = std::collections::BTreeSet::new();
        for case in file["cases"].as_array().unwrap() {
            let id = case["id"].as_str().unwrap();
            assert!(ids.insert(id.to_owned()), "{name} / {id} comes twice");
            for rule in case["rules"].as_array().unwrap() {
                let rule = format!("**{}** ", rule.as_str().unwrap());
                assert!(spec.contains(&rule), "{name} / {id}: there is no {rule}");
            }
        }
        files += 1;
    }
    assert_eq!(files, 11);
}

#[test]
fn every_file_is_valid_against_its_schema() {
    let schema = std::fs::read_to_string(format!("{FOLDER}/schema.json")).unwrap();
    let schema: Value = serde_json::from_str(&schema).unwrap();
    for name in [
        "acquire",
        "durations",
        "errors",
        "lease",
        "multipart",
        "names",
        "retry",
        "scope",
        "slots",
        "sse",
        "write",
    ] {
        let file = std::fs::read_to_string(format!("{FOLDER}/{name}.json")).unwrap();
        let file: Value = serde_json::from_str(&file).unwrap();
        let mut one = schema.clone();
        one["$ref"] = Value::String(format!("#/$defs/{name}"));
        let validator = jsonschema::validator_for(&one).unwrap();
        let wrong: Vec<String> = validator
            .iter_errors(&file)
            .take(5)
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(wrong.is_empty(), "{name}: {wrong:#?}");
    }
}
