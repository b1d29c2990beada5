//! Warnings that Postgres sends along with an answer. One of them takes the answer back: the commit did not wait
//! for the synchronous standby, because an operator cancelled that (`pg_cancel_backend`). The server then says
//! success, and a promoted standby may know nothing of it.
//!
//! The driver hands warnings to `tracing` and to nobody else, without their SQLSTATE, in the language of the
//! server, while it polls the call whose session they came on. So a layer of our own, which no log filter
//! reaches, tells the call; and every warning counts. Acts cause no other warnings, except for two that say
//! nothing about the commit, which are known by their words.

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::Future;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Metadata, Subscriber, dispatcher};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, Filtered, filter_fn};
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// Under which the driver tells what the server sends.
const TARGET: &str = "sqlx::postgres::notice";

/// In the warnings that say nothing of the commit: that ids of transactions, or of groups of them, run out, and
/// that the queue of NOTIFY fills up. In another language they count like all others: nothing is acknowledged then.
const HARMLESS: [&str; 2] = ["must be vacuumed", "NOTIFY queue is"];

tokio::task_local! {
    /// The last warning on the session of the call that is being polled.
    static WARNING: RefCell<Option<String>>;
}

/// The layer that hears warnings.
#[derive(Debug)]
pub struct Listening;

impl<S: Subscriber> Layer<S> for Listening {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if !HARMLESS.iter().any(|harmless| text.0.contains(harmless)) {
            // Outside of a call nobody waits for an answer.
            let _ = WARNING.try_with(|warning| warning.replace(Some(text.0)));
        }
    }
}

/// The message of an event.
struct Text(String);

impl Visit for Text {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            value.clone_into(&mut self.0);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

fn is_warning(metadata: &Metadata<'_>) -> bool {
    metadata.target() == TARGET && *metadata.level() <= Level::WARN
}

/// The layer, with a filter of its own.
pub fn layer<S: Subscriber + for<'span> LookupSpan<'span>>() -> Filtered<Listening, FilterFn, S> {
    let filter = filter_fn(is_warning as fn(&Metadata<'_>) -> bool);
    Listening.with_filter(filter.with_max_level_hint(LevelFilter::WARN))
}

/// Whether warnings are heard; makes it so in a process that has no log.
pub fn listen() -> bool {
    if !is_listening() {
        // Fails if there is a log without the layer, which the next line finds.
        let _ = dispatcher::set_global_default(tracing_subscriber::registry().with(layer()).into());
    }
    is_listening()
}

fn is_listening() -> bool {
    dispatcher::get_default(dispatcher::Dispatch::is::<Listening>)
}

/// Runs a call; returns its end, and a warning that came on the way.
pub async fn heard<T>(call: impl Future<Output = T>) -> (T, Option<String>) {
    let call = async {
        let end = call.await;
        (end, WARNING.with(RefCell::take))
    };
    WARNING.scope(RefCell::default(), call).await
}
