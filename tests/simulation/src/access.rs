//! Rules of access in a run: who is which principal, and an administrator who puts other rules in force again and again.

use std::fmt::Write as _;
use std::sync::Arc;

use fence_core::ports::{Rulebook as _, RulesChange, RulesChanged};
use fence_history::PRINCIPALS;
use fencegate::engine::access::{Asks, Permit, Want};
use fencegate::engine::{Engine, EngineError};
use fencegate_access::Identity;
use futures::FutureExt as _;

use crate::faults::versions;
use crate::gateways::Servers;
use crate::ledger::SimulatedLedger;
use crate::network::{Link, Weather};
use crate::recorder::Recorder;
use crate::world::{MS, SECOND, World};

/// The clients whom rules may deny everything but to read.
const CLIENTS: std::ops::RangeInclusive<u32> = 1..=5;
/// Those whom no rules ever deny anything.
const OTHERS: std::ops::RangeInclusive<u32> = 99..=110;

const ROLES: &str = r#"
[[roles]]
name = "worker"
allow = ["lock", "fence", "fence-force", "write", "clear", "read", "break", "delegate"]
resources = ["*"]

[[roles]]
name = "idle"
allow = ["read"]
resources = ["*"]
"#;

/// The name of a client's principal.
pub fn principal(client: u32) -> String {
    format!("c{}", client % PRINCIPALS)
}

fn rules(denied: &[u32]) -> RulesChange {
    let mut text = ROLES.to_owned();
    for client in CLIENTS.chain(OTHERS) {
        let role = if denied.contains(&client) { "idle" } else { "worker" };
        let name = principal(client);
        let _ = write!(
            text,
            "[[principals]]\nname = \"{name}\"\nroles = [\"{role}\"]\nmatch = {{ unix_uid = {client} }}\n"
        );
    }
    RulesChange {
        follows: None,
        text,
        database_roles: Vec::new(),
        applied_by: None,
        reason: "a run".into(),
        request_id: "sim".into(),
    }
}

/// Puts rules in force that deny nobody anything, before anybody does anything.
pub fn begin(servers: &Servers, recorder: &Recorder) {
    let applied = servers.ledger.memory().apply_rules(rules(&[])).now_or_never();
    assert!(
        matches!(applied, Some(Ok(RulesChanged::InForce(_)))),
        "the ledger in memory takes rules"
    );
    recorder.rules(Vec::new(), Vec::new(), Vec::new());
}

/// An administrator: other rules again and again, each time until it is told that they are in force.
pub async fn administer(world: World, servers: Arc<Servers>, recorder: Recorder) {
    let link = Link::new(&world, Weather::default(), servers.processes[0]);
    let ledger = SimulatedLedger::new(Arc::clone(&servers.ledger), link);
    loop {
        world.sleep(world.between(200 * MS, 2 * SECOND)).await;
        let denied: Vec<u32> = CLIENTS.filter(|_| world.chance(0.3)).collect();
        let before = versions(&servers.ledger);
        while !matches!(ledger.apply_rules(rules(&denied)).await, Ok(RulesChanged::InForce(_))) {
            world.sleep(50 * MS).await;
        }
        recorder.rules(denied, before, versions(&servers.ledger));
    }
}

/// Who asks: nobody in particular where no rules are in force.
#[derive(Debug, Clone, Copy)]
pub struct Asker {
    /// The principal; none where no rules are in force.
    pub client: Option<u32>,
}

impl Asker {
    /// What a route does before anything else: it finds out who asks, and asks for what it is about to do.
    ///
    /// # Errors
    /// The rules do not allow it, or are not known.
    pub async fn permit(self, engine: &Engine, wants: Vec<Want>) -> Result<Permit, EngineError> {
        let Some(client) = self.client else { return Ok(Permit::default()) };
        let in_force = engine.access().in_force().await?;
        let identity = Arc::new(Identity::Unix { uid: client % PRINCIPALS, gid: 0 });
        let known = in_force.known(Some(identity), engine.runtime().clock.now())?;
        let asks = Asks::new(engine.access(), in_force, known);
        for want in wants {
            asks.may(want).await?;
        }
        Ok(asks.permit())
    }
}
