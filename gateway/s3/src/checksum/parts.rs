//! What the checksums of parts make together.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Algorithm, Checksum, ChecksumError, Digest};

/// How the checksum of an object of parts comes about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// It is the checksum of the parts' checksums, one after the other.
    #[serde(rename = "COMPOSITE")]
    Composite,
    /// It is the checksum of the object's bytes, as if it had come in one piece.
    #[serde(rename = "FULL_OBJECT")]
    FullObject,
}

impl Kind {
    /// As `x-amz-checksum-type` and XML have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Composite => "COMPOSITE",
            Self::FullObject => "FULL_OBJECT",
        }
    }

    /// Reads what [`Kind::as_str`] writes.
    ///
    /// # Errors
    /// It is neither.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let mut kinds = [Self::Composite, Self::FullObject].into_iter();
        kinds.find(|kind| kind.as_str() == text).ok_or(ChecksumError::Kind)
    }

    /// The kind that an upload of parts has: the one it asks for, or that of its algorithm.
    ///
    /// # Errors
    /// The algorithm cannot have the one it asks for.
    pub fn of_upload(algorithm: Algorithm, asked: Option<Self>) -> Result<Self, ChecksumError> {
        let usual = match algorithm {
            Algorithm::Crc64Nvme => Self::FullObject,
            _ => Self::Composite,
        };
        let kind = asked.unwrap_or(usual);
        let can = match kind {
            Self::Composite => algorithm != Algorithm::Crc64Nvme,
            Self::FullObject => algorithm.crc().is_some(),
        };
        can.then_some(kind).ok_or(ChecksumError::Kind)
    }
}

/// The checksum of an object. It prints as headers and XML have it: `<base64>`, or `<base64>-<parts>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectChecksum {
    /// Of its bytes.
    Full(Checksum),
    /// Of the checksums of its parts.
    Composite {
        /// The checksum of checksums.
        checksum: Checksum,
        /// How many parts.
        parts: u32,
    },
}

impl ObjectChecksum {
    /// What these parts make together: the checksum of each, and how many bytes it has, in order.
    ///
    /// # Errors
    /// There is no part, two have different algorithms, or their algorithm cannot have this kind.
    pub fn of_parts(kind: Kind, parts: &[(Checksum, u64)]) -> Result<Self, ChecksumError> {
        let (first, rest) = parts.split_first().ok_or(ChecksumError::Parts)?;
        let algorithm = first.0.algorithm();
        if rest.iter().any(|(part, _)| part.algorithm() != algorithm) {
            return Err(ChecksumError::Parts);
        }
        match Kind::of_upload(algorithm, Some(kind))? {
            Kind::Composite => {
                let mut digest = Digest::new(algorithm);
                parts.iter().for_each(|(part, _)| digest.update(part.as_bytes()));
                let count = u32::try_from(parts.len()).map_err(|_| ChecksumError::Parts)?;
                Ok(Self::Composite { checksum: digest.finish(), parts: count })
            }
            Kind::FullObject => {
                let crc = algorithm.crc().ok_or(ChecksumError::Kind)?;
                let whole = rest.iter().fold(first.0.crc(), |whole, (part, len)| {
                    crc_fast::checksum_combine(crc, whole, part.crc(), *len)
                });
                Ok(Self::Full(Checksum::of_crc(algorithm, whole)))
            }
        }
    }

    /// Reads what a client says that an object of parts has, or what [`fmt::Display`] wrote. A number of parts behind it
    /// means that it is composite.
    ///
    /// # Errors
    /// It is no checksum of this algorithm.
    pub fn parse(algorithm: Algorithm, text: &str) -> Result<Self, ChecksumError> {
        let Some((checksum, digits)) = text.split_once('-') else {
            return Checksum::parse(algorithm, text).map(Self::Full);
        };
        let checksum = Checksum::parse(algorithm, checksum)?;
        let parts = digits.parse().ok().filter(|parts: &u32| parts.to_string() == digits);
        let parts = parts.filter(|parts| (1..=10_000).contains(parts));
        let error = ChecksumError::Malformed(algorithm.header());
        parts.map(|parts| Self::Composite { checksum, parts }).ok_or(error)
    }

    /// How it is made.
    pub fn algorithm(&self) -> Algorithm {
        match self {
            Self::Full(checksum) | Self::Composite { checksum, .. } => checksum.algorithm(),
        }
    }

    /// That of its bytes, or of the checksums of its parts.
    pub fn checksum(&self) -> &Checksum {
        match self {
            Self::Full(checksum) | Self::Composite { checksum, .. } => checksum,
        }
    }

    /// Its kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::Full(_) => Kind::FullObject,
            Self::Composite { .. } => Kind::Composite,
        }
    }
}

impl fmt::Display for ObjectChecksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full(checksum) => checksum.fmt(f),
            Self::Composite { checksum, parts } => write!(f, "{checksum}-{parts}"),
        }
    }
}
