//! Takes the payload out of a body in chunks.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use super::trailers::{BYTES_MAX, SIGNATURE};
use super::{Announced, ChunkError, Seed, Trailers};
use crate::mutants::{self, Mutant};
use crate::sign::secret::{SignatureText, is_same, signature_of};

/// The longest line before a chunk, in bytes: 16 digits, `;chunk-signature=`, 64 digits, and its end.
const LINE_MAX: usize = 16 + 17 + 64 + 2;

/// Takes the payload out of a body in chunks, which comes in pieces of any size.
///
/// The signature of a chunk can only be checked when all of the chunk has come, and chunks may be long: so payload is
/// handed out before it is checked. **It may go where nobody sees it, and take effect only after [`Decoder::end`] said that
/// all is well**: that every chunk and the trailers are what was signed, that the last chunk came, that the length is the
/// one that was announced, and that nothing follows.
#[derive(Debug)]
pub struct Decoder {
    announced: Announced,
    /// None: chunks are not signed.
    seed: Option<Seed>,
    /// Whether trailers and their signature may come.
    trailer: bool,
    state: State,
    /// The beginning of a line whose end has not come yet.
    line: Vec<u8>,
    /// How much payload the chunks up to now have, in bytes.
    length: u64,
    hash: Sha256,
    trailers: Trailers,
    trailer_bytes: usize,
    /// A trailer ended with a line feed alone, and the empty line that goes with that has not come yet.
    passes_empty_line: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Before the line with the size of a chunk.
    Size,
    /// In a chunk, of which so many bytes are missing.
    Data { left: u64, signature: Option<SignatureText> },
    /// Before the empty line that ends a chunk.
    DataEnd,
    /// Before a trailer, their signature, or the empty line that ends the body.
    Trailer,
    /// Before the empty line that ends the body.
    LastLine,
    /// After it.
    End,
    /// What was wrong, for ever.
    Broken(ChunkError),
}

impl Decoder {
    /// Begins. `seed`: from [`crate::sign::Verified`], if chunks are signed. `trailer`: whether trailers come, as
    /// [`crate::sign::PayloadHash`] says.
    pub fn new(announced: Announced, seed: Option<Seed>, trailer: bool) -> Self {
        Self {
            announced,
            seed,
            trailer,
            state: State::Size,
            line: Vec::new(),
            length: 0,
            hash: Sha256::new(),
            trailers: Trailers::default(),
            trailer_bytes: 0,
            passes_empty_line: false,
        }
    }

    /// Takes from the front of `input` up to and with the next piece of payload, which shares the memory of `input`.
    /// `None`: all of `input` is taken, and more is needed, or the body has ended.
    ///
    /// # Errors
    /// The body is no good. So it stays: each later call says the same.
    pub fn decode(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ChunkError> {
        while !input.is_empty() {
            match self.step(input) {
                Ok(None) => {}
                Ok(piece) => return Ok(piece),
                Err(error) => {
                    self.state = State::Broken(error.clone());
                    return Err(error);
                }
            }
        }
        Ok(None)
    }

    /// Ends: the trailers, if all of the body came and was good.
    ///
    /// # Errors
    /// It was not, or something is missing.
    pub fn end(self) -> Result<Trailers, ChunkError> {
        match self.state {
            State::End => Ok(self.trailers),
            State::Broken(error) => Err(error),
            _ => Err(ChunkError::Unfinished),
        }
    }

    fn step(&mut self, input: &mut Bytes) -> Result<Option<Bytes>, ChunkError> {
        match self.state.clone() {
            State::Data { left, signature } => return self.data(input, left, signature).map(Some),
            State::Size => {
                if let Some(line) = self.line(input, LINE_MAX)? {
                    self.size(&line)?;
                }
            }
            State::DataEnd => {
                if let Some(line) = self.line(input, 2)? {
                    empty(&line)?;
                    self.state = State::Size;
                }
            }
            State::Trailer => {
                if let Some(line) = self.line(input, BYTES_MAX)? {
                    self.trailer_bytes += line.len();
                    if self.trailer_bytes > BYTES_MAX {
                        return Err(ChunkError::Trailers("they have more than 1024 bytes"));
                    }
                    self.trailer(&line)?;
                }
            }
            State::LastLine => {
                if let Some(line) = self.line(input, 2)? {
                    empty(&line)?;
                    self.state = State::End;
                }
            }
            State::End => return Err(ChunkError::AfterEnd),
            State::Broken(error) => return Err(error),
        }
        Ok(None)
    }

    /// A line with its end, once that has come.
    fn line(&mut self, input: &mut Bytes, max: usize) -> Result<Option<Vec<u8>>, ChunkError> {
        let end = input.iter().take(max).position(|byte| *byte == b'\n');
        let taken = input.split_to(end.map_or(input.len().min(max), |end| end + 1));
        self.line.extend_from_slice(&taken);
        if self.line.len() > max || (end.is_none() && self.line.len() == max) {
            return Err(ChunkError::Malformed("a line is too long"));
        }
        Ok(end.map(|_| std::mem::take(&mut self.line)))
    }

    /// The line before a chunk.
    ///
    /// 1. It is a size, and a signature if and only if chunks are signed.
    /// 2. The payload stays within the length that was announced; with the last chunk it has all of it.
    /// 3. The last chunk is signed, too, and is checked at once.
    fn size(&mut self, line: &[u8]) -> Result<(), ChunkError> {
        const FORM: ChunkError =
            ChunkError::Malformed("a chunk begins with its size and nothing else");
        const SIGNED: ChunkError =
            ChunkError::Malformed("a signed chunk begins with its size and ;chunk-signature=");
        let line = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok());
        let line = line.ok_or(FORM)?;
        let (digits, signature) = match self.seed {
            None => (line, None),
            Some(_) => {
                let (digits, text) = line.split_once(";chunk-signature=").ok_or(SIGNED)?;
                (digits, Some(signature_of(text).ok_or(SIGNED)?))
            }
        };
        let is_size =
            (1..=16).contains(&digits.len()) && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
        let size = u64::from_str_radix(digits, 16).ok().filter(|_| is_size).ok_or(FORM)?;
        let (declared, got) = (self.announced.length, self.length.saturating_add(size));
        if got > declared || (size == 0 && got != declared) {
            return Err(ChunkError::WrongLength { declared, got });
        }
        self.length = got;
        self.state = match size {
            0 => {
                self.check_chunk(signature.filter(|_| !mutants::is(Mutant::LastChunkUnchecked)))?;
                if self.trailer { State::Trailer } else { State::LastLine }
            }
            left => State::Data { left, signature },
        };
        Ok(())
    }

    /// A piece of a chunk; with the last one, the chunk is checked.
    fn data(
        &mut self,
        input: &mut Bytes,
        left: u64,
        signature: Option<SignatureText>,
    ) -> Result<Bytes, ChunkError> {
        let taken = usize::try_from(left).map_or(input.len(), |left| left.min(input.len()));
        let piece = input.split_to(taken);
        if self.seed.is_some() {
            self.hash.update(&piece);
        }
        let left = left - piece.len() as u64;
        self.state = if left == 0 {
            self.check_chunk(signature)?;
            State::DataEnd
        } else {
            State::Data { left, signature }
        };
        Ok(piece)
    }

    fn check_chunk(&mut self, signature: Option<SignatureText>) -> Result<(), ChunkError> {
        let (Some(seed), Some(signature)) = (&mut self.seed, signature) else { return Ok(()) };
        let ours = seed.of_chunk(&self.hash.finalize_reset().into());
        is_same(&ours, &signature).then_some(()).ok_or(ChunkError::DoesNotMatch("a chunk"))
    }

    /// A line behind the last chunk.
    ///
    /// 1. An empty one ends trailers that are not signed: all that were announced have come.
    /// 2. A signature ends those that are: it covers all that came before it.
    /// 3. Any other is a trailer that was announced. minio-go ends each with a line feed alone, and all of them with an
    ///    empty line before what follows: that one is passed over.
    fn trailer(&mut self, line: &[u8]) -> Result<(), ChunkError> {
        const FORM: ChunkError = ChunkError::Trailers("one has no name, colon and value");
        let (text, is_bare) = match line.strip_suffix(b"\r\n") {
            Some(text) => (text, false),
            None => (line.strip_suffix(b"\n").unwrap_or(line), true),
        };
        if text.is_empty() && !is_bare {
            return self.empty_trailer();
        }
        let text = std::str::from_utf8(text).map_err(|_| FORM)?;
        let (name, value) = text.split_once(':').ok_or(FORM)?;
        let value = value.trim_matches(' ');
        if let Some(seed) = self.seed.as_mut().filter(|_| name == SIGNATURE) {
            self.trailers.check_all_came(&self.announced)?;
            let ours = seed.of_trailers(&self.trailers.digest());
            let matches = signature_of(value).is_some_and(|theirs| is_same(&ours, &theirs))
                || mutants::is(Mutant::TrailersUnchecked);
            self.state = State::LastLine;
            return matches.then_some(()).ok_or(ChunkError::DoesNotMatch("the trailers"));
        }
        self.passes_empty_line |= is_bare;
        self.trailers.add(&self.announced, name, value)
    }

    fn empty_trailer(&mut self) -> Result<(), ChunkError> {
        if std::mem::take(&mut self.passes_empty_line) {
            return Ok(());
        }
        if self.seed.is_some() {
            return Err(ChunkError::Trailers("their signature is missing"));
        }
        self.trailers.check_all_came(&self.announced)?;
        self.state = State::End;
        Ok(())
    }
}

fn empty(line: &[u8]) -> Result<(), ChunkError> {
    let error = ChunkError::Malformed("an empty line is missing after a chunk or at the end");
    (line == b"\r\n").then_some(()).ok_or(error)
}
