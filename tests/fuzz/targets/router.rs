//! libFuzzer on [`fence_fuzz::router`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::router(input));
