//! libFuzzer on [`fence_fuzz::credentials`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::credentials(input));
