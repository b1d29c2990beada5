//! Spans by the OpenTelemetry SDK: made here, exported by OTLP.

mod collector;
mod exporting;

use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use opentelemetry::trace::{
    Link, Span as _, SpanContext, SpanId, SpanKind, Status, TraceContextExt as _, TraceFlags,
    TraceId, TraceState, Tracer as _,
};
use opentelemetry::{Context, KeyValue};
use opentelemetry_sdk::trace::{SdkTracer, Span};

use super::{Begin, Place};

pub use exporting::Exporting;

/// What makes spans, once something exports them.
static TRACER: OnceLock<SdkTracer> = OnceLock::new();

/// Whether spans are exported.
pub(super) fn is_on() -> bool {
    TRACER.get().is_some()
}

/// A span of the SDK; it ends when it is dropped.
pub(super) struct Live(Span);

/// Begins a span, which is recorded or not, as the sampler says.
pub(super) fn begin(begin: &Begin<'_>) -> Option<Live> {
    let tracer = TRACER.get()?;
    let parent = match begin.parent {
        Some(place) => Context::new().with_remote_span_context(seen(place, begin.is_request)),
        None => Context::new(),
    };
    let kind = if begin.is_request { SpanKind::Server } else { SpanKind::Internal };
    let links = begin.links.iter().map(|place| Link::with_context(seen(*place, false)));
    let mut builder = tracer.span_builder(begin.name).with_kind(kind).with_links(links.collect());
    if !begin.age.is_zero() {
        builder = builder.with_start_time(before_now(begin.age));
    }
    Some(Live(builder.start_with_context(tracer, &parent)))
}

/// The time so long ago.
#[expect(
    clippy::disallowed_methods,
    reason = "a span has the time of the machine; nothing depends on it"
)]
fn before_now(age: Duration) -> SystemTime {
    let now = SystemTime::now();
    now.checked_sub(age).unwrap_or(now)
}

/// A place as the SDK has it.
fn seen(place: Place, is_remote: bool) -> SpanContext {
    SpanContext::new(
        TraceId::from_bytes(place.trace.0),
        SpanId::from_bytes(place.span),
        TraceFlags::default().with_sampled(place.is_sampled()),
        is_remote,
        TraceState::NONE,
    )
}

impl Live {
    pub(super) fn place(&self) -> Place {
        let place = self.0.span_context();
        let (trace, span) = (place.trace_id().to_bytes(), place.span_id().to_bytes());
        Place::new(trace, span, place.is_sampled())
    }

    pub(super) fn is_named(&mut self, name: String) {
        self.0.update_name(name);
    }

    pub(super) fn says(&mut self, key: &'static str, text: String) {
        self.0.set_attribute(KeyValue::new(key, text));
    }

    pub(super) fn counts(&mut self, key: &'static str, number: i64) {
        self.0.set_attribute(KeyValue::new(key, number));
    }

    pub(super) fn fails(&mut self) {
        self.0.set_status(Status::error(""));
    }
}
