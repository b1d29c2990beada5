//! The body of `DeleteObjects`.

use fencegate_wire::etag::ObjectCondition;

use super::put;
use super::scanner::{Scanner, malformed};
use crate::address::check_key;
use crate::code::S3Error;
use crate::operation::condition_of_tag;

/// The most objects of one call.
pub const OBJECTS_MAX: usize = 1000;

/// What is to be deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeleteObjects {
    /// Whether the answer names only what failed.
    pub quiet: bool,
    /// The objects, in the order of the body, 1 to 1,000. A key may be among them twice.
    pub objects: Vec<ObjectToDelete>,
}

/// One of the objects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ObjectToDelete {
    /// Its key, as [`check_key`] allows it.
    pub key: String,
    /// What is demanded of it.
    pub condition: Option<ObjectCondition>,
}

/// Reads the body.
///
/// What is not known is refused, and not passed over: it may be a condition, and an object would be deleted without it.
///
/// # Errors
/// `MalformedXML`, also for no object or too many; those of keys; `NotImplemented` for a version, or a condition on size
/// or time. Then nothing is to be deleted.
pub fn delete_objects(body: &[u8]) -> Result<DeleteObjects, S3Error> {
    let mut scanner = Scanner::open(body, "Delete")?;
    let (mut quiet, mut objects) = (None, Vec::new());
    while let Some(name) = scanner.child()? {
        match name.as_str() {
            "Quiet" => {
                let value = match scanner.text()?.trim_ascii() {
                    text if text.eq_ignore_ascii_case("true") => true,
                    text if text.eq_ignore_ascii_case("false") => false,
                    _ => return Err(malformed("Quiet is true or false.")),
                };
                put(&mut quiet, value, &name)?;
            }
            "Object" if objects.len() == OBJECTS_MAX => {
                return Err(malformed("There are more than 1000 objects."));
            }
            "Object" => objects.push(object(&mut scanner)?),
            other => return Err(malformed(format_args!("{other:?} is not known here."))),
        }
    }
    scanner.close()?;
    if objects.is_empty() {
        return Err(malformed("There must be at least one object."));
    }
    Ok(DeleteObjects { quiet: quiet.unwrap_or(false), objects })
}

fn object(scanner: &mut Scanner<'_>) -> Result<ObjectToDelete, S3Error> {
    let (mut key, mut condition, mut version) = (None, None, None);
    while let Some(name) = scanner.child()? {
        match name.as_str() {
            "Key" => put(&mut key, scanner.text()?, &name)?,
            "ETag" => {
                let tag = scanner.text()?;
                let parsed = condition_of_tag(&tag);
                let why = "This is * or an entity tag.";
                put(
                    &mut condition,
                    parsed.ok_or_else(|| S3Error::argument("ETag", &tag, why))?,
                    &name,
                )?;
            }
            "VersionId" => put(&mut version, scanner.text()?, &name)?,
            "LastModifiedTime" | "Size" => {
                return Err(
                    S3Error::not_implemented("conditions on size or time").with("Element", name)
                );
            }
            other => return Err(malformed(format_args!("{other:?} is not known here."))),
        }
    }
    if version.is_some_and(|version| !version.is_empty() && version != "null") {
        return Err(S3Error::not_implemented("deleting one version of an object")
            .with("Element", "VersionId"));
    }
    let key = key.ok_or_else(|| malformed("Each Object has a Key."))?;
    check_key(&key)?;
    Ok(ObjectToDelete { key, condition })
}
