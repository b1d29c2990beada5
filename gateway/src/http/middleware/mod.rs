//! What happens to every request, whatever its route.

mod answer;
mod browsers;
mod framing;
mod named;
mod request_id;

pub use answer::{answer, describe, note};
pub use browsers::Doors;
pub use framing::{Framing, check};
pub use named::Named;
pub use request_id::RequestId;
