//! Where settings come from, each source as a layer that remembers its name for error texts.

use std::path::{Path, PathBuf};

use figment::error::Kind as Trouble;
use figment::providers::{Format as _, Toml};
use figment::value::{Dict, Map, Value};
use figment::{Error, Figment, Metadata, Profile, Provider};

use super::table::Setting;
use super::{ConfigError, Flags, SETTINGS};

/// What variables of the environment begin with.
pub(super) const ENV_PREFIX: &str = "FENCEGATE_";
/// The variable that names the file.
pub(super) const ENV_CONFIG: &str = "FENCEGATE_CONFIG";

const ENVIRONMENT: &str = "the environment";
const COMMAND_LINE: &str = "the command line";

/// Settings from one source.
pub(super) struct Layer {
    source: String,
    values: Dict,
}

impl Provider for Layer {
    fn metadata(&self) -> Metadata {
        Metadata::named(self.source.clone())
    }

    fn data(&self) -> Result<Map<Profile, Dict>, Error> {
        Ok(Profile::Default.collect(self.values.clone()))
    }
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

/// Lays the file, the environment and the flags over what there is.
pub(super) fn over(
    mut figment: Figment,
    from: Option<&Path>,
    env: impl Iterator<Item = (String, String)>,
    given: &Flags,
) -> Result<Figment, ConfigError> {
    if let Some(path) = from {
        figment = figment.merge(file(path)?);
    }
    Ok(figment.merge(environment(env)?).merge(flags(given)))
}

/// Defaults other than those of `serve`.
pub(super) fn defaults(of: &str, values: &[(&str, &str)]) -> Layer {
    let values = values.iter().map(|(name, value)| ((*name).to_owned(), Value::from(*value)));
    Layer { source: format!("the defaults of {of}"), values: values.collect() }
}

/// Reads a TOML file.
pub(super) fn file(path: &Path) -> Result<Layer, ConfigError> {
    let source = path.display().to_string();
    let text = std::fs::read_to_string(path)
        .map_err(|error| ConfigError(format!("cannot read {source}: {error}")))?;
    // Not the parser's own text: it quotes the line, which may hold a secret.
    let values: Dict = Toml::from_str(&text).map_err(|error| {
        let line = error
            .span()
            .and_then(|span| text.get(..span.start))
            .map_or(1, |before| before.matches('\n').count() + 1);
        ConfigError(format!("{source} is not valid TOML: line {line}: {}", error.message()))
    })?;
    if let Some(name) = values.keys().find(|name| Setting::named(name).is_none()) {
        return Err(ConfigError(format!("{source}: {name} is not a setting{}", suggestion(name))));
    }
    Ok(Layer { source, values })
}

/// Reads the variables that begin with `FENCEGATE_`, and ignores all others.
///
/// One that is no setting may be somebody else's, such as a script's own: [`strangers`] tells of it. One that
/// looks like a misspelt setting is refused: the setting would silently not be in force.
pub(super) fn environment(
    variables: impl Iterator<Item = (String, String)>,
) -> Result<Layer, ConfigError> {
    let mut values = Dict::new();
    for (variable, text) in variables {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else {
            continue;
        };
        if variable == ENV_CONFIG || is_service_link(rest) {
            continue;
        }
        let name = rest.to_ascii_lowercase();
        // Only upper case, so that no two variables stand for one setting.
        let known = Setting::named(&name).filter(|_| name.to_ascii_uppercase() == rest);
        match known {
            Some(setting) => {
                values.insert(name, setting.kind.value(&setting.kind.split(&text)));
            }
            None => {
                if let Some(meant) = misspelt(&name) {
                    return Err(ConfigError(format!(
                        "{variable} in {ENVIRONMENT} is not a setting; did you mean {ENV_PREFIX}{}?",
                        meant.to_ascii_uppercase()
                    )));
                }
            }
        }
    }
    Ok(Layer { source: ENVIRONMENT.into(), values })
}

/// A warning for each variable that begins as ours do and is passed over.
pub(super) fn strangers<'v>(variables: impl Iterator<Item = &'v str>) -> Vec<String> {
    let mut warnings = Vec::new();
    for variable in variables.filter(|variable| *variable != ENV_CONFIG) {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        let name = rest.to_ascii_lowercase();
        if Setting::named(&name).is_none() && !is_service_link(rest) {
            let hint = suggestion(&name);
            warnings
                .push(format!("{variable} in {ENVIRONMENT} is not a setting and ignored{hint}"));
        }
    }
    warnings
}

/// The setting that a name is a slip of the fingers away from: one wrong, missing, additional or swapped
/// letter for each four.
fn misspelt(name: &str) -> Option<&'static str> {
    let allowed = (name.len() / 4).clamp(1, 3);
    let distance = |setting: &str| strsim::damerau_levenshtein(name, setting);
    let near = SETTINGS.iter().map(|setting| (distance(setting.name), setting.name));
    near.filter(|(distance, _)| *distance <= allowed).min().map(|(_, setting)| setting)
}

/// Kubernetes gives each container such variables about each service of its namespace, under the
/// name of the service, which is likely to be `fencegate`.
fn is_service_link(rest: &str) -> bool {
    let begins = ["PORT_", "SERVICE_PORT_"];
    ["PORT", "SERVICE_HOST", "SERVICE_PORT"].contains(&rest)
        || begins.iter().any(|begin| rest.starts_with(begin))
}

/// Takes over the flags that were given.
pub(super) fn flags(flags: &Flags) -> Layer {
    Layer { source: COMMAND_LINE.into(), values: flags.values.clone() }
}

/// A setting and where its value came from, for the beginning of an error text.
pub(super) fn place(figment: &Figment, name: &str) -> String {
    match figment.find_metadata(name) {
        Some(metadata) => from(name, &metadata.name),
        None => name.to_owned(),
    }
}

/// Whether the value of a setting came from a file.
pub(super) fn from_file(figment: &Figment, name: &str) -> bool {
    let source = figment.find_metadata(name).map(|metadata| metadata.name.clone());
    source.is_some_and(|source| source != ENVIRONMENT && source != COMMAND_LINE)
}

/// The trouble with the type or the form of a value, in our own words where figment's are odd.
pub(super) fn explain(error: &Error) -> ConfigError {
    let name = error.path.join(".");
    let place = match &error.metadata {
        Some(metadata) => from(&name, &metadata.name),
        None => name.clone(),
    };
    // A value that should have been hidden may be of the wrong type; do not quote it.
    let setting = error.path.first().and_then(|name| Setting::named(name));
    let secret = setting.is_some_and(|setting| setting.is_secret);
    let what = match &error.kind {
        Trouble::InvalidType(_, expected) | Trouble::InvalidValue(_, expected) if secret => {
            format!("it must be {expected}")
        }
        Trouble::InvalidType(found, expected) => format!("found {found}, expected {expected}"),
        other => other.to_string(),
    };
    ConfigError(format!("{place}: {what}"))
}

/// Where a value came from, behind the name of its setting, which may lead on into a list.
fn from(name: &str, source: &str) -> String {
    let setting = name.split('.').next().unwrap_or_default();
    let place = match (source, Setting::named(setting)) {
        (ENVIRONMENT, _) => format!("{ENV_PREFIX}{}", setting.to_ascii_uppercase()),
        (COMMAND_LINE, Some(setting)) => format!("--{}", setting.flag()),
        (file, _) => file.to_owned(),
    };
    format!("{name} (from {place})")
}

/// The setting that was probably meant, for a name that is none.
fn suggestion(name: &str) -> String {
    let plain = |text: &str| text.replace(['-', '_'], "").to_ascii_lowercase();
    let wanted = plain(name);
    let near = SETTINGS.iter().find(|setting| {
        let setting = plain(setting.name);
        setting == wanted || setting.starts_with(&wanted) || wanted.starts_with(&setting)
    });
    match near {
        Some(setting) if !wanted.is_empty() => format!("; is {} meant?", setting.name),
        _ => "; docs/config.md lists all".into(),
    }
}
