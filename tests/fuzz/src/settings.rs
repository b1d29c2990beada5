//! The configuration: a TOML file, a line `%%`, then lines `VARIABLE=value` of the environment.

use std::path::PathBuf;

use fencegate::config::{Config, Flags, SETTINGS};

/// Secrets that no text may show: one of them is no text at all.
const SECRET: &str = "hunter2hunter2";
const NUMBER: &str = "7355608735560873";

/// Nothing panics, a refusal names what it is about, no text shows a secret, and what is printed is read
/// as the same settings.
pub fn settings(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    // Settings name files that are read; devices never end.
    if text.contains("/dev") || text.contains("/proc") || text.contains("/sys") {
        return;
    }
    let (file, variables) = text.split_once("\n%%\n").unwrap_or((text, ""));
    let variables: Vec<(String, String)> = variables
        .lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect();
    let place = scratch();
    let load = |text: &str, variables: &[(String, String)]| {
        std::fs::write(&place, text).unwrap();
        Config::load_from(Some(&place), variables.iter().cloned(), &Flags::default())
    };
    match load(file, &variables) {
        Err(error) => {
            let error = error.to_string();
            assert!(!shows(&error) || !is_secret(text), "{error}");
            let named = SETTINGS.iter().any(|setting| error.contains(setting.name));
            let unknown = error.contains("is not a setting");
            let broken = error.contains("is not valid TOML: line ");
            assert!(named || unknown || broken, "{error}");
        }
        Ok(config) => {
            let shown = config.show().unwrap();
            if is_secret(text) {
                assert!(!shows(&shown) && !shows(&format!("{config:?}")));
            }
            if config.postgres.is_none() && config.etcd_password.is_none() {
                let again = load(&shown, &[]).unwrap_or_else(|error| panic!("{error}\n{shown}"));
                assert_eq!(again, config);
            }
        }
    }
    let _ = std::fs::remove_file(&place);
}

fn shows(text: &str) -> bool {
    text.contains(SECRET) || text.contains(NUMBER)
}

/// Whether a secret stands there, and only where secrets do: each on a line of its own, and in no longer string.
fn is_secret(text: &str) -> bool {
    let places = [
        format!("etcd_password = {NUMBER}"),
        format!("postgres = {NUMBER}"),
        format!("etcd_password = \"{SECRET}\""),
        format!("FENCEGATE_ETCD_PASSWORD={SECRET}"),
        format!("postgres = \"postgres://u:{SECRET}@"),
        format!("FENCEGATE_POSTGRES=postgres://u:{SECRET}@"),
    ];
    let at_place = |line: &&str| places.iter().any(|place| line.starts_with(place.as_str()));
    let lines = text.lines().filter(at_place).count();
    let longer = text.contains("\"\"\"") || text.contains("'''");
    let all = text.matches(SECRET).count() + text.matches(NUMBER).count();
    lines > 0 && all == lines && !longer
}

/// A file of this thread's own.
fn scratch() -> PathBuf {
    let name = format!("fence-fuzz-{}-{:?}.toml", std::process::id(), std::thread::current().id());
    std::env::temp_dir().join(name)
}
