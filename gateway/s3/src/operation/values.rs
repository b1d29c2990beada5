//! Values of parameters and headers, read in one way everywhere.

use fencegate_wire::EntityTag;
use http::HeaderMap;

use super::Query;
use crate::address::KEY_BYTES_MAX;
use crate::code::S3Error;

/// The highest number of a part.
pub const PART_NUMBER_MAX: u16 = 10_000;

/// The number of a part, 1 to 10,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PartNumber(u16);

impl PartNumber {
    /// Reads digits.
    pub fn parse(text: &str) -> Option<Self> {
        let number = digits(text).and_then(|number| u16::try_from(number).ok())?;
        (1..=PART_NUMBER_MAX).contains(&number).then_some(Self(number))
    }

    /// The number.
    pub fn get(self) -> u16 {
        self.0
    }
}

/// Digits alone: no sign, no space. `None` above 2^63 - 1.
pub(super) fn digits(text: &str) -> Option<u64> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| text.parse().ok()).flatten().filter(|number| i64::try_from(*number).is_ok())
}

pub(super) fn part_number(text: &str) -> Result<PartNumber, S3Error> {
    let why = "Part number must be an integer between 1 and 10000, inclusive.";
    PartNumber::parse(text).ok_or_else(|| S3Error::argument("partNumber", text, why))
}

/// A limit of a page: a number up to 2^31 - 1, of which at most `most` are given.
pub(super) fn limit(name: &'static str, text: Option<&str>, most: u16) -> Result<u16, S3Error> {
    let Some(text) = text else { return Ok(most) };
    let number = digits(text).filter(|number| i32::try_from(*number).is_ok());
    let why = "This must be an integer between 0 and 2147483647.";
    let number = number.ok_or_else(|| S3Error::argument(name, text, why))?;
    Ok(u16::try_from(number).unwrap_or(most).min(most))
}

/// A number of a part after which a page begins. There is none after the highest.
pub(super) fn part_marker(name: &'static str, text: Option<&str>) -> Result<u16, S3Error> {
    let text = text.filter(|text| !text.is_empty());
    text.map_or(Ok(0), |text| limit(name, Some(text), PART_NUMBER_MAX))
}

/// A parameter that is a piece of a key, or bounds keys. Empty is none.
pub(super) fn key_text(query: &Query, name: &'static str) -> Result<Option<String>, S3Error> {
    let Some(text) = query.filled(name) else { return Ok(None) };
    if text.len() > KEY_BYTES_MAX || text.contains('\0') {
        return Err(S3Error::argument(
            name,
            "",
            "This has at most 1024 bytes, and no NUL character.",
        ));
    }
    Ok(Some(text.to_owned()))
}

/// `versionId`: the tag of the write that an object is from, without quotes. `null`, the name of what has no version,
/// is the newest one.
pub(super) fn version_id(text: Option<&str>) -> Result<Option<EntityTag>, S3Error> {
    match text {
        None | Some("null") => Ok(None),
        Some(text) => match EntityTag::parse(&format!("\"{text}\"")) {
            Some(tag) => Ok(Some(tag)),
            None => Err(S3Error::argument("versionId", text, "Invalid version id specified.")),
        },
    }
}

/// A header that stands there at most once.
pub(super) fn header<'a>(
    headers: &'a HeaderMap,
    name: &'static str,
) -> Result<Option<&'a str>, S3Error> {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Ok(None) };
    if lines.next().is_some() {
        return Err(S3Error::argument(name, "", "This header stands there twice."));
    }
    let text = std::str::from_utf8(line.as_bytes());
    Ok(Some(
        text.map_err(|_| S3Error::argument(name, "", "The value of this header is not UTF-8."))?
            .trim_ascii(),
    ))
}
