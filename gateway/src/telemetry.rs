//! Log lines on standard error, for people or for machines.
//!
//! A thread of its own writes them from a queue: a reader that stands still costs lines, which are counted, and holds up
//! neither answers nor a stop.

use std::backtrace::Backtrace;
use std::io::stderr;
use std::panic::PanicHookInfo;
use std::sync::{OnceLock, mpsc};
use std::time::Duration;

use anyhow::Context as _;
use parking_lot::Mutex;
use tracing::Subscriber;
use tracing_appender::non_blocking::{ErrorCounter, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt as _;
use tracing_subscriber::{EnvFilter, Layer};

use crate::config::{Config, LogFormat};
use crate::ledger::postgres::notices;
use crate::log_scope::InRequest;

/// Log lines that were not written, because standard error took no more.
const LOST: &str = "fencegate_log_lines_lost_total";
/// Lines that wait for their reader.
const QUEUE: usize = 8192;
/// Patience with a reader at the end of the process.
const PATIENCE: Duration = Duration::from_secs(2);

/// Counts the lines that found no place in the queue.
static LOST_LINES: OnceLock<ErrorCounter> = OnceLock::new();
/// Ends the thread that writes, once it has written what is queued.
static WRITER: Mutex<Option<WorkerGuard>> = Mutex::new(None);

/// Starts logging as the configuration says; once per process. The ledger hears what it needs to hear, whatever
/// is logged.
pub fn start(config: &Config) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&config.log).context("the log filter is not valid")?;
    // It says each failure; `spans` says the first, and how many spans were lost.
    let filter = match config.log.contains("opentelemetry") {
        true => filter,
        false => filter.add_directive("opentelemetry-otlp=off".parse()?),
    };
    let queue = NonBlockingBuilder::default().buffered_lines_limit(QUEUE).thread_name("log");
    let (writer, guard) = queue.finish(stderr());
    let lost = writer.error_counter();
    let lines = lines(config.log_format, writer);
    let started =
        tracing_subscriber::registry().with(lines.with_filter(filter)).with(notices::layer());
    started.try_init().map_err(|error| anyhow::anyhow!("cannot start logging: {error}"))?;
    *WRITER.lock() = Some(guard);
    let _ = LOST_LINES.set(lost);
    // By default it goes to standard error at once, and waits there.
    std::panic::set_hook(Box::new(log_panic));
    Ok(())
}

fn log_panic(panic: &PanicHookInfo<'_>) {
    let backtrace = Backtrace::capture();
    tracing::error!(%backtrace, "{panic}");
}

/// Writes what is queued, for about a second at most. Lines that come later are lost.
pub fn end() {
    let writer = WRITER.lock().take();
    // It says on standard output that it could not, which may be the same pipe.
    unless_it_hangs(move || drop(writer));
}

/// Waits until something is written, but not for a reader that stands still.
pub fn unless_it_hangs(write: impl FnOnce() + Send + 'static) {
    let (written, is_written) = mpsc::channel();
    std::thread::spawn(move || {
        write();
        let _ = written.send(());
    });
    let _ = is_written.recv_timeout(PATIENCE);
}

/// Tells the recorder what the metric means.
pub fn describe() {
    metrics::describe_counter!(
        LOST,
        "Log lines that were not written, because the reader of standard error took no more"
    );
}

/// Tells the recorder how many lines were lost so far.
pub fn collect() {
    let lost = LOST_LINES.get().map_or(0, ErrorCounter::dropped_lines);
    metrics::counter!(LOST).absolute(lost as u64);
}

/// Writes each event as a line.
fn lines<S, W>(format: LogFormat, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        LogFormat::Text => layer.map_event_format(|lines| InRequest { format, lines }).boxed(),
        LogFormat::Json => layer
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .with_span_list(false)
            .map_event_format(|lines| InRequest { format, lines })
            .boxed(),
    }
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use serde_json::{Value, json};
    use tracing::instrument::WithSubscriber as _;

    use super::*;
    use crate::log_scope::{REQUEST, Request};
    use crate::spans::TraceId;

    #[derive(Clone, Default)]
    struct Log(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Log {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Three lines: before a request, in one, and the one of that.
    async fn said(format: LogFormat, id: &str) -> Vec<String> {
        let log = Log::default();
        let writer = log.clone();
        let subscriber = tracing_subscriber::registry().with(lines(format, move || writer.clone()));
        let request = Request { id: id.to_owned(), trace: Some(TraceId([7; 16])) };
        async {
            tracing::warn!("before");
            let work = async {
                tokio::task::yield_now().await;
                tracing::warn!(why = "full", "in it");
                tracing::info!(target: REQUEST, request_id = "own", "request");
            };
            request.runs(work).await;
        }
        .with_subscriber(subscriber)
        .await;
        let all = String::from_utf8(log.0.lock().clone()).unwrap();
        all.lines().map(str::to_owned).collect()
    }

    #[tokio::test]
    async fn a_line_names_the_request_that_it_was_said_in() {
        let said = said(LogFormat::Text, "a\"b").await;
        assert!(said[0].ends_with(": before"), "{said:?}");
        let trace = "07".repeat(16);
        let named = format!("in it why=\"full\" request_id=\"a\\\"b\" trace_id={trace}");
        assert!(said[1].ends_with(&named), "{said:?}");
        assert!(said[2].ends_with("request request_id=\"own\""), "{said:?}");
    }

    #[tokio::test]
    async fn so_does_a_line_of_json() {
        let said = said(LogFormat::Json, "a\"b").await;
        let said: Vec<Value> =
            said.iter().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!((&said[0]["message"], said[0].get("request_id")), (&json!("before"), None));
        assert_eq!((&said[1]["why"], &said[1]["request_id"]), (&json!("full"), &json!("a\"b")));
        assert_eq!(said[1]["trace_id"], json!("07".repeat(16)));
        assert_eq!(said[2]["request_id"], json!("own"));
    }
}
