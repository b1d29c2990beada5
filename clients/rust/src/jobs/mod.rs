//! Job runs: something that is run once for each slot of a schedule, by one of many hosts. A convention over ordinary
//! fenced objects, which `docs/jobs.md` describes; there is no table and no call of the gateway for it.

mod begin;
mod cut;
mod function;
mod inbox;
mod job;
mod name;
mod prune;
mod record;
mod running;
mod slot;
mod state;
mod view;

pub use self::begin::Begun;
pub use self::cut::Cut;
pub use self::function::{JobEnd, Running};
pub use self::job::{CatchUp, Due, Job, OncePolicy, Overlap};
pub use self::name::{JobName, Part, checkpoint_key};
pub use self::prune::Forget;
pub use self::record::{Expect, Mark, Output, Request, Run, RunStatus, Summary, Trigger};
pub use self::running::{JobRun, RunEnd};
pub use self::slot::Slot;
#[doc(hidden)]
pub use self::slot::{CATCH_UP_MAX, is_too_late, to_catch_up};
pub use self::state::State;
pub use self::view::{JobStatus, JobView, is_held};
