//! Names that are no setting's: whose they are, and which setting was probably meant.

use super::SETTINGS;
use super::table::Setting;

/// What variables of the environment begin with.
pub(super) const ENV_PREFIX: &str = "FENCEGATE_";
/// The variable that names the file.
pub(super) const ENV_CONFIG: &str = "FENCEGATE_CONFIG";

/// A warning for each variable that begins as ours do and is passed over.
pub(super) fn strangers<'v>(variables: impl Iterator<Item = &'v str>) -> Vec<String> {
    let mut warnings = Vec::new();
    for variable in variables.filter(|variable| *variable != ENV_CONFIG) {
        let Some(rest) = variable.strip_prefix(ENV_PREFIX) else { continue };
        let name = rest.to_ascii_lowercase();
        if Setting::named(&name).is_none() && !is_service_link(rest) {
            let hint = suggestion(&name);
            warnings
                .push(format!("{variable} in the environment is not a setting and ignored{hint}"));
        }
    }
    warnings
}

/// The setting that a name is a slip of the fingers away from: one wrong, missing, additional or swapped
/// letter for each four.
pub(super) fn misspelt(name: &str) -> Option<&'static Setting> {
    let allowed = (name.len() / 4).clamp(1, 3);
    let distance = |setting: &Setting| strsim::damerau_levenshtein(name, setting.name);
    let nearest = SETTINGS.iter().min_by_key(|setting| (distance(setting), setting.name));
    nearest.filter(|setting| distance(setting) <= allowed)
}

/// Kubernetes gives each container such variables about each service of its namespace, under the
/// name of the service, which is likely to be `fencegate`.
pub(super) fn is_service_link(rest: &str) -> bool {
    let begins = ["PORT_", "SERVICE_PORT_"];
    ["PORT", "SERVICE_HOST", "SERVICE_PORT"].contains(&rest)
        || begins.iter().any(|begin| rest.starts_with(begin))
}

/// The setting that was probably meant, for a name that is none.
pub(super) fn suggestion(name: &str) -> String {
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
