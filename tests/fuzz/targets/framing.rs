//! libFuzzer on [`fence_fuzz::framing`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::framing(input));
