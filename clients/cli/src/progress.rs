//! How far long transfers are, on a terminal.

use std::time::Duration;

use fencegate_client::wire::shown::escaped;
use indicatif::{ProgressBar, ProgressStyle};

use crate::output::Out;
use crate::terminal;

/// What is smaller needs no progress.
const LARGE: u64 = 8 << 20;
/// How often it is shown while nothing comes.
const EVERY: Duration = Duration::from_millis(500);

const OF_KNOWN_SIZE: &str =
    "{msg}: {decimal_bytes} of {decimal_total_bytes}, {decimal_bytes_per_sec}, {eta} left";
const OF_ANY_SIZE: &str = "{msg}: {decimal_bytes}, {decimal_bytes_per_sec}";

/// A transfer under way. When the last of its copies is dropped, it is shown no more.
#[derive(Clone)]
pub struct Progress(ProgressBar);

impl Progress {
    /// A transfer of so many bytes begins.
    pub fn begin(out: &Out, name: &str, total: Option<u64>) -> Self {
        let is_large = total.is_none_or(|total| total >= LARGE);
        if !is_large || out.is_json() || !terminal::is_lively() {
            return Self(ProgressBar::hidden());
        }
        let template = if total.is_some() { OF_KNOWN_SIZE } else { OF_ANY_SIZE };
        let style = ProgressStyle::with_template(template);
        let bar = out.bars().add(ProgressBar::no_length());
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        bar.set_message(escaped(name).into_owned());
        if let Some(total) = total {
            bar.set_length(total);
        }
        bar.enable_steady_tick(EVERY);
        Self(bar)
    }

    /// So many bytes have gone by.
    pub fn at(&self, done: u64) {
        self.0.set_position(done);
    }

    /// It is over.
    pub fn end(&self) {
        self.0.finish_and_clear();
    }
}
