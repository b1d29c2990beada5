//! Uploads in parts: by a holder, by its successor, by whoever comes late.

use std::time::Duration;

use fence_history::Answer;
use rand::RngExt as _;

use super::{KEYS, PLAIN, Told, is_told};
use crate::client::{Client, Held, Upload, client};
use crate::world::MS;

impl Client {
    /// One of these stories.
    pub(super) async fn in_parts(&mut self) {
        match self.world.draw(|rng| rng.random_range(0..10)) {
            0..6 => self.upload_in_parts().await,
            6..9 => self.go_on_with_an_upload().await,
            _ => self.complete_late().await,
        }
    }

    /// Uploads an object in parts, and completes it, ends it, or leaves it to somebody else.
    async fn upload_in_parts(&mut self) {
        let (on, object) = (self.any_of(&PLAIN), self.any_of(&KEYS));
        let wait = self.wait();
        let Some(held) = self.acquire(&[on], wait).await else { return };
        let count = if self.world.chance(0.5) { 2 } else { 3 };
        if let Some(upload) = self.begin_in_parts(&held, (on, object), count).await {
            self.send_parts(&held, &upload).await;
            match self.world.draw(|rng| rng.random_range(0..10)) {
                0 => self.abort(&held, &upload).await,
                1 => {}
                2..4 => self.complete_beside_a_part(&held, &upload).await,
                _ => {
                    self.complete_until_told(&held, &upload).await;
                }
            }
        }
        self.part(&held).await;
    }

    /// Sends all parts, each until it is known to be there.
    async fn send_parts(&self, held: &Held, upload: &Upload) {
        for number in 1..=upload.parts {
            for _ in 0..3 {
                if self.put_part(held, upload, number).await {
                    break;
                }
                self.pause(MS, 300 * MS).await;
            }
            self.think().await;
        }
    }

    /// Takes the lock over, and goes on with what somebody else has uploaded.
    async fn go_on_with_an_upload(&mut self) {
        let Some(upload) = self.recorder.any_upload() else { return };
        let wait = Duration::from_secs(1);
        let Some(held) = self.acquire(&[&upload.resource], wait).await else { return };
        if self.world.chance(0.3) {
            self.send_parts(&held, &upload).await;
        }
        match self.world.chance(0.1) {
            true => self.abort(&held, &upload).await,
            false => drop(self.complete_until_told(&held, &upload).await),
        }
        self.part(&held).await;
    }

    /// Completes, or ends, an upload under a token that somebody was given once.
    async fn complete_late(&mut self) {
        let Some(upload) = self.recorder.any_upload() else { return };
        let Some((lock, token, on)) = self.recorder.any_lock() else { return };
        if on != upload.resource {
            return;
        }
        let held = Held { lock, token, versions: Vec::new(), sequence: 0 };
        match self.world.chance(0.3) {
            true => self.abort(&held, &upload).await,
            false => drop(self.complete(&held, &upload).await),
        }
    }

    /// A part comes once more while the upload is completed, or one that is not named.
    async fn complete_beside_a_part(&self, held: &Held, upload: &Upload) {
        let mut twin = client(
            self.number + crate::access::PRINCIPALS,
            &self.gateways,
            &self.recorder,
            &self.world,
        );
        twin.patience = self.patience;
        let number = self.world.draw(|rng| rng.random_range(1..=upload.parts + 1));
        let part = twin.put_part(held, upload, number);
        futures::join!(part, self.complete_until_told(held, upload));
    }

    /// Completes until it is told what became of it; then perhaps once more.
    async fn complete_until_told(&self, held: &Held, upload: &Upload) -> Told {
        let mut unsure = None;
        for _ in 0..4 {
            match self.complete(held, upload).await {
                Some(Answer::Written { .. }) => {
                    if self.world.chance(0.2) {
                        self.complete(held, upload).await;
                    }
                    return Told::Written;
                }
                Some(Answer::Refused { .. }) => return Told::Refused,
                Some(Answer::Unknown { operation: Some(operation) }) => {
                    unsure.get_or_insert_with(|| self.recorder.unsure());
                    self.pause(MS, 500 * MS).await;
                    if is_told(self.look_up(operation).await.as_ref()) {
                        unsure = None;
                    }
                }
                None => {
                    unsure.get_or_insert_with(|| self.recorder.unsure());
                }
                Some(_) => {}
            }
            self.pause(MS, 500 * MS).await;
        }
        Told::Nothing
    }
}
