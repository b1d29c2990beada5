//! libFuzzer on [`fence_fuzz::chunks`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::chunks(input));
