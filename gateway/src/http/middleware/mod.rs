//! What happens to every request, whatever its route.

mod answer;
mod browsers;
mod framing;
mod recorded;
mod request_id;

pub use answer::{Line, Named, answer, describe, note};
pub use browsers::{Doors, contain, keep_pages_out};
pub use framing::{Framing, check};
pub use recorded::Recorded;
pub use request_id::RequestId;
