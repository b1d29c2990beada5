//! What somebody has used of something whose cost is known only afterwards: the time of questions, the events of streams. It is
//! paid back at a steady pace; whoever owes too much waits.

use std::time::Duration;

use parking_lot::Mutex;

/// When all is paid back, by the clock that has elapsed since the gateway's start.
#[derive(Default)]
pub struct Spent(Mutex<Duration>);

impl Spent {
    /// How long somebody has to wait who may owe as much as is paid back in this time.
    pub fn must_wait(&self, now: Duration, credit: Duration) -> Duration {
        self.0.lock().saturating_sub(now + credit)
    }

    /// What was used takes so long to be paid back. Nobody owes more than takes `most`: one that used much at once, because the
    /// ledger was slow, say, is not kept out for long.
    pub fn spend(&self, now: Duration, takes: Duration, most: Duration) {
        let mut until = self.0.lock();
        *until = (*until).max(now).saturating_add(takes).min(now + most);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_owes_more_than_the_credit_waits_for_the_rest() {
        let (spent, second) = (Spent::default(), Duration::from_secs(1));
        let wait = |now: u32| spent.must_wait(second * now, second * 10);
        assert_eq!(wait(0), Duration::ZERO);
        spent.spend(Duration::ZERO, second * 10, second * 60);
        assert_eq!(wait(0), Duration::ZERO, "within the credit");
        spent.spend(second, second * 5, second * 60);
        assert_eq!((wait(1), wait(3), wait(5)), (second * 4, second * 2, Duration::ZERO));
        // What is paid back long ago is no credit for more.
        spent.spend(second * 100, second * 12, second * 60);
        assert_eq!(wait(100), second * 2);
        spent.spend(second * 100, second * 1_000, second * 15);
        assert_eq!(wait(100), second * 5, "no more than that");
    }
}
