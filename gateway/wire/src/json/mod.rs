//! Requests and answers as JSON, shared by server and clients.
//!
//! Durations are strings in requests (`30s`) and integers of milliseconds in answers; times are
//! RFC 3339; tokens are decimal strings. Unknown fields are refused.

mod access;
mod commits;
mod events;
mod locks;
mod proof;
mod resources;
mod s3;
mod seeing;
mod status;
mod upstreams;

pub use access::*;
pub use commits::*;
pub use events::*;
pub use locks::*;
pub use proof::*;
pub use resources::*;
pub use s3::*;
pub use seeing::*;
pub use status::*;
pub use upstreams::*;

/// The longest owner, in bytes.
pub const OWNER_BYTES_MAX: usize = 256;
/// The longest reason, in bytes.
pub const REASON_BYTES_MAX: usize = 1024;
/// The most resources of one lock.
pub const LOCK_RESOURCES_MAX: usize = 32;
/// The most writers of one lock, beside its holder.
pub const LOCK_WRITERS_MAX: usize = 16;
/// The shortest time for which a writer may have its `Idempotency-Key` remembered: long enough for a retry.
pub const KEY_KEPT_MIN: std::time::Duration = std::time::Duration::from_secs(60);
/// The longest; a gateway takes no more than its `keys_kept`.
pub const KEY_KEPT_MAX: std::time::Duration = std::time::Duration::from_secs(3650 * 24 * 60 * 60);
/// The longest wait of one call: proxies give up after a minute.
pub const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(50);
/// The most ids in one renewal of many.
pub const RENEW_IDS_MAX: usize = 1000;

/// A duration that may be left out: a whole number and a unit; sent in milliseconds.
mod optional_duration {
    use std::time::Duration;

    use serde::{Deserialize, Deserializer, Serializer, de::value::StringDeserializer};

    use crate::lock;

    pub(super) fn serialize<S: Serializer>(
        duration: &Option<Duration>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => serializer.collect_str(&lock::DurationText(*duration)),
            None => serializer.serialize_none(),
        }
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<Duration>, D::Error> {
        let text: Option<String> = Option::deserialize(deserializer)?;
        let text = text.map(StringDeserializer::new);
        text.map(lock::requested_duration).transpose()
    }
}
