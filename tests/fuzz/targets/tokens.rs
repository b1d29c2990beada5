//! libFuzzer on [`fence_fuzz::tokens`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::tokens(input));
