//! libFuzzer on [`fence_fuzz::settings`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::settings(input));
