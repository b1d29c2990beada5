//! What a request brings, checked before the engine is asked. Refused, never repaired.

mod asker;
mod body;
mod conditions;
mod described;
mod digest;
mod headers;
mod json;
mod parts;
mod path;
mod query;
mod range;

pub use asker::Asker;
pub use body::{
    Chunks, Gathered, Gathering, Incoming, content_length, declared_length, read_body, too_large,
};
pub use conditions::{ReadAnswer, ReadConditions, WriteConditions};
pub use described::Described;
pub use digest::{Digests, no_digest, repr_digest};
pub use headers::{
    FenceHeaders, Fenced, Payload, WriteHeaders, fence_token, is_content_type, is_idempotency_key,
    lock_id as lock_id_of, single, token_of,
};
pub use json::{OptionalJson, StrictJson, WideJson, is_json, parse};
pub use parts::{Parts as MultipartParts, is_part_name};
pub use path::{InBucket, InIntent, InLock, InObject, InOperation, InResource, resource_in};
pub use query::{
    LIST_LIMIT_DEFAULT, List, NoQuery, Query, before, cursor_after, cursor_before, limit,
    narrowed_to, prefix, wait,
};
pub use range::{Selection, select};
