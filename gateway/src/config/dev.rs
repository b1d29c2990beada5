//! The settings of `fencegate dev`: defaults that suit tests, and which settings a gateway in memory cannot
//! have.

use std::path::Path;

use super::load::{Given, named_file, own_variables};
use super::names::strangers;
use super::{Config, ConfigError, Flags};

/// What says what is logged if no setting does, as it does of other programs.
const RUST_LOG: &str = "RUST_LOG";
/// What is logged otherwise: that a test's late write was refused, as it should be, is no warning.
const LOG: &str = "warn,request=off";
/// Settings of servers and files, of which there are none.
const NOT_IN_MEMORY: [&str; 4] = ["data_dir", "postgres", "etcd", "blobs"];

impl Config {
    /// Loads the settings of a gateway in memory as [`Config::load`] does, but for its defaults, and without a file
    /// that nobody named: what a test does must not depend on the folder that it runs in.
    ///
    /// # Errors
    /// As [`Config::load`]; a setting that names a server or a folder.
    pub fn load_dev(flags: &Flags) -> Result<(Self, Vec<String>), ConfigError> {
        let env = own_variables()?;
        let file = named_file(&env, flags);
        let mut warnings = strangers(env.iter().map(|(name, _)| name.as_str()));
        let log = std::env::var(RUST_LOG).ok().filter(|log| !log.is_empty());
        let config = Self::load_dev_from(file.as_deref(), env.into_iter(), log.as_deref(), flags)?;
        warnings.extend(config.warnings());
        Ok((config, warnings))
    }

    /// Loads them from what is given, and from nothing else; `log` is the filter if no setting has one.
    ///
    /// # Errors
    /// As [`Config::load_dev`].
    pub fn load_dev_from(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        log: Option<&str>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let defaults = [
            ("listen", "127.0.0.1:0"),
            ("log", log.unwrap_or(LOG)),
            // Whoever ends it waits for its end.
            ("drain_delay", "0s"),
            ("drain_timeout", "1s"),
        ];
        let defaults = defaults.map(|(name, value)| (name.to_owned(), value.into()));
        let given = Given::new(defaults.into_iter().collect(), file, env, flags)?;
        match NOT_IN_MEMORY.iter().find(|name| given.has(name)) {
            Some(name) => {
                let place = given.place(name);
                Err(ConfigError(format!("{place}: `fencegate dev` keeps everything in memory")))
            }
            None => given.read(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::tests::flags;

    fn load(env: &[(&str, &str)], log: Option<&str>, flags: &Flags) -> Result<Config, String> {
        let env = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        Config::load_dev_from(None, env, log, flags).map_err(|error| error.to_string())
    }

    #[test]
    fn the_defaults_suit_tests_and_give_way() {
        let none = Flags::default();
        let config = load(&[], None, &none).unwrap();
        assert_eq!((config.listen.to_string().as_str(), config.log.as_str()), ("127.0.0.1:0", LOG));
        let known = Config { listen: config.listen, log: config.log.clone(), ..Config::default() };
        let known = Config {
            drain_delay: config.drain_delay,
            drain_timeout: config.drain_timeout,
            ..known
        };
        assert_eq!(config, known);
        assert_eq!(load(&[], Some("debug"), &none).unwrap().log, "debug");
        let env = [("FENCEGATE_LOG", "error"), ("FENCEGATE_KEYS_KEPT", "2m")];
        let config = load(&env, Some("debug"), &none).unwrap();
        assert_eq!((config.log.as_str(), config.keys_kept.as_secs()), ("error", 120));
        assert_eq!(load(&[], None, &flags("--listen 127.0.0.1:9")).unwrap().listen.port(), 9);
    }

    #[test]
    fn what_is_elsewhere_is_refused_with_its_source() {
        let why = "data_dir (from --data-dir): `fencegate dev` keeps everything in memory";
        assert_eq!(load(&[], None, &flags("--data-dir x")), Err(why.into()));
        let refused = load(&[("FENCEGATE_ETCD", "a:1")], None, &Flags::default()).unwrap_err();
        assert!(refused.starts_with("etcd (from FENCEGATE_ETCD): "), "{refused}");
    }
}
