//! libFuzzer on [`fence_fuzz::paths`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::paths(input));
