//! Walks through a document of XML within limits, and takes only what a body of S3 needs.

use quick_xml::Reader;
use quick_xml::events::{BytesRef, Event};

use crate::code::{S3Code, S3Error};

/// The largest body, in bytes: 10,000 parts with checksums, or 1,000 keys of 1,024 bytes with most of them escaped.
pub const BODY_BYTES_MAX: usize = 4 << 20;
/// The most elements of a document.
const ELEMENTS_MAX: u32 = 100_000;
/// How deep elements may lie in each other.
const DEPTH_MAX: u32 = 8;
/// The longest text of an element, in bytes.
const TEXT_BYTES_MAX: usize = 8192;

/// A place in a document. The caller takes the children of an element one by one, and of each its text, its own children
/// or nothing.
pub(super) struct Scanner<'a> {
    reader: Reader<&'a [u8]>,
    depth: u32,
    elements: u32,
}

/// 400 `MalformedXML` that says what is wrong.
pub(super) fn malformed(why: impl std::fmt::Display) -> S3Error {
    S3Error::new(S3Code::MalformedXml, format!("{} {why}", S3Code::MalformedXml.message()))
}

impl<'a> Scanner<'a> {
    /// Goes into the root element, which must have this name.
    pub(super) fn open(body: &'a [u8], root: &str) -> Result<Self, S3Error> {
        if body.len() > BODY_BYTES_MAX {
            return Err(S3Code::MaxMessageLengthExceeded.into());
        }
        // One encoding, whatever the declaration says: else the same bytes could be read in two ways.
        let text = std::str::from_utf8(body).map_err(|_| malformed("The body is not UTF-8."))?;
        let mut reader = Reader::from_str(text.strip_prefix('\u{feff}').unwrap_or(text));
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.check_comments = true;
        let mut scanner = Self { reader, depth: 0, elements: 0 };
        match scanner.child()? {
            Some(name) if name == root => Ok(scanner),
            _ => Err(malformed(format_args!("The body is not a {root} element."))),
        }
    }

    /// Goes into the next child of the element, and says its name without a prefix; or goes out of the element.
    pub(super) fn child(&mut self) -> Result<Option<String>, S3Error> {
        loop {
            match self.event()? {
                Event::Start(start) => {
                    let name = start.local_name();
                    let name = String::from_utf8_lossy(name.as_ref()).into_owned();
                    self.enter()?;
                    return Ok(Some(name));
                }
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(None);
                }
                Event::Text(text) if text.iter().all(u8::is_ascii_whitespace) => {}
                Event::Eof if self.depth == 0 => return Ok(None),
                Event::Eof => return Err(malformed("The document ends too early.")),
                Event::Decl(_) | Event::PI(_) | Event::Comment(_) => {}
                _ => return Err(malformed("There is text where only elements belong.")),
            }
        }
    }

    /// The text of the element, which has no children; goes out of it.
    pub(super) fn text(&mut self) -> Result<String, S3Error> {
        let mut text = String::new();
        loop {
            match self.event()? {
                Event::End(_) => {
                    self.depth -= 1;
                    return Ok(text);
                }
                Event::Text(piece) => text.push_str(&piece.xml10_content().map_err(malformed)?),
                Event::CData(piece) => text.push_str(&piece.xml10_content().map_err(malformed)?),
                Event::GeneralRef(name) => text.push(referred(&name)?),
                Event::Comment(_) | Event::PI(_) => {}
                Event::Eof => return Err(malformed("The document ends too early.")),
                _ => return Err(malformed("There are elements where only text belongs.")),
            }
            if text.len() > TEXT_BYTES_MAX {
                return Err(malformed("The text of an element is too long."));
            }
        }
    }

    /// Goes out of the element, whatever is in it.
    pub(super) fn skip(&mut self) -> Result<(), S3Error> {
        let around = self.depth - 1;
        while self.depth > around {
            match self.event()? {
                Event::Start(_) => self.enter()?,
                Event::End(_) => self.depth -= 1,
                Event::Eof => return Err(malformed("The document ends too early.")),
                _ => {}
            }
        }
        Ok(())
    }

    /// The document must be over, once its root was gone out of.
    pub(super) fn close(mut self) -> Result<(), S3Error> {
        match self.child()? {
            None => Ok(()),
            Some(_) => Err(malformed("There is more than one root element.")),
        }
    }

    fn enter(&mut self) -> Result<(), S3Error> {
        self.depth += 1;
        self.elements += 1;
        match self.depth > DEPTH_MAX || self.elements > ELEMENTS_MAX {
            true => {
                Err(malformed("The document has too many elements, or too many in each other."))
            }
            false => Ok(()),
        }
    }

    /// A definition of document types is refused wherever it stands: what it defines could grow without bound.
    fn event(&mut self) -> Result<Event<'a>, S3Error> {
        match self.reader.read_event().map_err(malformed)? {
            Event::DocType(_) => Err(malformed("A document type is not allowed.")),
            event => Ok(event),
        }
    }
}

/// The character of a reference: by number, or one of the five that XML has by itself. Numbers may name characters that XML
/// 1.0 does not have: S3 writes and takes keys with control characters so.
fn referred(name: &BytesRef<'_>) -> Result<char, S3Error> {
    if let Some(char) = name.resolve_char_ref().map_err(malformed)? {
        return Ok(char);
    }
    match &**name {
        b"lt" => Ok('<'),
        b"gt" => Ok('>'),
        b"amp" => Ok('&'),
        b"apos" => Ok('\''),
        b"quot" => Ok('"'),
        _ => Err(malformed("The document refers to an entity that XML does not have.")),
    }
}
