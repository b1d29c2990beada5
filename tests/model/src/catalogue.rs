//! All models with their bounds.

use crate::access::plans::{ALLOW, DENY_FIRST, DENY_SECOND, EACH, IN_ROLE, ROLES, RULES, WRITERS};
use crate::access::{self, Access, Says};
use crate::blobs::{self, Blobs};
use crate::check::{self, Progress, Report};
use crate::disasters::{self, Disasters};
use crate::drained::{self, Drained};
use crate::locks::{self, Condition, Locks, PLAIN, Plan, Write};
use crate::mutants::Mutant;
use crate::parts::plans::{ENDS, READERS, ROLLED_BACK};
use crate::parts::{self, Parts};

/// A model, whatever it is about.
#[derive(Debug, Clone)]
pub enum System {
    /// Locks and writes.
    Locks(Locks),
    /// Restored stores.
    Disasters(Disasters),
    /// Large payloads.
    Blobs(Blobs),
    /// Uploads in parts.
    Parts(Parts),
    /// A drained upstream.
    Drained(Drained),
    /// Rules of access.
    Access(Access),
}

/// A model with a name.
#[derive(Debug, Clone)]
pub struct Entry {
    /// Its name.
    pub name: &'static str,
    /// What is in it, in words.
    pub bounds: String,
    /// The model.
    pub system: System,
}

impl Entry {
    /// The same, broken.
    #[must_use]
    pub fn broken(mut self, mutant: Mutant) -> Self {
        match &mut self.system {
            System::Locks(model) => model.mutant = Some(mutant),
            System::Disasters(model) => model.mutant = Some(mutant),
            System::Blobs(model) => model.mutant = Some(mutant),
            System::Parts(model) => model.mutant = Some(mutant),
            System::Drained(model) => model.mutant = Some(mutant),
            System::Access(model) => model.mutant = Some(mutant),
        }
        self
    }

    /// The name of its kind, and its invariants.
    pub fn invariants(&self) -> (&'static str, Vec<&'static str>) {
        match &self.system {
            System::Locks(model) => ("locks", check::invariants(model)),
            System::Disasters(model) => ("disasters", check::invariants(model)),
            System::Blobs(model) => ("blobs", check::invariants(model)),
            System::Parts(model) => ("parts", check::invariants(model)),
            System::Drained(model) => ("drained", check::invariants(model)),
            System::Access(model) => ("access", check::invariants(model)),
        }
    }

    /// The situations that it must reach.
    pub fn situations(&self) -> &'static [&'static str] {
        match &self.system {
            System::Locks(model) => model.situations,
            System::Disasters(model) => model.situations,
            System::Blobs(model) => model.situations,
            System::Parts(model) => model.situations,
            System::Drained(model) => model.situations,
            System::Access(model) => model.situations,
        }
    }

    /// Looks at all its states, or only until this invariant is broken.
    pub fn check(
        self,
        until: Option<&'static str>,
        tell: &mut (dyn FnMut(Progress) + Send),
    ) -> Report {
        match self.system {
            System::Locks(model) => check::check(model, until, tell),
            System::Disasters(model) => check::check(model, until, tell),
            System::Blobs(model) => check::check(model, until, tell),
            System::Parts(model) => check::check(model, until, tell),
            System::Drained(model) => check::check(model, until, tell),
            System::Access(model) => check::check(model, until, tell),
        }
    }
}

const FIRST: Write = Write { sequence: Some(1), ..PLAIN };
const SECOND: Write = Write { sequence: Some(2), ..PLAIN };
const KEYED: Write = Write { keyed: true, ..PLAIN };
const AS_READ: Write = Write { condition: Condition::AsRead, ..PLAIN };
const ABSENT: Write = Write { condition: Condition::Absent, ..PLAIN };
const FORGED: Write = Write { forged: Some(7), ..PLAIN };
const OTHER: Write = Write { resource: 1, ..PLAIN };

const fn lock(resources: &'static [u8], writes: &'static [Write]) -> Plan {
    Plan { resources, from: None, writes }
}

fn of_locks(
    name: &'static str,
    clients: [Plan; 3],
    bounds: locks::Bounds,
    situations: &'static [&'static str],
) -> Entry {
    let locks::Bounds { mints, expiries, losses, renewals, releases, breaks } = bounds;
    let writes: usize = clients.iter().map(|plan| plan.writes.len()).sum();
    let mut words = format!("3 clients, {mints} mints, {writes} writes");
    for (count, word) in [
        (expiries, "expiries"),
        (losses, "lost connections"),
        (renewals, "renewals"),
        (releases, "releases"),
        (breaks, "breaks"),
    ] {
        if count > 0 {
            words += &format!(", {count} {word}");
        }
    }
    let model = Locks { clients, bounds, situations, mutant: None };
    Entry { name, bounds: words, system: System::Locks(model) }
}

fn of_disasters(
    name: &'static str,
    bounds: disasters::Bounds,
    situations: &'static [&'static str],
) -> Entry {
    let disasters::Bounds { grants, rollbacks, restores, switches, deaths, .. } = bounds;
    let words = format!(
        "3 clients, {grants} grants, {rollbacks} rollbacks of the ledger, {restores} restores of etcd, \
         {switches} new epochs, {deaths} deaths of the gateway that opens one"
    );
    let model = Disasters { bounds, situations, mutant: None };
    Entry { name, bounds: words, system: System::Disasters(model) }
}

fn of_blobs(
    name: &'static str,
    puts: &'static [u8],
    bounds: blobs::Bounds,
    situations: &'static [&'static str],
) -> Entry {
    let blobs::Bounds { grants, ticks, rollbacks, reads, given_up } = bounds;
    let words = format!(
        "3 clients, {grants} grants, {} puts, {given_up} given up, {reads} reads, {ticks} ticks \
         (horizon {}), {rollbacks} rollbacks",
        puts.len(),
        blobs::HORIZON
    );
    let model = Blobs { puts, bounds, situations, mutant: None };
    Entry { name, bounds: words, system: System::Blobs(model) }
}

fn of_parts(
    name: &'static str,
    (plan, bounds): (parts::Plan, parts::Bounds),
    situations: &'static [&'static str],
) -> Entry {
    let parts::Bounds { grants, ticks, rollbacks, reads, given_up, deletes, repeats } = bounds;
    let mut words = format!(
        "2 clients, {grants} grants, {} uploads, {} parts, {} completions",
        plan.uploads,
        plan.parts.len(),
        plan.completes.len()
    );
    for (count, word) in [
        (u8::from(plan.abort.is_some()), "aborted"),
        (repeats, "lost answers"),
        (given_up, "given up"),
        (deletes, "deletes"),
        (reads, "reads"),
        (ticks, "ticks"),
        (rollbacks, "rollbacks"),
    ] {
        if count > 0 {
            words += &format!(", {count} {word}");
        }
    }
    let model = Parts { plan, bounds, situations, mutant: None };
    Entry { name, bounds: words, system: System::Parts(model) }
}

fn of_drained(
    name: &'static str,
    requests: &'static [u8],
    bounds: drained::Bounds,
    situations: &'static [&'static str],
) -> Entry {
    let drained::Bounds { grants, losses, deaths, expiries, rollbacks } = bounds;
    let words = format!(
        "3 clients, {grants} seals, {} requests, {losses} lost connections, {deaths} dead gateways, \
         {expiries} expiries, {rollbacks} rollbacks",
        requests.len()
    );
    let model = Drained { requests, bounds, situations, mutant: None };
    Entry { name, bounds: words, system: System::Drained(model) }
}

fn of_access(
    name: &'static str,
    plan: access::Plan,
    rules: &'static [Says],
    bounds: access::Bounds,
    situations: &'static [&'static str],
) -> Entry {
    let access::Bounds { applies, losses, expiries, rollbacks } = bounds;
    let words = format!(
        "2 principals, 2 gateways, {} requests, {applies} changes of the rules, {losses} lost answers, \
         {expiries} expiries, {rollbacks} rollbacks",
        plan.requests.len()
    );
    let model = Access { plan, rules, bounds, situations, mutant: None };
    Entry { name, bounds: words, system: System::Access(model) }
}

/// All models.
pub fn models() -> Vec<Entry> {
    let mut all = models_of_locks();
    all.extend(models_of_disasters());
    all.extend(models_of_blobs());
    all.extend(models_of_parts());
    all.extend(models_of_upstreams());
    all.extend(models_of_access());
    all
}

fn models_of_locks() -> Vec<Entry> {
    let none = locks::Bounds::default();
    let heir = Plan { resources: &[0], from: Some(0), writes: &[PLAIN] };
    vec![
        of_locks(
            "takeover",
            [
                lock(&[0], &[FIRST, SECOND]),
                lock(&[0], &[AS_READ, FIRST]),
                lock(&[0], &[FORGED, ABSENT]),
            ],
            locks::Bounds { mints: 4, expiries: 2, ..none },
            &[
                "a lock was taken over twice",
                "an old holder was refused as stale",
                "an expired holder without a successor wrote",
                "a late duplicate was refused",
                "a condition was not met",
                "a forged token was refused",
            ],
        ),
        of_locks(
            "lost answers",
            [lock(&[0], &[KEYED, KEYED]), lock(&[0], &[KEYED]), lock(&[0], &[])],
            locks::Bounds { mints: 3, expiries: 1, losses: 2, ..none },
            &[
                "a successor got the replay",
                "a stale client got the replay",
                "a lost write was found",
                "a lost write was buried before it arrived",
                "a lost seal was found",
                "a lost seal was given up for good",
                "a lost seal was over when it was found",
            ],
        ),
        of_locks(
            "two resources",
            [lock(&[0, 1], &[PLAIN, OTHER]), lock(&[0], &[PLAIN]), lock(&[1], &[OTHER])],
            locks::Bounds { mints: 4, expiries: 2, breaks: 1, ..none },
            &[
                "an old holder was refused as stale",
                "a lock has lost one of its resources",
                "a lock on two resources wrote on both",
            ],
        ),
        of_locks(
            "ends of locks",
            [lock(&[0], &[PLAIN]), heir, lock(&[0], &[PLAIN])],
            locks::Bounds { mints: 3, expiries: 1, renewals: 1, releases: 1, breaks: 1, ..none },
            &[
                "a renewal revived a lock",
                "a write after a release was refused",
                "a write after a break was refused",
                "a successor by transfer wrote",
                "a break was due, but not stored",
            ],
        ),
    ]
}

fn models_of_disasters() -> Vec<Entry> {
    let none = disasters::Bounds {
        grants: 3,
        rollbacks: 0,
        restores: 0,
        copies: 0,
        snapshots: 0,
        switches: 0,
        deaths: 0,
    };
    vec![
        of_disasters(
            "etcd restored",
            disasters::Bounds { restores: 1, snapshots: 1, switches: 1, deaths: 1, ..none },
            &[
                "a restored etcd repeated a number",
                "a number was too low",
                "a seal came after the epoch had moved on",
                "a holder wrote across a change of epoch",
                "a token was given out in a later epoch",
            ],
        ),
        of_disasters(
            "ledger rolled back",
            disasters::Bounds { rollbacks: 1, copies: 1, deaths: 1, ..none },
            &[
                "a ledger that went back refused an act",
                "a write was void after a re-fence",
                "a token was given out after a re-fence",
            ],
        ),
        of_disasters(
            "both",
            disasters::Bounds { rollbacks: 1, restores: 1, copies: 1, snapshots: 1, ..none },
            &["a restored etcd repeated a number", "a token was given out after both went back"],
        ),
        of_disasters(
            "both, the ledger twice",
            disasters::Bounds {
                grants: 2,
                rollbacks: 2,
                restores: 1,
                copies: 1,
                snapshots: 1,
                ..none
            },
            &["a token was given out after a second re-fence"],
        ),
    ]
}

fn models_of_blobs() -> Vec<Entry> {
    vec![
        of_blobs(
            "blobs and readers",
            &[0, 1, 2],
            blobs::Bounds { grants: 3, ticks: 3, rollbacks: 0, reads: 1, given_up: 1 },
            &[
                "an upload ended after its intent was given up",
                "a commit came too late for its intent",
                "a stale put was refused after its upload",
                "a late upload was deleted the second time",
                "a replaced blob was deleted",
                "a reader followed a pointer that had moved",
                "a pinned blob outlived the horizon",
            ],
        ),
        of_blobs(
            "blobs rolled back",
            &[0, 1],
            blobs::Bounds { grants: 2, ticks: 3, rollbacks: 1, reads: 0, given_up: 1 },
            &[
                "a put was void after a re-fence",
                "a rollback brought a replaced pointer back",
                "an abandoned ledger came back",
                "a blob was deleted after a rollback",
                "a collector was halted",
            ],
        ),
    ]
}

fn models_of_parts() -> Vec<Entry> {
    vec![
        of_parts(
            "parts and their ends",
            ENDS,
            &[
                "a successor completed what its predecessor had begun",
                "a stale completion was refused",
                "a completion came again",
                "a completion named a part that had gone",
                "a completion came too late for its upload",
                "a part that was not named became garbage",
                "a late part changed nothing",
                "a late abort changed nothing",
                "a part came after its upload had ended",
                "a part took too long",
                "the bytes of a part came after its intent was given up",
            ],
        ),
        of_parts(
            "parts and readers",
            READERS,
            &["the parts of a replaced object were deleted", "a reader outlived its object"],
        ),
        of_parts(
            "parts rolled back",
            ROLLED_BACK,
            &[
                "a part came after one that was begun later",
                "a rollback brought an upload back",
                "a part was void after a re-fence",
                "a part was deleted after a rollback",
            ],
        ),
    ]
}

fn models_of_upstreams() -> Vec<Entry> {
    let none = drained::Bounds { grants: 3, losses: 0, deaths: 0, expiries: 0, rollbacks: 0 };
    vec![
        of_drained(
            "drained upstream",
            &[0, 0, 1],
            drained::Bounds { deaths: 1, expiries: 1, ..none },
            &[
                "a seal that does not wait was refused",
                "a lock that drained came into force",
                "a lock that drained was taken over",
                "an effect came while a newer lock drained",
                "a request under an older token was refused",
                "a request waited under way while its token was stale",
                "an operator closed an intent",
            ],
        ),
        of_drained(
            "intents and lost answers",
            &[0, 1],
            drained::Bounds { losses: 2, deaths: 1, ..none },
            &[
                "a lost intent was found",
                "a lost intent was buried",
                "a wish to open came after the close",
            ],
        ),
        of_drained(
            "intents rolled back",
            &[0, 1],
            drained::Bounds { rollbacks: 1, ..none },
            &[
                "a rollback forgot an intent that is under way",
                "an operator ended a doubt",
                "a token was given out after a re-fence",
            ],
        ),
    ]
}

fn models_of_access() -> Vec<Entry> {
    let none = access::Bounds { applies: 0, losses: 0, expiries: 0, rollbacks: 0 };
    vec![
        of_access(
            "principals and writers",
            WRITERS,
            &[ALLOW],
            access::Bounds { losses: 1, expiries: 1, ..none },
            &[
                "a named writer wrote",
                "a write under somebody else's token was refused",
                "a renewal of somebody else's lock was refused",
                "a release of somebody else's lock was refused",
                "somebody else's lock could not be asked for under its id",
                "somebody else's lock could not be handed over",
                "a lock was handed over to somebody else",
            ],
        ),
        of_access(
            "rules that change",
            RULES,
            &[ALLOW, DENY_FIRST, DENY_SECOND],
            access::Bounds { applies: 2, expiries: 1, ..none },
            &[
                "newer rules allowed it, too",
                "newer rules denied what older ones had allowed",
                "what the rules in force deny was on its way",
            ],
        ),
        of_access(
            "roles and lost answers",
            ROLES,
            &[IN_ROLE, ALLOW, DENY_FIRST],
            access::Bounds { applies: 2, losses: 1, expiries: 1, ..none },
            &[
                "a writer in a role wrote",
                "a writer that had lost its role was refused",
                "a lost request was found although its rules had moved",
                "a lost request was buried since its rules had moved",
            ],
        ),
        of_access(
            "rules rolled back",
            EACH,
            &[ALLOW, DENY_SECOND],
            access::Bounds { applies: 2, rollbacks: 1, ..none },
            &[
                "rules that the ledger had forgotten did not count",
                "something took effect under rules that came after a re-fence",
            ],
        ),
    ]
}
