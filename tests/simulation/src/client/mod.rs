//! A client: asks gateways over a network, hangs up when it has waited long enough, and writes down
//! what it was told.

mod calls;
mod uploads;

use fence_core::ResourceName;
use fence_core::ports::Grant;
use fence_history::{Answer, Asked};
use fencegate::engine::Engine;
use futures::channel::oneshot;
use futures::future::{Either, select};
use uuid::Uuid;

use crate::access::Asker;
use crate::gateways::Gateways;
use crate::network::NoAnswer;
use crate::recorder::Recorder;
use crate::runtime::wall;
use crate::world::{MS, Micros, Process, SECOND, World};

pub use uploads::Upload;

/// What a gateway answers, and the fresh grant in it.
pub type Reply = (Answer, Option<Grant>);

/// A lock that a client was given.
#[derive(Debug, Clone)]
pub struct Held {
    /// Its id.
    pub lock: Uuid,
    /// Its token.
    pub token: i64,
    /// Its resources, and their versions when it was granted.
    pub versions: Vec<(String, i64)>,
    /// The last sequence number used under it.
    pub sequence: i64,
}

/// A client.
pub struct Client {
    /// Its number.
    pub number: u32,
    /// Where it runs.
    pub process: Process,
    /// The world.
    pub world: World,
    /// Whom it asks.
    pub gateways: Gateways,
    /// Where it writes down what it is told.
    pub recorder: Recorder,
    /// Counts its values.
    pub count: u64,
    /// How long it waits for an answer.
    pub patience: (Micros, Micros),
}

/// A name that is known to be good.
pub fn name(resource: &str) -> ResourceName {
    ResourceName::new(resource).expect("a good name")
}

impl Client {
    /// A gateway of the client's choice.
    pub fn choose(&self) -> usize {
        let count = self.gateways.count() as u64;
        usize::try_from(self.world.between(0, count - 1)).unwrap_or(0)
    }

    /// A value that nobody else stores.
    pub fn value(&mut self) -> String {
        self.count += 1;
        format!("c{}v{}", self.number, self.count)
    }

    /// The number of the next write under a lock. Every second client takes it from its wall clock.
    pub fn number_write(&self, held: &mut Held) -> i64 {
        held.sequence = match self.number.is_multiple_of(2) {
            true => wall(&self.world, self.process),
            false => held.sequence + 1,
        };
        held.sequence
    }

    /// As whom it asks.
    pub fn asker(&self) -> Asker {
        Asker { client: self.gateways.are_ruled().then_some(self.number) }
    }

    /// Does nothing for a while.
    pub async fn pause(&self, least: Micros, most: Micros) {
        self.world.sleep(self.world.between(least, most)).await;
    }

    /// Asks a gateway, and writes down what comes back. `None`: the client will never know.
    pub async fn ask<F: Future<Output = Reply> + Send + 'static>(
        &self,
        asked: Asked,
        proposed: bool,
        handler: impl FnOnce(Engine) -> F + Send + 'static,
    ) -> Option<Answer> {
        let gateway = self.choose();
        let number = self.recorder.begin(self.number, u32::try_from(gateway).unwrap_or(0), asked);
        let answer = match self.send(gateway, proposed, handler).await {
            Ok(answer) => answer,
            Err(NoAnswer::NotSent) => Answer::Failed { code: "unreachable".into() },
            Err(NoAnswer::Lost) => return None,
        };
        self.recorder.answer(number, answer.clone());
        Some(answer)
    }

    async fn send<F: Future<Output = Reply> + Send + 'static>(
        &self,
        gateway: usize,
        proposed: bool,
        handler: impl FnOnce(Engine) -> F + Send + 'static,
    ) -> Result<Answer, NoAnswer> {
        self.pause(20, 2 * MS).await;
        let (process, engine) = self.gateways.engine(gateway).ok_or(NoAnswer::NotSent)?;
        let (mut send, answer) = oneshot::channel::<Answer>();
        let (world, back) = (self.world.clone(), self.world.between(20, 2 * MS));
        let serve = async move {
            let handling = Box::pin(handler(engine.clone()));
            // Whoever hangs up takes the handler with it, wherever it is.
            let (answer, grant) = match select(handling, send.cancellation()).await {
                Either::Left((reply, _)) => reply,
                Either::Right(_) => return,
            };
            world.sleep(back).await;
            let delivered = send.send(answer).is_ok();
            if let Some(grant) = grant.filter(|_| !delivered) {
                engine.undelivered(&grant, proposed);
            }
        };
        self.world.spawn(process, Box::pin(serve));
        let (least, most) = self.patience;
        let patience = self.world.sleep(self.world.between(least, most));
        match select(answer, Box::pin(patience)).await {
            Either::Left((answer, _)) => answer.map_err(|_| NoAnswer::Lost),
            Either::Right(_) => Err(NoAnswer::Lost),
        }
    }

    /// How long it waits for an answer, from now on: for ever, as good as.
    pub fn be_patient(&mut self) {
        self.patience = (60 * SECOND, 60 * SECOND);
    }
}

/// A client that is shared with nobody.
pub fn client(number: u32, gateways: &Gateways, recorder: &Recorder, world: &World) -> Client {
    Client {
        number,
        process: world.process(),
        world: world.clone(),
        gateways: gateways.clone(),
        recorder: recorder.clone(),
        count: 0,
        patience: (300 * MS, 8 * SECOND),
    }
}
