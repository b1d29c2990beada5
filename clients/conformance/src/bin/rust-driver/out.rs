//! What the driver says, a line each.

use std::io::Write as _;

use serde_json::{Value, json};
use tokio::time::Instant;

/// Standard output.
pub struct Out {
    began: Instant,
    stamps: bool,
}

impl Out {
    /// Lines are stamped with the virtual time, if there is one.
    pub fn new(stamps: bool) -> Self {
        Self { began: Instant::now(), stamps }
    }

    /// Milliseconds since the driver began.
    pub fn now_ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Says a line.
    pub fn say(&self, mut line: Value) {
        if self.stamps && line.get("driver").is_none() {
            line["at"] = json!(self.now_ms());
        }
        let mut out = std::io::stdout().lock();
        // If nobody listens any more, the end of the input comes next.
        let _ = writeln!(out, "{line}");
        let _ = out.flush();
    }

    /// Says what came of a command.
    pub fn answer(&self, id: u64, result: Result<Value, Value>) {
        self.say(match result {
            Ok(ok) => json!({"id": id, "ok": ok}),
            Err(error) => json!({"id": id, "error": error}),
        });
    }

    /// Says what happened without being asked for.
    pub fn event(&self, name: &str, mut fields: Value) {
        fields["event"] = json!(name);
        self.say(fields);
    }
}
