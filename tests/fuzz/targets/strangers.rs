//! libFuzzer on [`fence_fuzz::strangers`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::strangers(input));
