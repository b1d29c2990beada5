//! For how long the certificate is taken that a connection has shown.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::{BoxFuture, pending};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::sleep;
use tokio_rustls::rustls::pki_types::{CertificateDer, UnixTime};

use super::files::validity;
use super::{InUse, Tls};

/// After this time the clock is looked at again: somebody may have set it, or this machine may have been suspended.
const CLOCK_LOOK: Duration = Duration::from_mins(1);

/// What a connection hears of changes through.
pub(super) struct Watch {
    pub(super) changes: watch::Receiver<Arc<InUse>>,
    /// What was in use when its certificate was looked at.
    pub(super) known: Arc<InUse>,
    /// The authorities that had signed it then: it is somebody by them.
    pub(super) authorities: Vec<String>,
    pub(super) tls: Arc<Tls>,
}

/// Ends when the certificates of a connection, its own first, are not taken any more. Never for one that has none.
///
/// They are looked at again whenever one of them ends, for another way to an authority may be left, and when the
/// authorities or what they have revoked has changed.
pub(super) fn refusal(
    chain: Vec<CertificateDer<'static>>,
    mut watch: Watch,
) -> BoxFuture<'static, ()> {
    if chain.is_empty() {
        return pending().boxed();
    }
    let (chain, mut ends): (Arc<[_]>, _) = (chain.into(), Vec::new());
    ends.extend(chain.iter().filter_map(|one| validity(one).ok()));
    let mut ends: Vec<i64> = ends.iter().map(|validity| validity.not_after.timestamp()).collect();
    ends.sort_unstable();
    async move {
        loop {
            watch.due(&mut ends).await;
            if !watch.accepts(&chain).await {
                return;
            }
        }
    }
    .boxed()
}

impl Watch {
    /// Waits until the certificates are to be looked at again. The times are those at which they end, the first to come
    /// first.
    async fn due(&mut self, ends: &mut Vec<i64>) {
        loop {
            let now = i64::try_from(UnixTime::now().as_secs()).unwrap_or(i64::MAX);
            // Up to that second a certificate is good.
            let ended = ends.iter().take_while(|end| **end < now).count();
            if ended > 0 {
                ends.drain(..ended);
                return;
            }
            let left = ends.first().map(|end| u64::try_from(end + 1 - now).unwrap_or_default());
            tokio::select! {
                changed = self.changes.changed() => match changed {
                    Ok(()) if self.has_moved() => return,
                    Ok(()) => {}
                    // INVARIANT: who changes it lives as long as this.
                    Err(_) => return,
                },
                () = wait(left) => {}
            }
        }
    }

    /// Whether others than before are trusted, or other certificates revoked.
    fn has_moved(&mut self) -> bool {
        let in_use = Arc::clone(&self.changes.borrow_and_update());
        let is_same = match (&self.known.callers, &in_use.callers) {
            (Some(known), Some(callers)) => callers.is_as(known),
            _ => false,
        };
        self.known = in_use;
        !is_same
    }

    /// Whether the certificates are taken now. One connection after the other: after a change all ask at once, and the
    /// processors are also for requests.
    async fn accepts(&self, chain: &Arc<[CertificateDer<'static>]>) -> bool {
        // INVARIANT: nobody closes the semaphore.
        let _turn = self.tls.looks.acquire().await.expect("the semaphore is open");
        let (known, chain) = (Arc::clone(&self.known), Arc::clone(chain));
        let authorities = self.authorities.clone();
        let accepts = move || {
            let callers = known.callers.as_ref();
            callers.is_some_and(|callers| {
                callers.accept(&chain) && callers.have_signed(&authorities, &chain)
            })
        };
        spawn_blocking(accepts).await.unwrap_or(false)
    }
}

/// Waits for so many seconds, or until the clock is to be looked at; for ever for none.
#[expect(clippy::disallowed_methods, reason = "certificates end in real time")]
async fn wait(left_seconds: Option<u64>) {
    match left_seconds {
        Some(left) => sleep(Duration::from_secs(left).min(CLOCK_LOOK)).await,
        None => pending().await,
    }
}
