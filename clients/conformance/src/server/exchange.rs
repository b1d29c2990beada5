//! A request in the hands of a scenario, and what it can do with it.

use std::sync::Arc;

use anyhow::{Context as _, Result};
use serde_json::Value;
use tokio::sync::{mpsc, oneshot};

use super::Shared;
use super::reply::Reply;
use super::request::Request;

/// What a connection is told to do.
pub(super) enum Step {
    Send { bytes: Vec<u8>, head_done: bool },
    Body,
    Some(usize),
    Finish,
    Close,
    Reset,
}

/// A step, and where its end is told.
pub(super) struct Order {
    pub(super) step: Step,
    pub(super) done: oneshot::Sender<Vec<u8>>,
}

/// A request that waits for its answer. Dropped without one, it stays without one: the connection stays open, and
/// nothing is said on it.
pub struct Exchange {
    /// The request.
    pub request: Request,
    orders: mpsc::UnboundedSender<Order>,
    shared: Arc<Shared>,
}

impl Exchange {
    pub(super) fn new(
        request: Request,
        orders: mpsc::UnboundedSender<Order>,
        shared: Arc<Shared>,
    ) -> Self {
        Self { request, orders, shared }
    }

    /// Answers.
    pub async fn reply(&self, reply: Reply) -> Result<()> {
        self.told(&reply, "");
        let (head, body) = reply.bytes(&self.request);
        self.send([head, body].concat(), true).await?;
        self.end(if reply.closes() { Step::Close } else { Step::Finish }).await;
        Ok(())
    }

    /// Answers, and sends the same answer once more behind it.
    pub async fn reply_twice(&self, reply: Reply) -> Result<()> {
        self.told(&reply, "twice");
        let (head, body) = reply.bytes(&self.request);
        let once = [head, body].concat();
        self.send([once.clone(), once].concat(), true).await?;
        self.end(Step::Finish).await;
        Ok(())
    }

    /// Answers byte by byte, as far as the first of the body; gives the others, for [`Exchange::rest`].
    pub async fn trickle(&self, reply: Reply) -> Result<Vec<u8>> {
        self.told(&reply, "byte by byte");
        let (head, mut body) = reply.bytes(&self.request);
        let others = body.split_off(body.len().min(1));
        let end = head.len();
        for (at, byte) in head.into_iter().chain(body).enumerate() {
            self.send(vec![byte], at + 1 >= end).await?;
        }
        Ok(others)
    }

    /// The rest of an answer, byte by byte.
    pub async fn rest(&self, bytes: Vec<u8>) -> Result<()> {
        for byte in bytes {
            self.send(vec![byte], true).await?;
        }
        self.end(Step::Finish).await;
        Ok(())
    }

    /// Sends the first so many bytes of the body behind the head, and cuts.
    pub async fn cut_in_body(&self, reply: Reply, bytes: usize) -> Result<()> {
        self.told(&reply, "cut in its body");
        let (head, body) = reply.bytes(&self.request);
        let part = body.get(..bytes).unwrap_or(&body).to_vec();
        self.send([head, part].concat(), true).await?;
        self.cut().await
    }

    /// Sends the first so many bytes of the answer, and cuts.
    pub async fn cut_after(&self, reply: Reply, bytes: usize) -> Result<()> {
        self.told(&reply, "cut in its head");
        let (head, body) = reply.bytes(&self.request);
        let all = [head, body].concat();
        self.send(all.get(..bytes).unwrap_or(&all).to_vec(), true).await?;
        self.cut().await
    }

    /// Begins an answer: the head, and the body given so far. More comes by [`Self::bytes`].
    pub async fn begin(&self, reply: Reply) -> Result<()> {
        self.told(&reply, "begins");
        let (head, body) = reply.bytes(&self.request);
        self.send([head, body].concat(), true).await
    }

    /// Sends bytes as they are.
    pub async fn bytes(&self, bytes: impl Into<Vec<u8>>) -> Result<()> {
        self.send(bytes.into(), true).await
    }

    /// Sends an interim answer, such as 103.
    pub async fn interim(&self, status: u16) -> Result<()> {
        self.send(format!("HTTP/1.1 {status} Early\r\n\r\n").into_bytes(), false).await
    }

    /// Closes the connection, in the middle of whatever was sent.
    pub async fn cut(&self) -> Result<()> {
        self.shared.note(format!("<- #{} closed", self.request.order));
        self.end(Step::Close).await;
        Ok(())
    }

    /// Resets the connection.
    pub async fn reset(&self) -> Result<()> {
        self.shared.note(format!("<- #{} reset", self.request.order));
        self.end(Step::Reset).await;
        Ok(())
    }

    /// Reads the body that was left unread, and gives it.
    pub async fn read_body(&mut self) -> Result<()> {
        self.request.body = self.step(Step::Body).await?;
        Ok(())
    }

    /// Reads so many bytes of a body that was left unread, and no more.
    pub async fn read_some(&mut self, bytes: usize) -> Result<()> {
        self.step(Step::Some(bytes)).await.map(drop)
    }

    /// Answers a renewal of one lock or of many, as they were granted.
    pub async fn renewed(&self) -> Result<()> {
        self.reply(self.shared.auto.renewed(&self.request)).await
    }

    /// Remembers a lock for its renewals.
    pub fn remember(&self, lock: &Value) {
        self.shared.auto.granted(lock);
    }

    /// Whether the client has closed the connection.
    pub fn gone(&self) -> bool {
        self.orders.is_closed()
    }

    fn told(&self, reply: &Reply, how: &str) {
        self.shared.note(format!("<- #{} {} {how}", self.request.order, reply.status()));
    }

    async fn send(&self, bytes: Vec<u8>, head_done: bool) -> Result<()> {
        self.step(Step::Send { bytes, head_done }).await?;
        Ok(())
    }

    /// The last step. The client may have closed the connection by itself before it.
    async fn end(&self, step: Step) {
        let _ = self.step(step).await;
    }

    async fn step(&self, step: Step) -> Result<Vec<u8>> {
        let (done, ended) = oneshot::channel();
        let gone = || format!("the client has hung up on {}", self.request.line());
        self.orders.send(Order { step, done }).ok().with_context(gone)?;
        ended.await.with_context(gone)
    }
}
