//! The public keys of those who sign tokens, as they were read last: from a file that is looked at every few seconds, or
//! from an https URL.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fence_core::ports::Clock;
use fencegate_access::Issuer;
use fencegate_access::jwt::{KEYS_BYTES_MAX, TokenKeys};
use futures::StreamExt as _;
use parking_lot::RwLock;
use reqwest::redirect::Policy;

use crate::engine::access::InForce;

/// How often a file is looked at.
const LOOK: Duration = Duration::from_secs(5);
/// How old keys from a URL are when they are fetched again.
const REFRESH: Duration = Duration::from_secs(300);
/// How often they are fetched for the sake of a key that they do not have.
const UNKNOWN_KEY_PAUSE: Duration = Duration::from_secs(60);
/// How long keys are good whose URL does not answer any more.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);
/// How long a fetch may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Keys of one issuer.
#[derive(Clone)]
struct Kept {
    /// As the rules had the issuer when they were read.
    issuer: Arc<Issuer>,
    keys: Option<Arc<TokenKeys>>,
    /// Their text, by which it is known whether they changed.
    text: String,
    /// When they were read, on the clock of this process.
    read_at: Duration,
    /// When that was tried last.
    tried_at: Duration,
    /// The file, as it was then.
    seen: Option<(SystemTime, u64)>,
}

/// The keys of all issuers.
pub struct Issuers {
    clock: Arc<dyn Clock>,
    client: reqwest::Client,
    kept: RwLock<HashMap<String, Kept>>,
    /// One at a time reads or fetches.
    reading: tokio::sync::Mutex<()>,
}

impl Issuers {
    /// Nothing is read yet.
    ///
    /// # Errors
    /// TLS cannot be set up.
    pub fn new(clock: Arc<dyn Clock>) -> anyhow::Result<Self> {
        let client = reqwest::Client::builder()
            .https_only(true)
            .redirect(Policy::none())
            .timeout(TIMEOUT)
            .no_proxy()
            .build()?;
        Ok(Self { clock, client, kept: RwLock::default(), reading: tokio::sync::Mutex::new(()) })
    }

    /// The keys of an issuer, if any were ever read.
    pub async fn keys(&self, issuer: &Arc<Issuer>, in_force: &InForce) -> Option<Arc<TokenKeys>> {
        let due = if issuer.jwks_file.is_some() { LOOK } else { REFRESH };
        self.read(issuer, in_force, due).await
    }

    /// Keys read after those, for a token that names one which those do not have.
    pub async fn fresh_keys(
        &self,
        issuer: &Arc<Issuer>,
        in_force: &InForce,
        before: &Arc<TokenKeys>,
    ) -> Option<Arc<TokenKeys>> {
        let due = if issuer.jwks_file.is_some() { Duration::ZERO } else { UNKNOWN_KEY_PAUSE };
        let keys = self.read(issuer, in_force, due).await?;
        (!Arc::ptr_eq(&keys, before)).then_some(keys)
    }

    fn find(&self, issuer: &Arc<Issuer>) -> Option<Kept> {
        self.kept.read().get(&issuer.name).filter(|kept| kept.issuer == *issuer).cloned()
    }

    /// The keys, read anew if that was tried longer than `due` ago.
    async fn read(
        &self,
        issuer: &Arc<Issuer>,
        in_force: &InForce,
        due: Duration,
    ) -> Option<Arc<TokenKeys>> {
        let is_due = |kept: &Option<Kept>| {
            let now = self.clock.elapsed();
            kept.as_ref().is_none_or(|kept| now.saturating_sub(kept.tried_at) >= due)
        };
        let mut kept = self.find(issuer);
        if is_due(&kept) {
            let _reading = self.reading.lock().await;
            kept = self.find(issuer);
            if is_due(&kept) {
                let now = self.read_now(issuer, kept).await;
                // A key that is there no more must not let anybody in by what was found before.
                if self.find(issuer).is_some_and(|before| before.text != now.text) {
                    in_force.forget_callers();
                }
                self.kept.write().insert(issuer.name.clone(), now.clone());
                kept = Some(now);
            }
        }
        let kept = kept?;
        let is_old = self.clock.elapsed().saturating_sub(kept.read_at) > KEPT;
        kept.keys.filter(|_| !is_old)
    }

    async fn read_now(&self, issuer: &Arc<Issuer>, before: Option<Kept>) -> Kept {
        let now = self.clock.elapsed();
        let seen = issuer.jwks_file.as_deref().and_then(|path| seen(Path::new(path)));
        let known = before.unwrap_or_else(|| Kept {
            issuer: Arc::clone(issuer),
            keys: None,
            text: String::new(),
            read_at: now,
            tried_at: now,
            seen: None,
        });
        if seen.is_some() && seen == known.seen && known.keys.is_some() {
            return Kept { read_at: now, tried_at: now, ..known };
        }
        let read = match (&issuer.jwks_file, &issuer.jwks_url) {
            (Some(path), _) => of_file(path).await,
            (None, Some(url)) => self.of_url(url).await,
            (None, None) => Err(anyhow::anyhow!("it names neither a file nor a URL")),
        };
        let keys = read.and_then(|text| Ok((TokenKeys::parse(&text)?, text)));
        match keys {
            Ok((keys, text)) => {
                let keys = match known.keys {
                    Some(keys) if known.text == text => keys,
                    _ => Arc::new(keys),
                };
                Kept { keys: Some(keys), text, read_at: now, tried_at: now, seen, ..known }
            }
            Err(error) => {
                let why = format!("{error:#}");
                tracing::warn!(issuer = issuer.name, why, "the keys of an issuer cannot be read");
                Kept { tried_at: now, ..known }
            }
        }
    }

    async fn of_url(&self, url: &str) -> anyhow::Result<String> {
        let answer = self.client.get(url).send().await?.error_for_status()?;
        let mut parts = answer.bytes_stream();
        let mut bytes = Vec::new();
        while let Some(part) = parts.next().await {
            bytes.extend_from_slice(&part?);
            anyhow::ensure!(
                bytes.len() <= KEYS_BYTES_MAX,
                "it has more than {KEYS_BYTES_MAX} bytes"
            );
        }
        Ok(String::from_utf8(bytes)?)
    }
}

fn seen(path: &Path) -> Option<(SystemTime, u64)> {
    let file = std::fs::metadata(path).ok()?;
    Some((file.modified().ok()?, file.len()))
}

async fn of_file(path: &str) -> anyhow::Result<String> {
    let length = tokio::fs::metadata(path).await?.len();
    anyhow::ensure!(
        length <= KEYS_BYTES_MAX as u64,
        "{path}: it has more than {KEYS_BYTES_MAX} bytes"
    );
    Ok(tokio::fs::read_to_string(path).await?)
}
