//! An operator: closes intents of requests with which the upstream is done, and ends its doubts after a re-fence.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use fence_core::wire::{IntentEntry, IntentList};
use fence_history::Intent;
use jiff::Timestamp;
use serde_json::json;

use super::Client;
use crate::line::Line;
use crate::upstream::{NAMES, OVER_AFTER, request_of};

/// How often it looks, and how long it waits for an answer.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

impl Client {
    /// Looks after the upstream that waits for an operator, until it is told to stop.
    pub async fn operate(mut self, stop: &AtomicBool) {
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(LOOKS_EVERY).await;
            let Some(list) = self.intents().await else { continue };
            for IntentEntry { operation, path, age_ms, .. } in list.items {
                let is_over = u128::try_from(age_ms).is_ok_and(|age| age > OVER_AFTER.as_millis());
                let Some(request) = request_of(&path).filter(|_| is_over) else { continue };
                (self.shared.tell)(Line::Intent(Intent { operation: operation.0, request }));
                self.resolve(operation.0).await;
                self.look_up(operation.0).await;
            }
            for doubt in list.doubts {
                let age = Timestamp::now().duration_since(doubt.since);
                if age.unsigned_abs() > OVER_AFTER {
                    self.end_doubts().await;
                }
            }
        }
    }

    async fn intents(&mut self) -> Option<IntentList> {
        let url = format!("{}/admin/intents?upstream={}", self.any_gateway(), NAMES[0]);
        let call = self.shows(self.http.get(url)).timeout(LOOKS_EVERY);
        let answer = call.send().await.ok()?;
        answer.json().await.ok()
    }

    async fn end_doubts(&mut self) {
        let url = format!("{}/admin/intents/resolve", self.any_gateway());
        let body = json!({ "upstream": NAMES[0], "reason": "all from before is over" });
        // What fails is tried again at the next look.
        let _ = self.shows(self.http.post(url)).timeout(LOOKS_EVERY).json(&body).send().await;
    }

    fn any_gateway(&mut self) -> String {
        let gateways = self.shared.gateways.len() as u64;
        let at = usize::try_from(self.draw(0, gateways)).unwrap_or(0);
        self.shared.gateways[at].clone()
    }
}
