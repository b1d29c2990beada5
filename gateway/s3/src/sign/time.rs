//! Times as signatures have them: `20130524T000000Z`.

use http::HeaderMap;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::rfc2822::DateTimeParser;
use jiff::tz::TimeZone;

use super::SignError;

/// A time to the second, with its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SignedAt {
    /// The time.
    pub(super) at: Timestamp,
    text: [u8; 16],
}

impl SignedAt {
    /// Reads `yyyymmddThhmmssZ` and nothing else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let text: [u8; 16] = text.as_bytes().try_into().ok()?;
        let number = |from: usize, to: usize| {
            text[from..to].iter().try_fold(0_i16, |number, digit| {
                digit.is_ascii_digit().then(|| number * 10 + i16::from(digit - b'0'))
            })
        };
        let small =
            |from: usize| number(from, from + 2).and_then(|number| i8::try_from(number).ok());
        if text[8] != b'T' || text[15] != b'Z' {
            return None;
        }
        let time = DateTime::new(
            number(0, 4)?,
            small(4)?,
            small(6)?,
            small(9)?,
            small(11)?,
            small(13)?,
            0,
        );
        let at = TimeZone::UTC.to_timestamp(time.ok()?).ok()?;
        Some(Self { at, text })
    }

    /// A time, cut to the second. Years beyond 9999 and before 0 have no such text.
    pub(super) fn of(at: Timestamp) -> Option<Self> {
        let time = TimeZone::UTC.to_datetime(at);
        let text = format!(
            "{:04}{:02}{:02}T{:02}{:02}{:02}Z",
            time.year(),
            time.month(),
            time.day(),
            time.hour(),
            time.minute(),
            time.second()
        );
        Self::parse(&text)
    }

    /// The text.
    pub(super) fn as_str(&self) -> &str {
        // INVARIANT: `parse` let only ASCII in.
        std::str::from_utf8(&self.text).expect("it is ASCII")
    }

    /// `yyyymmdd`.
    pub(super) fn day(&self) -> &str {
        &self.as_str()[..8]
    }

    /// What the headers of a request say: `X-Amz-Date`, or `Date` if there is none, in its usual form or in that of the
    /// other.
    pub(super) fn of_headers(headers: &HeaderMap) -> Result<Self, SignError> {
        const BAD: SignError = SignError::BadHeader(
            "a signed request says when it was signed: X-Amz-Date, such as 20130524T000000Z, or Date",
        );
        if let Some(text) = super::header::only(headers, "x-amz-date")? {
            return Self::parse(text).ok_or(BAD);
        }
        let text = super::header::only(headers, "date")?.ok_or(BAD)?;
        let usual = || DateTimeParser::new().parse_timestamp(text).ok().and_then(Self::of);
        Self::parse(text).or_else(usual).ok_or(BAD)
    }
}
