//! Durations, as people write and read them.

use std::time::Duration;

/// Reads `90`, which are seconds as with flock(1), `1.5`, or `1m30s`.
///
/// # Errors
/// It is no duration.
pub fn parse(text: &str) -> Result<Duration, String> {
    let seconds = text.parse::<f64>().ok().map(Duration::try_from_secs_f64);
    match seconds {
        Some(Ok(duration)) => Ok(duration),
        Some(Err(error)) => Err(error.to_string()),
        None => humantime::parse_duration(text).map_err(|error| error.to_string()),
    }
}

/// `3m 12s`: two units at most, and no less than milliseconds.
pub fn show(duration: Duration) -> String {
    let whole = match duration.as_secs() {
        0 => Duration::from_millis(u64::from(duration.subsec_millis())),
        1..=9 => Duration::from_millis(duration.as_millis() as u64 / 100 * 100),
        seconds => Duration::from_secs(seconds),
    };
    if (1..=9).contains(&whole.as_secs()) {
        return format!("{:.1}s", whole.as_secs_f64());
    }
    let text = humantime::format_duration(whole).to_string();
    text.split(' ').take(2).collect::<Vec<_>>().join(" ")
}

/// The same for milliseconds as the gateway tells them.
pub fn show_ms(ms: i64) -> String {
    match u64::try_from(ms) {
        Ok(ms) => show(Duration::from_millis(ms)),
        Err(_) => format!("-{}", show(Duration::from_millis(ms.unsigned_abs()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_numbers_are_seconds() {
        assert_eq!(parse("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("1.5"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("1m30s"), Ok(Duration::from_secs(90)));
        for wrong in ["", "-1", "nan", "inf", "5 parsecs", "1e300"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn two_units_are_shown() {
        let shown = |ms| show(Duration::from_millis(ms));
        assert_eq!(shown(0), "0s");
        assert_eq!(shown(250), "250ms");
        assert_eq!(shown(4_260), "4.2s");
        assert_eq!(shown(192_500), "3m 12s");
        assert_eq!(shown(90_061_000), "1day 1h");
        assert_eq!(show_ms(-250), "-250ms");
    }
}
