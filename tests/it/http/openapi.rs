//! An independent tester of OpenAPI documents against the gateway: no answer that the description does not
//! describe, no request taken that it forbids. How it is set up, and what is excused, is in `tests/openapi`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Stdio;

use fence_tests::stores::tool;
use fence_tests::survey;
use fence_tests::upstream::Upstream;
use serde::Deserialize;
use tempfile::TempDir;

use crate::setup::SetUp;

/// What has no answer but a refusal: an intent stays open only while its request is under way, and the first rules are
/// not put in force through a port, nor are tokens shown at one without rules.
const NEVER_2XX: [&str; 3] = ["exportAudit", "putAccess", "resolveIntent"];

/// What `tests/openapi/hooks.py` has counted.
#[derive(Debug, Deserialize)]
struct Counted {
    /// Answers by operation and status: `getLock 200`.
    statuses: BTreeMap<String, u64>,
    /// How often each excuse was needed.
    excused: BTreeMap<String, u64>,
}

async fn nothing_is_found(setup: SetUp) {
    let upstream = Upstream::start().await;
    let settings = setup.settings().await.flag("--upstream", &upstream.setting("drained", ""));
    let gateway = settings.flag("--s3-listen", "127.0.0.1:0").start().await;
    let home = TempDir::new().expect("a directory");
    let counted = home.path().join("counted.json");
    // The phase "coverage" takes longest, and its requests are refused before a ledger is asked: the gate has it once.
    let is_whole = setup == SetUp::Embedded || survey::is_long();
    let phases = if is_whole { "examples,coverage,fuzzing" } else { "examples,fuzzing" };
    let mut tester = tokio::process::Command::new(tool("openapi/bin/schemathesis"));
    tester
        .args(["--no-color", "--config-file", "schemathesis.toml", "run"])
        .arg(format!("{}/openapi.yaml", gateway.url()))
        .args(["--phases", phases, "--max-examples", survey::size("4", "12")])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi"))
        .env("FENCE_TEST_GATEWAY_URL", gateway.url())
        .env("FENCE_TEST_RESULT", &counted)
        .env("HOME", home.path())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let done = tester.output().await.expect("it starts");
    let text = String::from_utf8_lossy(&done.stdout);
    let errors = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{}\n{text}\n{errors}", done.status);

    let counted = std::fs::read(&counted).expect("the hooks have counted");
    let counted: Counted = serde_json::from_slice(&counted).expect("counts");
    let all: u64 = counted.statuses.values().sum();
    assert!(
        all >= if is_whole { survey::size(1000, 3000) } else { 200 },
        "only {all} requests\n{text}"
    );
    // A tester that does not get behind the fence finds nothing there.
    let (mut asked, mut reached, mut good) = (BTreeSet::new(), BTreeSet::new(), 0);
    for (answer, count) in &counted.statuses {
        let (operation, status) = answer.split_once(' ').expect("an operation and a status");
        asked.insert(operation);
        if status.starts_with(['2', '3']) {
            reached.insert(operation);
            good += count;
        }
    }
    println!("{all} requests, {good} of them with effect; excused: {:#?}", counted.excused);
    let missed: Vec<_> = asked.difference(&reached).copied().collect();
    if is_whole {
        assert_eq!(missed, NEVER_2XX, "operations without a success: {:#?}", counted.statuses);
    } else {
        assert!(missed.len() < asked.len() / 4, "operations without a success: {missed:?}");
    }
}

crate::setup::on_both! { nothing_is_found }
