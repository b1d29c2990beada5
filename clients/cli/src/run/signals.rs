//! The signals that `fence run` hears, one after another.

use std::task::Poll;

use rustix::process::Signal;
use tokio::signal::unix::{Signal as Stream, SignalKind, signal};

/// Those that are heard. Each is swallowed unless something is done with it.
const HEARD: [Signal; 9] = [
    Signal::INT,
    Signal::TERM,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// The signals that come.
pub struct Signals(Vec<(Signal, Stream)>);

impl Signals {
    /// Hears them from here on.
    pub fn hear() -> std::io::Result<Self> {
        let stream = |it: Signal| Ok((it, signal(SignalKind::from_raw(it.as_raw()))?));
        heard().map(stream).collect::<Result<_, _>>().map(Self)
    }

    /// The next one.
    pub async fn next(&mut self) -> Signal {
        std::future::poll_fn(|context| {
            let mut come = self.0.iter_mut();
            let come =
                come.find_map(|(it, stream)| stream.poll_recv(context).is_ready().then_some(*it));
            come.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// The next one that ends whoever waits.
    pub async fn next_that_ends(&mut self) -> Signal {
        loop {
            let signal = self.next().await;
            if ends(signal) {
                return signal;
            }
            if signal == Signal::TSTP {
                stop();
            }
        }
    }
}

/// The signals that are heard; but for those that whoever started this wants ignored, as nohup(1) does.
pub fn heard() -> impl Iterator<Item = Signal> {
    let ignored = ignored();
    HEARD.into_iter().filter(move |it| ignored >> (it.as_raw() - 1) & 1 == 0)
}

/// The signals that are ignored, a bit for each. None, where the kernel does not tell.
fn ignored() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}

/// Whether a signal asks for the end.
pub fn ends(signal: Signal) -> bool {
    matches!(signal, Signal::INT | Signal::TERM | Signal::HUP | Signal::QUIT)
}

/// Stands still, as Ctrl-Z would have had it.
pub fn stop() {
    let _stopped = rustix::process::kill_process(rustix::process::getpid(), Signal::STOP);
}
