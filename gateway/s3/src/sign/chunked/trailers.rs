//! The header lines behind the last chunk.

use sha2::{Digest as _, Sha256};

use super::{Announced, ChunkError};

/// How many bytes all lines behind the last chunk may have together.
pub(super) const BYTES_MAX: usize = 1024;
/// The line that has the signature of the others.
pub(super) const SIGNATURE: &str = "x-amz-trailer-signature";

/// The header lines behind the last chunk: those that were announced, each once.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Trailers(Vec<(String, String)>);

impl Trailers {
    /// The value of one, by its name in lower case.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(other, _)| other == name).map(|(_, value)| &**value)
    }

    /// All names and values, as they came.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(name, value)| (&**name, &**value))
    }

    /// Takes in one more.
    pub(super) fn add(
        &mut self,
        announced: &Announced,
        name: &str,
        value: &str,
    ) -> Result<(), ChunkError> {
        let name = name.to_ascii_lowercase();
        if !announced.trailers.contains(&name) {
            return Err(ChunkError::Trailers("one came that x-amz-trailer does not name"));
        }
        if self.get(&name).is_some() {
            return Err(ChunkError::Trailers("one came twice"));
        }
        if !value.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' ') {
            return Err(ChunkError::Trailers("one is not printable ASCII"));
        }
        self.0.push((name, value.to_owned()));
        Ok(())
    }

    /// Refuses to do without one that was announced.
    pub(super) fn check_all_came(&self, announced: &Announced) -> Result<(), ChunkError> {
        let error = ChunkError::Trailers("one that x-amz-trailer names is missing");
        (self.0.len() == announced.trailers.len()).then_some(()).ok_or(error)
    }

    /// What is signed of them.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hash = Sha256::new();
        for (name, value) in self.iter() {
            [name, ":", value, "\n"].iter().for_each(|piece| hash.update(piece));
        }
        hash.finalize().into()
    }
}
