//! The steps of a drill. Each asks the gateway once, or until it is so, and tells what it saw.

use std::time::Duration;

use fence_core::wire::{
    Lock, ObjectList, PartState, Readiness, RejectionList, Resource, VersionList, Written,
};
use reqwest::{Method, RequestBuilder};
use serde_json::json;

use super::remote::{Answer, segment, under};
use super::report::Outcome;
use super::{CONTENT_TYPE, Drill, Halt, KEY, Name, OWNER};

/// Time that is kept for the steps after the takeover.
const KEPT: Duration = Duration::from_secs(2);
/// The longest and the shortest wait in line, in one call.
const WAITS: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(50));
/// How often `/rejections` is asked.
const POLL: Duration = Duration::from_millis(100);
/// How long the second holder's lock lasts: it ends by itself if the drill is killed.
const SECOND_TTL: &str = "60s";

impl Drill<'_> {
    pub(super) async fn ready(&mut self) -> Result<(), Halt> {
        let name = ("ready", "the gateway is ready");
        let call = self.remote.call(Method::GET, "/readyz?grants=1");
        let answer = self.answered(name, call).await?;
        let Some(readiness) = answer.parse::<Readiness>() else {
            let stranger = "this does not look like a Fencegate: its /readyz is another";
            return Err(self.halt(name, Some(&answer), stranger));
        };
        let parts: Vec<String> = readiness.parts.iter().map(part).collect();
        let parts = parts.join(", ");
        match readiness.ready && answer.status == 200 {
            true => self.tell(name, Outcome::Held, Some(&answer), Some(parts)),
            false => return Err(self.halt(name, Some(&answer), parts)),
        }
        Ok(())
    }

    /// What others use is left alone, even if its lock is free at the moment.
    pub(super) async fn unused(&mut self) -> Result<(), Halt> {
        let name = ("canary", "the canary resource is used by nobody else");
        let answer = self.answered(name, self.remote.call(Method::GET, &self.path)).await?;
        if answer.status == 404 && answer.code.as_deref() == Some("resource-not-found") {
            self.tell(
                name,
                Outcome::Held,
                Some(&answer),
                Some(format!("{} is new", self.resource)),
            );
            return Ok(());
        }
        let Some(found) = answer.parse::<Resource>().filter(|_| answer.status == 200) else {
            return Err(self.not_understood(name, &answer));
        };
        if !found.owner.starts_with(OWNER) {
            let owner =
                format!("{} was locked by {:?}; choose another", self.resource, found.owner);
            return Err(self.halt(name, Some(&answer), owner));
        }
        let call = self.remote.call(Method::GET, &format!("{}/objects", self.path));
        let answer = self.answered(name, call).await?;
        let Some(objects) = answer.parse::<ObjectList>().filter(|_| answer.status == 200) else {
            return Err(self.not_understood(name, &answer));
        };
        let foreign = |key: &str, kind: &str| key != KEY || kind != CONTENT_TYPE;
        if let Some(object) = objects.items.iter().find(|o| foreign(&o.key, &o.content_type)) {
            let holds = format!("{} holds {:?}; choose another", self.resource, object.key);
            return Err(self.halt(name, Some(&answer), holds));
        }
        let known = format!("{} is an earlier drill's", self.resource);
        self.tell(name, Outcome::Held, Some(&answer), Some(known));
        Ok(())
    }

    pub(super) async fn take(&mut self, name: Name, ttl: &str) -> Result<Lock, Halt> {
        let (lock, answer) = self.granted(name, "first holder", ttl, Duration::ZERO).await?;
        let told = format!("token {}", lock.token);
        self.tell(name, Outcome::Held, Some(&answer), Some(told));
        Ok(lock)
    }

    /// Stands in line until the first holder's lock has lapsed.
    pub(super) async fn take_over(&mut self, first: &Lock) -> Result<Lock, Halt> {
        let name = ("takeover", "the lock lapses, and a second holder gets a higher token");
        let wait = self.remote.left().saturating_sub(KEPT).clamp(WAITS.0, WAITS.1);
        let (second, answer) = self.granted(name, "second holder", SECOND_TTL, wait).await?;
        let told = format!("token {} after {}", second.token, first.token);
        let rises = second.token > first.token;
        let outcome = if rises { Outcome::Held } else { Outcome::Failed };
        self.tell(name, outcome, Some(&answer), Some(told));
        Ok(second)
    }

    async fn granted(
        &mut self,
        name: Name,
        who: &str,
        ttl: &str,
        wait: Duration,
    ) -> Result<(Lock, Answer), Halt> {
        let id = fence_core::LockId(self.ids.uuid());
        self.asked.push(id);
        let body = json!({
            "resource": self.resource,
            "id": id,
            "owner": format!("{OWNER}, {who}"),
            "ttl": ttl,
            "wait": format!("{}ms", wait.as_millis()),
        });
        let call = self.remote.call(Method::POST, "/locks").json(&body);
        let answer = self.answered(name, call).await?;
        match answer.parse::<Lock>().filter(|_| answer.status == 201) {
            Some(lock) => {
                self.holder = Some(lock.clone());
                Ok((lock, answer))
            }
            None => Err(self.not_understood(name, &answer)),
        }
    }

    /// A put of the canary's object.
    pub(super) fn put(&self, text: &str) -> RequestBuilder {
        let call = self.remote.call(Method::PUT, &format!("{}/objects/{KEY}", self.path));
        call.header("content-type", CONTENT_TYPE).body(format!("fencegate drill: {text}\n"))
    }

    pub(super) async fn write(
        &mut self,
        name: Name,
        lock: &Lock,
        text: &str,
    ) -> Result<Written, Halt> {
        let answer = self.answered(name, under(self.put(text), lock)).await?;
        match answer.parse::<Written>().filter(|_| answer.is_success()) {
            Some(written) => {
                let told = format!("version {}", written.version);
                self.tell(name, Outcome::Held, Some(&answer), Some(told));
                Ok(written)
            }
            None => Err(self.not_understood(name, &answer)),
        }
    }

    /// A write that must be answered like this. Otherwise the drill goes on, to see what it did.
    pub(super) async fn refused(
        &mut self,
        name: Name,
        call: RequestBuilder,
        status: u16,
        code: &str,
    ) -> Result<(), Halt> {
        let answer = self.answered(name, call).await?;
        if answer.status == status && answer.code.as_deref() == Some(code) {
            self.tell(name, Outcome::Held, Some(&answer), None);
        } else {
            let must = format!("must be {status} {code}");
            self.tell(name, Outcome::Failed, Some(&answer), Some(must));
        }
        Ok(())
    }

    /// What a reader sees of the object.
    pub(super) async fn reads(&mut self, name: Name, text: &str) -> Result<(), Halt> {
        let call = self.remote.call(Method::GET, &format!("{}/objects/{KEY}", self.path));
        let answer = self.answered(name, call).await?;
        if answer.status == 200 && answer.body() == format!("fencegate drill: {text}\n").as_bytes()
        {
            self.tell(name, Outcome::Held, Some(&answer), None);
        } else {
            let body = String::from_utf8_lossy(answer.body());
            let seen = format!("it reads {:?}", body.chars().take(100).collect::<String>());
            self.tell(name, Outcome::Failed, Some(&answer), Some(seen));
        }
        Ok(())
    }

    pub(super) async fn history(
        &mut self,
        before: i64,
        one: &Written,
        two: &Written,
    ) -> Result<(), Halt> {
        let name = ("history", "the history holds the two admitted writes and no other");
        let call = self.remote.call(Method::GET, &format!("{}/versions", self.path));
        let answer = self.answered(name, call).await?;
        let Some(list) = answer.parse::<VersionList>().filter(|_| answer.status == 200) else {
            return Err(self.not_understood(name, &answer));
        };
        let written = list.items.iter().filter(|item| item.version > before);
        let written: Vec<_> = written.map(|item| (item.version, item.operation)).collect();
        let must = [(before + 2, two.operation), (before + 1, one.operation)];
        let versions: Vec<i64> = written.iter().rev().map(|(version, _)| *version).collect();
        let outcome = if written == must { Outcome::Held } else { Outcome::Failed };
        self.tell(name, outcome, Some(&answer), Some(format!("versions {versions:?}")));
        Ok(())
    }

    /// Refusals are stored behind the answer, so this one is waited for.
    pub(super) async fn rejection(&mut self, first: &Lock) -> Result<(), Halt> {
        let name = ("rejection", "the late write is shown in /rejections");
        let token = first.token.to_string();
        let of = segment(self.resource.as_str());
        let path = format!("/rejections?resource={of}&reason=fence-token-stale");
        loop {
            let call = self.remote.call(Method::GET, &path);
            let answer = self.answered(name, call).await?;
            let Some(list) = answer.parse::<RejectionList>().filter(|_| answer.status == 200)
            else {
                return Err(self.not_understood(name, &answer));
            };
            let shown = |presented: &Option<String>| presented.as_ref() == Some(&token);
            if list.items.iter().any(|item| shown(&item.presented_token)) {
                self.tell(name, Outcome::Held, Some(&answer), None);
                return Ok(());
            }
            if self.remote.left() < KEPT {
                let late = "it has not shown up in time".to_owned();
                self.tell(name, Outcome::Failed, Some(&answer), Some(late));
                return Ok(());
            }
            self.clock.sleep(POLL).await;
        }
    }
}

fn part(state: &PartState) -> String {
    match (&state.detail, state.ready) {
        (_, true) => format!("{} works", state.part),
        (Some(detail), false) => format!("{} does not: {detail}", state.part),
        (None, false) => format!("{} does not", state.part),
    }
}
