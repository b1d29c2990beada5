//! Wake-ups under way. If many waiters leave a line at once, the line is looked at once more when they have
//! left, not once for each of them: a look goes through all waiters whose callers are gone, and looks at one
//! line wait for each other.

use std::collections::BTreeSet;

use fence_core::ResourceName;
use parking_lot::Mutex;

/// Which resources are being looked at, and which of them have to be looked at again.
#[derive(Default)]
pub(super) struct Wakes(Mutex<Looks>);

#[derive(Default)]
struct Looks {
    under_way: BTreeSet<ResourceName>,
    again: BTreeSet<ResourceName>,
}

impl Wakes {
    /// Which of these to look at now. The others are looked at again when the look under way has ended.
    pub(super) fn begin(&self, resources: Vec<ResourceName>) -> Vec<ResourceName> {
        let mut state = self.0.lock();
        let mut now = Vec::new();
        for name in resources {
            if state.under_way.insert(name.clone()) {
                now.push(name);
            } else {
                state.again.insert(name);
            }
        }
        now
    }

    /// The look has ended: what of this has to be looked at again, since something was freed meanwhile.
    pub(super) fn end(&self, resources: Vec<ResourceName>) -> Vec<ResourceName> {
        let mut state = self.0.lock();
        let (again, over): (Vec<_>, Vec<_>) =
            resources.into_iter().partition(|name| state.again.remove(name));
        for name in &over {
            state.under_way.remove(name);
        }
        again
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names<const N: usize>(names: [&str; N]) -> Vec<ResourceName> {
        names.map(|name| ResourceName::new(name).expect("a name")).to_vec()
    }

    #[test]
    fn whatever_is_freed_is_looked_at_after_that_and_once() {
        let wakes = Wakes::default();
        assert_eq!(wakes.begin(names(["a", "b"])), names(["a", "b"]));
        assert_eq!(wakes.begin(names(["a", "c"])), names(["c"]));
        assert_eq!(wakes.begin(names(["a"])), []);
        assert_eq!(wakes.end(names(["c"])), []);
        assert_eq!(wakes.end(names(["a", "b"])), names(["a"]));
        assert_eq!(wakes.begin(names(["a", "b"])), names(["b"]));
        assert_eq!(wakes.end(names(["a"])), names(["a"]));
        assert_eq!(wakes.end(names(["a"])), []);
        assert_eq!(wakes.begin(names(["a"])), names(["a"]));
    }
}
