//! libFuzzer on [`fence_fuzz::s3_bodies`].
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| fence_fuzz::s3_bodies(input));
