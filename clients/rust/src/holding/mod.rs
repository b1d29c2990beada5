//! Ways to hold: fences for other locks, locks handed over or lent, elections, shards, work done once.

mod by_id;
pub(crate) mod election;
pub(crate) mod fence;
pub(crate) mod handoff;
pub(crate) mod lent;
pub(crate) mod once;
pub(crate) mod shards;
mod successor;

pub use self::election::Election;
pub use self::fence::{Fence, FenceBuilder};
pub use self::handoff::{AdoptBuilder, Handoff};
pub use self::once::Once;
pub(crate) use self::shards::shard_name;
pub use self::shards::{Shard, Shards};
pub use self::successor::Successor;
