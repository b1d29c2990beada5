//! All tests over real servers, in one binary.

mod http_bad_input_rows;
mod http_bad_inputs;
mod http_contract;
mod http_problems;
mod nginx;
