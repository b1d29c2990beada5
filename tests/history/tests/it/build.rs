//! Histories by hand, in few words: all on the resource `r`, unless they say otherwise.

use fence_history::{
    Answer, Answered, Asked, Call, Change, Checker, Committed, Effect, FencedWrite, Healed,
    History, Intent, Outcome, Record, Rollback, Rules, Sealed, Seen, Writers, check,
};
use uuid::Uuid;

/// A history in the making. Time goes on by ten with each begin, answer or event.
#[derive(Debug, Clone, Default)]
pub struct Story {
    records: Vec<Record>,
    now: u64,
    calls: u64,
}

/// How far apart the numbers of two clients of one principal are.
pub const PRINCIPALS: u32 = 1000;

pub fn id(number: u128) -> Uuid {
    Uuid::from_u128(number)
}

impl Story {
    fn tick(&mut self) -> u64 {
        self.now += 10;
        self.now
    }

    /// Lets time pass.
    pub fn wait(&mut self, micros: u64) {
        self.now += micros;
    }

    /// A call that is under way: where it is in the history.
    pub fn begin(&mut self, client: u32, asked: Asked) -> usize {
        let begun_at = self.tick();
        self.calls += 1;
        let (number, gateway) = (self.calls, 1);
        let principal = client % PRINCIPALS;
        let call = Call { number, client, principal, gateway, begun_at, asked, answered: None };
        self.records.push(Record::Call(call));
        self.records.len() - 1
    }

    pub fn end(&mut self, call: usize, answer: Answer) {
        let at = self.tick();
        if let Record::Call(call) = &mut self.records[call] {
            call.answered = Some(Answered { at, answer });
        }
    }

    /// A call of client 1 and its answer.
    pub fn call(&mut self, asked: Asked, answer: Answer) {
        let call = self.begin(1, asked);
        self.end(call, answer);
    }

    /// A grant, told and sealed.
    pub fn grant(&mut self, lock: u128, token: i64, version: i64) {
        self.call(acquire(lock), granted(lock, token, version));
        self.sealed(token, lock);
    }

    /// A put, told and committed.
    pub fn write(&mut self, operation: u128, token: i64, version: i64) {
        let value = format!("v{operation}");
        self.call(put(token, &value), written(operation, version));
        self.committed(operation, token, version, &value);
    }

    pub fn read(&mut self, version: i64, found: Option<(i64, &str)>) {
        let seen =
            |(version, value): (i64, &str)| Seen { generation: 0, version, value: value.into() };
        let found = found.map(seen);
        self.call(ask_value(), Answer::Value { found, resource_version: Some(version) });
    }

    /// The upstream acts on a request.
    pub fn effect(&mut self, request: u128, token: i64) {
        let (at, request) = (self.tick(), id(request));
        self.records.push(Record::Effect(Effect { at, resource: "r".into(), token, request }));
    }

    /// A request is admitted to the upstream as the operation of the same number.
    pub fn intent(&mut self, request: u128) {
        let (operation, request) = (id(request), id(request));
        self.records.push(Record::Intent(Intent { operation, request }));
    }

    /// The ledger goes back, and nothing of `r` above a version is kept.
    pub fn rollback(&mut self, generation: i64, kept: i64) {
        let (at, kept) = (self.tick(), vec![("r".into(), kept)]);
        self.records.push(Record::Rollback(Rollback { at, generation, kept }));
    }

    /// Other rules are in force, since this version.
    pub fn rules(&mut self, denied: &[u32], version: i64) {
        let (at, versions) = (self.tick(), vec![("r".to_owned(), version)]);
        let (denied, before) = (denied.to_vec(), versions.clone());
        self.records.push(Record::Rules(Rules {
            asked_at: at,
            at,
            denied,
            before,
            after: versions,
        }));
    }

    /// A lock is asked for under which this principal may write, too.
    pub fn writer(&mut self, lock: u128, principal: u32) {
        self.records.push(Record::Writers(Writers { lock: id(lock), principals: vec![principal] }));
    }

    pub fn healed(&mut self) {
        let at = self.tick();
        self.records.push(Record::Healed(Healed { at, resources: vec!["r".into()] }));
    }

    pub fn sealed(&mut self, token: i64, lock: u128) {
        self.sealed_on("r", token, lock);
    }

    pub fn sealed_on(&mut self, resource: &str, token: i64, lock: u128) {
        let (resource, lock) = (resource.into(), id(lock));
        self.records.push(Record::Sealed(Sealed { resource, token, lock }));
    }

    pub fn committed(&mut self, operation: u128, token: i64, version: i64, value: &str) {
        let change = Change::Put { key: "k".into(), value: value.into(), adds: None };
        self.line(operation, token, Some(version), change);
    }

    pub fn line(&mut self, operation: u128, token: i64, version: Option<i64>, change: Change) {
        self.records.push(Record::Committed(Committed {
            operation: id(operation),
            resource: "r".into(),
            version,
            generation: 0,
            token,
            sequence: None,
            idempotency_key: None,
            changes: vec![change],
        }));
    }

    /// The line of the ledger that was added last.
    pub fn last_line(&mut self) -> &mut Committed {
        let lines = self.records.iter_mut().filter_map(|record| match record {
            Record::Committed(line) => Some(line),
            _ => None,
        });
        lines.last().expect("a line")
    }

    /// The call that was added last.
    pub fn last_call(&mut self) -> &mut Call {
        let calls = self.records.iter_mut().filter_map(|record| match record {
            Record::Call(call) => Some(call),
            _ => None,
        });
        calls.last().expect("a call")
    }

    /// The write that was asked for last.
    pub fn last_write(&mut self) -> &mut FencedWrite {
        match &mut self.last_call().asked {
            Asked::Write(write) => write,
            other => panic!("not a write: {other:?}"),
        }
    }

    pub fn history(&self) -> History {
        History { records: self.records.clone() }
    }

    /// Which checkers find something, and what.
    pub fn violated(&self) -> (Vec<Checker>, String) {
        let report = check(&self.history());
        assert_eq!(report.malformed, Vec::<String>::new(), "{self:?}");
        let mut checkers: Vec<_> = report.violations.iter().map(|it| it.checker).collect();
        checkers.sort_unstable();
        checkers.dedup();
        (checkers, report.to_string())
    }
}

pub fn acquire(lock: u128) -> Asked {
    Asked::Acquire { lock: Some(id(lock)), resources: vec!["r".into()] }
}

pub fn granted(lock: u128, token: i64, version: i64) -> Answer {
    Answer::Granted { lock: id(lock), token, versions: vec![("r".into(), version)], again: false }
}

pub fn again(lock: u128, token: i64, version: i64) -> Answer {
    Answer::Granted { lock: id(lock), token, versions: vec![("r".into(), version)], again: true }
}

pub fn changing(token: i64, change: Change) -> Asked {
    Asked::Write(FencedWrite {
        resource: "r".into(),
        token,
        forged: false,
        sequence: None,
        idempotency_key: None,
        if_version: None,
        change,
    })
}

pub fn put(token: i64, value: &str) -> Asked {
    changing(token, Change::Put { key: "k".into(), value: value.into(), adds: None })
}

pub fn add(value: &str, adds: u64) -> Change {
    Change::Put { key: "set".into(), value: value.into(), adds: Some(adds) }
}

pub fn delete() -> Change {
    Change::Delete { key: "k".into() }
}

pub fn written(operation: u128, version: i64) -> Answer {
    told(operation, Some(version), 0, false)
}

pub fn told(operation: u128, version: Option<i64>, generation: i64, replayed: bool) -> Answer {
    let versions = vec![("r".into(), version)];
    Answer::Written { operation: id(operation), versions, generation, replayed }
}

pub fn refused(code: &str) -> Answer {
    Answer::Refused { code: code.into() }
}

pub fn unknown(operation: u128) -> Answer {
    Answer::Unknown { operation: Some(id(operation)) }
}

pub fn ask(operation: u128) -> Asked {
    Asked::Ask { operation: id(operation) }
}

pub fn outcome(outcome: Outcome) -> Answer {
    Answer::Outcome(outcome)
}

pub fn forward(request: u128, token: i64) -> Asked {
    Asked::Forward { resource: "r".into(), token, request: id(request) }
}

pub fn ask_value() -> Asked {
    Asked::Read { resource: "r".into(), key: "k".into() }
}
