//! Keys and tokens in `Authorization`.

use std::sync::Arc;

use axum::http::{HeaderMap, Uri, header};
use fence_core::ErrorCode;
use fencegate_access::jwt::{BadToken, TOKEN_BYTES_MAX, Token};
use fencegate_access::{ApiKey, Identity, Rules};
use jiff::Timestamp;
use sha2::{Digest as _, Sha256};

use super::{Found, Issuers};
use crate::engine::access::{InForce, Known, not_let_in};
use crate::engine::error::EngineError;
use crate::http::problem::Problem;

/// What a key begins with: nothing else in a URL does.
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

/// Who shows this, under the rules that are in force.
///
/// 1. One that was found good under the same rules, and has not expired, is not looked at again.
/// 2. A key is held against the rules, which take as long for one that nobody has.
/// 3. A token is held against the keys of its issuer; if those have no key of that id, they are read once more.
pub(super) async fn known(
    issuers: &Issuers,
    in_force: &InForce,
    rules: &Rules,
    text: &str,
    now: Timestamp,
) -> Found {
    // Step 1.
    let digest = Sha256::digest(text).into();
    if let Some(known) = in_force.kept(&digest, now) {
        return Ok(known);
    }
    // Steps 2 and 3.
    let identity = match ApiKey::parse(text) {
        Some(key) => Identity::Key(key),
        None => token(issuers, in_force, rules, text, now).await.map_err(|why| {
            tracing::info!(%why, "a token was not accepted");
            EngineError::Unauthenticated
        })?,
    };
    let identity = Arc::new(identity);
    let caller = rules.caller(&identity, now).map_err(|why| not_let_in(&why))?;
    let known = Known { identity, caller: Arc::new(caller) };
    in_force.keep(digest, &known);
    Ok(known)
}

async fn token(
    issuers: &Issuers,
    in_force: &InForce,
    rules: &Rules,
    text: &str,
    now: Timestamp,
) -> Result<Identity, BadToken> {
    if text.len() > TOKEN_BYTES_MAX {
        return Err(BadToken::TooLong);
    }
    let token = Token::parse(text)?;
    let issuer = token.issuer(rules.issuers())?;
    let keys = issuers.keys(issuer, in_force).await.ok_or(BadToken::UnknownKey)?;
    match token.verified(issuer, &keys, now) {
        Err(BadToken::UnknownKey) => {
            let fresh = issuers.fresh_keys(issuer, in_force, &keys).await;
            let fresh = fresh.ok_or(BadToken::UnknownKey)?;
            token.verified(issuer, &fresh, now)
        }
        outcome => outcome,
    }
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
