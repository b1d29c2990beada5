//! libFuzzer on [`fence_fuzz::s3_operation`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::s3_operation(input));
