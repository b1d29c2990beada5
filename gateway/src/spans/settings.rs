//! Where spans go, by the variables that OpenTelemetry has for all programs.

use std::env;

use super::Exporting;

/// Where to, in order: as it is, or with `/v1/traces` behind it.
const ENDPOINTS: [&str; 2] = ["OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT"];

/// Begins to export spans, if the environment says where to. What is wrong with that is a warning: a gateway that nobody
/// can look into still does its work.
pub fn start() -> Exporting {
    let Some(endpoint) = wanted(&|name| env::var(name).ok()) else { return Exporting::default() };
    Exporting::start(&endpoint).unwrap_or_else(|why| {
        let why = format!("{why:#}");
        tracing::warn!(why, "the environment asks for traces by OTLP, but no spans are exported");
        Exporting::default()
    })
}

/// The endpoint, unless traces are turned off. An empty variable counts as none.
fn wanted(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    let said = |name| variable(name).filter(|value| !value.trim().is_empty());
    let is_off = said("OTEL_SDK_DISABLED").is_some_and(|it| it.eq_ignore_ascii_case("true"))
        || said("OTEL_TRACES_EXPORTER").is_some_and(|it| it == "none");
    ENDPOINTS.into_iter().find_map(said).filter(|_| !is_off)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_environment_says_whether_and_where_to() {
        let wanted = |said: &[(&str, &str)]| {
            let said: Vec<(String, String)> =
                said.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect();
            let found = move |name: &str| said.iter().find(|one| one.0 == name).cloned();
            wanted(&|name| found(name).map(|one| one.1))
        };
        let [traces, all] = ENDPOINTS;
        assert_eq!(wanted(&[]), None);
        assert_eq!(wanted(&[(all, "")]), None);
        assert_eq!(wanted(&[(all, "http://a")]).as_deref(), Some("http://a"));
        assert_eq!(wanted(&[(all, "http://a"), (traces, "http://b")]).as_deref(), Some("http://b"));
        assert_eq!(wanted(&[(all, "http://a"), ("OTEL_SDK_DISABLED", "True")]), None);
        assert_eq!(wanted(&[(all, "http://a"), ("OTEL_TRACES_EXPORTER", "none")]), None);
        let otlp = [(all, "http://a"), ("OTEL_TRACES_EXPORTER", "otlp")];
        assert_eq!(wanted(&otlp).as_deref(), Some("http://a"));
    }
}
