//! What a client can ask of a gateway, call by call: as a route does it, and as it is written down.

use std::time::Duration;

use bytes::Bytes;
use fence_core::ports::{Applied, Object};
use fence_core::{LockId, Metadata, ObjectKey, ResourceName, Token, Ttl, WriterName};
use fence_history::{Answer, Asked, Change, FencedWrite, Seen};
use fencegate::engine::access::{Permit, Want};
use fencegate::engine::{
    Acquire, Acquired, CommitHead, Content, Engine, EngineError, Fence, PutBody, Step, Transfer,
    UploadHead, Wanted, Write, WriteEffect, WriteFailure,
};
use fencegate_access::{Action, LockTerms};
use futures::TryStreamExt as _;
use uuid::Uuid;

use super::{Client, Held, Reply, name};
use crate::access::principal;
use crate::runtime::random_id;
use crate::world::MS;

impl Client {
    /// Acquires a lock; under an id of its own choice it may ask again.
    pub async fn acquire(&mut self, resources: &[&str], wait: Duration) -> Option<Held> {
        let id = self.world.chance(0.5).then(|| random_id(&self.world));
        self.acquire_as(id, resources, wait, None).await
    }

    /// Acquires a lock under which another principal may write, too.
    pub async fn acquire_with(&mut self, resource: &str, writer: u32) -> Option<Held> {
        let id = random_id(&self.world);
        self.recorder.writers(id, vec![writer]);
        self.acquire_as(Some(id), &[resource], Duration::from_secs(1), Some(writer)).await
    }

    async fn acquire_as(
        &mut self,
        id: Option<Uuid>,
        resources: &[&str],
        wait: Duration,
        writer: Option<u32>,
    ) -> Option<Held> {
        let ttl = i64::try_from(self.world.between(1000, 3000)).unwrap_or(1000);
        let names: Vec<ResourceName> = resources.iter().map(|one| name(one)).collect();
        let writers: Vec<_> = writer
            .map(|writer| WriterName::new(&principal(writer)).expect("a good name"))
            .into_iter()
            .collect();
        let terms = LockTerms {
            ttl: Some(Duration::from_millis(ttl.unsigned_abs())),
            max_hold: None,
            wait: (!wait.is_zero()).then_some(wait),
        };
        for _ in 0..3 {
            let wants = names.iter().map(|name| Want::Lock(name.clone(), terms)).collect();
            let asker = self.asker();
            let request = Acquire {
                resources: names.clone(),
                owner: format!("client-{}", self.number),
                ttl: Some(Ttl::from_ms(ttl)),
                max_hold: None,
                metadata: Metadata::default(),
                only_if_exists: false,
                id: id.map(LockId),
                wait,
                permit: Permit::default(),
                writers: writers.clone(),
            };
            let asked = Asked::Acquire {
                lock: id,
                resources: resources.iter().map(ToString::to_string).collect(),
            };
            let handler = move |engine: Engine| async move {
                let permit = match asker.permit(&engine, wants).await {
                    Ok(permit) => permit,
                    Err(error) => return (failed(&error), None),
                };
                granted(engine.acquire(Acquire { permit, ..request }).await)
            };
            match self.ask(asked, id.is_some(), handler).await {
                Some(answer @ Answer::Granted { .. }) => return held(answer),
                Some(Answer::Refused { .. }) => return None,
                _ if id.is_none() || self.world.chance(0.3) => return None,
                _ => self.pause(MS, 300 * MS).await,
            }
        }
        None
    }

    /// Hands a lock over, to itself under another name.
    pub async fn transfer(&self, from: &Held) -> Option<Held> {
        let to = self.world.chance(0.7).then(|| random_id(&self.world));
        let request = Transfer {
            from: LockId(from.lock),
            owner: format!("client-{}-successor", self.number),
            to: to.map(LockId),
            permit: Permit::default(),
            principal: None,
        };
        let resources = from.versions.iter().map(|(resource, _)| resource.clone()).collect();
        let asked = Asked::Transfer { from: from.lock, to, resources };
        let (asker, wants) = (self.asker(), vec![Want::Somewhere(Action::Lock)]);
        let handler = move |engine: Engine| async move {
            let permit = match asker.permit(&engine, wants).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            granted(engine.transfer(Transfer { permit, ..request }).await)
        };
        held(self.ask(asked, to.is_some(), handler).await?)
    }

    /// Sets a fence without a lock.
    pub async fn fence(&self, resource: &str, force: bool) -> Option<Held> {
        let id = random_id(&self.world);
        let request = Fence {
            resource: name(resource),
            id: LockId(id),
            owner: format!("client-{}", self.number),
            order: None,
            force,
            permit: Permit::default(),
        };
        let asked = Asked::Fence { lock: id, resource: resource.to_owned() };
        let fences = [Action::Fence, Action::FenceForce];
        let wants = fences.map(|action| Want::On(action, name(resource))).to_vec();
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let permit = match asker.permit(&engine, wants).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            granted(engine.fence(Fence { permit, ..request }).await)
        };
        held(self.ask(asked, true, handler).await?)
    }

    /// Starts a lock's ttl again.
    pub async fn renew(&self, held: &Held) -> Option<Answer> {
        let id = LockId(held.lock);
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let permit = match asker.permit(&engine, vec![Want::Somewhere(Action::Lock)]).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            match engine.renew(id, None, permit).await {
                Ok(_) => (Answer::Done, None),
                Err(error) => (failed(&error), None),
            }
        };
        self.ask(Asked::Renew { lock: held.lock }, false, handler).await
    }

    /// Gives a lock back.
    pub async fn release(&self, held: &Held) -> Option<Answer> {
        let id = LockId(held.lock);
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let permit = match asker.permit(&engine, vec![Want::Somewhere(Action::Lock)]).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            match engine.release(id, permit).await {
                Ok(_) => (Answer::Done, None),
                Err(error) => (failed(&error), None),
            }
        };
        self.ask(Asked::Release { lock: held.lock }, false, handler).await
    }

    /// Fences a holder off, now or soon.
    pub async fn break_lock(&self, resource: &str) -> Option<Answer> {
        let after = Duration::from_millis(if self.world.chance(0.5) { 0 } else { 500 });
        let at = name(resource);
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let wants = vec![Want::On(Action::Break, at.clone())];
            let permit = match asker.permit(&engine, wants).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            match engine.break_lock(at, after, "test".into(), "sim".into(), permit).await {
                Ok(_) => (Answer::Done, None),
                Err(error) => (failed(&error), None),
            }
        };
        self.ask(Asked::Break { resource: resource.to_owned() }, false, handler).await
    }

    /// Writes, in the ledger or by way of the blob store.
    pub async fn write(&self, wish: FencedWrite, lock: Option<Uuid>, blob: bool) -> Option<Answer> {
        let bytes = match &wish.change {
            Change::Put { value, adds, .. } => self.recorder.bytes_of(value, *adds),
            Change::Delete { .. } | Change::DeleteAll => Bytes::new(),
        };
        let asked = Asked::Write(wish.clone());
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let action = match wish.change {
                Change::DeleteAll => Action::Clear,
                _ => Action::Write,
            };
            let wants = vec![Want::On(action, name(&wish.resource))];
            let permit = match asker.permit(&engine, wants).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            let mut write = Write {
                resource: name(&wish.resource),
                token: token(wish.token),
                lock: lock.map(LockId),
                sequence: wish.sequence,
                idempotency_key: wish.idempotency_key.clone(),
                key_kept: None,
                object_condition: None,
                resource_version: wish.if_version,
                effect: effect(&wish.change, bytes.clone()),
                request_id: "sim".into(),
                permit: permit.clone(),
            };
            if let (true, Change::Put { key: at, .. }) = (blob, &wish.change) {
                let head = UploadHead {
                    resource: write.resource.clone(),
                    key: key(at),
                    token: write.token,
                    lock: write.lock,
                    idempotency_key: write.idempotency_key.clone(),
                    request_id: "sim".into(),
                    permit,
                };
                match upload(&engine, &head, bytes).await {
                    Ok(body) => set_body(&mut write.effect, body),
                    Err(answer) => return (answer, None),
                }
            }
            match engine.write(write).await {
                Ok(done) => (written(done.applied, done.replayed), None),
                Err(failure) => (write_failed(&failure), None),
            }
        };
        self.ask(asked, false, handler).await
    }

    /// Puts into several resources in one act.
    pub async fn commit(
        &self,
        held: &Held,
        steps: Vec<(String, Change)>,
        idempotency_key: Option<String>,
        sequence: Option<i64>,
    ) -> Option<Answer> {
        let asked = Asked::Commit {
            token: held.token,
            sequence,
            idempotency_key: idempotency_key.clone(),
            steps: steps.clone(),
        };
        let head = CommitHead {
            resources: steps.iter().map(|(resource, _)| (name(resource), None)).collect(),
            token: token(held.token),
            lock: Some(LockId(held.lock)),
            sequence,
            idempotency_key,
            key_kept: None,
            request_id: "sim".into(),
            permit: Permit::default(),
        };
        let step = |(resource, change): &(String, Change)| {
            let bytes = match change {
                Change::Put { value, adds, .. } => self.recorder.bytes_of(value, *adds),
                Change::Delete { .. } | Change::DeleteAll => Bytes::new(),
            };
            Step { resource: name(resource), object_condition: None, effect: effect(change, bytes) }
        };
        let steps: Vec<Step> = steps.iter().map(step).collect();
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let names = head.resources.keys().cloned();
            let wants = names.map(|name| Want::On(Action::Write, name)).collect();
            let permit = match asker.permit(&engine, wants).await {
                Ok(permit) => permit,
                Err(error) => return (failed(&error), None),
            };
            let head = CommitHead { permit, ..head };
            match engine.commit_many(head, steps).await {
                Ok(done) => {
                    let version = |one: &Applied| (one.resource.to_string(), one.version);
                    let answer = Answer::Written {
                        operation: done.operation.0,
                        versions: done.applied.iter().map(version).collect(),
                        generation: done.applied.first().map_or(0, |one| one.generation),
                        replayed: done.replayed,
                    };
                    (answer, None)
                }
                Err(failure) => (failed(&failure.error), None),
            }
        };
        self.ask(asked, false, handler).await
    }

    /// Reads an object.
    pub async fn read(&self, resource: &str, object: &str) -> Option<Answer> {
        let asked = Asked::Read { resource: resource.to_owned(), key: object.to_owned() };
        let (at, object) = (name(resource), key(object));
        let asker = self.asker();
        let handler = move |engine: Engine| async move {
            let asks = match asker.asks(&engine, vec![Want::On(Action::Read, at.clone())]).await {
                Ok(asks) => asks,
                Err(error) => return (failed(&error), None),
            };
            let whole = |object: &Object| Wanted::Bytes(0..u64::try_from(object.size).unwrap_or(0));
            let fetched = match engine.fetch(at, object, None, whole).await {
                Ok(fetched) => fetched,
                Err(error) => return (failed(&error), None),
            };
            let bytes = match fetched.content {
                Content::Here(bytes) => bytes.to_vec(),
                Content::Stream(stream) => match stream.try_collect::<Vec<_>>().await {
                    Ok(pieces) => pieces.concat(),
                    // A body that breaks off is no answer.
                    Err(_) => return (Answer::Failed { code: "broken-off".into() }, None),
                },
            };
            let found = Seen {
                generation: fetched.object.tag.generation,
                version: fetched.object.tag.version,
                value: String::from_utf8_lossy(&bytes).into_owned(),
            };
            let resource_version = Some(fetched.resource_version);
            if let Some(asks) = asks
                && let Err(error) = asks.confirm().await
            {
                return (failed(&error), None);
            }
            (Answer::Value { found: Some(found), resource_version }, None)
        };
        self.ask(asked, false, handler).await
    }
}

pub(super) fn key(key: &str) -> ObjectKey {
    ObjectKey::new(key).expect("a good key")
}

pub(super) fn token(number: i64) -> Token {
    Token::new(number).expect("a token")
}

/// What an error comes to.
pub(super) fn failed(error: &EngineError) -> Answer {
    let code = error.code();
    match error {
        EngineError::OutcomeUnknown { operation } => {
            Answer::Unknown { operation: operation.map(|id| id.0) }
        }
        _ if code.status() < 500 => Answer::Refused { code: code.as_str().to_owned() },
        _ => Answer::Failed { code: code.as_str().to_owned() },
    }
}

/// A write that took effect.
pub(super) fn written(applied: Applied, replayed: bool) -> Answer {
    Answer::Written {
        operation: applied.operation.0,
        versions: vec![(applied.resource.to_string(), applied.version)],
        generation: applied.generation,
        replayed,
    }
}

pub(super) fn write_failed(failure: &WriteFailure) -> Answer {
    failed(&failure.error)
}

fn granted(outcome: Result<Acquired, EngineError>) -> Reply {
    match outcome {
        Err(error) => (failed(&error), None),
        Ok(acquired) => {
            let grant = acquired.grant;
            let names = grant.resources.iter().map(ToString::to_string);
            let answer = Answer::Granted {
                lock: grant.lock.0,
                token: grant.token.get(),
                versions: names.zip(grant.versions.iter().copied()).collect(),
                again: acquired.again,
            };
            (answer, (!acquired.again).then_some(grant))
        }
    }
}

fn held(answer: Answer) -> Option<Held> {
    match answer {
        Answer::Granted { lock, token, versions, .. } => {
            Some(Held { lock, token, versions, sequence: 0 })
        }
        _ => None,
    }
}

fn effect(change: &Change, bytes: Bytes) -> WriteEffect {
    match change {
        Change::Put { key: at, .. } => WriteEffect::Put {
            about: None,
            key: key(at),
            content_type: "text/plain".into(),
            body: PutBody::Inline(bytes),
        },
        Change::Delete { key: at } => WriteEffect::Delete { key: key(at) },
        Change::DeleteAll => WriteEffect::DeleteAll,
    }
}

fn set_body(effect: &mut WriteEffect, uploaded: PutBody) {
    if let WriteEffect::Put { body, .. } = effect {
        *body = uploaded;
    }
}

/// As the route does it: begin, hand over, finish.
pub(super) async fn upload(
    engine: &Engine,
    head: &UploadHead,
    bytes: Bytes,
) -> Result<PutBody, Answer> {
    let size = bytes.len() as u64;
    let begun = engine.begin_upload(head, Some(size)).await;
    let mut upload = begun.map_err(|failure| write_failed(&failure))?;
    if let Err(error) = upload.push(bytes).await {
        upload.give_up().await;
        return Err(failed(&error));
    }
    upload.finish().await.map(PutBody::Uploaded).map_err(|error| failed(&error))
}
