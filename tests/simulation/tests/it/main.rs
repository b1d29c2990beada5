//! The simulation by seeds, and the cases for what random runs do not meet.

mod cases;
mod seeds;
