//! Spans: how long the parts of a request took, and which requests went to the ledger together.
//!
//! They are exported by OTLP where `OTEL_EXPORTER_OTLP_ENDPOINT` says where to. Without it there is not one: whoever could
//! begin one looks at a static, and that is all. No decision depends on any of this.

#[cfg(not(feature = "otlp"))]
mod off;
#[cfg(feature = "otlp")]
mod otlp;
mod settings;
mod within;

#[cfg(not(feature = "otlp"))]
use off as with;
#[cfg(feature = "otlp")]
use otlp as with;

use std::time::Duration;

pub use fence_core::trace::{Place, TRACEPARENT, TRACESTATE, TraceId};
pub use settings::start;
pub use with::Exporting;
pub use within::{Within, current, within};

/// How many requests a batch names at most.
const LINKS_MAX: usize = 128;

/// What a span is begun with.
#[derive(Debug)]
#[cfg_attr(not(feature = "otlp"), expect(dead_code, reason = "nobody begins one"))]
struct Begin<'a> {
    name: &'static str,
    is_request: bool,
    parent: Option<Place>,
    /// The time since it began.
    age: Duration,
    links: &'a [Place],
}

/// Tells whether spans are exported.
pub fn is_on() -> bool {
    with::is_on()
}

/// A span under way; it ends when it is dropped. There is none where nothing is exported.
#[derive(Default)]
pub struct Span(Option<Box<with::Live>>);

impl Span {
    /// The span of a request that came so long ago, in its caller's trace if it has one.
    pub fn of_request(name: &'static str, caller: Option<Place>, age: Duration) -> Self {
        Self::begin(&Begin { name, is_request: true, parent: caller, age, links: &[] })
    }

    /// That of a part of what is under way here, if that is recorded.
    pub fn of_part(name: &'static str) -> Self {
        match current().filter(Place::is_sampled) {
            Some(place) => Self::below(name, place, &[]),
            None => Self::default(),
        }
    }

    /// That of a batch. It has many parents, and a span has one: it is in the trace of the first request that is
    /// recorded, and names all that are, up to a limit.
    pub fn of_batch(name: &'static str, asked: impl Iterator<Item = Option<Place>>) -> Self {
        if !with::is_on() {
            return Self::default();
        }
        let recorded = asked.flatten().filter(Place::is_sampled);
        let links: Vec<Place> = recorded.take(LINKS_MAX).collect();
        match links.first() {
            Some(first) => Self::below(name, *first, &links),
            None => Self::default(),
        }
    }

    fn below(name: &'static str, parent: Place, links: &[Place]) -> Self {
        Self::begin(&Begin {
            name,
            is_request: false,
            parent: Some(parent),
            age: Duration::ZERO,
            links,
        })
    }

    fn begin(begin: &Begin<'_>) -> Self {
        Self(with::begin(begin).map(Box::new))
    }

    /// Where it is, if there is one, recorded or not.
    pub fn place(&self) -> Option<Place> {
        self.0.as_ref().map(|live| live.place())
    }

    /// Whether anybody will see it: what is only made for it need not be made otherwise.
    pub fn is_recorded(&self) -> bool {
        self.place().is_some_and(|place| place.is_sampled())
    }

    /// Names it anew.
    pub fn is_named(&mut self, name: String) {
        if let Some(live) = &mut self.0 {
            live.is_named(name);
        }
    }

    /// Says something of it. Never a token, a secret or the id of a lock: collectors are read by many.
    pub fn says(&mut self, key: &'static str, text: impl Into<String>) {
        if let Some(live) = &mut self.0 {
            live.says(key, text.into());
        }
    }

    /// Counts something of it.
    pub fn counts(&mut self, key: &'static str, number: u64) {
        if let Some(live) = &mut self.0 {
            live.counts(key, i64::try_from(number).unwrap_or(i64::MAX));
        }
    }

    /// It came to nothing.
    pub fn fails(&mut self) {
        if let Some(live) = &mut self.0 {
            live.fails();
        }
    }
}

/// Does a part of what is under way, under a span of its own.
pub async fn part<T, E>(
    name: &'static str,
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let mut span = Span::of_part(name);
    let done = within(span.place(), work).await;
    if done.is_err() {
        span.fails();
    }
    done
}
