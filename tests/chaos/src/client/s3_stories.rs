//! What callers of S3 do: the same kinds of stories, under the keys of their locks.

use std::time::Duration;

use fence_history::{Answer, Change, FencedWrite};

use super::Client;
use super::s3::{KEPT, S3Lock, Upload};
use super::stories::{OBJECTS, S3_PLAIN, S3_SETS, SET_GROWS_US, Told};
use crate::line::moment;

/// The longest upload that is one part, in bytes; and how much more than one part others are.
const ONE_PART: u64 = 200_000;
const TWO_PARTS: u64 = (5 << 20) + 10_000;

impl Client {
    /// A story.
    pub(super) async fn live_by_s3(&mut self) {
        match self.draw(0, 100) {
            0..30 => self.add_to_a_set_by_s3().await,
            30..62 => self.put_and_delete_by_s3().await,
            62..82 => self.upload_in_parts().await,
            82..89 => self.complete_for_another().await,
            89..96 => self.come_late_by_s3().await,
            _ => self.look_by_s3().await,
        }
    }

    /// Takes a lock on a resource of a bucket.
    async fn acquire_s3(&mut self, on: &str) -> Option<(super::Held, S3Lock)> {
        let wait = self.wait();
        let held = self.acquire(&[on], wait).await?;
        let (token, resource) = (held.token, on.to_owned());
        // A lock whose turn has not come has no key yet.
        let key = held.s3.clone()?;
        let by = S3Lock { key, principal: self.principal, token, resource };
        self.shared.s3_locks.remember(by.clone());
        Some((held, by))
    }

    /// An upload that somebody has begun lately.
    fn any_upload(&mut self) -> Option<Upload> {
        let at = self.draw(0, KEPT as u64);
        self.shared.uploads.any(at)
    }

    /// A lock that somebody has, or had lately.
    fn any_s3_lock(&mut self) -> Option<S3Lock> {
        let at = self.draw(0, KEPT as u64);
        self.shared.s3_locks.any(at)
    }

    /// How a lock ends: given back; lost by a pause, after which its holder goes on as if nothing had happened; or left
    /// behind.
    async fn part_by_s3(&mut self, held: &super::Held, by: &S3Lock) {
        match self.draw(0, 100) {
            0..72 => {
                self.release(held).await;
            }
            72..88 => {
                self.pause(1500, 3500).await;
                self.go_on(by).await;
            }
            _ => {}
        }
    }

    /// Whatever a holder may do, under a lock that it may not have any more.
    async fn go_on(&mut self, by: &S3Lock) {
        match self.draw(0, 6) {
            0..2 => {
                let wish = self.put(&by.resource.clone(), by.token);
                self.change(by, &wish, None).await;
            }
            2 => self.delete_many(by, &OBJECTS).await,
            3 => {
                let object = self.any_of(&OBJECTS);
                self.put_in_parts(by, object).await;
            }
            4 => {
                if let Some(upload) = self.any_upload() {
                    self.abort(by, &upload).await;
                }
            }
            _ => {
                if let Some(upload) = self.any_upload() {
                    self.complete(by, &upload).await;
                }
            }
        }
    }

    /// Reads a set, adds a number and writes it back, if the set is still what it read.
    async fn add_to_a_set_by_s3(&mut self) {
        let on = self.any_of(&S3_SETS);
        let Some((held, by)) = self.acquire_s3(on).await else { return };
        let set = format!("set-{}", moment() / SET_GROWS_US);
        for _ in 0..self.draw(1, 12) {
            let Some(found) = self.get(&by, &set).await else { break };
            self.think().await;
            self.count += 1;
            let number = u64::from(self.number) * 1_000_000 + self.count;
            let (value, condition) = match &found {
                Some(found) => {
                    (format!("{} {number}", found.value), ("if-match", found.tag.to_string()))
                }
                None => (number.to_string(), ("if-none-match", "*".to_owned())),
            };
            let wish = FencedWrite {
                idempotency_key: Some(self.call_id()),
                change: Change::Put { key: set.clone(), value, adds: Some(number) },
                ..self.put(on, by.token)
            };
            let told = self.change_until_told(&by, &wish, Some((condition.0, &condition.1))).await;
            if told == Told::Refused {
                break;
            }
        }
        self.part_by_s3(&held, &by).await;
    }

    /// Writes, with a call's id again until it is told what became of it. Now and then the same request arrives once more
    /// later.
    async fn change_until_told(
        &mut self,
        by: &S3Lock,
        wish: &FencedWrite,
        condition: Option<(&'static str, &str)>,
    ) -> Told {
        let keyed = wish.idempotency_key.is_some();
        if keyed && self.chance(0.08) {
            let mut twin = self.twin();
            let (by, wish) = (by.clone(), wish.clone());
            let condition = condition.map(|(name, value)| (name, value.to_owned()));
            tokio::spawn(async move {
                let latest_ms = if twin.chance(0.5) { 50 } else { 6000 };
                twin.pause(0, latest_ms).await;
                let condition = condition.as_ref().map(|(name, value)| (*name, value.as_str()));
                twin.change(&by, &wish, condition).await;
            });
        }
        for _ in 0..4 {
            match self.change(by, wish, condition).await {
                Some(Answer::Written { .. }) => return Told::Written,
                Some(Answer::Refused { .. }) => return Told::Refused,
                _ => {}
            }
            if !keyed || self.chance(0.2) {
                break;
            }
            self.pause(1, 500).await;
        }
        Told::Nothing
    }

    /// Puts and deletes, small and large, copies and lists.
    async fn put_and_delete_by_s3(&mut self) {
        let on = self.any_of(&S3_PLAIN);
        let Some((held, by)) = self.acquire_s3(on).await else { return };
        for _ in 0..self.draw(1, 16) {
            let object = self.any_of(&OBJECTS);
            let told = match self.draw(0, 20) {
                0 => {
                    self.delete_many(&by, &OBJECTS[..2]).await;
                    Told::Written
                }
                1..3 => {
                    self.list(&by, &S3_PLAIN).await;
                    Told::Written
                }
                3..5 => {
                    self.get(&by, object).await;
                    Told::Written
                }
                5..7 => {
                    let change = Change::Delete { key: object.to_owned() };
                    let idempotency_key = self.chance(0.6).then(|| self.call_id());
                    let wish = FencedWrite { change, idempotency_key, ..self.put(on, by.token) };
                    self.change_until_told(&by, &wish, None).await
                }
                draw => self.put_by_s3(&by, object, draw == 7).await,
            };
            if told == Told::Refused {
                break;
            }
            self.think().await;
        }
        self.part_by_s3(&held, &by).await;
    }

    /// A put, perhaps on nothing, perhaps copied afterwards.
    async fn put_by_s3(&mut self, by: &S3Lock, object: &str, is_copied: bool) -> Told {
        let value = self.value();
        let value = match self.draw(0, 10) {
            0..3 => format!("{value}.{}", self.draw(5000, 100_000)),
            3 => format!("{value}.{}", self.draw(100_000, 1_000_000)),
            _ => value,
        };
        let wish = FencedWrite {
            idempotency_key: self.chance(0.6).then(|| self.call_id()),
            change: Change::Put { key: object.to_owned(), value: value.clone(), adds: None },
            ..self.put(&by.resource, by.token)
        };
        let condition = self.chance(0.1).then_some(("if-none-match", "*"));
        let told = self.change_until_told(by, &wish, condition).await;
        if told != Told::Written || !is_copied {
            // What is there already is no reason to stop.
            return if condition.is_some() { Told::Nothing } else { told };
        }
        let Some(Some(found)) = self.get(by, object).await else { return Told::Nothing };
        if found.value != value {
            return Told::Nothing;
        }
        let change = Change::Put { key: format!("copy-of-{object}"), value, adds: None };
        let copy = FencedWrite { change, idempotency_key: None, ..wish };
        match self.copy(by, &copy, (object, found.tag)).await {
            Some(Answer::Written { .. }) => Told::Written,
            _ => Told::Nothing,
        }
    }

    /// Uploads in parts, and completes that, or aborts it, or leaves it to others.
    async fn upload_in_parts(&mut self) {
        let on = self.any_of(&S3_PLAIN);
        let Some((held, by)) = self.acquire_s3(on).await else { return };
        for _ in 0..self.draw(1, 3) {
            let object = self.any_of(&OBJECTS);
            self.put_in_parts(&by, object).await;
        }
        self.part_by_s3(&held, &by).await;
    }

    async fn put_in_parts(&mut self, by: &S3Lock, object: &str) {
        let length = match self.chance(0.06) {
            true => TWO_PARTS,
            false => self.draw(10, ONE_PART),
        };
        let value = format!("{}.{length}", self.value());
        let Some(upload) = self.upload(by, object, value).await else { return };
        self.shared.uploads.remember(upload.clone());
        match self.draw(0, 10) {
            0 => self.abort(by, &upload).await,
            1 => {}
            _ => self.complete_until_told(by, &upload).await,
        }
    }

    /// Completes an upload, again until it is told what became of that: it can be told for ever.
    async fn complete_until_told(&mut self, by: &S3Lock, upload: &Upload) {
        for _ in 0..4 {
            let told = self.complete(by, upload).await;
            if matches!(told, Some(Answer::Written { .. } | Answer::Refused { .. })) {
                break;
            }
            self.pause(1, 500).await;
        }
        if self.chance(0.1) {
            self.complete(by, upload).await;
        }
    }

    /// Whoever holds the lock now completes what somebody before it has uploaded.
    async fn complete_for_another(&mut self) {
        let Some(upload) = self.any_upload() else { return };
        let Some((held, by)) = self.acquire_s3(&upload.resource).await else { return };
        self.complete_until_told(&by, &upload).await;
        self.part_by_s3(&held, &by).await;
    }

    /// Under the key of a lock that somebody had once.
    async fn come_late_by_s3(&mut self) {
        let Some(by) = self.any_s3_lock() else { return };
        for _ in 0..self.draw(1, 4) {
            self.go_on(&by).await;
        }
    }

    /// Reads and lists, under any key.
    async fn look_by_s3(&mut self) {
        let Some(by) = self.any_s3_lock() else { return };
        for _ in 0..self.draw(1, 10) {
            let object = self.any_of(&OBJECTS);
            self.get(&by, object).await;
            self.list(&by, &S3_PLAIN).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
