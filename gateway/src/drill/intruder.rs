//! An intruder: another principal, who has learned the right token and the right id of the lock that is in force.

use fence_core::wire::Lock;
use reqwest::Method;
use serde_json::json;

use super::remote::under;
use super::report::Outcome;
use super::{Drill, Halt, KEY, Name};

/// What it tries, and the code of the refusal. To it the token was never sealed, and there is no such lock.
const UNKNOWN_TOKEN: (u16, &str) = (403, "fence-token-unknown");
const UNKNOWN_LOCK: (u16, &str) = (404, "lock-not-found");

impl Drill<'_> {
    /// Whatever the intruder does with what it knows must bounce: a write, a renewal, a release.
    pub(super) async fn intrude(&mut self, lock: &Lock) -> Result<(), Halt> {
        let name = ("intruder-write", "an intruder's write with the right token and id is refused");
        let path = format!("{}/objects/{KEY}", self.path);
        let call = self.remote.call_of_intruder(Method::PUT, &path);
        let call = under(call.body("an intruder's; nobody must ever read this"), lock);
        self.must_bounce(name, call, UNKNOWN_TOKEN).await?;

        let name = ("intruder-renewal", "an intruder's renewal of the lock is refused");
        let path = format!("/locks/{}/renew", lock.id);
        let call = self.remote.call_of_intruder(Method::POST, &path).json(&json!({}));
        self.must_bounce(name, call, UNKNOWN_LOCK).await?;

        let name = ("intruder-release", "an intruder's release of the lock is refused");
        let call = self.remote.call_of_intruder(Method::DELETE, &format!("/locks/{}", lock.id));
        self.must_bounce(name, call, UNKNOWN_LOCK).await
    }

    /// As [`Drill::refused`]; an intruder who is refused for want of a right shows nothing of whose the token is.
    async fn must_bounce(
        &mut self,
        name: Name,
        call: reqwest::RequestBuilder,
        (status, code): (u16, &str),
    ) -> Result<(), Halt> {
        let answer = self.answered(name, call).await?;
        let found = answer.code.as_deref().unwrap_or_default();
        if (answer.status, found) == (status, code) {
            self.tell(name, Outcome::Held, Some(&answer), None);
            return Ok(());
        }
        if ["permission-denied", "unauthenticated", "credential-expired"].contains(&found) {
            let why = "the intruder needs a credential of its own, and the rights of the drill";
            return Err(self.halt(name, Some(&answer), why));
        }
        let must = format!("must be {status} {code}: are rules of access in force?");
        self.tell(name, Outcome::Failed, Some(&answer), Some(must));
        Ok(())
    }
}
