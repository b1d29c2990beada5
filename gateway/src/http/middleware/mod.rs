//! What happens to every request, whatever its route.

mod answer;
mod framing;
mod request_id;

pub use answer::{answer, describe, note};
pub use framing::{Framing, check};
pub use request_id::RequestId;
