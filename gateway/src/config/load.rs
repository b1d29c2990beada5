//! The course of the settings: defaults, file, environment and flags are layers of values by name, each over the one
//! before it. What comes out is read as the types of the settings, then checked.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};

use super::listening::SOCKET_PATH_MAX;
use super::names::{ENV_CONFIG, ENV_PREFIX, is_service_link, misspelt, strangers, suggestion};
use super::table::Setting;
use super::{AdminAddress, Config, ConfigError, Flags, Upstream};
use crate::files::{self, FILE_BYTES_MAX};

/// The file that is read if it exists and no other is named.
const DEFAULT_FILE: &str = "fencegate.toml";
/// The socket in the data directory that is listened to.
const OWN_SOCKET: &str = "admin.sock";

impl Config {
    /// Loads the settings from the file, the environment and the flags of this process; also what there is
    /// to be warned of.
    pub fn load(flags: &Flags) -> Result<(Self, Vec<String>), ConfigError> {
        let env = own_variables()?;
        let file = named_file(&env, flags)
            .or_else(|| Path::new(DEFAULT_FILE).exists().then(|| DEFAULT_FILE.into()));
        let mut warnings = strangers(env.iter().map(|(name, _)| name.as_str()));
        let given = Given::new(Layer::new(), file.as_deref(), env.into_iter(), flags)?;
        let config = Self::of(&given)?;
        warnings.extend(config.warnings());
        if !given.has("admin_listen") {
            warnings.extend(config.socket_trouble());
        }
        Ok((config, warnings))
    }

    /// Loads the settings from what is given, and from nothing else.
    pub fn load_from(
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        Self::of(&Given::new(Layer::new(), file, env, flags)?)
    }

    fn of(given: &Given) -> Result<Self, ConfigError> {
        let mut config = given.read()?;
        if !given.has("admin_listen") && !config.is_shared() {
            config.admin_listen.extend(config.own_socket());
        }
        Ok(config)
    }

    /// The socket in the data directory; none if its path is longer than one may be.
    fn own_socket(&self) -> Option<AdminAddress> {
        AdminAddress::at(self.own_socket_path()?)
    }

    fn own_socket_path(&self) -> Option<PathBuf> {
        std::path::absolute(self.data_dir.join(OWN_SOCKET)).ok()
    }

    /// The reason why commands cannot reach the gateway that uses the data directory: no socket can be there.
    pub fn socket_trouble(&self) -> Option<String> {
        let is_there = |at: &AdminAddress| matches!(at, AdminAddress::Unix(_));
        if self.is_shared() || self.admin_listen.iter().any(is_there) || self.own_socket().is_some()
        {
            return None;
        }
        let path = self.own_socket_path()?;
        Some(format!(
            "there is no {OWN_SOCKET} in the data directory, and so no command reaches the gateway that uses it: the path {} \
             is no text, or has more than the {SOCKET_PATH_MAX} bytes that a socket may have; name a shorter data_dir, or \
             admin_listen = [\"unix:/PATH\"]",
            path.display()
        ))
    }
}

/// Values by the names of their settings. They are those of JSON: with TOML's own, a date would be taken for a text, and
/// an error would quote a number that is too long for them, such as a password without quotation marks.
pub(super) type Layer = Map<String, Value>;

/// The place where a value is written.
#[derive(Clone)]
enum Source {
    /// The defaults of `fencegate dev`. Those of `serve` are no layer: `Config` has them.
    Dev,
    File(String),
    Environment,
    CommandLine,
}

/// The layers as one: the last value of each setting, and its source.
pub(super) struct Given {
    values: Layer,
    sources: BTreeMap<String, Source>,
}

impl Given {
    /// Lays the file over these defaults, the environment over that, and the flags over all.
    pub(super) fn new(
        defaults: Layer,
        file: Option<&Path>,
        env: impl Iterator<Item = (String, String)>,
        flags: &Flags,
    ) -> Result<Self, ConfigError> {
        let mut given = Self { values: Layer::new(), sources: BTreeMap::new() };
        given.lay(Source::Dev, defaults);
        if let Some(path) = file {
            given.lay(Source::File(path.display().to_string()), of_file(path)?);
        }
        given.lay(Source::Environment, of_environment(env)?);
        given.lay(Source::CommandLine, flags.values.clone());
        Ok(given)
    }

    fn lay(&mut self, source: Source, layer: Layer) {
        self.sources.extend(layer.keys().map(|name| (name.clone(), source.clone())));
        self.values.extend(layer);
    }

    /// The settings that these come to, checked.
    pub(super) fn read(&self) -> Result<Config, ConfigError> {
        let config = serde_path_to_error::deserialize(&self.values);
        let mut config: Config = config.map_err(|error| {
            let path = error.path().to_string();
            ConfigError(format!("{}: {}", self.place(&path), worded(&path, error.inner())))
        })?;
        config.upstreams.iter_mut().for_each(Upstream::complete);
        config.check(self)?;
        Ok(config)
    }

    /// Tells whether a setting has a value in any layer.
    pub(super) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    /// Tells whether the value of a setting is from a file.
    pub(super) fn is_from_file(&self, name: &str) -> bool {
        matches!(self.sources.get(name), Some(Source::File(_)))
    }

    /// The beginning of an error text: a setting, from which the path may lead on into a list, and the source of its value.
    pub(super) fn place(&self, path: &str) -> String {
        let given = setting_of(path).and_then(|it| Some((it, self.sources.get(it.name)?)));
        let source = match given {
            None => return path.to_owned(),
            Some((_, Source::Dev)) => "the defaults of dev".into(),
            Some((_, Source::File(path))) => path.clone(),
            Some((it, Source::Environment)) => it.variable(),
            Some((it, Source::CommandLine)) => format!("--{}", it.flag()),
        };
        format!("{path} (from {source})")
    }
}

/// The setting at the beginning of a path such as `upstreams[0].timeout`.
fn setting_of(path: &str) -> Option<&'static Setting> {
    path.split(['.', '[']).next().and_then(Setting::named)
}

/// The trouble with the type or the form of a value. A secret may be of a wrong type, and is not quoted then.
fn worded(path: &str, error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(", expected ") {
        Some((_, expected)) if setting_of(path).is_some_and(|it| it.is_secret) => {
            format!("it must be {expected}")
        }
        _ => text.strip_prefix("invalid type: ").map_or(text.clone(), |it| format!("found {it}")),
    }
}

/// Reads a TOML file.
fn of_file(path: &Path) -> Result<Layer, ConfigError> {
    let source = path.display();
    let text = files::read_given_text(path, FILE_BYTES_MAX)
        .map_err(|error| ConfigError(format!("cannot read {source}: {error}")))?;
    // Not the parser's own text: it quotes the line, which may hold a secret.
    let values: Layer = toml::from_str(&text).map_err(|error| {
        let before = error.span().and_then(|span| text.get(..span.start));
        let line = before.map_or(1, |before| before.matches('\n').count() + 1);
        ConfigError(format!("{source} is not valid TOML: line {line}: {}", error.message()))
    })?;
    match values.keys().find(|name| Setting::named(name).is_none()) {
        Some(name) => {
            Err(ConfigError(format!("{source}: {name} is not a setting{}", suggestion(name))))
        }
        None => Ok(values),
    }
}

/// Reads the variables that begin with `FENCEGATE_`, and ignores all others.
///
/// One that is no setting may be somebody else's, such as a script's own: [`strangers`] tells of it. One that
/// looks like a misspelt setting is refused: the setting would silently not be in force.
fn of_environment(variables: impl Iterator<Item = (String, String)>) -> Result<Layer, ConfigError> {
    let mut values = Layer::new();
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        if variable == ENV_CONFIG || is_service_link(rest) {
            continue;
        }
        let name = rest.to_ascii_lowercase();
        // Only upper case, so that no two variables stand for one setting.
        if let Some(setting) = Setting::named(&name).filter(|it| it.variable() == variable) {
            values.insert(name, setting.kind.value(&setting.kind.split(&text)));
        } else if let Some(meant) = misspelt(&name) {
            return Err(ConfigError(format!(
                "{variable} in the environment is not a setting; did you mean {}?",
                meant.variable()
            )));
        }
    }
    Ok(values)
}

/// The variables of this process that begin with `FENCEGATE_`.
pub(super) fn own_variables() -> Result<Vec<(String, String)>, ConfigError> {
    let ours = std::env::vars_os().filter_map(|(name, value)| {
        let name = name.into_string().ok()?;
        name.starts_with(ENV_PREFIX).then(|| match value.into_string() {
            Ok(value) => Ok((name.clone(), value)),
            Err(_) => Err(ConfigError(format!("{name} is not valid UTF-8"))),
        })
    });
    ours.collect()
}

/// The file that a flag or the environment names.
pub(super) fn named_file(env: &[(String, String)], flags: &Flags) -> Option<PathBuf> {
    let variable = || env.iter().find(|(name, _)| name == ENV_CONFIG);
    flags.config.clone().or_else(|| variable().map(|(_, value)| PathBuf::from(value)))
}
