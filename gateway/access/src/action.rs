//! What a caller may be allowed to do.

use std::fmt;

use serde::Deserialize;

macro_rules! actions {
    ($($(#[$meta:meta])+ $name:ident = $text:literal,)+) => {
        /// One thing that rules allow or deny.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize)]
        pub enum Action {
            $($(#[$meta])+ #[serde(rename = $text)] $name,)+
        }

        impl Action {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$name),+];

            /// The one that rules call so.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|known| known.as_str() == name)
            }

            /// The names of all of them, to tell somebody.
            pub fn words() -> String {
                Self::ALL.iter().map(|known| known.as_str()).collect::<Vec<_>>().join(", ")
            }

            /// The name that rules call it by.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)+
                }
            }
        }
    };
}

actions! {
    /// Take, renew, release and transfer locks; see one's own.
    Lock = "lock",
    /// Raise a fence without a lock, under an order that rises.
    Fence = "fence",
    /// Raise a fence with `force`, or without an order.
    FenceForce = "fence-force",
    /// Write and delete objects, commit, and send unsafe requests to an upstream.
    Write = "write",
    /// Delete all objects of a resource.
    Clear = "clear",
    /// Read objects, versions, operations and the state of a resource.
    Read = "read",
    /// List locks, resources and objects within a prefix.
    List = "list",
    /// Send safe requests (GET, HEAD, OPTIONS) to an upstream.
    ForwardRead = "forward-read",
    /// See the audit, refused writes, metrics, intents and tokens.
    Observe = "observe",
    /// Break a lock.
    Break = "break",
    /// Freeze and unfreeze a resource.
    Freeze = "freeze",
    /// Protect a resource from being deleted, and end that.
    Protect = "protect",
    /// Say what became of a request to an upstream.
    Resolve = "resolve",
    /// Name other principals as writers of a lock, and transfer a lock to another principal.
    Delegate = "delegate",
    /// See and apply rules.
    Admin = "admin",
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

const _: () = assert!(Action::ALL.len() <= 16, "a set has a bit for each action");

/// A set of actions.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Actions(u16);

impl Actions {
    /// Whether it has this action.
    pub fn has(self, action: Action) -> bool {
        self.0 & Self::bit(action) != 0
    }

    /// All of these but those.
    #[must_use]
    pub fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// Whether it has none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    fn bit(action: Action) -> u16 {
        1 << action as u16
    }
}

impl FromIterator<Action> for Actions {
    fn from_iter<I: IntoIterator<Item = Action>>(actions: I) -> Self {
        Self(actions.into_iter().fold(0, |all, action| all | Self::bit(action)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_has_what_was_put_into_it() {
        assert!(Actions::default().is_empty());
        for &action in Action::ALL {
            let alone: Actions = [action].into_iter().collect();
            let others = Action::ALL.iter().filter(|other| alone.has(**other));
            assert_eq!(others.collect::<Vec<_>>(), [&action]);
            let rest: Actions =
                Action::ALL.iter().copied().filter(|other| *other != action).collect();
            assert!(!rest.has(action));
        }
    }
}
