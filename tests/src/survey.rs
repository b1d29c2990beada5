//! How long a survey is. A forced interleaving is a check and runs whole everywhere; what waits for chance is a survey, which
//! is short in the gate and long in `make long`.

use std::env;

/// Whether this is a long run: `FENCE_TEST_LONG` is set.
pub fn is_long() -> bool {
    env::var_os("FENCE_TEST_LONG").is_some()
}

/// A count or a duration of a survey: `short` in the gate, `long` in a long run.
pub fn size<T>(short: T, long: T) -> T {
    if is_long() { long } else { short }
}

/// The seed of a survey: `FENCE_TEST_SEED`, else a fixed one in the gate and a fresh one in a long run. It is printed, so that
/// a failure can be run again.
pub fn seed() -> u64 {
    let given = env::var("FENCE_TEST_SEED").ok().and_then(|seed| seed.parse().ok());
    let seed = given.unwrap_or_else(|| if is_long() { rand::random::<u32>().into() } else { 1 });
    println!("FENCE_TEST_SEED={seed}");
    seed
}
