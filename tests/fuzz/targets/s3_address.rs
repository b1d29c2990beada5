//! libFuzzer on [`fence_fuzz::s3_address`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::s3_address(input));
