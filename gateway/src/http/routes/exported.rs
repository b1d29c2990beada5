//! What `/metrics` says of single resources, which it reads from the ledger.
#![expect(clippy::disallowed_methods, reason = "reads go on in real time, whoever hangs up")]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fence_core::ports::{Page, ResourceView, Which};
use tokio::sync::Mutex;
use tokio::time::Instant;

use crate::engine::Engine;

/// The most resources that one prefix exports.
const EXPORTED_MAX: i64 = 1000;
/// For how long what was read is good for whoever asks next.
const FRESH: Duration = Duration::from_secs(1);
/// How long a scrape waits for them. Whoever scrapes gives up on the whole page after 10 s, if nothing else was said.
const PATIENCE: Duration = Duration::from_secs(2);

type Views = BTreeMap<String, ResourceView>;
/// What was read last, and when.
type Last = (Instant, Arc<Views>);

/// The resources whose names match a configured prefix, as they were a moment ago; cheap to clone.
#[derive(Clone, Default)]
pub struct Exported {
    prefixes: Arc<[String]>,
    last: Arc<Mutex<Option<Last>>>,
}

impl Exported {
    /// Those whose names begin with one of these.
    pub fn of(prefixes: &[String]) -> Self {
        Self { prefixes: prefixes.into(), last: Arc::default() }
    }

    /// Each once, however many prefixes match it. None while the ledger does not tell them in time: the other metrics are
    /// needed most just then.
    pub(super) async fn now(&self, engine: &Engine) -> Arc<Views> {
        if self.prefixes.is_empty() {
            return Arc::default();
        }
        engine.runtime().within(PATIENCE, self.fresh(engine)).await.unwrap_or_default()
    }

    /// One read at a time: who comes meanwhile waits for it, and it goes on if its caller hangs up.
    async fn fresh(&self, engine: &Engine) -> Arc<Views> {
        let mut last = Arc::clone(&self.last).lock_owned().await;
        if let Some((at, views)) = &*last
            && at.elapsed() < FRESH
        {
            return Arc::clone(views);
        }
        let (engine, prefixes) = (engine.clone(), Arc::clone(&self.prefixes));
        let read = tokio::spawn(async move {
            let views = Arc::new(read(&engine, &prefixes).await);
            *last = Some((Instant::now(), Arc::clone(&views)));
            views
        });
        read.await.unwrap_or_default()
    }
}

/// Those of the prefixes for which the ledger answers.
async fn read(engine: &Engine, prefixes: &[String]) -> Views {
    let mut found = Views::new();
    for prefix in prefixes {
        let page = Page { prefix: prefix.clone(), after: None, limit: EXPORTED_MAX };
        match engine.resources(page, Which::All).await {
            Ok(views) => {
                found.extend(views.into_iter().map(|view| (view.resource.to_string(), view)));
            }
            Err(error) => tracing::warn!(%error, prefix, "resources are left out of the metrics"),
        }
    }
    found
}
