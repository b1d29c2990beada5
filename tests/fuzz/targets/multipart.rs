//! libFuzzer on [`fence_fuzz::multipart`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::multipart(input));
