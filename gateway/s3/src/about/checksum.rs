//! The checksum that is kept with an object.

use serde::{Deserialize, Serialize};

pub use crate::checksum::{Algorithm as ChecksumAlgorithm, Kind as ChecksumKind};

/// A checksum with all that a reader needs to check it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StoredChecksum {
    /// How it was computed.
    pub algorithm: ChecksumAlgorithm,
    /// The value as S3 writes it: base64, and for a composite one `-` and the number of parts.
    pub value: String,
    /// What it was computed from.
    #[serde(rename = "type")]
    pub kind: ChecksumKind,
}
