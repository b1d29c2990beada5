//! The reading of a URL of Postgres. Forms and parameters of libpq's that the gateway does not have are refused by name: what is
//! passed over silently is missed when it is needed.

use std::str::FromStr as _;

use reqwest::Url;
use sqlx::postgres::PgConnectOptions;

/// The parameters that count.
const PARAMETERS: [&str; 16] = [
    "sslmode",
    "ssl-mode",
    "sslrootcert",
    "ssl-root-cert",
    "ssl-ca",
    "sslcert",
    "ssl-cert",
    "sslkey",
    "ssl-key",
    "host",
    "hostaddr",
    "port",
    "dbname",
    "user",
    "password",
    "application_name",
];
/// Parameters that count as well, and that no misspelt name is taken for.
const RARE: [&str; 2] = ["options", "statement-cache-capacity"];
/// Parameters of libpq's that are refused.
const OF_LIBPQ: [&str; 36] = [
    "channel_binding",
    "client_encoding",
    "connect_timeout",
    "fallback_application_name",
    "gssdelegation",
    "gssencmode",
    "gsslib",
    "keepalives",
    "keepalives_count",
    "keepalives_idle",
    "keepalives_interval",
    "krbsrvname",
    "load_balance_hosts",
    "max_protocol_version",
    "min_protocol_version",
    "passfile",
    "replication",
    "require_auth",
    "requirepeer",
    "requiressl",
    "scram_client_key",
    "scram_server_key",
    "service",
    "servicefile",
    "sslcertmode",
    "sslcompression",
    "sslcrl",
    "sslcrldir",
    "sslkeylogfile",
    "sslnegotiation",
    "sslpassword",
    "sslsni",
    "ssl_max_protocol_version",
    "ssl_min_protocol_version",
    "target_session_attrs",
    "tcp_user_timeout",
];

const NO_URL: &str = "it is not a URL such as postgres://user:password@host:5432/database";
const SEVERAL_HOSTS: &str =
    "several hosts are not supported: name one, such as an address that moves with the primary";

/// Reads a URL.
///
/// # Errors
/// The URL cannot be used; the reason has no part of it but the name of a parameter of libpq's.
pub(super) fn options_of(text: &str) -> Result<PgConnectOptions, String> {
    if !text.starts_with("postgres://") && !text.starts_with("postgresql://") {
        return Err("it does not begin with postgres://".into());
    }
    hosts(text)?;
    let mut url = Url::parse(text).map_err(|_| NO_URL)?;
    let mut names_host = false;
    for (name, value) in url.query_pairs() {
        parameter(&name)?;
        if ["host", "hostaddr", "port"].contains(&&*name) && value.contains(',') {
            return Err(SEVERAL_HOSTS.into());
        }
        names_host |= ["host", "hostaddr"].contains(&&*name);
    }
    // The driver takes the brackets of an address for a part of it, but for those of a parameter.
    let address = url.host_str().and_then(|host| host.strip_prefix('[')?.strip_suffix(']'));
    if let Some(address) = address.map(str::to_owned) {
        url.set_host(Some("localhost")).map_err(|_| NO_URL)?;
        if !names_host {
            url.query_pairs_mut().append_pair("host", &address);
        }
    }
    PgConnectOptions::from_str(url.as_str()).map_err(|_| NO_URL.into())
}

/// Refuses what libpq takes between `//` and the database, and the driver does not.
fn hosts(text: &str) -> Result<(), String> {
    let (_, rest) = text.split_once("://").ok_or(NO_URL)?;
    let place = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (account, host) =
        place.rsplit_once('@').map_or((None, place), |(it, host)| (Some(it), host));
    if host.contains(',') {
        return Err(SEVERAL_HOSTS.into());
    }
    if account.is_some() && (host.is_empty() || host.starts_with(':')) {
        let why = "a user without a host is not supported: write postgres:///database?user=NAME&host=/FOLDER";
        return Err(why.into());
    }
    Ok(())
}

fn parameter(name: &str) -> Result<(), String> {
    let is_option = name.starts_with("options[") && name.ends_with(']');
    if PARAMETERS.contains(&name) || RARE.contains(&name) || is_option {
        return Ok(());
    }
    if let Some(known) = OF_LIBPQ.iter().find(|known| **known == name) {
        return Err(format!("the parameter {known} is not supported: take it out"));
    }
    // Its name is not said again: it may be a piece of a password that should have been encoded.
    let distance = |known: &str| strsim::damerau_levenshtein(name, known);
    let nearest = PARAMETERS.iter().chain(&OF_LIBPQ).min_by_key(|known| (distance(known), **known));
    match nearest.filter(|known| distance(known) <= (known.len() / 4).max(1)) {
        Some(near) => Err(format!("it has a parameter that there is not; is {near} meant?")),
        None => Err(format!(
            "it has a parameter that there is not; there are: {}",
            [&PARAMETERS[..], &RARE].concat().join(", ")
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host_of(text: &str) -> String {
        options_of(text).unwrap_or_else(|why| panic!("{text}: {why}")).get_host().to_owned()
    }

    #[test]
    fn an_address_with_brackets_is_that_address() {
        assert_eq!(host_of("postgres://u:p@[::1]:5433/x"), "::1");
        assert_eq!(host_of("postgres://[fd00::7]/x?sslmode=verify-full"), "fd00::7");
        assert_eq!(host_of("postgres://u@[::1]/x?host=db"), "db");
        assert_eq!(host_of("postgres://u@[::1]/x?hostaddr=10.0.0.5"), "10.0.0.5");
        assert_eq!(host_of("postgres://u@db/x"), "db");
        let options = options_of("postgres://u:p@[::1]:5433/x?application_name=a").unwrap();
        assert_eq!((options.get_port(), options.get_username()), (5433, "u"));
        assert_eq!(options.get_database(), Some("x"));
        assert_eq!(options.get_application_name(), Some("a"));
    }

    #[test]
    fn what_the_gateway_does_not_have_is_refused_by_name() {
        let refused = |rest: &str| options_of(&format!("postgres://{rest}")).unwrap_err();
        for several in
            ["u@a,b/x", "u:p@a:1,b:2/x", "u@[::1],[::2]/x", "u@a/x?host=a,b", "a/x?port=1,2"]
        {
            assert_eq!(refused(several), SEVERAL_HOSTS, "{several}");
        }
        for hostless in ["u@/x?host=/run", "u:p@:5432/x"] {
            assert!(refused(hostless).starts_with("a user without a host"), "{hostless}");
        }
        for name in ["target_session_attrs", "connect_timeout", "sslpassword"] {
            let why = refused(&format!("u@a/x?{name}=7"));
            assert_eq!(why, format!("the parameter {name} is not supported: take it out"));
        }
        for (name, near) in [
            ("sslrootcrt", "sslrootcert"),
            ("ssl_mode", "ssl-mode"),
            ("target_sesion_attrs", "target_session_attrs"),
            ("pasword", "password"),
        ] {
            let why = refused(&format!("u@a/x?{name}=7"));
            assert!(why.ends_with(&format!("is {near} meant?")), "{name}: {why}");
        }
        let why = refused("u@a/x?hunter2=7");
        assert!(why.contains("there are: sslmode") && !why.contains("hunter2"), "{why}");
        assert_eq!(refused("u@a:port/x"), NO_URL);
        for good in ["a/x?options=-c%20a%3Db", "a/x?options[a]=b", "/x?user=u&host=/run"] {
            assert!(options_of(&format!("postgres://{good}")).is_ok(), "{good}");
        }
    }
}
