//! Makes a body in chunks: for tests, and for tools of our own.

use sha2::{Digest as _, Sha256};

use super::Seed;
use super::trailers::SIGNATURE;

/// Makes a body in chunks.
#[derive(Debug)]
pub struct Encoder {
    /// None: chunks are not signed.
    seed: Option<Seed>,
}

impl Encoder {
    /// Begins. `seed`: from [`crate::sign::Signer::sign`], if chunks are to be signed.
    pub fn new(seed: Option<Seed>) -> Self {
        Self { seed }
    }

    /// A chunk. An empty one would be the last: then there is nothing to send.
    pub fn chunk(&mut self, payload: &[u8]) -> Vec<u8> {
        match payload {
            [] => Vec::new(),
            _ => [self.line(payload).as_bytes(), payload, b"\r\n"].concat(),
        }
    }

    /// The last chunk, and trailers: None if the request is of a kind that has none.
    pub fn end(mut self, trailers: Option<&[(&str, &str)]>) -> Vec<u8> {
        let mut text = self.line(b"");
        if let Some(trailers) = trailers {
            let mut hash = Sha256::new();
            for (name, value) in trailers {
                hash.update(format!("{name}:{value}\n"));
                text.push_str(&format!("{name}:{value}\r\n"));
            }
            if let Some(seed) = &mut self.seed {
                let signature = seed.of_trailers(&hash.finalize().into());
                text.push_str(&format!("{SIGNATURE}:{}\r\n", String::from_utf8_lossy(&signature)));
            }
        }
        text.push_str("\r\n");
        text.into_bytes()
    }

    fn line(&mut self, payload: &[u8]) -> String {
        let size = payload.len();
        let Some(seed) = &mut self.seed else { return format!("{size:x}\r\n") };
        let signature = seed.of_chunk(&Sha256::digest(payload).into());
        format!("{size:x};chunk-signature={}\r\n", String::from_utf8_lossy(&signature))
    }
}
