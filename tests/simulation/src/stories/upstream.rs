//! Requests to the drained upstream, and what the reverse proxy does with them.

use std::sync::Arc;

use fence_history::{Answer, Asked};
use fencegate::engine::{Engine, Forward};
use futures::channel::oneshot;

use super::DRAINED;
use crate::client::{Client, Reply, name};
use crate::gateways::{MAX_EFFECT_DELAY, UPSTREAM};
use crate::network::LATEST;
use crate::recorder::Recorder;
use crate::runtime::micros;
use crate::world::{MS, Process, World};

impl Client {
    /// Under a lock: requests to the drained upstream.
    pub(super) async fn forward(&mut self, upstream: Process) {
        let wait = self.wait();
        let Some(held) = self.acquire(&[DRAINED], wait).await else { return };
        for _ in 0..self.world.between(1, 3) {
            let token = held.token;
            let asked = Asked::Forward { resource: DRAINED.into(), token };
            let (world, recorder) = (self.world.clone(), self.recorder.clone());
            let handler = move |engine: Engine| async move {
                let (send, answer) = oneshot::channel();
                let spawn = Arc::clone(&engine.runtime().spawn);
                // What is admitted must be closed, whoever hangs up.
                let task = async move {
                    let reply = forward(&engine, &world, &recorder, token, upstream).await;
                    let _ = send.send(reply);
                };
                spawn.spawn("forward", Box::pin(task));
                let failed = || (Answer::Unknown { operation: None }, None);
                answer.await.unwrap_or_else(|_| failed())
            };
            self.ask(asked, false, handler).await;
            self.think().await;
        }
        self.part(&held).await;
    }
}

/// What the reverse proxy does: admit, forward, close once the upstream has answered. Too late is not
/// forwarded: the longest delay counts from the intent on.
async fn forward(
    engine: &Engine,
    world: &World,
    recorder: &Recorder,
    token: i64,
    upstream: Process,
) -> Reply {
    let began = world.now();
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
    };
    let admitted = match engine.admit(wish).await {
        Ok(admitted) => admitted,
        Err(failure) => {
            let code = failure.error.code().as_str().to_owned();
            return (Answer::Refused { code }, None);
        }
    };
    if world.now() - began > micros(MAX_EFFECT_DELAY) - 2 * LATEST {
        admitted.close().await;
        return (Answer::Failed { code: "too-late".into() }, None);
    }
    let (send, answered) = oneshot::channel();
    let (inner, recorder) = (world.clone(), recorder.clone());
    let there = match world.chance(0.4) {
        true => world.between(MS, LATEST),
        false => world.between(MS, 20 * MS),
    };
    let lost = world.chance(0.05);
    let act = async move {
        inner.sleep(there).await;
        recorder.effect(DRAINED.to_owned(), token);
        inner.sleep(MS).await;
        if !lost {
            let _ = send.send(());
        }
    };
    world.spawn(upstream, Box::pin(act));
    match answered.await {
        Ok(()) => {
            admitted.close().await;
            (Answer::Forwarded, None)
        }
        // The answer was lost: the intent stays.
        Err(_) => (Answer::Unknown { operation: Some(admitted.operation.0) }, None),
    }
}
