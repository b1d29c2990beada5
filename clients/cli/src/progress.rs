//! How far a long transfer is, on a terminal.

use std::time::{Duration, Instant};

use crate::output::{Out, bytes};
use crate::{durations, terminal};

/// What is smaller needs no progress.
const LARGE: u64 = 8 << 20;
/// How often it is shown.
const EVERY: Duration = Duration::from_millis(200);

/// A transfer under way.
pub struct Progress {
    name: String,
    total: Option<u64>,
    done: u64,
    began: Instant,
    shown: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    /// A transfer begins, of so many bytes.
    pub fn begin(out: &Out, name: &str, total: Option<u64>) -> Self {
        let is_large = total.is_none_or(|total| total >= LARGE);
        let is_shown = is_large && !out.is_json() && terminal::is_lively();
        let began = Instant::now();
        Self { name: name.to_owned(), total, done: 0, began, shown: None, is_shown }
    }

    /// So many more bytes have gone by.
    pub fn add(&mut self, count: u64) {
        self.done += count;
        if !self.is_shown || self.shown.is_some_and(|at| at.elapsed() < EVERY) {
            return;
        }
        self.shown = Some(Instant::now());
        let seconds = self.began.elapsed().as_secs_f64().max(0.001);
        let rate = self.done as f64 / seconds;
        let shown = |count: u64| bytes(i64::try_from(count).unwrap_or(i64::MAX));
        let rest = match self.total {
            Some(total) => {
                let left = total.saturating_sub(self.done) as f64 / rate.max(1.0);
                let left = durations::show(Duration::from_secs_f64(left.min(1e9)));
                format!(" of {}, {left} left", shown(total))
            }
            None => String::new(),
        };
        let (done, rate) = (shown(self.done), shown(rate as u64));
        terminal::write(&format!("\r\x1b[2K{}: {done}{rest}, {rate}/s", self.name));
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if self.shown.is_some() {
            terminal::write("\r\x1b[2K");
        }
    }
}
