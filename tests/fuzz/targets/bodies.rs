//! libFuzzer on [`fence_fuzz::bodies`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::bodies(input));
