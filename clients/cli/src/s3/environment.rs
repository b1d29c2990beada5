//! Which variables S3 tools read: so that each of them writes under the lock, and none under anything else.

use std::path::Path;

use fencegate_client::S3Access;

use super::endpoint::Endpoint;

/// Variables that lead a tool to another key, another place, or no signature at all. They are taken out.
const MISLEADING: &[&str] = &[
    // Other sources of keys. The SDK for JavaScript takes no key from the environment beside a profile.
    "AWS_PROFILE",
    "AWS_DEFAULT_PROFILE",
    "AWS_ROLE_ARN",
    "AWS_ROLE_SESSION_NAME",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN",
    "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "RCLONE_S3_PROFILE",
    "PGBACKREST_REPO1_S3_ROLE",
    // Session tokens of other keys, under the names that tools have for them.
    "AWS_SESSION_TOKEN",
    "AWS_SECURITY_TOKEN",
    "AWS_TOKEN",
    "RCLONE_S3_SESSION_TOKEN",
    "PGBACKREST_REPO1_S3_TOKEN",
    // The SDKs would pass over the endpoint that is set, or not accept it.
    "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS",
    "AWS_USE_FIPS_ENDPOINT",
    "AWS_USE_DUALSTACK_ENDPOINT",
    // Nothing would be signed: by the crate object_store, and by GDAL.
    "AWS_SKIP_SIGNATURE",
    "AWS_NO_SIGN_REQUEST",
];

/// What a process has to have, and not to have, in its environment to write under a lock.
pub struct Environment {
    /// Variables and their values.
    pub set: Vec<(&'static str, String)>,
    /// Variables that have to be absent.
    pub unset: &'static [&'static str],
}

impl Environment {
    /// For this key at this place. The certificates in `ca_file` are trusted by tools that can be told so for S3 alone.
    pub fn of(access: &S3Access, endpoint: &Endpoint, ca_file: Option<&Path>) -> Self {
        let S3Access { region, access_key_id, secret_access_key, .. } = access;
        let mut set = sdks(access, endpoint);
        let mut add = |name, value: &str| set.push((name, value.to_owned()));
        // DuckDB wants no scheme.
        add("DUCKDB_S3_ENDPOINT", endpoint.host());
        add("DUCKDB_S3_USE_SSL", if endpoint.is_http() { "false" } else { "true" });
        // rclone takes these for all remotes of type s3, and before what its file says of them: a key in the file would
        // be used otherwise.
        add("RCLONE_S3_PROVIDER", "Other");
        add("RCLONE_S3_ENV_AUTH", "true");
        add("RCLONE_S3_ENDPOINT", &endpoint.url());
        add("RCLONE_S3_REGION", region);
        add("RCLONE_S3_ACCESS_KEY_ID", access_key_id);
        add("RCLONE_S3_SECRET_ACCESS_KEY", secret_access_key);
        // pgBackRest, too, takes them before its file. It speaks https alone: with http it says so, which is better than
        // to write with the key in the file.
        add("PGBACKREST_REPO1_S3_KEY_TYPE", "shared");
        add("PGBACKREST_REPO1_S3_KEY", access_key_id);
        add("PGBACKREST_REPO1_S3_KEY_SECRET", secret_access_key);
        add("PGBACKREST_REPO1_S3_ENDPOINT", &endpoint.url());
        add("PGBACKREST_REPO1_S3_REGION", region);
        add("PGBACKREST_REPO1_S3_URI_STYLE", "path");
        if let (false, Some(file)) = (endpoint.is_http(), ca_file.and_then(Path::to_str)) {
            // Not those of rclone and Node: they are for all that such a program talks to.
            for name in ["AWS_CA_BUNDLE", "RESTIC_CACERT", "PGBACKREST_REPO1_STORAGE_CA_FILE"] {
                add(name, file);
            }
        }
        Self { set, unset: MISLEADING }
    }
}

/// What the SDKs read, and whatever is made with them or takes their names: restic, barman, WAL-G, s5cmd, DuckDB.
fn sdks(access: &S3Access, endpoint: &Endpoint) -> Vec<(&'static str, String)> {
    let (url, region) = (endpoint.url(), access.region.clone());
    let mut set = vec![
        ("AWS_ACCESS_KEY_ID", access.access_key_id.clone()),
        ("AWS_SECRET_ACCESS_KEY", access.secret_access_key.clone()),
        ("AWS_ENDPOINT_URL_S3", url.clone()),
        // For SDKs that do not know the name above yet. They take it for all services.
        ("AWS_ENDPOINT_URL", url.clone()),
        // The same to WAL-G, and to the crate object_store, in which the last of both names wins.
        ("AWS_ENDPOINT", url.clone()),
        ("S3_ENDPOINT_URL", url),
        ("AWS_REGION", region.clone()),
        ("AWS_DEFAULT_REGION", region),
        // No SDK looks for the keys of the machine that it runs on.
        ("AWS_EC2_METADATA_DISABLED", "true".to_owned()),
        // Buckets are named in paths: to object_store, and to WAL-G.
        ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "false".to_owned()),
        ("AWS_S3_FORCE_PATH_STYLE", "true".to_owned()),
    ];
    if endpoint.is_http() {
        // Of the crate object_store.
        set.push(("AWS_ALLOW_HTTP", "true".to_owned()));
    }
    set
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::path::Path;

    use super::*;

    fn access() -> S3Access {
        let text = str::to_owned;
        S3Access {
            endpoint: text("http://127.0.0.1:9000"),
            region: text("eu-1"),
            access_key_id: text("FG1A"),
            secret_access_key: text("secret"),
        }
    }

    #[tokio::test]
    async fn nothing_is_set_and_taken_out() {
        for url in ["http://127.0.0.1:9000", "https://s3.example"] {
            let endpoint = Endpoint::of(url).await.expect("an endpoint");
            let made = Environment::of(&access(), &endpoint, Some(Path::new("/ca.pem")));
            let names: HashSet<_> = made.set.iter().map(|(name, _)| *name).collect();
            assert_eq!(names.len(), made.set.len(), "each is set once");
            assert!(made.unset.iter().all(|name| !names.contains(name)));
            let value = |name: &str| {
                made.set.iter().find(|(it, _)| *it == name).map(|(_, value)| value.as_str())
            };
            let is_http = url.starts_with("http:");
            assert_eq!(value("AWS_ENDPOINT_URL_S3"), Some(url));
            assert_eq!(value("AWS_ALLOW_HTTP"), is_http.then_some("true"));
            assert_eq!(value("AWS_CA_BUNDLE"), (!is_http).then_some("/ca.pem"));
            assert_eq!(value("DUCKDB_S3_USE_SSL"), Some(if is_http { "false" } else { "true" }));
            assert_eq!(value("DUCKDB_S3_ENDPOINT"), url.split_once("//").map(|(_, host)| host));
        }
    }
}
