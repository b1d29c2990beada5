//! The public keys of those who sign tokens, as they were read last: from a file that is looked at every few seconds, or
//! from an https URL.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use fence_core::ports::Clock;
use fencegate_access::Issuer;
use fencegate_access::jwt::{KEYS_BYTES_MAX, TokenKeys};
use futures::StreamExt as _;
use parking_lot::{Mutex, RwLock};
use reqwest::StatusCode;
use reqwest::redirect::Policy;
use tokio::sync::MutexGuard;
use tokio::task::spawn_blocking;

use crate::files;
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
        let has_keys = kept.as_ref().is_some_and(|kept| self.good(kept).is_some());
        // Without keys that are good it is asked soon again.
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
                if keys.is_empty() && known.text != text {
                    let why = "no key has an id and is for RS256, PS256, ES256, ES384 or EdDSA";
                    tracing::warn!(
                        issuer = issuer.name,
                        why,
                        "the tokens of an issuer let nobody in"
                    );
                }
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
        let answer = self.client.get(url).send().await?;
        // What leads elsewhere may have a body, too.
        anyhow::ensure!(answer.status() == StatusCode::OK, "it answers with {}", answer.status());
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
    let place = PathBuf::from(path);
    let read = spawn_blocking(move || files::read_text(&place, KEYS_BYTES_MAX as u64));
    read.await?.with_context(|| path.to_owned())
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a test starts what stands at a URL, and who asks")]
mod tests {
    use std::future::Future;

    use async_trait::async_trait;
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use fencegate_access::rules::Algorithm;
    use futures::future::join_all;
    use jiff::Timestamp;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;
    use tokio::sync::watch;
    use tokio::time::timeout;

    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);
    const NANO: Duration = Duration::from_nanos(1);
    /// The number of the set without a key.
    const NO_KEYS: u8 = 0;

    fn seconds(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    /// A clock that stands still until it is told to go on.
    #[derive(Default)]
    struct HandClock(Mutex<Duration>);

    impl HandClock {
        fn pass(&self, time: Duration) {
            *self.0.lock() += time;
        }
    }

    #[async_trait]
    impl Clock for HandClock {
        fn now(&self) -> Timestamp {
            Timestamp::UNIX_EPOCH
        }

        fn elapsed(&self) -> Duration {
            *self.0.lock()
        }

        async fn sleep(&self, _: Duration) {
            std::future::pending().await
        }
    }

    /// What stands at a URL, and answers one request after the other.
    struct Place {
        url: String,
        /// How often it was asked.
        asked: watch::Sender<usize>,
        /// While a test has this, nothing is answered.
        gate: tokio::sync::Mutex<()>,
        /// Which set of keys it answers; none for an error.
        set: Mutex<Option<u8>>,
    }

    impl Place {
        async fn start() -> Arc<Self> {
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
            let url = format!("http://{}/keys", listener.local_addr().expect("an address"));
            let (asked, gate) = (watch::Sender::new(0), tokio::sync::Mutex::new(()));
            let place = Arc::new(Self { url, asked, gate, set: Mutex::new(Some(1)) });
            let here = Arc::clone(&place);
            tokio::spawn(async move {
                while let Ok((mut stream, _)) = listener.accept().await {
                    let mut head = Vec::new();
                    while !head.ends_with(b"\r\n\r\n") {
                        head.push(stream.read_u8().await.expect("a request"));
                    }
                    here.asked.send_modify(|asked| *asked += 1);
                    drop(here.gate.lock().await);
                    let set = *here.set.lock();
                    let (status, body) = set.map_or(("503 No", String::new()), |number| {
                        let key = URL_SAFE_NO_PAD.encode([number; 32]);
                        let key =
                            format!(r#"{{"kty":"OKP","crv":"Ed25519","kid":"k","x":"{key}"}}"#);
                        let keys = if number == NO_KEYS { String::new() } else { key };
                        ("200 OK", format!(r#"{{"keys":[{keys}]}}"#))
                    });
                    let length = body.len();
                    let head = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\n");
                    let answer = format!("{head}connection: close\r\n\r\n{body}");
                    // Nobody may wait for it any more.
                    let _cut = stream.write_all(answer.as_bytes()).await;
                }
            });
            place
        }

        fn serves(&self, set: impl Into<Option<u8>>) {
            *self.set.lock() = set.into();
        }

        fn asked(&self) -> usize {
            *self.asked.borrow()
        }

        async fn until_asked(&self, times: usize) {
            let mut asked = self.asked.subscribe();
            soon(asked.wait_for(|asked| *asked >= times)).await.expect("it is there");
        }

        /// An issuer of the rules whose keys are here.
        fn issuer(&self, name: &str) -> Arc<Issuer> {
            Arc::new(Issuer {
                name: name.to_owned(),
                issuer: format!("https://{name}.example"),
                audience: "fencegate".to_owned(),
                jwks_file: None,
                jwks_url: Some(self.url.clone()),
                algorithms: vec![Algorithm::EdDSA],
            })
        }
    }

    /// What must not wait for something that never comes.
    async fn soon<T>(what: impl Future<Output = T>) -> T {
        timeout(seconds(60), what).await.expect("it waits for nothing")
    }

    /// Issuers without keys yet, and their clock. A fetch has no limit: whoever waits for one that hangs is found out.
    fn issuers() -> (Arc<HandClock>, Arc<Issuers>) {
        let clock = Arc::<HandClock>::default();
        let client = reqwest::Client::builder().no_proxy().build().expect("a client");
        (Arc::clone(&clock), Arc::new(Issuers::with(clock, client)))
    }

    fn are(some: Option<&Arc<TokenKeys>>, others: &Arc<TokenKeys>) -> bool {
        some.is_some_and(|some| Arc::ptr_eq(some, others))
    }

    #[tokio::test]
    async fn keys_of_a_url_are_fetched_again_when_they_are_five_minutes_old() {
        let (clock, issuers) = issuers();
        let place = Place::start().await;
        let issuer = place.issuer("i");
        let first = issuers.keys(&issuer).await.expect("keys");
        place.serves(2);
        clock.pass(seconds(300) - NANO);
        assert!(are(issuers.keys(&issuer).await.as_ref(), &first));
        assert_eq!(place.asked(), 1);
        clock.pass(NANO);
        let second = issuers.keys(&issuer).await.expect("keys");
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(are(issuers.keys(&issuer).await.as_ref(), &second));
        assert_eq!(place.asked(), 2);
        // The same text is the same keys: tokens that were verified with them need not be verified again.
        clock.pass(seconds(300));
        assert!(are(issuers.keys(&issuer).await.as_ref(), &second));
        assert_eq!(place.asked(), 3);
    }

    #[tokio::test]
    async fn a_url_that_has_not_answered_yet_is_asked_again_after_five_seconds() {
        let (clock, issuers) = issuers();
        let place = Place::start().await;
        let issuer = place.issuer("i");
        place.serves(None);
        assert!(issuers.keys(&issuer).await.is_none());
        place.serves(1);
        clock.pass(seconds(5) - NANO);
        assert!(issuers.keys(&issuer).await.is_none());
        assert_eq!(place.asked(), 1);
        clock.pass(NANO);
        assert!(issuers.keys(&issuer).await.is_some());
        assert_eq!(place.asked(), 2);
    }

    /// Anybody can make up the id of a key; that must not have the issuer asked for each request.
    #[tokio::test]
    async fn a_key_that_nobody_knows_has_a_url_asked_once_a_minute() {
        let (clock, issuers) = issuers();
        let place = Place::start().await;
        let issuer = place.issuer("i");
        let first = issuers.keys(&issuer).await.expect("keys");
        place.serves(2);
        clock.pass(seconds(60) - NANO);
        assert!(issuers.fresh_keys(&issuer, &first).await.is_none());
        assert_eq!(place.asked(), 1);
        clock.pass(NANO);
        let all = join_all((0..10).map(|_| issuers.fresh_keys(&issuer, &first))).await;
        assert_eq!(place.asked(), 2, "it is asked once for all");
        let second = all[0].clone().expect("other keys");
        assert!(all.iter().all(|keys| are(keys.as_ref(), &second)));
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(issuers.fresh_keys(&issuer, &second).await.is_none());
        assert_eq!(place.asked(), 2);
        // It is asked, and has nothing new.
        clock.pass(seconds(60));
        assert!(issuers.fresh_keys(&issuer, &second).await.is_none());
        assert_eq!(place.asked(), 3);
        assert!(are(issuers.keys(&issuer).await.as_ref(), &second));
    }

    #[tokio::test]
    async fn keys_are_good_for_a_day_while_their_url_does_not_answer_and_no_longer() {
        let (clock, issuers) = issuers();
        let place = Place::start().await;
        let issuer = place.issuer("i");
        let first = issuers.keys(&issuer).await.expect("keys");
        place.serves(None);
        for hour in 1..=24 {
            clock.pass(HOUR);
            assert!(are(issuers.keys(&issuer).await.as_ref(), &first), "{hour}");
            assert_eq!(place.asked(), hour + 1);
        }
        clock.pass(NANO);
        assert!(issuers.keys(&issuer).await.is_none());
        assert!(issuers.fresh_keys(&issuer, &first).await.is_none());
        clock.pass(HOUR);
        assert!(issuers.keys(&issuer).await.is_none());
        place.serves(1);
        clock.pass(HOUR);
        assert!(issuers.keys(&issuer).await.is_some());
    }

    #[tokio::test]
    async fn while_one_request_reads_keys_the_others_go_on_with_those_that_are_there() {
        let (clock, issuers) = issuers();
        let place = Place::start().await;
        let issuer = place.issuer("i");
        let reader = || {
            let (issuers, issuer) = (Arc::clone(&issuers), Arc::clone(&issuer));
            tokio::spawn(async move { issuers.keys(&issuer).await })
        };
        // There are none yet: whoever comes meanwhile waits, and does not ask as well.
        let shut = place.gate.lock().await;
        let readers = [reader(), reader()];
        place.until_asked(1).await;
        drop(shut);
        let [one, other] = readers.map(soon);
        let first = one.await.expect("no panic").expect("keys");
        assert!(are(other.await.expect("no panic").as_ref(), &first));
        assert_eq!(place.asked(), 1);

        place.serves(2);
        clock.pass(seconds(300));
        let shut = place.gate.lock().await;
        let reads = reader();
        place.until_asked(2).await;
        for _ in 0..2 {
            assert!(are(soon(issuers.keys(&issuer)).await.as_ref(), &first));
        }
        drop(shut);
        let second = soon(reads).await.expect("no panic").expect("keys");
        assert!(!Arc::ptr_eq(&first, &second));
        assert!(are(issuers.keys(&issuer).await.as_ref(), &second));
        assert_eq!(place.asked(), 2);
    }

    #[tokio::test]
    async fn a_url_that_hangs_holds_up_no_other_issuer() {
        let (clock, issuers) = issuers();
        let (slow, quick) = (Place::start().await, Place::start().await);
        let [hangs, answers] = [slow.issuer("slow"), quick.issuer("quick")];
        let _shut = slow.gate.lock().await;
        let waits = {
            let issuers = Arc::clone(&issuers);
            tokio::spawn(async move { issuers.keys(&hangs).await })
        };
        slow.until_asked(1).await;
        let first = soon(issuers.keys(&answers)).await.expect("keys");
        quick.serves(2);
        clock.pass(seconds(60));
        assert!(soon(issuers.fresh_keys(&answers, &first)).await.is_some());
        assert!(!waits.is_finished());
    }

    #[tokio::test]
    async fn a_url_that_has_no_keys_any_more_withdraws_those_that_it_had() {
        let (clock, issuers) = issuers();
        let place = Place::start().await;
        let issuer = place.issuer("i");
        assert!(!issuers.keys(&issuer).await.expect("keys").is_empty());
        place.serves(NO_KEYS);
        clock.pass(seconds(300));
        assert!(issuers.keys(&issuer).await.expect("a set").is_empty());
        place.serves(1);
        clock.pass(seconds(300));
        assert!(!issuers.keys(&issuer).await.expect("keys").is_empty());
    }

    /// Other rules may say that the name stands for somebody else, whose tokens the former's keys must not let in.
    #[tokio::test]
    async fn keys_are_of_the_issuer_as_the_rules_have_it_and_not_of_its_name() {
        let (_clock, issuers) = issuers();
        let (former, now) = (Place::start().await, Place::start().await);
        assert!(issuers.keys(&former.issuer("i")).await.is_some());
        now.serves(None);
        assert!(issuers.keys(&now.issuer("i")).await.is_none());
        assert_eq!((former.asked(), now.asked()), (1, 1));
    }
}
