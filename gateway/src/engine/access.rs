//! Who may do what, as this gateway knows it: the rules in force, what was allowed by them, and asking again when they
//! have changed.
//!
//! Whatever is done for a caller goes to the ledger with the generation of the rules that allowed it. An act that finds
//! others in force decides nothing (I17); what it was for is then asked of those, and sent again only if they allow it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use fence_core::ports::{
    By, DatabaseRole, Ledger, LedgerError, Patience, RulesChange, RulesChanged, RulesInForce,
    Runtime,
};
use fence_core::{PrincipalName, ResourceName};
use fencegate_access::{Action, Caller, Identity, LockTerms, Rules, RulesError, Unauthenticated};
use parking_lot::{Mutex, RwLock};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::batch::{Act, Batcher};
use super::{Base, Engine, EngineError};

/// How often the generation is looked at while nobody asks.
const INTERVAL: Duration = Duration::from_secs(1);
/// Callers that are kept under one set of rules; beyond that all are forgotten.
const CALLERS_MAX: usize = 65_536;

/// The digest of a credential as it was sent, under which its caller is kept.
pub type Credential = [u8; 32];

/// The rules that are in force, as far as this gateway has heard.
pub struct InForce {
    generation: i64,
    rules: Option<Rules>,
    /// Never kept beyond these rules: what a caller may do is theirs.
    callers: Mutex<HashMap<Credential, Known>>,
}

/// Somebody that was found to be a caller.
#[derive(Debug, Clone)]
pub struct Known {
    /// What was shown.
    pub identity: Arc<Identity>,
    /// Who that is, and all that the rules say of it.
    pub caller: Arc<Caller>,
}

impl InForce {
    fn read(stored: RulesInForce) -> Result<Self, EngineError> {
        let unreadable = |why: &dyn std::fmt::Display| {
            tracing::error!(%why, "the rules of access cannot be read; everything is refused");
            EngineError::AccessUnavailable
        };
        let rules = stored.text.as_deref().map(Rules::parse).transpose();
        let rules = rules.map_err(|why| unreadable(&why))?;
        if rules.is_none() && stored.generation != 0 {
            return Err(unreadable(&"the ledger says that there are some, and has none"));
        }
        Ok(Self { generation: stored.generation, rules, callers: Mutex::default() })
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
    pub fn kept(&self, credential: &Credential, now: jiff::Timestamp) -> Option<Known> {
        let callers = self.callers.lock();
        callers.get(credential).filter(|known| !known.caller.has_expired(now)).cloned()
    }

    /// Keeps the caller of a good credential.
    pub fn keep(&self, credential: Credential, known: &Known) {
        let mut callers = self.callers.lock();
        if callers.len() >= CALLERS_MAX {
            callers.clear();
        }
        callers.insert(credential, known.clone());
    }

    /// Forgets whom credentials were found to be: what they were held against has changed.
    pub fn forget_callers(&self) {
        self.callers.lock().clear();
    }

    /// Who shows this; nobody in particular where no rules are in force.
    ///
    /// # Errors
    /// `Unauthenticated`, `CredentialExpired`.
    pub fn known(
        &self,
        identity: Option<Arc<Identity>>,
        now: jiff::Timestamp,
    ) -> Result<Option<Known>, EngineError> {
        let Some(rules) = &self.rules else { return Ok(None) };
        let identity = identity.ok_or(EngineError::Unauthenticated)?;
        match rules.caller(&identity, now) {
            Ok(caller) => Ok(Some(Known { identity, caller: Arc::new(caller) })),
            Err(why) => Err(not_let_in(&why)),
        }
    }
}

/// What a caller is told of a credential that is not good. The log has the reason.
pub fn not_let_in(why: &Unauthenticated) -> EngineError {
    tracing::info!(%why, "a credential was not accepted");
    match why {
        Unauthenticated::Expired(_) => EngineError::CredentialExpired,
        _ => EngineError::Unauthenticated,
    }
}

/// Something that a call is about to do.
#[derive(Debug, Clone)]
pub enum Want {
    /// This, to a resource.
    On(Action, ResourceName),
    /// A lock on a resource, on these terms.
    Lock(ResourceName, LockTerms),
    /// This, to every resource whose name begins so.
    All(Action, String),
    /// A safe request to a path of an upstream.
    ForwardRead(String, String),
    /// To know what became of a write to a resource: whoever may read or write it.
    Outcome(ResourceName),
    /// This, to anything at all: what it is to is found out later, and asked for then.
    Somewhere(Action),
    /// Nothing that anybody who is known may not have.
    Nothing,
}

impl Want {
    fn action(&self) -> Action {
        match self {
            Self::On(action, _) | Self::All(action, _) => *action,
            Self::Lock(..) => Action::Lock,
            Self::ForwardRead(..) => Action::ForwardRead,
            Self::Somewhere(action) => *action,
            Self::Outcome(_) | Self::Nothing => Action::Read,
        }
    }

    fn is_allowed(&self, caller: &Caller) -> bool {
        match self {
            Self::On(action, resource) => caller.may(*action, resource).is_ok(),
            Self::Lock(resource, terms) => caller.may_lock(resource, terms).is_ok(),
            Self::All(action, prefix) => caller.may_all(*action, prefix).is_ok(),
            Self::ForwardRead(upstream, path) => caller.may_forward_read(upstream, path).is_ok(),
            Self::Outcome(resource) => {
                caller.may(Action::Read, resource).is_ok()
                    || caller.may(Action::Write, resource).is_ok()
            }
            Self::Somewhere(action) => caller.scopes_of(*action).next().is_some(),
            Self::Nothing => true,
        }
    }

    /// Why it is refused, for the caller: nothing but what the caller has sent, and what it may do.
    fn refused(&self, caller: &Caller) -> EngineError {
        let action = self.action();
        let on = match self {
            Self::On(_, resource) | Self::Outcome(resource) => resource.to_string(),
            Self::Lock(resource, _) if caller.may(Action::Lock, resource).is_ok() => {
                format!("{resource} on these terms (ttl, max_hold or wait)")
            }
            Self::Lock(resource, _) => resource.to_string(),
            Self::All(_, prefix) if prefix.is_empty() => "all resources".into(),
            Self::All(_, prefix) => format!("all resources that begin with {prefix:?}"),
            Self::ForwardRead(upstream, path) => format!("{path} of upstream {upstream}"),
            Self::Somewhere(_) | Self::Nothing => "anything".into(),
        };
        let scopes = match self {
            Self::All(..) => caller.scopes_of(action).map(ToString::to_string).collect(),
            _ => Vec::new(),
        };
        EngineError::PermissionDenied { principal: caller.name().clone(), action, on, scopes }
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
            }),
        };
        let task = access.clone().follow(closing.clone());
        runtime.spawn.spawn_lasting("access", Box::pin(task));
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

    /// Rules other than those of this generation, which was found to be in force no more. The ledger is asked once for
    /// all who wait.
    async fn load(&self, known: Option<i64>) -> Result<Arc<InForce>, EngineError> {
        let _loading = self.inner.loading.lock().await;
        let found = self.inner.in_force.read().clone();
        if let Some(found) = found.filter(|found| Some(found.generation) != known) {
            return Ok(found);
        }
        let stored = self.inner.ledger.rules().await.map_err(|error| {
            tracing::warn!(%error, "the rules of access cannot be loaded");
            EngineError::AccessUnavailable
        })?;
        let in_force = Arc::new(InForce::read(stored)?);
        tracing::info!(generation = in_force.generation, "rules of access are in force");
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

    /// Resolves once rules are in force that this generation is not that of.
    async fn moved(&self, generation: i64) {
        let mut moved = self.inner.moved.subscribe();
        // An error would mean that nothing moves any more.
        let _ = moved.wait_for(|now| *now != generation).await;
    }

    /// Puts rules in force, on all gateways: once this has returned, nothing takes effect that was allowed under older
    /// ones.
    ///
    /// # Errors
    /// `RulesInvalid`; `RulesOvertaken` if others were put in force in between.
    pub async fn apply(&self, permit: &Permit, change: NewRules) -> Result<i64, EngineError> {
        let rules = checked(&change.text, self.inner.runtime.clock.now());
        let rules = rules.map_err(|why| EngineError::RulesInvalid(why.to_string()))?;
        let known = self.in_force().await?;
        let by = permit.by();
        // Whoever applies rules was let to by those in force: if those have moved, it must ask again.
        if by.rules.is_some_and(|allowed| allowed != known.generation) {
            return Err(EngineError::RulesOvertaken(known.generation));
        }
        let stored = RulesChange {
            follows: change.follows.or(by.rules),
            text: change.text,
            database_roles: database_roles(&rules),
            applied_by: by.principal,
            reason: change.reason,
            request_id: change.request_id,
        };
        let ledger = Arc::clone(&self.inner.ledger);
        match ledger.apply_rules(stored).await? {
            RulesChanged::InForce(generation) => {
                self.load(Some(known.generation)).await?;
                Ok(generation)
            }
            RulesChanged::Overtaken(generation) => Err(EngineError::RulesOvertaken(generation)),
        }
    }
}

/// Rules that somebody wants to be in force.
#[derive(Debug, Clone)]
pub struct NewRules {
    /// The generation that they are to follow, if the caller says.
    pub follows: Option<i64>,
    /// Their text.
    pub text: String,
    /// Why.
    pub reason: String,
    /// The request that asks for it.
    pub request_id: String,
}

/// Rules as they may be put in force now.
///
/// # Errors
/// They cannot be read or meant, a principal has more live keys than a rotation needs, or nobody could change them.
pub fn checked(text: &str, now: jiff::Timestamp) -> Result<Rules, RulesError> {
    let rules = Rules::parse(text)?;
    rules.check_live_keys(now)?;
    rules.check_admin(now)?;
    Ok(rules)
}

/// Which principals the roles of the database are to `guard()`.
pub fn database_roles(rules: &Rules) -> Vec<DatabaseRole> {
    let role = |(role, principal, roles): (&str, &PrincipalName, &[Arc<str>])| DatabaseRole {
        role: role.to_owned(),
        names: By { principal: Some(principal.clone()), roles: roles.into(), rules: None }
            .names()
            .unwrap_or_default(),
    };
    rules.database_roles().map(role).collect()
}

/// Who asks for something, under the rules that were in force when the request came; cheap to clone.
#[derive(Clone)]
pub struct Asks {
    access: Access,
    in_force: Arc<InForce>,
    known: Option<Known>,
    /// All that was asked for so far.
    wants: Arc<Mutex<Vec<Want>>>,
}

impl Asks {
    /// Somebody that is known; nobody in particular where no rules are in force, or for what needs no credential.
    pub fn new(access: &Access, in_force: Arc<InForce>, known: Option<Known>) -> Self {
        Self { access: access.clone(), in_force, known, wants: Arc::default() }
    }

    /// Nobody, while the rules are not known: nothing is allowed that has to be.
    pub fn of_nobody(access: &Access) -> Self {
        let none = Rules::parse("").ok();
        let in_force = InForce { generation: -1, rules: none, callers: Mutex::default() };
        Self::new(access, Arc::new(in_force), None)
    }

    fn caller(&self) -> Option<&Caller> {
        self.known.as_ref().map(|known| &*known.caller)
    }

    /// The same caller, who has asked for nothing yet.
    pub fn alike(&self) -> Self {
        Self { wants: Arc::default(), ..self.clone() }
    }

    /// Resolves once other rules are in force, as far as this gateway has heard.
    pub async fn moved(&self) {
        self.access.moved(self.in_force.generation).await;
    }

    /// Whether rules are in force.
    pub fn is_ruled(&self) -> bool {
        self.in_force.rules.is_some()
    }

    /// The principal; none where no rules are in force, or for what needs no credential.
    pub fn principal(&self) -> Option<&PrincipalName> {
        self.caller().map(Caller::name)
    }

    /// Whether something is allowed, without asking for it.
    pub fn could(&self, want: &Want) -> bool {
        match (self.caller(), &self.in_force.rules) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(caller), Some(_)) => want.is_allowed(caller),
        }
    }

    /// Asks for something.
    ///
    /// # Errors
    /// `PermissionDenied`, whether the resource exists or not; `Unauthenticated`.
    pub fn may(&self, want: Want) -> Result<(), EngineError> {
        decide(&self.in_force, self.caller(), std::slice::from_ref(&want))?;
        self.wants.lock().push(want);
        Ok(())
    }

    /// The same of something that the ledger has no part in: it is told also while the ledger does not answer, so it is
    /// not held against the rules once more.
    ///
    /// # Errors
    /// `PermissionDenied`, `Unauthenticated`.
    pub fn may_here(&self, want: &Want) -> Result<(), EngineError> {
        decide(&self.in_force, self.caller(), std::slice::from_ref(want))
    }

    /// Asks for this to be done to a resource.
    ///
    /// # Errors
    /// `PermissionDenied`, `Unauthenticated`.
    pub fn may_on(&self, action: Action, resource: &ResourceName) -> Result<Permit, EngineError> {
        self.may(Want::On(action, resource.clone()))?;
        Ok(self.permit())
    }

    /// What was asked for so far, and allowed, to go with it to the ledger.
    pub fn permit(&self) -> Permit {
        let wants = self.wants.lock().clone();
        debug_assert!(!wants.is_empty(), "nothing was asked for");
        let by = by(&self.in_force, self.caller());
        Permit(Some(Arc::new(Permitted {
            access: self.access.clone(),
            identity: self.known.as_ref().map(|known| Arc::clone(&known.identity)),
            wants,
            by: RwLock::new(by),
        })))
    }

    /// Whether all that was asked for so far is still allowed: asked of the rules that are in force now, by what the
    /// ledger says after this call. For what was read under older ones, before a byte of it is sent.
    ///
    /// # Errors
    /// It is not; or that cannot be said.
    pub async fn confirm(&self) -> Result<(), EngineError> {
        let wants = self.wants.lock().clone();
        if wants.is_empty() {
            return Ok(());
        }
        match self.access.since(&self.in_force).await? {
            None => Ok(()),
            Some(now) => {
                let at = self.access.inner.runtime.clock.now();
                let identity = self.known.as_ref().map(|known| Arc::clone(&known.identity));
                let known = now.known(identity, at)?;
                decide(&now, known.as_ref().map(|known| &*known.caller), &wants)
            }
        }
    }
}

fn decide(in_force: &InForce, caller: Option<&Caller>, wants: &[Want]) -> Result<(), EngineError> {
    if in_force.rules.is_none() {
        return Ok(());
    }
    let caller = caller.ok_or(EngineError::Unauthenticated)?;
    match wants.iter().find(|want| !want.is_allowed(caller)) {
        None => Ok(()),
        Some(want) => {
            let action = want.action().as_str();
            ::metrics::counter!(super::metrics::DENIED, "action" => action).increment(1);
            Err(want.refused(caller))
        }
    }
}

fn by(in_force: &InForce, caller: Option<&Caller>) -> By {
    By {
        principal: caller.map(|caller| caller.name().clone()),
        roles: caller.map(|caller| caller.roles().into()).unwrap_or_default(),
        rules: Some(in_force.generation),
    }
}

/// What a caller was allowed, and by which rules; cheap to clone. The default is what the gateway does by itself.
#[derive(Clone, Default)]
pub struct Permit(Option<Arc<Permitted>>);

struct Permitted {
    access: Access,
    identity: Option<Arc<Identity>>,
    wants: Vec<Want>,
    by: RwLock<By>,
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Permit").field(&self.by()).finish()
    }
}

impl Permit {
    /// As the ledger takes it.
    pub fn by(&self) -> By {
        self.0.as_ref().map(|permitted| permitted.by.read().clone()).unwrap_or_default()
    }

    /// The ledger found that the rules have moved, and has done nothing: asks those that are in force.
    ///
    /// # Errors
    /// They do not allow it any more.
    pub(super) async fn renew(&self) -> Result<(), EngineError> {
        let Some(permitted) = &self.0 else {
            return Err(EngineError::Defect("the gateway's own act was held to rules".into()));
        };
        let known = permitted.by.read().rules;
        let in_force = permitted.access.load(known).await?;
        *permitted.by.write() = permitted.ask(&in_force)?;
        Ok(())
    }

    /// Resolves once the rules that are in force do not allow it any more, with why. Never otherwise.
    pub(super) async fn lost(&self) -> EngineError {
        let Some(permitted) = &self.0 else { return std::future::pending().await };
        let mut asked = permitted.by.read().rules.unwrap_or(0);
        loop {
            permitted.access.moved(asked).await;
            let Ok(in_force) = permitted.access.in_force().await else { continue };
            asked = in_force.generation;
            if let Err(error) = permitted.ask(&in_force) {
                return error;
            }
        }
    }
}

impl Permitted {
    fn ask(&self, in_force: &InForce) -> Result<By, EngineError> {
        let now = self.access.inner.runtime.clock.now();
        let known = in_force.known(self.identity.clone(), now)?;
        let caller = known.as_ref().map(|known| &*known.caller);
        decide(in_force, caller, &self.wants)?;
        Ok(by(in_force, caller))
    }
}

impl Engine {
    /// The rules as this gateway knows them.
    pub fn access(&self) -> &Access {
        &self.inner.access
    }
}
