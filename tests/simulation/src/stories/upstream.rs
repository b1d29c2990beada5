//! Requests to the drained upstream, and what the reverse proxy does with them.

use std::sync::Arc;

use fence_core::OperationId;
use fence_core::ports::{ForwardEnd, ForwardRecord, IntentEnd};
use fence_history::{Answer, Asked, Outcome};
use fencegate::engine::access::{Permit, Want};
use fencegate::engine::{Engine, Forward};
use fencegate_access::Action;
use futures::channel::oneshot;
use uuid::Uuid;

use super::DRAINED;
use crate::access::Asker;
use crate::client::{Client, Reply, name};
use crate::gateways::{MAX_EFFECT_DELAY, UPSTREAM};
use crate::network::LATEST;
use crate::recorder::Recorder;
use crate::runtime::{micros, random_id};
use crate::world::{MS, Process, SECOND, World};

impl Client {
    /// Under a lock: requests to the drained upstream.
    pub(super) async fn forward(&mut self, upstream: Process) {
        let wait = self.wait();
        let Some(held) = self.acquire(&[DRAINED], wait).await else { return };
        for _ in 0..self.world.between(1, 3) {
            let token = held.token;
            let request = random_id(&self.world);
            let asked = Asked::Forward { resource: DRAINED.into(), token, request };
            let (world, recorder) = (self.world.clone(), self.recorder.clone());
            let asker = self.asker();
            let handler = move |engine: Engine| async move {
                let (send, answer) = oneshot::channel();
                let spawn = Arc::clone(&engine.runtime().spawn);
                // What is admitted must be closed, whoever hangs up.
                let task = async move {
                    let there = Upstream { world, recorder, process: upstream };
                    let reply = forward(&engine, &there, asker, token, request).await;
                    let _ = send.send(reply);
                };
                spawn.spawn("forward", Box::pin(task));
                let failed = || (Answer::Unknown { operation: None }, None);
                answer.await.unwrap_or_else(|_| failed())
            };
            let told = self.ask(asked, false, handler).await;
            if let Some(Answer::Unknown { operation: Some(operation) }) = told {
                self.pause(MS, SECOND).await;
                self.look_up(operation).await;
            }
            self.think().await;
        }
        self.part(&held).await;
    }

    /// As an operator: the upstream is done with a request, or was started again before it acted on it, so
    /// its intent is closed; and what is told of it then.
    pub(super) async fn resolve(&self) {
        let Some(operation) = self.recorder.any_stuck() else { return };
        let id = OperationId(operation);
        let handler = move |engine: Engine| async move {
            match engine.resolve_intent(id, "looked".into(), "sim".into(), Permit::default()).await
            {
                Ok(()) => (Answer::Done, None),
                Err(error) => (Answer::Failed { code: error.code().as_str().to_owned() }, None),
            }
        };
        self.ask(Asked::Resolve { operation }, false, handler).await;
        self.look_up(operation).await;
    }
}

/// What is told of a request to the upstream, as the route tells it.
pub(super) fn outcome(record: ForwardRecord) -> Outcome {
    match record.closed.map(|(end, _)| end) {
        Some(IntentEnd::Known(ForwardEnd::Answered(200))) => Outcome::Applied,
        Some(IntentEnd::Known(ForwardEnd::Unsent)) => Outcome::Buried,
        _ => Outcome::NotKnown,
    }
}

/// The upstream, where it runs and who writes down what it does.
struct Upstream {
    world: World,
    recorder: Recorder,
    process: Process,
}

/// What the upstream does with a request.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Deed {
    /// It acts and says so.
    Acts,
    /// It acts, and its answer is lost.
    ActsUnheard,
    /// It says that it will not act.
    Refuses,
    /// It never acts and never answers.
    Hangs,
}

impl Upstream {
    fn deed(&self) -> Deed {
        match self.world.between(0, 99) {
            0..84 => Deed::Acts,
            84..91 => Deed::ActsUnheard,
            91..96 => Deed::Refuses,
            _ => Deed::Hangs,
        }
    }

    /// A request is on its way there. The status of its answer, if there will be one.
    fn take(&self, token: i64, operation: Uuid, request: Uuid) -> oneshot::Receiver<u16> {
        let (send, answered) = oneshot::channel();
        let (world, recorder) = (self.world.clone(), self.recorder.clone());
        let there = match world.chance(0.4) {
            true => world.between(MS, LATEST),
            false => world.between(MS, 20 * MS),
        };
        let deed = self.deed();
        let act = async move {
            world.sleep(there).await;
            if matches!(deed, Deed::Acts | Deed::ActsUnheard) {
                recorder.effect(DRAINED.to_owned(), token, request);
                world.sleep(MS).await;
            }
            let is_heard = match deed {
                Deed::Acts => send.send(200).is_ok(),
                Deed::Refuses => send.send(409).is_ok(),
                Deed::ActsUnheard | Deed::Hangs => false,
            };
            if !is_heard {
                recorder.stuck(operation);
            }
        };
        self.world.spawn(self.process, Box::pin(act));
        answered
    }
}

/// What the reverse proxy does: admit, forward, close once the upstream has answered. Too late is not
/// forwarded: the longest delay counts from the intent on.
async fn forward(
    engine: &Engine,
    there: &Upstream,
    asker: Asker,
    token: i64,
    request: Uuid,
) -> Reply {
    let wants = vec![Want::On(Action::Write, name(DRAINED))];
    let permit = match asker.permit(engine, wants).await {
        Ok(permit) => permit,
        Err(error) => return (Answer::Refused { code: error.code().as_str().to_owned() }, None),
    };
    let began = there.world.now();
    let wish = Forward {
        upstream: UPSTREAM.0.into(),
        drained: true,
        max_effect_delay: Some(MAX_EFFECT_DELAY),
        resource: name(DRAINED),
        token: fence_core::Token::new(token).expect("a token"),
        lock: None,
        sequence: None,
        resource_version: None,
        method: "POST".into(),
        path: "/".into(),
        request_id: "sim".into(),
        permit,
    };
    let admitted = match engine.admit(wish).await {
        Ok(admitted) => admitted,
        Err(failure) => {
            let code = failure.error.code().as_str().to_owned();
            return (Answer::Refused { code }, None);
        }
    };
    let operation = admitted.operation.0;
    there.recorder.admitted(operation, request);
    if there.world.now() - began > micros(MAX_EFFECT_DELAY) - 2 * LATEST {
        admitted.close(ForwardEnd::Unsent).await;
        return (Answer::Failed { code: "too-late".into() }, None);
    }
    match there.take(token, operation, request).await {
        Ok(status) => {
            admitted.close(ForwardEnd::Answered(status)).await;
            (if status == 200 { Answer::Forwarded } else { Answer::Done }, None)
        }
        // The answer was lost: the intent stays.
        Err(_) => (Answer::Unknown { operation: Some(operation) }, None),
    }
}
