//! What S3 has and the gateway does not, where it would be a lie to overlook that it was asked for.

use http::{HeaderMap, Method};

use super::Query;
use super::values::header;
use crate::code::S3Error;

/// Headers that ask for something, whatever their value, and what that is.
///
/// Encryption with keys of the service (`AES256`) is among them. Tools ask for it only where their settings say so, and
/// whoever sets that counts on bytes being encrypted where they lie. The gateway keeps them in stores of the operator's,
/// and does not know whether those encrypt: to answer `AES256` would be to vouch for it.
const STARTS: [(&str, &str); 5] = [
    ("x-amz-server-side-encryption", "server-side encryption on request"),
    ("x-amz-copy-source-server-side-encryption", "server-side encryption on request"),
    ("x-amz-object-lock-", "object lock"),
    ("x-amz-grant-", "access control lists"),
    ("x-amz-if-match-", "conditions on size or time"),
];
const NAMES: [(&str, &str); 6] = [
    ("x-amz-website-redirect-location", "website redirects"),
    ("x-amz-mfa", "MFA delete"),
    ("x-amz-write-offset-bytes", "appending to objects"),
    ("x-amz-rename-source", "renaming of objects"),
    ("x-amz-expected-bucket-owner", "accounts that own buckets"),
    ("x-amz-source-expected-bucket-owner", "accounts that own buckets"),
];
/// Headers of which some values ask for nothing that is not there.
const VALUES: [(&str, &[&str], &str); 6] = [
    ("x-amz-acl", &["private", "bucket-owner-full-control"], "access control lists"),
    ("x-amz-storage-class", &["STANDARD"], "storage classes but STANDARD"),
    ("x-amz-tagging", &[""], "tags"),
    ("x-amz-bucket-object-lock-enabled", &["false", "False", "FALSE"], "object lock"),
    (
        "x-amz-object-ownership",
        &["BucketOwnerEnforced", "BucketOwnerPreferred"],
        "accounts that own objects",
    ),
    ("x-amz-bucket-namespace", &["global"], "namespaces of buckets"),
];

/// Refuses headers that ask for what the gateway does not have.
///
/// # Errors
/// `NotImplemented`, which names the header.
pub(super) fn check_headers(method: &Method, headers: &HeaderMap) -> Result<(), S3Error> {
    for name in headers.keys() {
        let name = name.as_str();
        let start = STARTS.iter().find(|(start, _)| name.starts_with(start));
        let whole = NAMES.iter().find(|(known, _)| name == *known);
        if let Some((_, what)) = start.or(whole) {
            return Err(S3Error::not_implemented(what).with("Header", name));
        }
    }
    for (name, allowed, what) in VALUES {
        let Some(value) = header(headers, name)? else { continue };
        if !allowed.contains(&value) {
            return Err(S3Error::not_implemented(what).with("Header", name));
        }
    }
    if *method == Method::PUT && headers.contains_key("content-range") {
        return Err(
            S3Error::not_implemented("writing a part of an object").with("Header", "content-range")
        );
    }
    Ok(())
}

/// What makes a request another operation, by standing in its query. The gateway has some of them.
const SUBRESOURCES: [&str; 41] = [
    "abac",
    "accelerate",
    "acl",
    "analytics",
    "annotation",
    "attributes",
    "cors",
    "delete",
    "encryption",
    "intelligent-tiering",
    "inventory",
    "legal-hold",
    "lifecycle",
    "location",
    "logging",
    "metadataConfiguration",
    "metadataInventoryTable",
    "metadataJournalTable",
    "metadataTable",
    "metrics",
    "notification",
    "object-lock",
    "objectEncryption",
    "ownershipControls",
    "policy",
    "policyStatus",
    "publicAccessBlock",
    "renameObject",
    "replication",
    "requestPayment",
    "restore",
    "retention",
    "select",
    "session",
    "tagging",
    "torrent",
    "uploadId",
    "uploads",
    "versioning",
    "versions",
    "website",
];

/// Which subresource the query names.
///
/// A read may have parameters of any other name, as S3 allows. A write may not: with a new word of S3 that is not known
/// here, it would put the body in place of the object that it is only about.
///
/// # Errors
/// `InvalidArgument` for two of them; `NotImplemented` for a write with a parameter that nothing is known of.
pub(super) fn subresource<'a>(
    method: &Method,
    query: &'a Query,
) -> Result<Option<&'a str>, S3Error> {
    let mut found = None;
    for name in query.names() {
        if SUBRESOURCES.contains(&name) {
            if let Some(other) = found.replace(name) {
                let why = format!("Conflicting query string parameters: {other}, {name}");
                return Err(S3Error::argument("ResourceType", name, why));
            }
        } else if !is_read(method) && !is_beside_a_write(name) {
            return Err(not_there(name));
        }
    }
    Ok(found)
}

/// 501 for a subresource.
pub(super) fn not_there(name: &str) -> S3Error {
    let name: String = name.chars().take(64).collect();
    S3Error::not_implemented(format_args!("the subresource {name:?}")).with("Parameter", name)
}

fn is_read(method: &Method) -> bool {
    *method == Method::GET || *method == Method::HEAD
}

fn is_beside_a_write(name: &str) -> bool {
    // `x-id` is an SDK's own name of the operation; the rest of `x-...` is the signature, or the caller's own note.
    let private = name.get(..2).is_some_and(|start| start.eq_ignore_ascii_case("x-"));
    private || ["partNumber", "versionId"].contains(&name)
}
