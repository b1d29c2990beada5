//! Idempotency keys of requests that are being decided here. If a second request under the same key has to wait
//! for too long, it is told that the first is in progress; a request that waits for somebody else's transaction
//! is not told that.

use std::collections::HashSet;

use fence_core::ResourceName;
use parking_lot::Mutex;

/// A key, and the resource that it is used on; of a commit of many, the first.
type At = (ResourceName, String);

/// The keys. As many as there are requests.
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashSet<At>>);

/// A request that is being decided; dropped, it is not any more.
#[derive(Debug)]
pub(super) struct Mark<'keys>(&'keys UnderWay, At);

impl UnderWay {
    /// Marks a key; `None` if another request has marked it.
    pub(super) fn mark(&self, resource: &ResourceName, key: &str) -> Option<Mark<'_>> {
        let at = (resource.clone(), key.to_owned());
        let is_new = self.0.lock().insert(at.clone());
        is_new.then(|| Mark(self, at))
    }
}

impl Drop for Mark<'_> {
    fn drop(&mut self) {
        self.0.0.lock().remove(&self.1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_marked_by_one_request_at_a_time() {
        let keys = UnderWay::default();
        let resource = ResourceName::new("r").expect("a name");
        let other = ResourceName::new("s").expect("a name");
        let first = keys.mark(&resource, "k");
        assert!(first.is_some());
        assert!(keys.mark(&resource, "k").is_none());
        assert!(keys.mark(&resource, "l").is_some() && keys.mark(&other, "k").is_some());
        drop(first);
        assert!(keys.mark(&resource, "k").is_some());
    }
}
