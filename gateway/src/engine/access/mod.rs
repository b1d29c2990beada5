//! Who may do what, as this gateway knows it: the rules in force, what was allowed by them, and asking again when they
//! have changed.
//!
//! Whatever is done for a caller goes to the ledger with the generation of the rules that allowed it. An act that finds
//! others in force decides nothing (I17); what it was for is then asked of those, and sent again only if they allow it.

mod apply;
mod asks;
mod explain;
mod permit;
mod principals;
mod rate;
mod refused;
mod s3;
mod spent;
mod stocks;
mod taken_back;
mod want;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::PrincipalName;
use fence_core::mutants::{self, Mutant};
use fence_core::ports::{By, Ledger, LedgerError, Patience, RulesInForce, Runtime};
use fencegate_access::jwt::TokenKeys;
use fencegate_access::{Caller, Identity, Rules, Unauthenticated};
use jiff::Timestamp;
use parking_lot::{Mutex, RwLock};
use sha2::{Digest as _, Sha256};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::batch::{Act, Batcher};
use super::{Base, Engine, EngineError};
use principals::Principals;

pub use apply::{Applied, Breaking, Lost, NewRules, break_lost, checked, database_roles, lost};
pub use asks::Asks;
pub use explain::{Explained, explain};
pub use permit::Permit;
pub use principals::{Holdings, Share, Usage};
pub use rate::Rate;
pub use refused::Refused;
pub use s3::LockHolder;
pub use want::Want;

/// How often the generation is looked at while nobody asks.
const INTERVAL: Duration = Duration::from_secs(1);
/// How long a refusal waits to hear whether newer rules are in force.
const NEWS_WITHIN: Duration = Duration::from_millis(500);
/// Callers that are kept under one set of rules, and lines of roles that these have together; beyond that all are forgotten.
const CALLERS_MAX: usize = 65_536;
const CALLERS_LINES_MAX: usize = 262_144;

/// The digest of a credential as it was sent, under which its caller is kept. What a connection shows has a NUL before it,
/// which no header has.
pub type Credential = [u8; 32];

/// The rules that are in force, as far as this gateway has heard.
pub struct InForce {
    generation: i64,
    rules: Option<Rules>,
    /// Never kept beyond these rules: what a caller may do is theirs.
    callers: Mutex<Callers>,
    /// Kept from one set of rules to the next.
    principals: Principals,
}

/// Callers that are kept, and how many lines these have together.
#[derive(Clone, Default)]
struct Callers {
    known: HashMap<Credential, Arc<Known>>,
    lines: usize,
}

/// Somebody that was found to be a caller.
pub struct Known {
    /// What was shown.
    pub identity: Arc<Identity>,
    /// Who that is, and all that the rules say of it.
    pub caller: Caller,
    /// The same as ledgers take it.
    pub by: By,
    /// The keys of its issuer that a token was verified with.
    pub keys: Option<Arc<TokenKeys>>,
    /// How often its principal may ask.
    pub rate: Arc<Rate>,
    /// What its principal holds.
    pub holdings: Arc<Holdings>,
}

impl InForce {
    fn read(stored: RulesInForce, principals: Principals) -> Result<Self, EngineError> {
        let unreadable = |why: &dyn std::fmt::Display| {
            tracing::error!(%why, "the rules of access cannot be read; everything is refused");
            EngineError::AccessUnavailable
        };
        let rules = stored.text.as_deref().map(Rules::parse).transpose();
        let rules = rules.map_err(|why| unreadable(&why))?;
        if rules.is_none() && stored.generation != 0 {
            return Err(unreadable(&"the ledger says that there are some, and has none"));
        }
        Ok(Self { generation: stored.generation, rules, callers: Mutex::default(), principals })
    }

    /// Their generation; 0 while there are none.
    pub fn generation(&self) -> i64 {
        self.generation
    }

    /// The rules; none where everybody may do everything.
    pub fn rules(&self) -> Option<&Rules> {
        self.rules.as_ref()
    }

    /// The caller that was kept for a credential, unless that has expired.
    pub fn kept(&self, credential: &Credential, now: Timestamp) -> Option<Arc<Known>> {
        let callers = self.callers.lock();
        callers.known.get(credential).filter(|known| !known.caller.has_expired(now)).cloned()
    }

    /// Somebody that was found to be a caller under these rules.
    pub fn found(
        &self,
        identity: Arc<Identity>,
        caller: Caller,
        keys: Option<Arc<TokenKeys>>,
    ) -> Arc<Known> {
        let (rate, holdings) = self.principals.of(&caller);
        let by = By::of(caller.name().clone(), Arc::clone(caller.roles()));
        let (name, ends) = (identity.credential(), identity.expires());
        let by = by.showing(fence_core::ports::Credential { name, ends });
        Arc::new(Known { identity, caller, by, keys, rate, holdings })
    }

    /// Keeps the caller of a good credential.
    pub fn keep(&self, credential: Credential, known: &Arc<Known>) {
        let mut callers = self.callers.lock();
        let lines = known.caller.lines();
        if callers.known.len() >= CALLERS_MAX || callers.lines + lines > CALLERS_LINES_MAX {
            *callers = Callers::default();
        }
        callers.lines += lines;
        let former = callers.known.insert(credential, Arc::clone(known));
        callers.lines -= former.map_or(0, |former| former.caller.lines());
    }

    /// Who shows this; nobody in particular where no rules are in force.
    ///
    /// # Errors
    /// `Unauthenticated`, `CredentialExpired`.
    pub fn known(
        &self,
        identity: Option<Arc<Identity>>,
        now: Timestamp,
    ) -> Result<Option<Arc<Known>>, EngineError> {
        let Some(rules) = &self.rules else { return Ok(None) };
        let identity = identity.ok_or(EngineError::Unauthenticated)?;
        let credential = of_connection(&identity);
        if let Some(known) = credential.and_then(|it| self.kept(&it, now)) {
            return Ok(Some(known));
        }
        let caller = rules.caller(&identity, now).map_err(|why| not_let_in(&why))?;
        let known = self.found(identity, caller, None);
        if let Some(credential) = credential {
            self.keep(credential, &known);
        }
        Ok(Some(known))
    }
}

/// Under what the caller is kept whom a connection shows, or whose key a request of S3 was signed with.
fn of_connection(identity: &Identity) -> Option<Credential> {
    let shown = match identity {
        // The same certificate may be shown with one way to an authority here, and with another one there.
        Identity::Certificate { fingerprint, authorities, .. } => {
            format!("\0certificate:{fingerprint}:{}", authorities.join(":"))
        }
        Identity::Unix { uid, gid } => format!("\0unix:{uid}:{gid}"),
        Identity::S3Key { kid } => format!("\0s3-key:{kid}"),
        Identity::S3Lock { principal, credential, ends } => {
            let credential = credential.as_deref().unwrap_or_default();
            let ends = ends.map_or(0, Timestamp::as_microsecond);
            format!("\0s3-lock:{principal}:{ends}:{credential}")
        }
        Identity::Key(_) | Identity::Jwt { .. } => return None,
    };
    Some(Sha256::digest(shown).into())
}

/// What a caller is told of a credential that is not good. The log has the reason.
pub fn not_let_in(why: &Unauthenticated) -> EngineError {
    tracing::info!(%why, "a credential was not accepted");
    match why {
        Unauthenticated::Expired(_) => EngineError::CredentialExpired,
        _ => EngineError::Unauthenticated,
    }
}

/// The rules as this gateway knows them; cheap to clone.
#[derive(Clone)]
pub struct Access {
    inner: Arc<Inner>,
}

struct Inner {
    ledger: Arc<dyn Ledger>,
    runtime: Runtime,
    in_force: RwLock<Option<Arc<InForce>>>,
    loading: tokio::sync::Mutex<()>,
    looks: Batcher<Look>,
    moved: watch::Sender<i64>,
    principals: Principals,
    refusals: Arc<refused::Refusals>,
}

/// Asking for the generation, as the act of a batcher: one question for all who ask at the same time.
struct Look {
    ledger: Arc<dyn Ledger>,
}

#[async_trait]
impl Act for Look {
    type Item = ();
    type Verdict = i64;
    type Lane = ();

    const NAME: &'static str = "rules";
    const DROPS_ABANDONED: bool = true;

    fn lane((): &()) {}

    async fn run(&self, items: Arc<[()]>, _: Patience) -> Result<Vec<i64>, LedgerError> {
        let generation = self.ledger.rules_generation().await?;
        Ok(vec![generation; items.len()])
    }
}

impl Access {
    /// What the next principals after this one hold at this gateway, and how often they have come.
    pub fn usage(&self, after: Option<&PrincipalName>, limit: usize) -> Vec<Usage> {
        self.inner.principals.usage(after, limit)
    }

    /// Somebody was refused: the audit will say so.
    pub fn refused(&self, refused: Refused) {
        self.inner.refusals.note(refused, &self.inner.runtime);
    }

    pub(super) fn start(base: &Base) -> Self {
        let Base { ledger, runtime, closing, .. } = base;
        let looks = base.batcher(Look { ledger: Arc::clone(ledger) });
        let access = Self {
            inner: Arc::new(Inner {
                ledger: Arc::clone(ledger),
                runtime: runtime.clone(),
                in_force: RwLock::new(None),
                loading: tokio::sync::Mutex::new(()),
                looks,
                moved: watch::Sender::new(0),
                principals: Principals::new(&runtime.clock),
                refusals: Arc::default(),
            }),
        };
        let task = access.clone().follow(closing.clone());
        runtime.spawn.spawn_lasting("access", Box::pin(task));
        let task = access.clone().break_taken_back(closing.clone());
        runtime.spawn.spawn_lasting("taken-back", Box::pin(task));
        let refusals = Arc::clone(&access.inner.refusals);
        let task = refusals.write_down(Arc::clone(ledger), runtime.clone(), closing.clone());
        runtime.spawn.spawn_lasting("refused", Box::pin(task));
        let task = access.clone().count_stocks(closing.clone());
        runtime.spawn.spawn_lasting("stocks", Box::pin(task));
        access
    }

    /// Looks now and then whether others are in force. What is done for callers does not rest on this.
    async fn follow(self, closing: CancellationToken) {
        loop {
            let known = self.inner.in_force.read().as_ref().map(|known| known.generation);
            let now = self.inner.ledger.rules_generation().await.ok();
            if now.is_some() && now != known {
                let _ = self.load(known).await;
            }
            let pause = self.inner.runtime.clock.sleep(INTERVAL);
            if closing.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    /// The rules in force, as far as this gateway has heard.
    ///
    /// # Errors
    /// They are not known: everything is refused.
    pub async fn in_force(&self) -> Result<Arc<InForce>, EngineError> {
        let known = self.inner.in_force.read().clone();
        match known {
            Some(known) => Ok(known),
            None => self.load(None).await,
        }
    }

    /// The rules in force, as the ledger says after this call.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn current(&self) -> Result<Arc<InForce>, EngineError> {
        let known = self.in_force().await?;
        Ok(self.since(&known).await?.unwrap_or(known))
    }

    /// Their text, as the ledger has it after this call.
    ///
    /// # Errors
    /// The ledger does not answer.
    pub async fn stored(&self) -> Result<RulesInForce, EngineError> {
        Ok(self.inner.ledger.rules().await?)
    }

    /// Rules other than those of this generation, which was found to be in force no more. The ledger is asked once for
    /// all who wait.
    async fn load(&self, known: Option<i64>) -> Result<Arc<InForce>, EngineError> {
        let _loading = self.inner.loading.lock().await;
        let found = self.inner.in_force.read().clone();
        if let Some(found) = found.filter(|found| Some(found.generation) != known) {
            return Ok(found);
        }
        let reloads = |outcome| {
            ::metrics::counter!(super::metrics::ACCESS_RELOADS, "outcome" => outcome).increment(1);
        };
        let stored = self.inner.ledger.rules().await.map_err(|error| {
            tracing::warn!(%error, "the rules of access cannot be loaded");
            reloads("unavailable");
            EngineError::AccessUnavailable
        })?;
        let has_rules = stored.text.is_some();
        let in_force = InForce::read(stored, self.inner.principals.clone())
            .inspect_err(|_| reloads("unreadable"))?;
        let in_force = Arc::new(in_force);
        reloads("loaded");
        if mutants::is(Mutant::MemoAcrossGenerations)
            && let Some(former) = &*self.inner.in_force.read()
        {
            in_force.callers.lock().clone_from(&former.callers.lock());
        }
        let generation = in_force.generation;
        match has_rules {
            true => tracing::info!(generation, "rules of access are in force"),
            false => tracing::info!(
                "no rules of access are in force: whoever reaches the gateway may do everything"
            ),
        }
        *self.inner.in_force.write() = Some(Arc::clone(&in_force));
        ::metrics::gauge!(super::metrics::ACCESS_GENERATION).set(in_force.generation as f64);
        self.inner.moved.send_replace(in_force.generation);
        Ok(in_force)
    }

    /// Whether these rules are still in force; if not, those that are. The question begins after this call.
    async fn since(&self, known: &InForce) -> Result<Option<Arc<InForce>>, EngineError> {
        if self.inner.ledger.has_rules_to_itself() {
            let now = self.in_force().await?;
            return Ok((now.generation != known.generation).then_some(now));
        }
        let now = self.inner.looks.submit(()).await;
        match now.map_err(|failure| EngineError::unread(failure, "rules"))? {
            now if now == known.generation => Ok(None),
            _ => self.load(Some(known.generation)).await.map(Some),
        }
    }

    /// Rules that are in force in place of these, if that can be said soon: what newer rules allow must not be refused
    /// for a second because of older ones.
    pub async fn newer(&self, known: &InForce) -> Option<Arc<InForce>> {
        let since = self.inner.runtime.within(NEWS_WITHIN, self.since(known)).await;
        since?.ok().flatten()
    }

    /// Resolves once rules are in force that this generation is not that of.
    async fn moved(&self, generation: i64) {
        let mut moved = self.inner.moved.subscribe();
        // An error would mean that nothing moves any more.
        let _ = moved.wait_for(|now| *now != generation).await;
    }

    /// Resolves at this time; never, if there is none.
    async fn passed(&self, time: Option<Timestamp>) {
        let Some(time) = time else { return std::future::pending().await };
        let clock = &self.inner.runtime.clock;
        // The clock of the wall may be set meanwhile.
        while let Ok(left) = Duration::try_from(time.duration_since(clock.now()))
            && !left.is_zero()
        {
            clock.sleep(left).await;
        }
    }
}

impl Engine {
    /// The rules as this gateway knows them.
    pub fn access(&self) -> &Access {
        &self.inner.access
    }
}
