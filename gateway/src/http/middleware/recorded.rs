//! The span of a request. One that its caller wants recorded begins once the caller is known: else anybody could fill a
//! collector, however few requests the settings have recorded.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use crate::spans::{self, Place, Span};

/// Paths that are asked for all the time. They have a span only in a trace of their caller's.
const PROBES: [&str; 3] = ["/healthz", "/readyz", "/metrics"];

/// The span of a request, which who serves it and who logs it share. There is none where nothing is exported.
#[derive(Clone, Default)]
pub struct Recorded(Option<Arc<Mutex<State>>>);

/// The state of a span.
enum State {
    Begun(Span),
    Waits(Waits),
}

/// A span that waits for who its caller is.
#[derive(Clone, Copy)]
struct Waits {
    /// The span of the caller.
    caller: Place,
    /// The time when the request came.
    began: Instant,
    is_probe: bool,
}

impl Recorded {
    /// Begins with the request, or waits for who its caller is if that one wants it recorded.
    pub(super) fn begin(caller: Option<Place>, path: &str, began: Instant) -> Self {
        if !spans::is_on() {
            return Self::default();
        }
        // Probes come again and again, and would fill a collector.
        let is_probe = PROBES.contains(&path);
        let state = match caller {
            Some(caller) if caller.is_sampled() => State::Waits(Waits { caller, began, is_probe }),
            None if is_probe => State::Begun(Span::default()),
            caller => State::Begun(Span::of_request("request", caller, Duration::ZERO)),
        };
        Self(Some(Arc::new(Mutex::new(state))))
    }

    /// Begins a span that waits: in its caller's trace if that is somebody who may say so, else as if nothing had been said.
    /// Tells where it is.
    pub fn is_of(&self, somebody: bool) -> Option<Place> {
        let mut state = self.0.as_ref()?.lock();
        if let State::Waits(waits) = &*state {
            *state = State::Begun(waits.span(somebody));
        }
        state.place()
    }

    /// The place of the span, if it has begun.
    pub(super) fn place(&self) -> Option<Place> {
        self.0.as_ref()?.lock().place()
    }

    /// Takes it, to say what came of the request. Whoever has not been found to be anybody by then is nobody.
    pub(super) fn take(&self) -> Span {
        let Some(state) = &self.0 else { return Span::default() };
        match std::mem::replace(&mut *state.lock(), State::Begun(Span::default())) {
            State::Begun(span) => span,
            State::Waits(waits) => waits.span(false),
        }
    }
}

impl State {
    fn place(&self) -> Option<Place> {
        match self {
            Self::Begun(span) => span.place(),
            Self::Waits(_) => None,
        }
    }
}

impl Waits {
    fn span(self, somebody: bool) -> Span {
        let caller = somebody.then_some(self.caller);
        match caller.is_none() && self.is_probe {
            true => Span::default(),
            false => Span::of_request("request", caller, self.began.elapsed()),
        }
    }
}
