//! A gateway that is asked for rules, buckets and keys, over HTTP.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, bail};
use bytes::Bytes;
use fence_core::wire::{self, Problem};
use fencegate_s3::bucket::{BucketName, Depth};
use reqwest::{Certificate, Client, ClientBuilder, Method, RequestBuilder};
use serde::de::DeserializeOwned;

use crate::cli::credential::{authorities, check_way, credential};

/// How long a call may take: putting rules in force waits for acts under way.
const TIMEOUT: Duration = Duration::from_secs(60);
/// How to find out what came of a call without an answer.
const RULES_UNKNOWN: &str =
    "no whole answer came; see `fencegate access show` for what is in force";
const BUCKETS_UNKNOWN: &str = "no whole answer came; see `fencegate bucket ls` for what there is";
/// What a Unix socket is named by.
const SOCKET: &str = "unix:";

/// A running gateway.
pub(in crate::cli) struct Remote {
    http: Client,
    base: String,
    credential: Option<String>,
}

impl Remote {
    /// The gateway at this URL, with the credential of the file or the environment.
    ///
    /// # Errors
    /// A file cannot be read, or the URL is none.
    pub(super) fn named(url: &str, token_file: Option<&Path>) -> anyhow::Result<Self> {
        let credential = credential(token_file)?;
        if let Some(path) = url.strip_prefix(SOCKET) {
            return Self::at_socket(Path::new(path), credential);
        }
        if !url.starts_with("http://") && !url.starts_with("https://") {
            bail!("--url: it begins with http://, https:// or unix:");
        }
        if credential.is_some() {
            check_way(url)?;
        }
        let mut http = client();
        if let Some(pem) = authorities()? {
            http = http.tls_certs_merge(Certificate::from_pem_bundle(&pem)?);
        }
        let base = url.trim_end_matches('/').to_owned();
        Ok(Self { http: http.build().context("cannot make an HTTP client")?, base, credential })
    }

    /// The gateway at this socket, which knows its caller by the user that it runs as.
    ///
    /// # Errors
    /// No client can be made.
    pub(super) fn at_socket(path: &Path, credential: Option<String>) -> anyhow::Result<Self> {
        let http = client().unix_socket(path).build().context("cannot make an HTTP client")?;
        Ok(Self { http, base: "http://localhost".to_owned(), credential })
    }

    /// A page of the audit with its leaves.
    ///
    /// # Errors
    /// The gateway does not answer, or refuses.
    pub(super) async fn audit_page(&self, from: i64) -> anyhow::Result<wire::AuditExport> {
        self.answer(self.call(Method::GET, &format!("/audit/export?from={from}"))).await
    }

    /// A new key of S3.
    ///
    /// # Errors
    /// The gateway does not answer, or refuses.
    pub(super) async fn new_s3_key(
        &self,
        request: wire::S3KeyRequest,
    ) -> anyhow::Result<wire::S3Key> {
        let call = self.call(Method::POST, "/admin/s3-keys").json(&request);
        read(&self.body(call, "no whole answer came; ask for another key").await?)
    }

    /// All buckets.
    ///
    /// # Errors
    /// The gateway does not answer, or refuses.
    pub(super) async fn buckets(&self) -> anyhow::Result<Vec<wire::Bucket>> {
        let list = self.body(self.call(Method::GET, "/buckets"), BUCKETS_UNKNOWN).await?;
        Ok(read::<wire::BucketList>(&list)?.items)
    }

    /// Makes a bucket.
    ///
    /// # Errors
    /// The gateway refuses, or does not answer.
    pub(super) async fn make_bucket(
        &self,
        name: &BucketName,
        depth: Depth,
    ) -> anyhow::Result<wire::Bucket> {
        let request = wire::BucketRequest { depth: depth.get() };
        let call = self.call(Method::PUT, &format!("/buckets/{}", name.as_str())).json(&request);
        read(&self.body(call, BUCKETS_UNKNOWN).await?)
    }

    /// Deletes a bucket.
    ///
    /// # Errors
    /// The gateway refuses, or does not answer.
    pub(super) async fn drop_bucket(&self, name: &BucketName) -> anyhow::Result<()> {
        let call = self.call(Method::DELETE, &format!("/buckets/{}", name.as_str()));
        self.body(call, BUCKETS_UNKNOWN).await.map(drop)
    }

    /// The rules that are in force.
    ///
    /// # Errors
    /// The gateway does not answer, or refuses.
    pub(super) async fn rules(&self) -> anyhow::Result<wire::AccessRules> {
        self.answer(self.call(Method::GET, "/admin/access")).await
    }

    /// Puts rules in force.
    ///
    /// # Errors
    /// The gateway refuses; or it does not answer, and whether they are in force is not known.
    pub(super) async fn apply(
        &self,
        request: &wire::ApplyRequest,
    ) -> anyhow::Result<wire::AccessApplied> {
        self.answer(self.call(Method::PUT, "/admin/access").json(request)).await
    }

    /// What the rules say.
    ///
    /// # Errors
    /// The gateway does not answer, or refuses.
    pub(super) async fn explain(
        &self,
        request: &wire::ExplainRequest,
    ) -> anyhow::Result<wire::Explanation> {
        self.answer(self.call(Method::POST, "/admin/access/explain").json(request)).await
    }

    fn call(&self, method: Method, path: &str) -> RequestBuilder {
        let call = self.http.request(method, format!("{}{path}", self.base));
        match &self.credential {
            Some(credential) => call.bearer_auth(credential),
            None => call,
        }
    }

    async fn answer<T: DeserializeOwned>(&self, call: RequestBuilder) -> anyhow::Result<T> {
        read(&self.body(call, RULES_UNKNOWN).await?)
    }

    /// What a good answer holds.
    ///
    /// # Errors
    /// The gateway refuses, or there is no whole answer: `unanswered` says how to find out.
    async fn body(&self, call: RequestBuilder, unanswered: &'static str) -> anyhow::Result<Bytes> {
        let answer = call.send().await.map_err(reqwest::Error::without_url).context(unanswered)?;
        let (status, body) = (answer.status(), answer.bytes().await.context(unanswered)?);
        if status.is_success() {
            return Ok(body);
        }
        match serde_json::from_slice::<Problem>(&body) {
            Ok(problem) => bail!("{}: {}", problem.code, problem.detail),
            Err(_) => bail!("the answer is {status}"),
        }
    }
}

fn read<T: DeserializeOwned>(body: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(body).context("the answer is not one of a gateway")
}

/// One that asks each question once.
fn client() -> ClientBuilder {
    Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .retry(reqwest::retry::never())
        .timeout(TIMEOUT)
}
