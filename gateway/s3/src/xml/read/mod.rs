//! Bodies of requests, as real clients send them: with or without namespaces, prefixes, declarations and white space.

mod delete;
mod scanner;

use scanner::{Scanner, malformed};

use crate::about::ChecksumAlgorithm;
use crate::code::S3Error;
use crate::operation::PartNumber;

pub use delete::{DeleteObjects, OBJECTS_MAX, ObjectToDelete, delete_objects};
pub use scanner::BODY_BYTES_MAX;

/// The most parts of an upload.
pub const PARTS_MAX: usize = 10_000;

/// A part that an upload is completed with, as the caller names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompletedPart {
    /// Its number.
    pub number: PartNumber,
    /// Its tag without quotes, whether it came with them or not.
    pub etag: String,
    /// Its checksum, in base64 as it was sent.
    pub checksum: Option<(ChecksumAlgorithm, String)>,
}

/// The parts that an upload is completed with, in the order of the body, which the caller checks: S3 has an error of its
/// own for it.
///
/// # Errors
/// `MalformedXML`, also for no part or too many; `InvalidArgument` for a number that is none; `NotImplemented` for a
/// checksum of a kind that is not there.
pub fn complete_multipart_upload(body: &[u8]) -> Result<Vec<CompletedPart>, S3Error> {
    let mut scanner = Scanner::open(body, "CompleteMultipartUpload")?;
    let mut parts = Vec::new();
    while let Some(name) = scanner.child()? {
        if name != "Part" {
            scanner.skip()?;
            continue;
        }
        if parts.len() == PARTS_MAX {
            return Err(malformed("There are more than 10000 parts."));
        }
        parts.push(completed_part(&mut scanner)?);
    }
    scanner.close()?;
    if parts.is_empty() {
        return Err(malformed("There must be at least one part."));
    }
    Ok(parts)
}

fn completed_part(scanner: &mut Scanner<'_>) -> Result<CompletedPart, S3Error> {
    let (mut number, mut etag, mut checksum) = (None, None, None);
    while let Some(name) = scanner.child()? {
        match name.as_str() {
            "PartNumber" => {
                let text = scanner.text()?;
                let why = "Part number must be an integer between 1 and 10000, inclusive.";
                let parsed = PartNumber::parse(text.trim_ascii());
                put(
                    &mut number,
                    parsed.ok_or_else(|| S3Error::argument("PartNumber", &text, why))?,
                    &name,
                )?;
            }
            "ETag" => put(&mut etag, bare_tag(&scanner.text()?).to_owned(), &name)?,
            name => {
                match ChecksumAlgorithm::ALL.into_iter().find(|known| known.element() == name) {
                    Some(algorithm) => put(
                        &mut checksum,
                        (algorithm, scanner.text()?.trim_ascii().to_owned()),
                        name,
                    )?,
                    None if name.starts_with("Checksum") => {
                        return Err(S3Error::not_implemented(format_args!(
                            "the checksum {name:?}"
                        )));
                    }
                    // Some clients repeat all that they know of a part, such as its size.
                    None => scanner.skip()?,
                }
            }
        }
    }
    match (number, etag) {
        (Some(number), Some(etag)) => Ok(CompletedPart { number, etag, checksum }),
        _ => Err(malformed("Each Part has a PartNumber and an ETag.")),
    }
}

/// Takes a value that may stand there once.
fn put<T>(place: &mut Option<T>, value: T, name: &str) -> Result<(), S3Error> {
    match place.replace(value) {
        None => Ok(()),
        Some(_) => Err(malformed(format_args!("{name} stands there twice."))),
    }
}

fn bare_tag(text: &str) -> &str {
    let text = text.trim_ascii();
    text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text)
}

/// Where a bucket is to be made: the `LocationConstraint` of the body, if there is a body and it has one.
///
/// # Errors
/// `MalformedXML`; `NotImplemented` for any other wish, such as another kind of bucket, or tags.
pub fn create_bucket(body: &[u8]) -> Result<Option<String>, S3Error> {
    if body.iter().all(u8::is_ascii_whitespace) {
        return Ok(None);
    }
    let mut scanner = Scanner::open(body, "CreateBucketConfiguration")?;
    let mut location = None;
    while let Some(name) = scanner.child()? {
        match name.as_str() {
            "LocationConstraint" => {
                put(&mut location, scanner.text()?.trim_ascii().to_owned(), &name)?
            }
            other => {
                let other: String = other.chars().take(64).collect();
                return Err(S3Error::not_implemented(format_args!(
                    "{other:?} of a bucket that is made"
                )));
            }
        }
    }
    scanner.close()?;
    Ok(location.filter(|location| !location.is_empty()))
}

#[cfg(test)]
mod tests;
