//! Outside witnesses of the audit, as C2SP `tlog-witness` has them: each is shown every checkpoint with the proof that the
//! audit has only grown since the last one, and signs what it has seen.

use std::error::Error as _;
use std::fmt::Write as _;
use std::time::Duration;

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use fence_core::ports::{CheckpointKept, CheckpointPlace, KeepCheckpoint};
use fencegate_audit::NOTE_BYTES_MAX;
use reqwest::redirect::Policy;
use reqwest::{Client, StatusCode, Url};

/// How often one is asked at most.
const INTERVAL: Duration = Duration::from_secs(10);
/// The longest that it may take to answer.
const TIMEOUT: Duration = Duration::from_secs(10);

/// One of them.
pub struct Witness {
    client: Client,
    url: Url,
}

impl Witness {
    /// The witness whose `add-checkpoint` is under this URL.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn at(url: Url) -> anyhow::Result<Self> {
        let client =
            Client::builder().redirect(Policy::none()).timeout(TIMEOUT).no_proxy().build()?;
        Ok(Self { client, url })
    }

    fn add_checkpoint(&self) -> Url {
        let mut url = self.url.clone();
        url.set_path(&format!("{}/add-checkpoint", self.url.path().trim_end_matches('/')));
        url
    }
}

#[async_trait]
impl CheckpointPlace for Witness {
    fn name(&self) -> String {
        format!("witness {}", self.url)
    }

    fn interval(&self) -> Duration {
        INTERVAL
    }

    async fn keep(&self, checkpoint: &KeepCheckpoint) -> Result<CheckpointKept, String> {
        let mut body = format!("old {}\n", checkpoint.from);
        for hash in &checkpoint.proof {
            // INVARIANT: a String takes what is written to it.
            let _ = writeln!(body, "{}", BASE64_STANDARD.encode(hash));
        }
        body += "\n";
        body += &checkpoint.note;
        let said = |error: reqwest::Error| match error.source() {
            Some(source) => source.to_string(),
            None => error.to_string(),
        };
        let mut answer =
            self.client.post(self.add_checkpoint()).body(body).send().await.map_err(said)?;
        let status = answer.status();
        let mut text = Vec::new();
        while let Some(piece) = answer.chunk().await.map_err(said)? {
            text.extend_from_slice(&piece);
            if text.len() > NOTE_BYTES_MAX {
                return Err("its answer is too long".into());
            }
        }
        let text = String::from_utf8_lossy(&text);
        match (status, text.trim_end().parse()) {
            (StatusCode::OK, _) => Ok(CheckpointKept::Signed(text.into_owned())),
            (StatusCode::CONFLICT, Ok(size)) => Ok(CheckpointKept::Behind(size)),
            _ => Err(format!("it answers {status}")),
        }
    }

    /// It signs, and keeps no notes for others.
    async fn newest(&self) -> Result<Option<String>, String> {
        Ok(None)
    }
}
