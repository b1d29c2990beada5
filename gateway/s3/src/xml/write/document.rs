//! Makes a document of XML, element by element.

use jiff::Timestamp;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::xml::NAMESPACE;

/// Everything but the slash and what no URL has to encode.
const ENCODED: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'/');

/// A document in the making.
///
/// It escapes by itself, as quick-xml writes control characters as they are, which no parser takes.
pub(super) struct Document(String);

impl Document {
    /// A document with this root in the namespace of S3.
    pub(super) fn of(root: &'static str, content: impl FnOnce(&mut Self)) -> String {
        let mut document = Self::new();
        document.0.push_str(&format!("<{root} xmlns=\"{NAMESPACE}\">"));
        content(&mut document);
        document.0.push_str(&format!("</{root}>"));
        document.0
    }

    /// A document with this root without a namespace, as errors are.
    pub(super) fn bare(root: &'static str, content: impl FnOnce(&mut Self)) -> String {
        let mut document = Self::new();
        document.element(root, content);
        document.0
    }

    fn new() -> Self {
        Self("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n".to_owned())
    }

    /// An element with others in it.
    pub(super) fn element(&mut self, name: &'static str, content: impl FnOnce(&mut Self)) {
        self.tag("<", name);
        content(self);
        self.tag("</", name);
    }

    /// An element with text.
    pub(super) fn text(&mut self, name: &'static str, text: &str) {
        self.tag("<", name);
        self.escaped(text);
        self.tag("</", name);
    }

    /// An element with text, if there is one.
    pub(super) fn optional(&mut self, name: &'static str, text: Option<&str>) {
        if let Some(text) = text {
            self.text(name, text);
        }
    }

    /// A number, or `true` or `false`.
    pub(super) fn value(&mut self, name: &'static str, value: impl std::fmt::Display) {
        self.text(name, &value.to_string());
    }

    /// A time to the second, with milliseconds that are zero: so S3 writes it, and so it is the same as in the headers of
    /// the object.
    pub(super) fn time(&mut self, name: &'static str, time: Timestamp) {
        self.text(name, &time.strftime("%Y-%m-%dT%H:%M:%S.000Z").to_string());
    }

    /// A key, or a piece of one.
    pub(super) fn key(&mut self, name: &'static str, key: &str, url_encoded: bool) {
        match url_encoded {
            true => self.text(name, &utf8_percent_encode(key, ENCODED).to_string()),
            false => self.text(name, key),
        }
    }

    /// Text of the element itself.
    pub(super) fn plain(&mut self, text: &str) {
        self.escaped(text);
    }

    /// The one element with an attribute that clients read: who is granted something is a user.
    pub(super) fn grantee(&mut self, content: impl FnOnce(&mut Self)) {
        let instance = "http://www.w3.org/2001/XMLSchema-instance";
        self.0.push_str(&format!("<Grantee xmlns:xsi=\"{instance}\" xsi:type=\"CanonicalUser\">"));
        content(self);
        self.tag("</", "Grantee");
    }

    fn tag(&mut self, open: &str, name: &str) {
        self.0.push_str(open);
        self.0.push_str(name);
        self.0.push('>');
    }

    /// Characters that XML 1.0 does not have are written by number, as S3 does: strict parsers refuse even that, and whoever
    /// has such keys asks for them encoded as in a URL. So is the carriage return, which parsers would change.
    fn escaped(&mut self, text: &str) {
        for char in text.chars() {
            match char {
                '&' => self.0.push_str("&amp;"),
                '<' => self.0.push_str("&lt;"),
                '>' => self.0.push_str("&gt;"),
                '"' => self.0.push_str("&quot;"),
                '\t' | '\n' => self.0.push(char),
                // Not even by number. No key has it, but what is told of a bad request may.
                '\0' => self.0.push(char::REPLACEMENT_CHARACTER),
                '\u{0}'..='\u{1f}' | '\u{fffe}' | '\u{ffff}' => {
                    self.0.push_str(&format!("&#x{:X};", u32::from(char)));
                }
                _ => self.0.push(char),
            }
        }
    }
}
