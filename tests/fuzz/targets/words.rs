//! libFuzzer on [`fence_fuzz::words`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::words(input));
