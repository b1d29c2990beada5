//! libFuzzer on [`fence_fuzz::rules`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::rules(input));
