//! Client of Fencegate: a Rust program under a fenced lock, whose late writes bounce.
//!
//! ```
//! # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let gateway = fencegate_client::testing::Gateway::start().await?; let url = gateway.url();
//! use fencegate_client::{Client, Error};
//!
//! let client = Client::builder(url).owner("worker-a").build()?;
//! let total = client.lock("invoices:2026").run(async |lock| {
//!     let add = |old: Option<u64>| Some(old.unwrap_or(0) + 10);
//!     lock.update_json("total.json", add).await
//! });
//! assert_eq!(total.await?, Some(10));
//! # Ok::<_, Box<dyn std::error::Error>>(()) }
//! ```
//!
//! - The lock is taken with an id of its own and waited for in line; it renews itself in the background,
//!   together with all others of the client; it is given back on every path out.
//! - When it is lost, the body of [`LockBuilder::run`] is dropped where it waits, [`Lock::lost`] ends, and
//!   [`Lock::cancellation`] is cancelled. Why is in [`LossReason`].
//! - Writes exist on guards only. Each has a key and a number, is sent until its outcome is known, and takes
//!   effect once or not at all. What stays unknown is named so: [`OutcomeUnknown`].
//! - Errors say what to do: see [`Error`].

mod acquire;
#[cfg(feature = "virtual-clock")]
#[doc(hidden)]
pub mod attempts;
mod class;
mod client;
mod clock;
#[doc(hidden)]
pub mod encoding;
mod error;
pub mod feed;
mod guard;
mod holding;
mod hooks;
pub mod jobs;
#[doc(hidden)]
pub mod machine;
mod names;
pub mod operators;
pub mod reading;
mod release;
mod scope;
pub mod testing;
mod transport;
mod update;
pub mod write;

pub use fencegate_wire as wire;
pub use fencegate_wire::json::S3Access;

pub use self::acquire::{LockBuilder, Wait};
pub use self::class::{Class, LossReason};
pub use self::client::{Client, ClientBuilder};
pub use self::error::{Busy, BusyKind, Details, Error, LockLost};
pub use self::feed::{EventStream, Events, FeedEvent, Leader, Observing, OnVoid};
pub use self::guard::writing::On;
pub use self::guard::{Lock, LockState};
pub use self::holding::{
    AdoptBuilder, Election, Fence, FenceBuilder, Handoff, Once, Shard, Shards, Successor,
};
pub use self::hooks::Event;
pub use self::machine::lease::OnUncertain;
pub use self::machine::leaving::OnLost;
pub use self::names::Resources;
pub use self::transport::body::{Body, ByteStream};
pub use self::transport::credential::Credential;
pub use self::transport::unreached::Unreached;
pub use self::transport::urls::Origin;
pub use self::update::Change;
pub use self::write::{
    CommitBuilder, Committed, DeleteBuilder, Deleted, OutcomeUnknown, PutBuilder, Receipt, Settled,
    UpstreamBuilder, UpstreamResponse, Written,
};
