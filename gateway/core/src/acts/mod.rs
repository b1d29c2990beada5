//! The acts of the ledger, step by step, as plain functions over rows in memory.
//!
//! The in-memory ledger runs them on all its rows; the SQLite ledger loads the rows that an act
//! touches inside one `BEGIN IMMEDIATE`, runs the same functions and stores what they changed. The
//! Postgres ledger says the same in PL/pgSQL, under the same conformance suite. Nothing here waits,
//! reads a clock or fails: what decides comes in as an argument.

mod blobs;
mod commit;
mod commit_many;
mod disasters;
mod extend;
mod fences;
mod forwards;
mod guard;
mod locks;
mod marks;
mod multipart;
mod mutated;
mod now;
mod own_time;
mod queue;
mod rows;
mod seal;
mod upstreams;

pub use blobs::begin_upload;
pub use commit::commit;
pub use commit_many::commit_many;
pub use disasters::{refence, switch_epoch};
pub use forwards::{ForwardRow, UpstreamRow};
pub use locks::{break_lock, release, renew, sweep_break};
pub use marks::mark;
pub use multipart::{abort_multipart, begin_multipart, put_part};
pub use own_time::OwnTime;
pub use queue::{call_next, is_ahead, join};
pub use rows::{
    Buried, Change, FenceRow, GrantRow, Guard, IntentRow, KeyRow, LockRow, Now, ObjectRow,
    ReplacedRow, Rows,
};
pub use seal::seal;
pub use upstreams::{
    close_intent, complete_drains, doubt, open_intent, register, resolve_doubts, resolve_intent,
    sweep_intents,
};
