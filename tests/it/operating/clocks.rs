//! The clock of the gateway's machine is put back.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(
    clippy::disallowed_methods,
    reason = "a clock that is set wrong is held against the true one"
)]

use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use jiff::fmt::rfc2822;
use jiff::{SignedDuration, Timestamp};

use crate::setup::libfaketime;

/// The `Date` of a read, in seconds ahead of the true time.
async fn ahead(gateway: &Gateway) -> i64 {
    let answer = gateway.client().get("/healthz").send().await.expect(200);
    let date = rfc2822::parse(answer.header("date").unwrap()).unwrap();
    date.timestamp().duration_since(Timestamp::now()).as_secs()
}

#[tokio::test]
async fn the_date_of_answers_follows_a_clock_that_is_put_back() {
    let clock = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(clock.path(), "+1d").unwrap();
    let settings = Gateway::embedded()
        .env("LD_PRELOAD", &libfaketime().display().to_string())
        .env("FAKETIME_TIMESTAMP_FILE", &clock.path().display().to_string())
        .env("FAKETIME_NO_CACHE", "1")
        .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    let gateway = settings.start().await;
    let day = SignedDuration::from_hours(24).as_secs();
    assert!((day - ahead(&gateway).await).abs() < 3_600, "the clock is a day ahead");
    std::fs::write(clock.path(), "+0").unwrap();
    eventually("the date is that of now", async || {
        (ahead(&gateway).await.abs() < 3_600).then_some(())
    })
    .await;
}
