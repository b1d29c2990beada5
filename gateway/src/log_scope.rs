//! Which request a log line was said in. Whoever looks for a request's id finds all of its lines, in both formats.
//!
//! A span of `tracing` would say the same, and cost as much again as the line of a request itself: it is stored and
//! looked up at each poll, for lines that nearly no request has.

use std::fmt;

use tracing::{Event, Subscriber};
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::LogFormat;
use crate::spans::TraceId;

/// The target of the line that each request has in the log: a filter can name it, and give it a level of its own.
pub const REQUEST: &str = "request";

tokio::task_local! {
    static CURRENT: Request;
}

/// What all lines name that are said in a request.
#[derive(Debug, Clone)]
pub struct Request {
    /// Its id, as in its answer.
    pub id: String,
    /// The trace that it is part of.
    pub trace: Option<TraceId>,
}

impl Request {
    /// Runs its future: what that says is said in this request.
    pub async fn runs<F: Future>(self, future: F) -> F::Output {
        CURRENT.scope(self, future).await
    }

    fn append(&self, to: LogFormat, line: &mut String) -> fmt::Result {
        use fmt::Write as _;

        let Self { id, trace } = self;
        match to {
            LogFormat::Text => {
                write!(line, " request_id={id:?}")?;
                trace.map_or(Ok(()), |trace| write!(line, " trace_id={trace}"))
            }
            LogFormat::Json => {
                let id = serde_json::to_string(id).map_err(|_| fmt::Error)?;
                write!(line, ",\"request_id\":{id}")?;
                trace.map_or(Ok(()), |trace| write!(line, ",\"trace_id\":\"{trace}\""))
            }
        }
    }
}

/// Formats lines as another formatter does, and adds the request that they were said in.
#[derive(Debug)]
pub struct InRequest<F> {
    /// The form of the lines.
    pub format: LogFormat,
    /// The formatter that writes them.
    pub lines: F,
}

impl<S, N, F> FormatEvent<S, N> for InRequest<F>
where
    S: Subscriber + for<'lookup> LookupSpan<'lookup>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // The line of the request itself names it.
        let is_own = event.metadata().target() == REQUEST;
        let current = if is_own { None } else { CURRENT.try_with(Request::clone).ok() };
        let Some(request) = current else {
            return self.lines.format_event(context, writer, event);
        };
        let mut line = String::new();
        self.lines.format_event(context, Writer::new(&mut line), event)?;
        let end = match self.format {
            LogFormat::Text => "\n",
            LogFormat::Json => "}\n",
        };
        line.truncate(line.strip_suffix(end).ok_or(fmt::Error)?.len());
        request.append(self.format, &mut line)?;
        writer.write_str(&line)?;
        writer.write_str(end)
    }
}
