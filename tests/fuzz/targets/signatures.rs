//! libFuzzer on [`fence_fuzz::signatures`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::signatures(input));
