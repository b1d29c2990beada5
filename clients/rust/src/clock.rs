//! The client's clock: milliseconds that go on while the machine sleeps (CC30).

/// Milliseconds since some moment, never going back. On Linux the time in suspend counts, so that a
/// laptop that wakes up knows that its locks are over.
#[cfg(not(feature = "virtual-clock"))]
pub(crate) fn now_ms() -> u64 {
    #[cfg(target_os = "linux")]
    {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        now.tv_sec.unsigned_abs() * 1000 + now.tv_nsec.unsigned_abs() / 1_000_000
    }
    #[cfg(not(target_os = "linux"))]
    {
        static ORIGIN: std::sync::OnceLock<std::time::Instant> = std::sync::OnceLock::new();
        let origin = ORIGIN.get_or_init(std::time::Instant::now);
        u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The clock of tokio, which tests can pause.
#[cfg(feature = "virtual-clock")]
pub(crate) fn now_ms() -> u64 {
    static ORIGIN: std::sync::OnceLock<tokio::time::Instant> = std::sync::OnceLock::new();
    let origin = ORIGIN.get_or_init(tokio::time::Instant::now);
    u64::try_from(origin.elapsed().as_millis()).unwrap_or(u64::MAX)
}

/// Sleeps until the clock shows that; at once if it is past.
pub(crate) async fn sleep_until_ms(at_ms: u64) {
    loop {
        let left_ms = at_ms.saturating_sub(now_ms());
        if left_ms == 0 {
            return;
        }
        // In slices, since the timer of tokio stands still in suspend, and the clock does not.
        let slice_ms = left_ms.min(5_000);
        tokio::time::sleep(std::time::Duration::from_millis(slice_ms)).await;
    }
}

/// A duration in whole milliseconds.
pub(crate) fn ms(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// A number from 0 to 1, for jitter.
pub(crate) fn draw() -> f64 {
    #[cfg(feature = "virtual-clock")]
    {
        0.5
    }
    #[cfg(not(feature = "virtual-clock"))]
    {
        rand::random::<f64>()
    }
}
