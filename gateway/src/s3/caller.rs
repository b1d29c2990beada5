//! Who sends a request, by the key that signed it. The key says under which token it writes, and nothing else does (I18).

use axum::http::Method;
use axum::http::request::Parts;
use fence_core::{ErrorCode, LockId, Token};
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::key::{Named, Rights};
use fencegate_s3::operation::{is_form, no_forms};
use fencegate_s3::sign::{PayloadHash, RequestHead, Shown, Verified};

use super::Front;
use super::failure::Failure;
use crate::config::S3Anonymous;
use crate::engine::access::Asks;
use crate::http::Problem;
use crate::http::extract::{lock_id_of, token_of};
use crate::http::peers::Counted;

/// Who asks, and what it writes under.
pub struct Caller {
    /// What it may do.
    pub asks: Asks,
    /// The token that it writes under, if any, and its lock.
    pub fence: Option<(Token, Option<LockId>)>,
    /// What it may do where no rules are in force.
    pub rights: Rights,
    /// Whether it has shown no key.
    pub is_anonymous: bool,
    /// What is signed of the body.
    pub verified: Verified,
    /// Against whose shares it counts.
    pub counted: Counted,
}

/// Finds out who sends a request.
///
/// 1. The signature is read. Without one the caller is nobody, who may read if the settings say so and no rules are in force.
/// 2. The key's id says what it names: a lock and its token, a principal, or whoever has it.
/// 3. The signature is checked: from here on the caller is who it says.
/// 4. What it may do, by the rules in force now. Of a lock's key: what the principal may do that took the lock, as long as
///    the credential is good to which the lock belongs; the lock must be known still, also if it has ended.
/// 5. What it writes under: of a lock's key its token, whatever headers say; of other keys what signed headers say.
pub async fn find(front: &Front, parts: &Parts) -> Result<Caller, Failure> {
    // Step 1.
    let head = RequestHead {
        method: &parts.method,
        raw_path: parts.uri.path(),
        raw_query: parts.uri.query().unwrap_or_default(),
        headers: &parts.headers,
    };
    let Some(shown) = Shown::of(&head)? else { return nobody(front, parts).await };
    // Step 2.
    let kept = front.signing_keys.of(&front.settings.keys, &shown);
    let kept = kept.ok_or(S3Code::InvalidAccessKeyId)?;
    // Step 3.
    let now = front.app.engine.runtime().clock.now();
    let verified = shown.verify(&kept.key, now)?;
    // Steps 4 and 5.
    let access = front.app.engine.access();
    let (asks, fence, rights) = match kept.named {
        Named::Lock { token, lock } => {
            let asks = front.app.engine.asks_of_s3_lock(token, lock).await?;
            agrees(parts, token)?;
            (asks, Some((token, Some(lock))), Rights::Read)
        }
        Named::Principal { kid } => {
            (access.of_s3_key(&kid).await?, fence_of_headers(parts)?, Rights::Read)
        }
        Named::Anyone(rights) => {
            let asks = access.of_holder(None).await?;
            let fence = fence_of_headers(parts)?;
            if fence.is_some() && rights == Rights::Read {
                let why = "This access key is for reading.";
                return Err(S3Error::new(S3Code::AccessDenied, why).into());
            }
            (asks, fence, rights)
        }
    };
    let counted = Counted::of(asks.known(), &parts.extensions);
    Ok(Caller { asks, fence, rights, is_anonymous: false, verified, counted })
}

async fn nobody(front: &Front, parts: &Parts) -> Result<Caller, Failure> {
    if parts.method == Method::POST && is_form(&parts.headers) {
        return Err(no_forms().into());
    }
    let reads = [Method::GET, Method::HEAD].contains(&parts.method);
    if front.settings.anonymous != S3Anonymous::Read || !reads {
        return Err(S3Code::AccessDenied.into());
    }
    // Under rules somebody has to be named.
    let asks = front.app.engine.access().of_holder(None).await;
    let asks = asks.map_err(|error| match error.code() {
        ErrorCode::Unauthenticated => S3Code::AccessDenied.into(),
        _ => Failure::from(error),
    })?;
    let verified = Verified { payload: PayloadHash::Unsigned, seed: None };
    let counted = Counted::of(None, &parts.extensions);
    let (fence, rights) = (None, Rights::Read);
    Ok(Caller { asks, fence, rights, is_anonymous: true, verified, counted })
}

/// A lock's key writes under its own token: a header that says another is a mistake that must not go unnoticed.
fn agrees(parts: &Parts, token: Token) -> Result<(), Failure> {
    match token_of(&parts.headers)? {
        Some(other) if other != token => {
            let why =
                "X-Fence-Token is another token than that of the lock whose access key signed this";
            Err(Problem::new(ErrorCode::FenceTokenMalformed, why).into())
        }
        _ => Ok(()),
    }
}

/// `X-Fence-Token` and `X-Lock-Id`. The signature covers the first: none that is there is left out of it.
fn fence_of_headers(parts: &Parts) -> Result<Option<(Token, Option<LockId>)>, Failure> {
    let Some(token) = token_of(&parts.headers)? else { return Ok(None) };
    Ok(Some((token, lock_id_of(&parts.headers)?)))
}
