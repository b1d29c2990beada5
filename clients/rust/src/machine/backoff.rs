//! When the next attempt of a call starts (CC10).

/// The first pause is at most this long.
const BASE_MS: u64 = 50;
/// No pause is longer than this, unless the gateway asks for it.
const MOST_MS: u64 = 2_000;

/// Pauses between the attempts of one call: full jitter over a bound that doubles.
#[derive(Debug, Clone, Default)]
pub struct Backoff {
    attempts: u32,
}

impl Backoff {
    /// The pause before the next attempt, in milliseconds: `draw` (0 to 1) of a bound that doubles with each
    /// attempt, but at least `floor_ms`, which the gateway asked for, and at most `left_ms`, which are left
    /// until the deadline. `None`: the deadline has passed.
    pub fn next(&mut self, draw: f64, floor_ms: Option<u64>, left_ms: u64) -> Option<u64> {
        if left_ms == 0 {
            return None;
        }
        let bound_ms = MOST_MS.min(BASE_MS << self.attempts.min(10));
        self.attempts += 1;
        let jittered_ms = portion(bound_ms, draw);
        Some(jittered_ms.max(floor_ms.unwrap_or(0)).min(left_ms))
    }
}

/// This part of so many milliseconds.
pub fn portion(ms: u64, draw: f64) -> u64 {
    let part = (ms as f64 * draw.clamp(0.0, 1.0)) as u64;
    part.min(ms)
}
