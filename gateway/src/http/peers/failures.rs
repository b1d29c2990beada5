//! Peers from which credentials come that are nobody's: after some of them no more is done for such a peer than to let in
//! whom this gateway knows already.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;

use super::Peer;

/// So many within a window a peer may send before it is counted as guessing.
const FAILURES_MAX: u32 = 30;
const WINDOW: Duration = Duration::from_secs(60);
/// Peers that are kept count of; beyond that all are forgotten.
const PEERS_MAX: usize = 65_536;

/// What has come from each peer.
#[derive(Default)]
pub struct Failures(Mutex<HashMap<Peer, Since>>);

#[derive(Clone, Copy)]
struct Since {
    began: Duration,
    count: u32,
}

impl Failures {
    /// A credential was nobody's. `now` is the time on a clock that only goes forward.
    pub fn note(&self, peer: Peer, now: Duration) {
        let mut peers = self.0.lock();
        if peers.len() >= PEERS_MAX && !peers.contains_key(&peer) {
            peers.retain(|_, since| !since.is_over(now));
            if peers.len() >= PEERS_MAX {
                peers.clear();
            }
        }
        let since = peers.entry(peer).or_insert(Since { began: now, count: 0 });
        if since.is_over(now) {
            *since = Since { began: now, count: 0 };
        }
        since.count = since.count.saturating_add(1);
    }

    /// How long it takes until this peer is listened to again, if it has sent too many.
    pub fn must_wait(&self, peer: Peer, now: Duration) -> Option<Duration> {
        let since = self.0.lock().get(&peer).copied()?;
        let is_guessing = since.count >= FAILURES_MAX && !since.is_over(now);
        is_guessing.then(|| (since.began + WINDOW).saturating_sub(now))
    }
}

impl Since {
    fn is_over(self, now: Duration) -> bool {
        now.saturating_sub(self.began) >= WINDOW
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_guesses_waits_for_the_rest_of_a_minute() {
        let [one, other] =
            ["192.0.2.1", "192.0.2.2"].map(|ip| Peer::of(ip.parse().unwrap()).unwrap());
        let at = Duration::from_secs;
        let failures = Failures::default();
        for second in 0..30 {
            assert_eq!(failures.must_wait(one, at(second)), None);
            failures.note(one, at(second));
        }
        assert_eq!(failures.must_wait(one, at(30)), Some(at(30)));
        assert_eq!(failures.must_wait(other, at(30)), None);
        assert_eq!(failures.must_wait(one, at(60)), None, "a new minute");
        failures.note(one, at(60));
        assert_eq!(failures.must_wait(one, at(60)), None);
    }

    #[test]
    fn peers_are_forgotten_when_there_are_too_many() {
        let failures = Failures::default();
        for number in 0..=PEERS_MAX as u32 {
            let ip = std::net::Ipv4Addr::from_bits(0x0a00_0000 + number);
            failures.note(Peer::of(ip.into()).unwrap(), Duration::ZERO);
        }
        assert_eq!(failures.0.lock().len(), 1);
    }
}
