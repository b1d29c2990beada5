//! What must hold of an answer, given what was there before and after it.

use axum::http::Method;
use fence_core::{ErrorCode, LockState, Token, wire};
use serde_json::Value;

use super::clock::LOCKS;
use super::script::{Call, Granted};
use super::{Answer, Views};

/// The gateway has not failed, and an error is a problem document that agrees with its status.
pub(super) fn is_sound(call: &Call, answer: &Answer) {
    let what = || format!("{} {}: {} {:?}", call.method, call.uri, answer.status, answer.body);
    let status = answer.status.as_u16();
    assert!(status < 500, "{}", what());
    assert!(!answer.header("x-request-id").is_empty(), "{}", what());
    if status < 400 {
        return;
    }
    assert_eq!(answer.header("content-type"), "application/problem+json", "{}", what());
    if call.method == Method::HEAD {
        assert!(answer.body.is_empty());
        return;
    }
    let problem: wire::Problem = serde_json::from_slice(&answer.body).expect("a problem document");
    let code =
        ErrorCode::ALL.iter().find(|code| code.as_str() == problem.code).expect("a known code");
    assert_eq!((problem.status, code.status()), (status, status), "{}", what());
    assert_eq!(problem.request_id, answer.header("x-request-id"));
    assert_eq!(problem.retryable, code.retryable());
    assert!(!problem.detail.is_empty());
    if problem.code.starts_with("fence-token-") {
        assert_eq!(answer.header("x-fence-verdict"), "refused", "{}", what());
    }
}

/// Whether this call may answer with a token and an id.
fn hands_out(call: &Call) -> bool {
    let path = call.uri.path();
    match call.method {
        Method::POST => path.starts_with("/locks") || path.ends_with("/fence"),
        Method::GET | Method::HEAD => path.starts_with("/locks/"),
        _ => false,
    }
}

/// Nobody is shown a token in force, or the id of a lock, who has not said it before.
pub(super) fn keeps_secrets(
    call: &Call,
    answer: &Answer,
    said: &[u8],
    before: &Views,
    after: &Views,
) {
    if hands_out(call) && answer.status.is_success() {
        return;
    }
    let shown = [format!("{:?}", answer.headers).as_bytes(), &answer.body].concat();
    let holds =
        |text: &[u8], word: &str| text.windows(word.len()).any(|window| window == word.as_bytes());
    let presented: Vec<_> = call.headers.get_all("x-fence-token").iter().collect();
    // The tokens of locks that were given back or broken will never be good again.
    let ended = |state| matches!(state, LockState::Released | LockState::Broken);
    for view in before.values().chain(after.values()).filter(|view| !ended(view.state)) {
        let token = view.token.to_string();
        let presented = presented.iter().any(|line| holds(line.as_bytes(), &token));
        let known = presented || holds(said, &token);
        assert!(known || !holds(&shown, &token), "{} shows {token}", call.uri);
    }
    assert!(holds(said, LOCKS) || !holds(&shown, LOCKS), "{} shows an id", call.uri);
}

/// Nothing falls and nothing vanishes, and what rises was written under the token granted last.
pub(super) fn versions(call: &Call, answer: &Answer, before: &Views, after: &Views) {
    for (name, was) in before {
        let is = &after[name];
        assert!(is.token >= was.token, "the fence of {name} fell");
        assert!(is.version >= was.version, "the version of {name} fell");
    }
    for (name, is) in after {
        let was = before.get(name);
        let version = was.map_or(0, |was| was.version);
        if is.version == version {
            assert!(is.objects == was.map_or(0, |was| was.objects), "objects without a version");
            continue;
        }
        let what = format!("{} {} wrote {name}: {}", call.method, call.uri, answer.status);
        assert_eq!(is.version, version + 1, "{what}");
        let was = was.expect("written before it was locked");
        let tokens: Vec<_> = call.headers.get_all("x-fence-token").iter().collect();
        let [token] = tokens[..] else { panic!("{what}, without one token") };
        assert_eq!(Token::parse(token.as_bytes()).ok(), Some(was.token), "{what}");
        assert!(!matches!(was.state, LockState::Released | LockState::Broken), "{what}");
        assert!(was.frozen.is_none(), "{what}");
        assert!(answer.status.is_success(), "{what}");
        assert_eq!(answer.header("x-fence-verdict"), "admitted", "{what}");
        let path = call.uri.path();
        let one = call.method == Method::PUT || call.method == Method::DELETE;
        assert!(one || (call.method == Method::POST && path == "/commit"), "{what}");
    }
}

/// The path of an object that this call has just stored.
pub(super) fn stored<'c>(call: &'c Call, answer: &Answer) -> Option<&'c str> {
    let admitted = answer.header("x-fence-verdict") == "admitted" && answer.status.is_success();
    (call.method == Method::PUT && admitted).then(|| call.uri.path())
}

/// A reader gets what was put.
pub(super) fn reads_back(put: &Call, read: &Answer) {
    assert_eq!(read.status.as_u16(), 200, "{}", put.uri);
    assert_eq!(read.body, put.body, "{}", put.uri);
    let kind = put.headers.get("content-type");
    let kind = kind.map_or(&b"application/octet-stream"[..], |kind| kind.as_bytes());
    assert_eq!(read.header("content-type").as_bytes(), kind);
}

/// The token and the id that an answer hands out.
pub(super) fn grant(call: &Call, answer: &Answer) -> Option<Granted> {
    if call.method != Method::POST || !answer.status.is_success() {
        return None;
    }
    let value: Value = serde_json::from_slice(&answer.body).ok()?;
    let token = value["token"].as_str()?.to_owned();
    Some(Granted { token, id: value["id"].as_str().unwrap_or_default().to_owned() })
}
