//! libFuzzer on [`fence_fuzz::names`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::names(input));
