//! Tokens of others (JWT, RFC 7519), such as those that Kubernetes projects into a pod: whose is this one?
//!
//! A token is taken apart here and not by the library, which checks the signature: so that there is one reading of it,
//! a name that stands twice is an error, and the time is the caller's. Taken is what RFC 8725 recommends: algorithms
//! that the rules list, keys that the rules name, and nothing that the token itself brings along.

mod json;
mod keys;
#[cfg(test)]
pub(crate) mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use jsonwebtoken::crypto::verify;

pub use keys::{KEYS_BYTES_MAX, KeysError, TokenKeys};

use self::json::{Member, Members};
use crate::identity::Identity;
use crate::mutants::{self, Mutant};
use crate::rules::Issuer;

/// Bytes of a token.
pub const TOKEN_BYTES_MAX: usize = 8 * 1024;
/// How far the clocks of an issuer and of this machine may be apart.
const LEEWAY: SignedDuration = SignedDuration::from_secs(60);
/// Bytes of a claim that rules can ask for.
const CLAIM_BYTES_MAX: usize = 1024;
/// Names in the head that say where to find a key, or what else to understand.
const FORBIDDEN: [&str; 8] = ["jwk", "jku", "x5u", "x5c", "crit", "enc", "zip", "b64"];

/// Why a token is nobody's. For the log: callers are told no more than that it is not good.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadToken {
    /// More bytes than a token has.
    #[error("it has more than {TOKEN_BYTES_MAX} bytes")]
    TooLong,
    /// It is no token.
    #[error("{0}")]
    Malformed(&'static str),
    /// Its head says something that is not taken.
    #[error("its head has `{0}`, which is not taken")]
    Head(&'static str),
    /// Its head names no key.
    #[error("its head has no `kid`")]
    NoKid,
    /// Rules name no issuer for it.
    #[error("no issuer in the rules has its `iss` and `aud`")]
    Issuer,
    /// It is for more than one of the audiences that rules name with its issuer.
    #[error("more than one issuer in the rules has its `iss` and `aud`")]
    Issuers,
    /// The issuer does not sign so.
    #[error("its issuer does not sign with the algorithm that it names")]
    Algorithm,
    /// The issuer has no such key; perhaps not yet: its keys may have changed since they were read.
    #[error("its issuer has no key with the id that it names, for its algorithm")]
    UnknownKey,
    /// Somebody else made it, or changed it.
    #[error("its signature is not that of its issuer's key")]
    Signature,
    /// A claim is missing or odd.
    #[error("its claim `{0}` is missing, or is not what it should be")]
    Claim(&'static str),
    /// It is not good yet.
    #[error("it is good from {0} on")]
    Early(Timestamp),
}

/// A token, taken apart. Nothing of it is to be believed.
pub struct Token<'text> {
    signed: &'text str,
    signature: &'text str,
    head: Members,
    claims: Members,
}

impl<'text> Token<'text> {
    /// Takes a text apart.
    pub fn parse(text: &'text str) -> Result<Self, BadToken> {
        if text.len() > TOKEN_BYTES_MAX {
            return Err(BadToken::TooLong);
        }
        let three = || {
            let (signed, signature) = text.rsplit_once('.')?;
            let (head, claims) = signed.split_once('.')?;
            (!claims.contains('.')).then_some((signed, signature, head, claims))
        };
        let (signed, signature, head, claims) =
            three().ok_or(BadToken::Malformed("it has not three parts"))?;
        let read = |part: &str| -> Option<Members> {
            serde_json::from_slice(&URL_SAFE_NO_PAD.decode(part).ok()?).ok()
        };
        let head = read(head).ok_or(BadToken::Malformed("its head is no JSON object"))?;
        let claims = read(claims).ok_or(BadToken::Malformed("its claims are no JSON object"))?;
        Ok(Self { signed, signature, head, claims })
    }

    /// Whose it says it is: the one to hold it against.
    pub fn issuer<'rules>(
        &self,
        issuers: impl Iterator<Item = &'rules Arc<Issuer>>,
    ) -> Result<&'rules Arc<Issuer>, BadToken> {
        let mut fitting = issuers.filter(|issuer| self.is_from(issuer));
        let issuer = fitting.next().ok_or(BadToken::Issuer)?;
        fitting.next().map_or(Ok(issuer), |_| Err(BadToken::Issuers))
    }

    fn is_from(&self, issuer: &Issuer) -> bool {
        let for_us = match self.claims.get("aud") {
            Some(Member::Texts(audiences)) => audiences.contains(&issuer.audience),
            Some(Member::Text(audience)) => *audience == issuer.audience,
            _ => false,
        };
        (for_us || mutants::is(Mutant::AudIgnored))
            && self.claims.text("iss") == Some(&issuer.issuer)
    }

    /// Who sent it.
    ///
    /// 1. The head: an algorithm that the issuer signs with, a key's id, and nothing that would bring its own.
    /// 2. The key with that id, if it is one for that algorithm; and with it the signature.
    /// 3. Whose it is and for whom, and that it is good already. Whether it has expired is for the rules to say
    ///    ([`Rules::caller`](crate::Rules::caller)), last of all: only whoever had a good one learns it.
    pub fn verified(
        &self,
        issuer: &Arc<Issuer>,
        keys: &TokenKeys,
        now: Timestamp,
    ) -> Result<Identity, BadToken> {
        // Step 1.
        if let Some(name) = FORBIDDEN.into_iter().find(|name| self.head.get(name).is_some()) {
            return Err(BadToken::Head(name));
        }
        let is_known = |typ: &Member| {
            typ.text().is_some_and(|typ| {
                typ.eq_ignore_ascii_case("jwt") || typ.eq_ignore_ascii_case("at+jwt")
            })
        };
        if !self.head.get("typ").is_none_or(is_known) {
            return Err(BadToken::Head("typ"));
        }
        let named = self.head.text("alg").ok_or(BadToken::Algorithm)?;
        let algorithm = issuer.algorithms.iter().find(|algorithm| algorithm.as_str() == named);
        let algorithm = *algorithm.ok_or(BadToken::Algorithm)?;
        let kid = self.head.text("kid").ok_or(BadToken::NoKid)?;

        // Step 2.
        let key = keys.find(kid, algorithm).ok_or(BadToken::UnknownKey)?;
        let is_good = verify(self.signature, self.signed.as_bytes(), key, algorithm.into());
        if !is_good.is_ok_and(|is_good| is_good) {
            return Err(BadToken::Signature);
        }

        // Step 3.
        if !self.is_from(issuer) {
            return Err(BadToken::Issuer);
        }
        let expires = self.claims.time("exp")?.ok_or(BadToken::Claim("exp"))?;
        if let Some(from) = self.claims.time("nbf")?
            && now < from.saturating_sub(LEEWAY).unwrap_or(Timestamp::MIN)
        {
            return Err(BadToken::Early(from));
        }
        let expires = expires.saturating_add(LEEWAY).unwrap_or(Timestamp::MAX);
        // It is how the token is revoked, and what the audit calls it.
        let is_id =
            |id: &str| (1..=256).contains(&id.len()) && id.bytes().all(|it| it.is_ascii_graphic());
        if let Some(id) = self.claims.get("jti")
            && !id.text().is_some_and(is_id)
        {
            return Err(BadToken::Claim("jti"));
        }
        let texts = self.claims.texts().filter(|(_, text)| text.len() <= CLAIM_BYTES_MAX);
        let claims: BTreeMap<_, _> =
            texts.map(|(name, text)| (name.to_owned(), text.to_owned())).collect();
        Ok(Identity::Jwt { issuer: Arc::clone(issuer), claims, expires })
    }
}
