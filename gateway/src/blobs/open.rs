//! Opening a store by its URL: `file:///...`, `s3://...` or `az://...`.
//!
//! Credentials and endpoints come from the environment, under the names that the stores' own tools
//! use: `AWS_ACCESS_KEY_ID`, `AWS_ENDPOINT_URL`, `AZURE_STORAGE_ACCOUNT_NAME` and so on.

use std::ffi::OsString;
use std::fmt;
use std::path::{Path as FilePath, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ClientOptions, RetryConfig};
use reqwest::Url;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::ObjectBlobs;
use crate::this_machine::is_this_machine;

/// How long a store may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a store may be silent in the middle of something.
const READ_TIMEOUT: Duration = Duration::from_secs(30);
/// How long a request is tried again.
const RETRY_TIMEOUT: Duration = Duration::from_secs(15);
/// How often.
const RETRIES_MAX: usize = 4;
/// A proxy that nothing is sent to.
const NO_PROXY: &str = "http://127.0.0.1:9";
/// All names and addresses of this machine, as a list of what no proxy is for.
const THIS_MACHINE: &str = "localhost,127.0.0.0/8,::1";

/// Where the blobs are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BlobsUrl {
    /// A folder on this machine.
    Folder(PathBuf),
    /// S3, or what speaks like it.
    S3 {
        /// The bucket.
        bucket: String,
        /// What all names begin with.
        prefix: String,
    },
    /// Azure Blob Storage.
    Azure {
        /// The container.
        container: String,
        /// What all names begin with.
        prefix: String,
    },
}

/// A URL that names no store that can be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{0:?} is not a blob store: give file:///folder, s3://bucket/prefix or az://container/prefix"
)]
pub struct BlobsUrlError(String);

impl BlobsUrl {
    /// Reads a URL. It has no credentials, query or fragment: flags and files are seen by many.
    pub fn parse(text: &str) -> Result<Self, BlobsUrlError> {
        let wrong = || BlobsUrlError(text.to_owned());
        let (scheme, rest) = text.split_once("://").ok_or_else(wrong)?;
        if rest.contains(['?', '#', '@', '\\', '%']) || rest.chars().any(char::is_control) {
            return Err(wrong());
        }
        if scheme == "file" {
            let path = PathBuf::from(rest);
            let plain = path.components().all(|part| part != std::path::Component::ParentDir);
            return (path.is_absolute() && plain).then_some(Self::Folder(path)).ok_or_else(wrong);
        }
        let (root, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = prefix.trim_end_matches('/').to_owned();
        let plain = |part: &str| !matches!(part, "" | "." | "..");
        if root.is_empty() || !(prefix.is_empty() || prefix.split('/').all(plain)) {
            return Err(wrong());
        }
        match scheme {
            "s3" => Ok(Self::S3 { bucket: root.to_owned(), prefix }),
            "az" => Ok(Self::Azure { container: root.to_owned(), prefix }),
            _ => Err(wrong()),
        }
    }

    /// The host of the store, if it is reached over a network without TLS by this environment.
    pub fn plain_host(
        &self,
        environment: impl Iterator<Item = (OsString, OsString)>,
    ) -> Option<String> {
        let environment: Vec<_> = lower(environment.filter_map(text)).collect();
        match self {
            Self::Folder(_) => None,
            Self::S3 { .. } => plain(&environment, &S3_ENDPOINTS),
            Self::Azure { .. } => plain(&environment, &AZURE_ENDPOINTS),
        }
    }
}

/// A variable, if it is text.
fn text((name, value): (OsString, OsString)) -> Option<(String, String)> {
    Some((name.into_string().ok()?, value.into_string().ok()?))
}

/// With names in lower case.
fn lower(
    environment: impl Iterator<Item = (String, String)>,
) -> impl Iterator<Item = (String, String)> {
    environment.map(|(name, value)| (name.to_ascii_lowercase(), value))
}

impl fmt::Display for BlobsUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path) => write!(f, "file://{}", path.display()),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
            Self::Azure { container, prefix } => write!(f, "az://{container}/{prefix}"),
        }
    }
}

impl Serialize for BlobsUrl {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for BlobsUrl {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(from)?).map_err(serde::de::Error::custom)
    }
}

impl ObjectBlobs {
    /// Opens a store, with the environment of this process. A folder is made if it is not there;
    /// nothing else is asked of the store yet.
    pub fn open(url: &BlobsUrl) -> anyhow::Result<Self> {
        Self::open_with(url, std::env::vars_os().filter_map(text))
    }

    /// Opens a store with the environment that is given.
    pub fn open_with(
        url: &BlobsUrl,
        environment: impl Iterator<Item = (String, String)>,
    ) -> anyhow::Result<Self> {
        let environment: Vec<_> = lower(environment).collect();
        match url {
            BlobsUrl::Folder(path) => Self::folder(path),
            BlobsUrl::S3 { bucket, prefix } => {
                let mut builder =
                    AmazonS3Builder::new().with_unsigned_payload(is_guarded(&environment));
                for (name, value) in environment.iter().filter(|(name, _)| name.starts_with("aws_"))
                {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder = builder
                    .with_bucket_name(bucket)
                    .with_client_options(client(&environment, "aws_allow_http", &S3_ENDPOINTS))
                    .with_retry(retries());
                let store = Arc::new(builder.build().context("the S3 store")?);
                Ok(Self {
                    objects: Arc::clone(&store) as _,
                    multipart: Some(store),
                    folder: None,
                    prefix: Path::from(prefix.as_str()),
                })
            }
            BlobsUrl::Azure { container, prefix } => {
                let mut builder = MicrosoftAzureBuilder::new();
                for (name, value) in
                    environment.iter().filter(|(name, _)| name.starts_with("azure_"))
                {
                    if let Ok(key) = name.parse() {
                        builder = builder.with_config(key, value);
                    }
                }
                let builder = builder
                    .with_container_name(container)
                    .with_client_options(client(&environment, "azure_allow_http", &AZURE_ENDPOINTS))
                    .with_retry(retries());
                let store = builder.build().context("the Azure store")?;
                Ok(Self {
                    objects: Arc::new(store),
                    // Azure forgets blocks that were never committed, by itself.
                    multipart: None,
                    folder: None,
                    prefix: Path::from(prefix.as_str()),
                })
            }
        }
    }

    /// A folder. What is stored there is on disk before anybody is told so.
    fn folder(path: &FilePath) -> anyhow::Result<Self> {
        let failed = || format!("cannot use the folder {} for blobs", path.display());
        private(path).with_context(failed)?;
        let path = path.canonicalize().with_context(failed)?;
        let store = LocalFileSystem::new_with_prefix(&path).with_context(failed)?.with_fsync(true);
        Ok(Self {
            objects: Arc::new(store),
            multipart: None,
            folder: Some(path),
            prefix: Path::default(),
        })
    }
}

/// Whether what is sent to an S3 server cannot be changed on its way there: by TLS, or since it does not leave
/// the machine. Its bytes need not be part of the signature then, which would take a digest of their own, as
/// much work as all else that is done with them. `AWS_UNSIGNED_PAYLOAD` says otherwise.
fn is_guarded(environment: &[(String, String)]) -> bool {
    plain(environment, &S3_ENDPOINTS).is_none()
}

/// Where the environment says that an S3 server is, and that an Azure one is; the first that is there counts.
const S3_ENDPOINTS: [&str; 3] = ["aws_endpoint_url_s3", "aws_endpoint_url", "aws_endpoint"];
const AZURE_ENDPOINTS: [&str; 2] = ["azure_endpoint", "azure_storage_endpoint"];

/// The place of a store that is reached over a network without TLS.
fn plain(environment: &[(String, String)], endpoints: &[&str]) -> Option<String> {
    let url = endpoint(environment, endpoints)?;
    let host = url.host_str().unwrap_or_default();
    (url.scheme() != "https" && !is_this_machine(host)).then(|| host.to_owned())
}

/// The endpoint of a store that the environment names.
fn endpoint(environment: &[(String, String)], endpoints: &[&str]) -> Option<Url> {
    let named = |name: &&str| environment.iter().find(|(is, _)| is == name).map(|(_, url)| url);
    endpoints.iter().find_map(named)?.parse().ok()
}

/// Makes a folder, if it is new, for nobody else to read.
fn private(path: &FilePath) -> std::io::Result<()> {
    use std::os::unix::fs::DirBuilderExt as _;
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(path)
}

fn retries() -> RetryConfig {
    RetryConfig { max_retries: RETRIES_MAX, retry_timeout: RETRY_TIMEOUT, ..RetryConfig::default() }
}

/// A stream may take as long as it likes, but not stand still. Plain HTTP only where the environment
/// asks for it. What does not leave the machine goes through no proxy, whatever the environment says.
fn client(environment: &[(String, String)], allow_http: &str, endpoints: &[&str]) -> ClientOptions {
    let said = |(name, value): &(String, String)| {
        name == allow_http && matches!(value.as_str(), "true" | "1")
    };
    let options = ClientOptions::new()
        .with_timeout_disabled()
        .with_connect_timeout(CONNECT_TIMEOUT)
        .with_read_timeout(READ_TIMEOUT)
        .with_allow_http(environment.iter().any(said));
    let url = endpoint(environment, endpoints);
    match url.is_some_and(|url| is_this_machine(url.host_str().unwrap_or_default())) {
        // The library has no other way to say that there is none: one from which this machine is left out.
        true => options.with_proxy_url(NO_PROXY).with_proxy_excludes(THIS_MACHINE),
        false => options,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stores_are_named_by_urls() {
        let s3 = |bucket: &str, prefix: &str| BlobsUrl::S3 {
            bucket: bucket.into(),
            prefix: prefix.into(),
        };
        assert_eq!(BlobsUrl::parse("file:///var/blobs"), Ok(BlobsUrl::Folder("/var/blobs".into())));
        assert_eq!(BlobsUrl::parse("s3://b"), Ok(s3("b", "")));
        assert_eq!(BlobsUrl::parse("s3://b/a/c/"), Ok(s3("b", "a/c")));
        for text in ["s3://b/a/c", "az://c/", "file:///x"] {
            assert_eq!(BlobsUrl::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for text in [
            "",
            "b",
            "s3://",
            "s3:///a",
            "gs://b",
            "file://blobs",
            "file:///a/../b",
            "s3://b/../c",
            "s3://b//c",
            "s3://key:secret@b",
            "s3://b?x=1",
            "s3://b#x",
            "http://b",
            "s3://b/%2e",
        ] {
            assert!(BlobsUrl::parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bytes_are_signed_where_somebody_could_change_them() {
        for (endpoint, guarded) in [
            ("https://s3.example.org", true),
            ("http://127.0.0.1:9000", true),
            ("http://[::1]:9000", true),
            ("http://localhost:9000", true),
            ("http://10.0.0.7:9000", false),
            ("http://minio:9000/", false),
        ] {
            let environment = [("aws_endpoint_url".to_owned(), endpoint.to_owned())];
            assert_eq!(is_guarded(&environment), guarded, "{endpoint}");
        }
        // The store of AWS itself.
        assert!(is_guarded(&[]));
        let host = |url: &str, name: &str, endpoint: &str| {
            let environment = std::iter::once((name.into(), endpoint.into()));
            BlobsUrl::parse(url).unwrap().plain_host(environment)
        };
        let far = "http://10.0.0.7:10000/account";
        assert_eq!(host("az://c", "AZURE_STORAGE_ENDPOINT", far), Some("10.0.0.7".into()));
        assert_eq!(host("s3://b", "AWS_ENDPOINT_URL", far), Some("10.0.0.7".into()));
        assert_eq!(host("s3://b", "AZURE_STORAGE_ENDPOINT", far), None);
        assert_eq!(host("file:///b", "AWS_ENDPOINT_URL", far), None);
        assert_eq!(host("az://c", "AZURE_STORAGE_ENDPOINT", "http://127.0.0.1:10000"), None);
    }
}
