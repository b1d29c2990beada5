//! Keys and tokens in `Authorization`.

use std::sync::Arc;

use axum::http::{HeaderMap, Uri, header};
use fence_core::ErrorCode;
use fencegate_access::jwt::{BadToken, TOKEN_BYTES_MAX, Token, TokenKeys};
use fencegate_access::{ApiKey, Identity, Rules};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{Found, Issuers};
use crate::engine::access::{InForce, Known, not_let_in};
use crate::engine::error::EngineError;
use crate::http::problem::Problem;

/// What a key begins with: nothing else in a URL or a credential does.
const KEY: &str = "fgk_";

/// The bearer credential of a request, if it has one.
///
/// # Errors
/// `credentials-conflict`: two, or one in the URL, where logs and proxies keep it. `unauthenticated`: one of another kind.
pub(super) fn bearer<'r>(headers: &'r HeaderMap, uri: &Uri) -> Result<Option<&'r str>, Problem> {
    let conflict = |why| Err(Problem::new(ErrorCode::CredentialsConflict, why));
    let in_query = |query: &str| query.contains(KEY) || query.contains("access_token=");
    if uri.query().is_some_and(in_query) {
        return conflict(
            "a credential in a URL is in every log on its way: send it in Authorization, and replace it",
        );
    }
    let mut lines = headers.get_all(header::AUTHORIZATION).iter();
    let line = match (lines.next(), lines.next()) {
        (None, _) => return Ok(None),
        (Some(line), None) => line,
        (Some(_), Some(_)) => return conflict("send one line of Authorization"),
    };
    let credential = line.to_str().ok().and_then(|line| {
        let (scheme, credential) = line.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(credential.trim_start_matches(' '))
    });
    match credential {
        Some(credential) => Ok(Some(credential)),
        None => Err(EngineError::Unauthenticated.into()),
    }
}

/// What a bearer credential looks like, for the metrics.
pub(super) fn kind(text: &str) -> &'static str {
    if text.starts_with(KEY) { "key" } else { "jwt" }
}

/// Who shows this, under the rules that are in force.
///
/// 1. One that was found good under the same rules, and has not expired, is not looked at again; a token while its issuer
///    has the keys that it was verified with.
/// 2. A key is held against the rules, which take as long for one that nobody has.
/// 3. A token is held against the keys of its issuer; if those have no key of that id, they are read once more. Not where
///    somebody guesses: a signature takes long.
pub(super) async fn known(
    issuers: &Issuers,
    in_force: &InForce,
    rules: &Rules,
    (text, guesses): (&str, bool),
    now: Timestamp,
) -> Found {
    // Step 1.
    let digest = Sha256::digest(text).into();
    if let Some(known) = in_force.kept(&digest, now)
        && is_still_signed(issuers, &known).await
    {
        return Ok(known);
    }
    // Steps 2 and 3.
    let (identity, keys) = match ApiKey::parse(text) {
        Some(key) => (Identity::Key(key), None),
        None if guesses => return Err(EngineError::Unauthenticated),
        None => {
            let token = token(issuers, rules, text, now).await.map_err(|why| {
                tracing::info!(%why, "a token was not accepted");
                EngineError::Unauthenticated
            })?;
            (token.0, Some(token.1))
        }
    };
    let identity = Arc::new(identity);
    let caller = rules.caller(&identity, now).map_err(|why| match guesses {
        true => EngineError::Unauthenticated,
        false => not_let_in(&why),
    })?;
    let known = in_force.found(identity, caller, keys);
    in_force.keep(digest, &known);
    Ok(known)
}

/// Whether the keys that a token was verified with are still those of its issuer: one that is withdrawn lets nobody in any
/// more, whom it has let in before.
async fn is_still_signed(issuers: &Issuers, known: &Known) -> bool {
    let (Identity::Jwt { issuer, .. }, Some(by)) = (&*known.identity, &known.keys) else {
        return true;
    };
    issuers.keys(issuer).await.is_some_and(|keys| Arc::ptr_eq(&keys, by))
}

async fn token(
    issuers: &Issuers,
    rules: &Rules,
    text: &str,
    now: Timestamp,
) -> Result<(Identity, Arc<TokenKeys>), BadToken> {
    if text.len() > TOKEN_BYTES_MAX {
        return Err(BadToken::TooLong);
    }
    let token = Token::parse(text)?;
    let issuer = token.issuer(rules.issuers())?;
    let mut keys = issuers.keys(issuer).await.ok_or(BadToken::UnknownKey)?;
    let mut outcome = token.verified(issuer, &keys, now);
    if matches!(outcome, Err(BadToken::UnknownKey)) {
        keys = issuers.fresh_keys(issuer, &keys).await.ok_or(BadToken::UnknownKey)?;
        outcome = token.verified(issuer, &keys, now);
    }
    Ok((outcome?, keys))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(lines: &[&'static str], uri: &str) -> Result<Option<String>, ErrorCode> {
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header::AUTHORIZATION, axum::http::HeaderValue::from_static(line));
        }
        let found = bearer(&headers, &uri.parse().expect("a URI"));
        found.map(|found| found.map(str::to_owned)).map_err(|problem| problem.code())
    }

    #[test]
    fn one_line_of_one_kind_is_taken() {
        assert_eq!(of(&[], "/locks"), Ok(None));
        for good in ["Bearer abc", "bearer abc", "BEARER  abc"] {
            assert_eq!(of(&[good], "/locks"), Ok(Some("abc".into())), "{good}");
        }
        for bad in ["Basic YTpi", "abc", "Bearer", "Bearerabc"] {
            assert_eq!(of(&[bad], "/locks"), Err(ErrorCode::Unauthenticated), "{bad}");
        }
        let conflict = Err(ErrorCode::CredentialsConflict);
        assert_eq!(of(&["Bearer a", "Bearer a"], "/locks"), conflict);
        assert_eq!(of(&[], "/locks?key=fgk_a_b_c"), conflict);
        assert_eq!(of(&["Bearer a"], "/locks?access_token=x"), conflict);
    }
}
