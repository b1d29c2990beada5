//! Rules of access in a run: who is which principal, and an administrator who puts other rules in force again and again.

use std::fmt::Write as _;
use std::sync::Arc;

use fence_core::ports::{Rulebook as _, RulesChange, RulesChanged};
use fencegate::engine::access::{Asks, Permit, Want};
use fencegate::engine::{Engine, EngineError};
use fencegate_access::Identity;
use futures::FutureExt as _;

use crate::faults::versions;
use crate::gateways::Servers;
use crate::ledger::SimulatedLedger;
use crate::network::{Link, Weather};
use crate::recorder::Recorder;
use crate::world::{MS, Micros, SECOND, World};

/// How far apart the numbers of a client and its twin are, who are one principal.
pub const PRINCIPALS: u32 = 1000;
/// The clients whom rules may deny everything that is done in a run.
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
allow = ["observe"]
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
        asked: None,
    }
}

/// Puts rules in force that deny nobody anything, before anybody does anything.
pub fn begin(servers: &Servers, recorder: &Recorder) {
    let applied = servers.ledger.memory().apply_rules(rules(&[])).now_or_never();
    assert!(
        matches!(applied, Some(Ok(RulesChanged::InForce(_)))),
        "the ledger in memory takes rules"
    );
    recorder.rules(recorder.now(), Vec::new(), Vec::new(), Vec::new());
}

/// An administrator: other rules again and again until a time, each until it is told that they are in force. It never ends in
/// between: rules that nobody knows of would be in force.
pub async fn administer(world: World, servers: Arc<Servers>, recorder: Recorder, until: Micros) {
    let link = Link::new(&world, Weather::default(), servers.processes[0]);
    let ledger = SimulatedLedger::new(Arc::clone(&servers.ledger), link);
    loop {
        world.sleep(world.between(200 * MS, 2 * SECOND)).await;
        if world.now() >= until {
            return;
        }
        let denied: Vec<u32> = CLIENTS.filter(|_| world.chance(0.3)).collect();
        let (asked_at, before) = (recorder.now(), versions(&servers.ledger));
        while !matches!(ledger.apply_rules(rules(&denied)).await, Ok(RulesChanged::InForce(_))) {
            world.sleep(50 * MS).await;
        }
        recorder.rules(asked_at, denied, before, versions(&servers.ledger));
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
        let asks = self.asks(engine, wants).await?;
        Ok(asks.map(|asks| asks.permit()).unwrap_or_default())
    }

    /// The same for what is read: whoever reads asks once more before it is sent. None where no rules are in force.
    ///
    /// # Errors
    /// The rules do not allow it, or are not known.
    pub async fn asks(
        self,
        engine: &Engine,
        wants: Vec<Want>,
    ) -> Result<Option<Asks>, EngineError> {
        let Some(client) = self.client else { return Ok(None) };
        let in_force = engine.access().in_force().await?;
        let uid = client % PRINCIPALS;
        // As a gateway does with a credential that it has seen before.
        let (credential, now) =
            ([u8::try_from(uid).unwrap_or(u8::MAX); 32], engine.runtime().clock.now());
        let known = match in_force.kept(&credential, now) {
            Some(known) => known,
            None => {
                let identity = Some(Arc::new(Identity::Unix { uid, gid: 0 }));
                let known = in_force.known(identity, now)?.ok_or(EngineError::Unauthenticated)?;
                in_force.keep(credential, &known);
                known
            }
        };
        let asks = Asks::new(engine.access(), in_force, Some(known));
        for want in wants {
            asks.may(want).await?;
        }
        Ok(Some(asks))
    }
}
