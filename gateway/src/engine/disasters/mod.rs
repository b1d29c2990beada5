//! What to do when the ledger or the mint is not what it was: a new epoch of the mint, a re-fence or an adoption
//! of the ledger, and the lookout that notices.

mod adopting;
mod epochs;
mod lookout;
mod refencing;

pub(super) use epochs::Epochs;
pub(super) use lookout::Lookout;
pub use lookout::Refencing;
pub use refencing::{Refenced, refence_now};
