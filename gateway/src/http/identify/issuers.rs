//! The public keys of those who sign tokens, as they were read last: from a file that is looked at every few seconds, or
//! from an https URL.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::Clock;
use fencegate_access::Issuer;
use fencegate_access::jwt::{KEYS_BYTES_MAX, TokenKeys};
use futures::StreamExt as _;
use parking_lot::{Mutex, RwLock};
use reqwest::redirect::Policy;
use tokio::sync::MutexGuard;

use crate::seen::Seen;

/// How often a file is looked at, and a URL that has not answered yet.
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
    seen: Option<Seen>,
}

/// The keys of all issuers.
pub struct Issuers {
    clock: Arc<dyn Clock>,
    client: reqwest::Client,
    kept: RwLock<HashMap<String, Arc<Kept>>>,
    /// Of each issuer one at a time reads or fetches.
    reading: Mutex<HashMap<String, Arc<tokio::sync::Mutex<()>>>>,
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
        Ok(Self::with(clock, client))
    }

    fn with(clock: Arc<dyn Clock>, client: reqwest::Client) -> Self {
        Self { clock, client, kept: RwLock::default(), reading: Mutex::default() }
    }

    /// The keys of an issuer, if any were ever read.
    pub async fn keys(&self, issuer: &Arc<Issuer>) -> Option<Arc<TokenKeys>> {
        let kept = self.find(issuer);
        let has_keys = kept.as_ref().is_some_and(|kept| kept.keys.is_some());
        // Whoever does not know yet where keys come from asks soon again.
        let due = if issuer.jwks_url.is_some() && has_keys { REFRESH } else { LOOK };
        if !self.is_due(kept.as_deref(), due) {
            return kept.and_then(|kept| self.good(&kept));
        }
        let reading = self.reading(issuer);
        // While somebody reads them, the others go on with those that there are.
        let reads = match (reading.try_lock(), kept.filter(|_| has_keys)) {
            (Ok(reads), _) => reads,
            (Err(_), Some(kept)) => return self.good(&kept),
            (Err(_), None) => reading.lock().await,
        };
        self.read(issuer, due, reads).await
    }

    /// Keys read after those, for a token that names one which those do not have.
    pub async fn fresh_keys(
        &self,
        issuer: &Arc<Issuer>,
        before: &Arc<TokenKeys>,
    ) -> Option<Arc<TokenKeys>> {
        let due = if issuer.jwks_file.is_some() { Duration::ZERO } else { UNKNOWN_KEY_PAUSE };
        let reading = self.reading(issuer);
        let keys = self.read(issuer, due, reading.lock().await).await?;
        (!Arc::ptr_eq(&keys, before)).then_some(keys)
    }

    fn reading(&self, issuer: &Issuer) -> Arc<tokio::sync::Mutex<()>> {
        Arc::clone(self.reading.lock().entry(issuer.name.clone()).or_default())
    }

    fn find(&self, issuer: &Arc<Issuer>) -> Option<Arc<Kept>> {
        self.kept.read().get(&issuer.name).filter(|kept| kept.issuer == *issuer).cloned()
    }

    /// Whether that was tried longer than `due` ago, or never.
    fn is_due(&self, kept: Option<&Kept>, due: Duration) -> bool {
        let now = self.clock.elapsed();
        kept.is_none_or(|kept| now.saturating_sub(kept.tried_at) >= due)
    }

    fn good(&self, kept: &Kept) -> Option<Arc<TokenKeys>> {
        let is_old = self.clock.elapsed().saturating_sub(kept.read_at) > KEPT;
        kept.keys.clone().filter(|_| !is_old)
    }

    /// The keys, read anew if that is due still.
    async fn read(
        &self,
        issuer: &Arc<Issuer>,
        due: Duration,
        _reads: MutexGuard<'_, ()>,
    ) -> Option<Arc<TokenKeys>> {
        let kept = self.find(issuer);
        if !self.is_due(kept.as_deref(), due) {
            return kept.and_then(|kept| self.good(&kept));
        }
        let now = Arc::new(self.read_now(issuer, kept.as_deref()).await);
        self.kept.write().insert(issuer.name.clone(), Arc::clone(&now));
        self.good(&now)
    }

    async fn read_now(&self, issuer: &Arc<Issuer>, before: Option<&Kept>) -> Kept {
        let now = self.clock.elapsed();
        let seen = issuer.jwks_file.as_deref().map(|path| Seen::of(Path::new(path)));
        let known = Kept {
            issuer: Arc::clone(issuer),
            keys: before.and_then(|before| before.keys.clone()),
            text: before.map(|before| before.text.clone()).unwrap_or_default(),
            read_at: before.map_or(now, |before| before.read_at),
            tried_at: now,
            seen: before.and_then(|before| before.seen),
        };
        if seen.is_some_and(Seen::is_there) && seen == known.seen && known.keys.is_some() {
            return Kept { read_at: now, ..known };
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
                Kept { keys: Some(keys), text, read_at: now, seen, ..known }
            }
            Err(error) => {
                let why = format!("{error:#}");
                tracing::warn!(issuer = issuer.name, why, "the keys of an issuer cannot be read");
                known
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

async fn of_file(path: &str) -> anyhow::Result<String> {
    let length = tokio::fs::metadata(path).await?.len();
    anyhow::ensure!(
        length <= KEYS_BYTES_MAX as u64,
        "{path}: it has more than {KEYS_BYTES_MAX} bytes"
    );
    Ok(tokio::fs::read_to_string(path).await?)
}
