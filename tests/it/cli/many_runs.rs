//! Many runs of three hosts on one resource, killed and stopped at random: nobody who was overtaken writes.

use std::collections::BTreeMap;
use std::time::Duration;

use fence_tests::process::signal;
use fence_tests::survey;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Child;

use super::{Dev, fence};

/// Writes of each run.
const WRITES: usize = 6;

/// Writes its token again and again, and notes how each write ended.
const SCRIPT: &str = "echo begun; n=0; while [ $n -lt 6 ]; do n=$((n + 1)); \
    echo $FENCE_TOKEN | \"$FENCE\" put r k --quiet --timeout 20s 2> /dev/null; \
    echo $FENCE_LOCK_OWNER $FENCE_TOKEN $? >> $LOG; sleep $PAUSE; done";

/// What happens to a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Perhaps in line still.
    KilledEarly,
    Killed,
    /// For longer than its lock lasts, while its command goes on.
    Stopped,
    Ended,
    Spared,
}

async fn strike(child: &mut Child, fate: Fate) {
    if fate != Fate::KilledEarly {
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert_eq!(lines.next_line().await.unwrap().as_deref(), Some("begun"));
    }
    let after = rand::random_range(0..200);
    tokio::time::sleep(Duration::from_millis(after)).await;
    let Some(pid) = child.id() else { return };
    match fate {
        Fate::KilledEarly | Fate::Killed => signal("KILL", &[pid]),
        Fate::Stopped => {
            signal("STOP", &[pid]);
            tokio::time::sleep(Duration::from_millis(2_500)).await;
            signal("CONT", &[pid]);
        }
        Fate::Ended => signal("TERM", &[pid]),
        Fate::Spared => {}
    }
}

/// Whether so many writes were done and refused that they say something.
fn is_enough(log: &std::path::Path) -> bool {
    let (done_min, refused_min) = survey::size((25, 2), (100, 5));
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let count = |end: &str| text.lines().filter(|line| line.ends_with(end)).count();
    count(" 0") > done_min && count(" 5") > refused_min
}

async fn host(url: &str, log: &std::path::Path) {
    for run in 0.. {
        if run >= survey::size(8, 34) && is_enough(log) {
            return;
        }
        let fates = [Fate::KilledEarly, Fate::Killed, Fate::Stopped, Fate::Ended, Fate::Spared];
        let fate = fates[rand::random_range(0..fates.len())];
        let words = ["run", "-r", "r", "--ttl", "1s", "--on-loss", "ignore", "-c", SCRIPT];
        let mut command = fence(url, &words);
        // The command of one that is stopped lasts until it is overtaken.
        command.env("PAUSE", if matches!(fate, Fate::Stopped) { "0.4" } else { "0.01" });
        command.env("FENCE", super::binary()).env("LOG", log);
        let mut child = command.spawn().unwrap();
        strike(&mut child, fate).await;
        let ended = tokio::time::timeout(Duration::from_secs(60), child.wait()).await;
        ended.expect("it ends").unwrap();
    }
}

#[tokio::test]
async fn nobody_who_was_overtaken_writes() {
    let gateway = Dev::start().await;
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    tokio::join!(host(gateway.url(), &log), host(gateway.url(), &log), host(gateway.url(), &log));
    let client = gateway.client();
    let mut versions = client.versions("r").all().await.unwrap();
    versions.reverse();
    let text = std::fs::read_to_string(&log).unwrap();
    let told = text.lines().map(|line| {
        let mut words = line.split(' ').map(str::to_owned);
        let mut next = || words.next().unwrap();
        (next(), next().parse::<u64>().unwrap(), next().parse::<i32>().unwrap())
    });
    let told: Vec<_> = told.collect();
    // 1. What became visible, in order: the tokens of its writers only rise.
    let token_of: BTreeMap<_, _> = told.iter().map(|(owner, token, _)| (owner, *token)).collect();
    let tokens: Vec<u64> =
        versions.iter().filter_map(|version| token_of.get(&version.owner).copied()).collect();
    assert!(tokens.is_sorted(), "an old holder wrote over a newer one: {tokens:?}");
    // 2. Each writer has as many writes as it was told, and at most those more of which nobody told it.
    for owner in token_of.keys() {
        let written = versions.iter().filter(|version| version.owner == **owner).count();
        let count = |codes: &[i32]| {
            told.iter().filter(|(who, _, code)| who == *owner && codes.contains(code)).count()
        };
        let (done, refused) = (count(&[0]), count(&[5]));
        assert!(
            (done..=WRITES - refused).contains(&written),
            "{owner}: {written}, {done}, {refused}"
        );
    }
    // 3. A write is done, refused, unknown, or was ended with its command, and nothing else.
    assert!(told.iter().all(|(_, _, code)| [0, 5, 7, 143].contains(code)), "{told:?}");
}
