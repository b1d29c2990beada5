//! An operator: closes intents of requests with which the upstream is done, and ends its doubts after a re-fence.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use fence_core::wire::{DoubtEntry, IntentEntry, IntentList};
use fence_history::Intent;
use serde_json::json;

use super::Client;
use crate::line::Line;
use crate::upstream::{OVER_AFTER, request_of};

/// How often it looks, and how long it waits for an answer.
const LOOKS_EVERY: Duration = Duration::from_secs(1);

impl Client {
    /// Looks after the upstream, until it is told to stop. What is over it tells by how long it has seen it: ages and times
    /// in the list are on the clock of the ledger, which may be wrong.
    pub async fn operate(mut self, stop: &AtomicBool) {
        let (mut intents, mut doubts) = (HashMap::new(), HashMap::new());
        while !stop.load(Ordering::SeqCst) {
            tokio::time::sleep(LOOKS_EVERY).await;
            let Some(list) = self.intents().await else { continue };
            for IntentEntry { operation, path, .. } in list.items {
                let seen: &mut Instant = intents.entry(operation).or_insert_with(Instant::now);
                let is_over = seen.elapsed() > OVER_AFTER;
                let Some(request) = request_of(&path).filter(|_| is_over) else { continue };
                (self.shared.tell)(Line::Intent(Intent { operation: operation.0, request }));
                self.resolve(operation.0).await;
                self.look_up(operation.0).await;
            }
            for DoubtEntry { upstream, since, .. } in list.doubts {
                let seen: &mut Instant =
                    doubts.entry((upstream.clone(), since)).or_insert_with(Instant::now);
                if seen.elapsed() > OVER_AFTER {
                    self.end_doubts(&upstream).await;
                }
            }
        }
    }

    async fn intents(&mut self) -> Option<IntentList> {
        let url = format!("{}/admin/intents", self.any_gateway());
        let call = self.shows(self.http.get(url)).timeout(LOOKS_EVERY);
        let answer = call.send().await.ok()?;
        answer.json().await.ok()
    }

    async fn end_doubts(&mut self, upstream: &str) {
        let url = format!("{}/admin/intents/resolve", self.any_gateway());
        let body = json!({ "upstream": upstream, "reason": "all from before is over" });
        // What fails is tried again at the next look.
        let _ = self.shows(self.http.post(url)).timeout(LOOKS_EVERY).json(&body).send().await;
    }

    fn any_gateway(&mut self) -> String {
        let gateways = self.shared.gateways.len() as u64;
        let at = usize::try_from(self.draw(0, gateways)).unwrap_or(0);
        self.shared.gateways[at].clone()
    }
}
