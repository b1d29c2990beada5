//! Who leads (CC52): whose lock it is, told anew whenever that changes.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use fencegate_wire::{ErrorCode, LockState, Word};
use futures::Stream;
use futures::stream::{self, BoxStream, StreamExt as _};
use jiff::Timestamp;
use serde::Deserialize;

use super::connection::{WAIT_MS, is_passing};
use crate::client::{Client, Inner};
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::encoding::path;
use crate::error::Error;
use crate::machine::backoff::{Backoff, portion};
use crate::names;
use crate::transport::request::Request;

/// How often a gateway is asked that cannot tell of changes, or where nobody was yet.
const POLL_MS: u64 = 2_000;

/// Whose lock it is.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[non_exhaustive]
pub struct Leader {
    /// The name that the holder gave itself.
    pub owner: String,
    /// Since when.
    #[serde(rename = "acquired_at")]
    pub since: Timestamp,
    /// What the lock is doing; see [`Leader::leads`].
    pub state: Word<LockState>,
}

impl Leader {
    /// Whether it leads still: a lock that was released or broken leads no more. One that has expired is nobody
    /// else's yet, so that its holder may still write.
    pub fn leads(&self) -> bool {
        ![LockState::Released, LockState::Broken].iter().any(|over| self.state == *over)
    }
}

impl Client {
    /// Tells who holds the lock on a resource: at once, and again whenever that changes. `None`: nobody ever
    /// did. Changes that come too fast after each other are told as one.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let lock = client.lock("scheduler").owner("10.0.0.7:9000").acquire().await?;
    ///
    /// let mut leaders = client.observe("scheduler");
    /// if let Some(leader) = leaders.next().await.transpose()?.flatten() {
    ///     assert!(leader.leads() && leader.owner == "10.0.0.7:9000");
    /// }
    /// # Ok(()) }
    /// ```
    pub fn observe(&self, resource: &str) -> Observing {
        let path = names::resource(resource).map(|name| path::resource(&name));
        let observer = Observer {
            inner: self.inner.clone(),
            path,
            told: None,
            tag: None,
            backoff: Backoff::default(),
            due_ms: 0,
            is_over: false,
        };
        let leaders = stream::unfold(observer, async |mut observer| {
            let leader = observer.next_unless_closed().await?;
            Some((leader, observer))
        });
        Observing(leaders.boxed())
    }
}

/// Who leads, told anew with each change: a `Stream` without an end, and with a [`next`](Observing::next) of
/// its own. A definite refusal is an error, and the end.
pub struct Observing(BoxStream<'static, Result<Option<Leader>, Error>>);

impl std::fmt::Debug for Observing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Observing(..)")
    }
}

impl Observing {
    /// Who leads now, the first time, and then whoever comes next. A call that is dropped loses nothing.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a name that is not allowed; [`Error::Denied`]; [`Error::GatewayFault`].
    pub async fn next(&mut self) -> Option<Result<Option<Leader>, Error>> {
        self.0.next().await
    }
}

impl Stream for Observing {
    type Item = Result<Option<Leader>, Error>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_next_unpin(context)
    }
}

/// A look at the resource.
#[derive(Deserialize)]
struct Seen {
    #[serde(flatten)]
    leader: Leader,
    /// What to wait for the change of; absent from older gateways.
    state_tag: Option<String>,
}

struct Observer {
    inner: Arc<Inner>,
    path: Result<String, Error>,
    /// Who was told last; `None`: nothing was told yet.
    told: Option<Option<Leader>>,
    tag: Option<String>,
    backoff: Backoff,
    /// When to ask next.
    due_ms: u64,
    is_over: bool,
}

impl Observer {
    async fn next_unless_closed(&mut self) -> Option<Result<Option<Leader>, Error>> {
        let closed = self.inner.closed.clone();
        tokio::select! {
            biased;
            () = closed.cancelled() => None,
            leader = self.next() => leader,
        }
    }

    async fn next(&mut self) -> Option<Result<Option<Leader>, Error>> {
        if let Err(error) = &mut self.path {
            let error = std::mem::replace(error, Error::misuse("no name"));
            return (!std::mem::replace(&mut self.is_over, true)).then_some(Err(error));
        }
        while !self.is_over {
            sleep_until_ms(self.due_ms).await;
            match self.look().await {
                Ok(leader) if self.told.as_ref() == Some(&leader) => {}
                Ok(leader) => {
                    self.told = Some(leader.clone());
                    return Some(Ok(leader));
                }
                Err(error) if is_passing(&error) => self.rest(),
                Err(error) => {
                    self.is_over = true;
                    return Some(Err(error));
                }
            }
        }
        None
    }

    /// One call: waits for a change if the gateway can.
    async fn look(&mut self) -> Result<Option<Leader>, Error> {
        let began_ms = now_ms();
        let path = self.path.as_deref().unwrap_or_default();
        let waits = [("since", self.tag.take()), ("wait", Some(format!("{WAIT_MS}ms")))];
        let is_waiting = waits[0].1.is_some();
        let waits = waits.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let query = if is_waiting { path::query(waits) } else { String::new() };
        let request = Request::get(format!("{path}{query}"));
        let request = if is_waiting { request.waits(WAIT_MS) } else { request };
        let seen = self.inner.json::<Seen>("observe", &request, self.inner.call_until_ms()).await;
        match seen {
            Ok(Seen { leader, state_tag }) => {
                let has_waited = began_ms + WAIT_MS / 2 <= now_ms();
                match &state_tag {
                    None => self.due_ms = now_ms() + POLL_MS,
                    // What changed may be of no interest here, and may change again at once.
                    Some(_) if has_waited || self.told.as_ref() != Some(&Some(leader.clone())) => {
                        self.backoff = Backoff::default();
                    }
                    Some(_) => self.rest(),
                }
                self.tag = state_tag;
                Ok(Some(leader))
            }
            Err(error) => match error.code().and_then(ErrorCode::parse) {
                Some(ErrorCode::ResourceNotFound) => {
                    self.due_ms = now_ms() + POLL_MS / 2 + portion(POLL_MS, draw());
                    Ok(None)
                }
                // This gateway is an older one than that which gave the tag.
                Some(ErrorCode::QueryMalformed) if is_waiting => {
                    self.due_ms = now_ms() + POLL_MS;
                    Ok(self.told.clone().flatten())
                }
                _ => Err(error),
            },
        }
    }

    fn rest(&mut self) {
        let half_to_whole = 0.5 + draw() / 2.0;
        let pause_ms = self.backoff.next(half_to_whole, None, u64::MAX).unwrap_or_default();
        self.due_ms = now_ms() + pause_ms;
    }
}
