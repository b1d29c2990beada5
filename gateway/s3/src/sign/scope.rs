//! Who signed, and for which day, region and service: `FG1.../20130524/us-east-1/s3/aws4_request`.

use std::borrow::Cow;

/// The longest id of a key, in characters. Ours are shorter; longer ones need not be looked at.
const ID_LEN_MAX: usize = 128;
/// The longest name of a region, in characters.
const REGION_LEN_MAX: usize = 64;

/// A credential, which is an id and what follows it.
#[derive(Debug, Clone)]
pub(super) struct Credential<'a> {
    text: Cow<'a, str>,
    id_len: usize,
}

impl<'a> Credential<'a> {
    /// Reads one, or says what is wrong with it.
    pub(super) fn parse(text: Cow<'a, str>) -> Result<Self, &'static str> {
        const FORM: &str = "Credential is ID/yyyymmdd/REGION/s3/aws4_request";
        let mut parts = text.split('/');
        let mut next = || parts.next().ok_or(FORM);
        let (id, day, region, service, end) = (next()?, next()?, next()?, next()?, next()?);
        if parts.next().is_some() || end != "aws4_request" {
            return Err(FORM);
        }
        if service != "s3" {
            return Err("the service in Credential must be s3");
        }
        let is_word =
            |text: &str, max| text.len() <= max && text.bytes().all(|byte| byte.is_ascii_graphic());
        // DuckDB has no region if it is told none.
        if id.is_empty() || !is_word(id, ID_LEN_MAX) || !is_word(region, REGION_LEN_MAX) {
            return Err(
                "the id in Credential is empty, or it or the region is too long or not printable",
            );
        }
        if day.len() != 8 || !day.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err("the day in Credential is yyyymmdd");
        }
        let id_len = id.len();
        Ok(Self { text, id_len })
    }

    /// The id of the key.
    pub(super) fn id(&self) -> &str {
        &self.text[..self.id_len]
    }

    /// What is signed of it: all that follows the id.
    pub(super) fn scope(&self) -> &str {
        &self.text[self.id_len + 1..]
    }

    /// `yyyymmdd`.
    pub(super) fn day(&self) -> &str {
        &self.scope()[..8]
    }

    /// The region.
    pub(super) fn region(&self) -> &str {
        let rest = &self.scope()[9..];
        rest.split_once('/').map_or(rest, |(region, _)| region)
    }
}
