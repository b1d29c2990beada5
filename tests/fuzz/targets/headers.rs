//! libFuzzer on [`fence_fuzz::headers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::headers(input));
