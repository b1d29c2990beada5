//! Checksums of S3: what clients send beside a body, in a header or behind it, and what those of the parts of an object
//! make together.

mod error;
mod md5;
mod parts;
mod sent;

pub use error::ChecksumError;
pub use md5::ContentMd5;
pub use parts::{Kind, ObjectChecksum};
pub use sent::{Sent, of_whole};

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use crc_fast::CrcAlgorithm;
use serde::{Deserialize, Serialize};
use sha2::Digest as _;

/// How a checksum is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Algorithm {
    /// CRC-32 as in zip and Ethernet.
    #[serde(rename = "CRC32")]
    Crc32,
    /// CRC-32C, of Castagnoli.
    #[serde(rename = "CRC32C")]
    Crc32c,
    /// CRC-64 as in NVMe.
    #[serde(rename = "CRC64NVME")]
    Crc64Nvme,
    /// SHA-1: against accidents only.
    #[serde(rename = "SHA1")]
    Sha1,
    /// SHA-256.
    #[serde(rename = "SHA256")]
    Sha256,
}

impl Algorithm {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Crc32, Self::Crc32c, Self::Crc64Nvme, Self::Sha1, Self::Sha256];

    /// As `x-amz-checksum-algorithm`, `x-amz-sdk-checksum-algorithm` and XML have it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Crc32 => "CRC32",
            Self::Crc32c => "CRC32C",
            Self::Crc64Nvme => "CRC64NVME",
            Self::Sha1 => "SHA1",
            Self::Sha256 => "SHA256",
        }
    }

    /// Reads what [`Algorithm::as_str`] writes, in any case.
    ///
    /// # Errors
    /// S3 has no such algorithm, or it is not served here.
    pub fn parse(text: &str) -> Result<Self, ChecksumError> {
        let same = |algorithm: &Self| algorithm.as_str().eq_ignore_ascii_case(text);
        Self::ALL.into_iter().find(same).ok_or(ChecksumError::NotServed)
    }

    /// The header, or the trailer, that has a checksum of this kind.
    pub fn header(self) -> &'static str {
        match self {
            Self::Crc32 => "x-amz-checksum-crc32",
            Self::Crc32c => "x-amz-checksum-crc32c",
            Self::Crc64Nvme => "x-amz-checksum-crc64nvme",
            Self::Sha1 => "x-amz-checksum-sha1",
            Self::Sha256 => "x-amz-checksum-sha256",
        }
    }

    /// The element of XML that a value of it stands in.
    pub fn element(self) -> &'static str {
        match self {
            Self::Crc32 => "ChecksumCRC32",
            Self::Crc32c => "ChecksumCRC32C",
            Self::Crc64Nvme => "ChecksumCRC64NVME",
            Self::Sha1 => "ChecksumSHA1",
            Self::Sha256 => "ChecksumSHA256",
        }
    }

    /// What a header, by its name in lower case, has a checksum of. `None`: it has none that is served here.
    pub fn of_header(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|algorithm| algorithm.header() == name)
    }

    /// How many bytes a checksum has.
    pub fn len_bytes(self) -> usize {
        match self {
            Self::Crc32 | Self::Crc32c => 4,
            Self::Crc64Nvme => 8,
            Self::Sha1 => 20,
            Self::Sha256 => 32,
        }
    }

    fn crc(self) -> Option<CrcAlgorithm> {
        match self {
            Self::Crc32 => Some(CrcAlgorithm::Crc32IsoHdlc),
            Self::Crc32c => Some(CrcAlgorithm::Crc32Iscsi),
            Self::Crc64Nvme => Some(CrcAlgorithm::Crc64Nvme),
            Self::Sha1 | Self::Sha256 => None,
        }
    }
}

/// A checksum. It prints as headers and XML have it: in base64.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Checksum {
    algorithm: Algorithm,
    /// As many bytes as the algorithm has, and zeros.
    bytes: [u8; 32],
}

impl Checksum {
    /// Reads base64 with padding, of as many bytes as the algorithm has.
    ///
    /// # Errors
    /// It is not that.
    pub fn parse(algorithm: Algorithm, text: &str) -> Result<Self, ChecksumError> {
        let error = ChecksumError::Malformed(algorithm.header());
        let bytes = STANDARD.decode(text).map_err(|_| error.clone())?;
        (bytes.len() == algorithm.len_bytes()).then(|| Self::of(algorithm, &bytes)).ok_or(error)
    }

    /// `bytes`: as many as the algorithm has.
    fn of(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let mut all = [0; 32];
        all.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Self { algorithm, bytes: all }
    }

    fn of_crc(algorithm: Algorithm, crc: u64) -> Self {
        Self::of(algorithm, &crc.to_be_bytes()[8 - algorithm.len_bytes()..])
    }

    /// How it was made.
    pub fn algorithm(&self) -> Algorithm {
        self.algorithm
    }

    /// Its bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.algorithm.len_bytes()]
    }

    /// The number that a CRC is.
    fn crc(&self) -> u64 {
        self.as_bytes().iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }
}

impl fmt::Display for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&STANDARD.encode(self.as_bytes()))
    }
}

impl fmt::Debug for Checksum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{self}", self.algorithm.as_str())
    }
}

/// Makes a checksum of bytes that come in pieces.
#[derive(Debug, Clone)]
pub struct Digest {
    algorithm: Algorithm,
    state: State,
}

#[derive(Debug, Clone)]
enum State {
    Crc(crc_fast::Digest),
    Sha1(sha1::Sha1),
    Sha256(sha2::Sha256),
}

impl Digest {
    /// Begins.
    pub fn new(algorithm: Algorithm) -> Self {
        let state = match algorithm.crc() {
            Some(crc) => State::Crc(crc_fast::Digest::new(crc)),
            None if algorithm == Algorithm::Sha1 => State::Sha1(sha1::Sha1::new()),
            None => State::Sha256(sha2::Sha256::new()),
        };
        Self { algorithm, state }
    }

    /// Takes in the next piece.
    pub fn update(&mut self, piece: &[u8]) {
        match &mut self.state {
            State::Crc(crc) => crc.update(piece),
            State::Sha1(hash) => hash.update(piece),
            State::Sha256(hash) => hash.update(piece),
        }
    }

    /// The checksum of all pieces.
    pub fn finish(self) -> Checksum {
        match self.state {
            State::Crc(crc) => Checksum::of_crc(self.algorithm, crc.finalize()),
            State::Sha1(hash) => Checksum::of(self.algorithm, &hash.finalize()),
            State::Sha256(hash) => Checksum::of(self.algorithm, &hash.finalize()),
        }
    }
}
