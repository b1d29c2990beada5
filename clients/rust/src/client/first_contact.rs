//! First contact with a gateway: short, where calls are patient.

use std::time::Duration;

use super::Client;
use super::calling::Status;
use crate::clock::{draw, ms, now_ms, sleep_until_ms};
use crate::error::{Details, Error};
use crate::machine::backoff::Backoff;
use crate::transport::answer::{Foreign, Reply};
use crate::transport::request::{Request, RequestIds};
use crate::transport::unreached::Unreached;
use crate::transport::urls::Base;

/// The least time that one gateway of several has to answer.
const SHARE_MS_MIN: u64 = 500;

impl Client {
    /// Asks the gateways in turn until one answers, whatever it says, for up to `within`; with `awaits_name` also for a
    /// name that is not known yet. For programs that people start: a call by itself goes on for as long as
    /// [`ClientBuilder::call_timeout`](crate::ClientBuilder::call_timeout) says, since a gateway may come back.
    ///
    /// # Errors
    /// [`Error::Unavailable`]: none answers, or none can be reached for a cause that no wait can mend, which ends it at
    /// once ([`Details::unreached`](crate::Details::unreached)). [`Error::GatewayFault`]: what answers is no gateway.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// client.first_contact(std::time::Duration::from_secs(2), false).await?;
    /// # Ok(()) }
    /// ```
    pub async fn first_contact(&self, within: Duration, awaits_name: bool) -> Result<(), Error> {
        let inner = &self.inner;
        let (until_ms, count) =
            (now_ms().saturating_add(ms(within)), inner.transport.urls.all().len());
        let share_ms = (ms(within) / count as u64).max(SHARE_MS_MIN.min(ms(within))).max(1);
        let (mut ids, mut backoff) = (RequestIds::new(), Backoff::default());
        loop {
            // 1. Each of them once: one that failed is left alone until the others have been asked.
            let mut failures = Vec::new();
            for _ in 0..count {
                let left_ms = until_ms.saturating_sub(now_ms()).max(SHARE_MS_MIN);
                let within_ms = Some(share_ms.min(left_ms));
                let request = Request { within_ms, ..Request::get("/status") };
                let (_, base) = inner.transport.urls.current();
                match inner.transport.attempt(&request, &ids.next()).await {
                    Reply::Done(answer) => {
                        if let Ok(status) = answer.json::<Status>().await {
                            inner.learn_status(&status);
                        }
                        return Ok(());
                    }
                    Reply::Problem(_) => return Ok(()),
                    // What stands before a gateway asks for a credential: the call itself tells.
                    Reply::Foreign(Foreign { status: 401 | 403 | 407, .. }) => return Ok(()),
                    Reply::Foreign(Foreign { status: 400, .. }) if !base.is_https() => {
                        failures.push(in_the_clear(base));
                    }
                    reply => failures.push(reply.error(0)),
                }
            }
            // 2. None has answered. Can one of them do so later?
            let may_pass = |error: &Error| {
                let details = error.details();
                let is_name = details.is_some_and(|it| it.unreached == Some(Unreached::Name));
                details.is_some_and(|it| it.retryable) && (awaits_name || !is_name)
            };
            let left_ms = until_ms.saturating_sub(now_ms());
            let pause_ms = backoff.next(draw(), None, left_ms);
            match pause_ms.filter(|_| failures.iter().any(may_pass)) {
                Some(pause_ms) => sleep_until_ms(now_ms() + pause_ms).await,
                None => return Err(of_all(failures)),
            }
        }
    }
}

/// Plain HTTP is refused where TLS is spoken, and by no gateway where it is not.
fn in_the_clear(base: &Base) -> Error {
    let text = format!("plain HTTP is refused at {}, as where TLS is spoken", base.text());
    let unreached = Some(Unreached::Tls);
    Error::Unavailable(Box::new(Details { unreached, ..*Details::local(text) }))
}

/// One error that names all addresses.
fn of_all(failures: Vec<Error>) -> Error {
    let texts: Vec<_> = failures.iter().map(ToString::to_string).collect();
    let first = failures.into_iter().next();
    match first {
        Some(Error::Unavailable(details)) => {
            let unreached =
                details.unreached.or(details.status.is_none().then_some(Unreached::Away));
            Error::Unavailable(Box::new(Details {
                detail: texts.join("; "),
                unreached,
                ..*details
            }))
        }
        Some(error) => error,
        None => Error::Unavailable(Details::local("there is no gateway to ask")),
    }
}
