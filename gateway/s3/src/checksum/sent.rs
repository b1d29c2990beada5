//! Which checksum a request has, and where.

use http::HeaderMap;

use super::{Algorithm, Checksum, ChecksumError, ObjectChecksum};

/// The checksum of a body, as the head of its request has or announces it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sent {
    /// None.
    Not,
    /// In the head: what comes must have this one.
    Header(Checksum),
    /// Behind the body, in the trailer [`Algorithm::header`].
    Trailer(Algorithm),
}

/// Headers whose names begin as those of checksums, and which are none.
const OTHERS: [&str; 3] =
    ["x-amz-checksum-algorithm", "x-amz-checksum-mode", "x-amz-checksum-type"];

impl Sent {
    /// Reads the headers of a request that has a body.
    ///
    /// 1. One `x-amz-checksum-...`, or one such name in `x-amz-trailer`, or neither.
    /// 2. `x-amz-sdk-checksum-algorithm`, if it is there, names that one.
    ///
    /// # Errors
    /// As named, or of an algorithm that is not served: a checksum that is not checked would be a false promise.
    pub fn of(headers: &HeaderMap) -> Result<Self, ChecksumError> {
        let mut sent = Self::Not;
        for (name, value) in headers {
            let found = match name.as_str() {
                "x-amz-trailer" => trailer(value.to_str().unwrap_or_default())?,
                name if is_checksum(name) => {
                    let algorithm = Algorithm::of_header(name).ok_or(ChecksumError::NotServed)?;
                    let text = value.to_str().unwrap_or_default();
                    Self::Header(Checksum::parse(algorithm, text)?)
                }
                _ => Self::Not,
            };
            sent = match (sent, found) {
                (Self::Not, one) | (one, Self::Not) => one,
                _ => return Err(ChecksumError::Several),
            };
        }
        let named = headers.get_all("x-amz-sdk-checksum-algorithm");
        for named in named.iter().map(|value| value.to_str().unwrap_or_default()) {
            if Some(Algorithm::parse(named)?) != sent.algorithm() {
                return Err(ChecksumError::NotSent);
            }
        }
        Ok(sent)
    }

    /// How it is made.
    pub fn algorithm(&self) -> Option<Algorithm> {
        match self {
            Self::Not => None,
            Self::Header(checksum) => Some(checksum.algorithm()),
            Self::Trailer(algorithm) => Some(*algorithm),
        }
    }
}

/// The checksum of a whole object that is completed of parts: on that call the headers are not about its body.
///
/// # Errors
/// It is none, of an algorithm that is not served, or not the only one.
pub fn of_whole(headers: &HeaderMap) -> Result<Option<ObjectChecksum>, ChecksumError> {
    let mut whole = None;
    for (name, value) in headers.iter().filter(|(name, _)| is_checksum(name.as_str())) {
        let algorithm = Algorithm::of_header(name.as_str()).ok_or(ChecksumError::NotServed)?;
        let read = ObjectChecksum::parse(algorithm, value.to_str().unwrap_or_default())?;
        if whole.replace(read).is_some() {
            return Err(ChecksumError::Several);
        }
    }
    Ok(whole)
}

fn is_checksum(name: &str) -> bool {
    name.starts_with("x-amz-checksum-") && !OTHERS.contains(&name)
}

fn trailer(names: &str) -> Result<Sent, ChecksumError> {
    let names = names.split(',').map(|name| name.trim().to_ascii_lowercase());
    let mut checksums = names.filter(|name| is_checksum(name));
    let Some(name) = checksums.next() else { return Ok(Sent::Not) };
    if checksums.next().is_some() {
        return Err(ChecksumError::Several);
    }
    Algorithm::of_header(&name).map(Sent::Trailer).ok_or(ChecksumError::NotServed)
}
