//! The ledgers: Postgres for many gateways, SQLite for one. What is alike is written once, here.

#[macro_use]
mod row;
mod migrations;
pub mod postgres;
mod rows;
pub mod sqlite;

use std::sync::LazyLock;

use fence_core::ports::{AuditAction, Did, LedgerError, Page, after_all};
use fence_core::{
    GrantEnd, LockEnd, Metadata, ObjectKey, PrincipalName, ResourceName, Token, WriterName,
};
use jiff::Timestamp;

use LedgerError::Defect;

/// A time from microseconds since 1970.
fn time(micros: i64) -> Timestamp {
    Timestamp::from_microsecond(micros).unwrap_or(Timestamp::UNIX_EPOCH)
}

/// A token read back; the schema only holds positive ones.
fn token(number: i64) -> Result<Token, LedgerError> {
    Token::new(number).ok_or_else(|| Defect(format!("{number} is stored as a token")))
}

/// A resource name read back; the schema only holds good ones.
fn resource_name(name: String) -> Result<ResourceName, LedgerError> {
    ResourceName::new(name).map_err(|why| Defect(format!("a stored resource name: {why}")))
}

/// An object key read back.
fn object_key(key: String) -> Result<ObjectKey, LedgerError> {
    ObjectKey::any(key).map_err(|why| Defect(format!("a stored key: {why}")))
}

/// A digest read back.
fn digest(bytes: Vec<u8>) -> Result<[u8; 32], LedgerError> {
    bytes.try_into().map_err(|_| Defect("a stored digest has another length".into()))
}

/// What the keys of S3 are derived from, read back.
fn s3_root(bytes: Vec<u8>) -> Result<[u8; 32], LedgerError> {
    bytes.try_into().map_err(|_| Defect("the stored root of S3 keys has another length".into()))
}

/// What the steps of a commit did, read back.
fn did(letters: Option<&str>) -> Result<Vec<Did>, LedgerError> {
    let letters = letters.unwrap_or_default();
    Did::parse(letters).ok_or_else(|| Defect(format!("{letters:?} is stored of a commit")))
}

/// Metadata read back.
fn metadata(text: &str) -> Result<Metadata, LedgerError> {
    Metadata::from_json(text).map_err(|why| Defect(format!("the metadata of a lock: {why}")))
}

/// How a lock ended, read back.
fn end(word: &str) -> Result<LockEnd, LedgerError> {
    LockEnd::parse(word).ok_or_else(|| Defect(format!("{word} is stored as the end of a lock")))
}

/// Reads back the end of a grant.
fn grant_end(word: &str) -> Result<GrantEnd, LedgerError> {
    GrantEnd::parse(word).ok_or_else(|| Defect(format!("{word} is stored as the end of a grant")))
}

/// A principal's name read back.
fn principal(name: &str) -> Result<PrincipalName, LedgerError> {
    PrincipalName::new(name).map_err(|why| Defect(format!("a stored principal: {why}")))
}

/// A writer's name read back.
fn writer(name: &str) -> Result<WriterName, LedgerError> {
    WriterName::new(name).map_err(|why| Defect(format!("a stored writer: {why}")))
}

/// What was done, read back from the audit.
fn audit_action(word: &str) -> Result<AuditAction, LedgerError> {
    AuditAction::parse(word).ok_or_else(|| Defect(format!("{word} is stored in the audit")))
}

/// No resource name and no key is above this: it is longer than any of them may be, of the highest letter there is.
static ABOVE_ALL: LazyLock<String> = LazyLock::new(|| String::from(char::MAX).repeat(1 + 1024 / 4));

/// What an index has to be read between for a page: from the first string, which the page does not have if it is
/// the last of the page before, to below the second. Always both, and no others: whatever else a query says of
/// names it finds out by reading all rows up to the page, or from there to the end.
fn span(page: &Page) -> (&str, String) {
    let from = page.after.as_deref().unwrap_or_default().max(page.prefix.as_str());
    (from, after_all(&page.prefix).unwrap_or_else(|| ABOVE_ALL.clone()))
}
