//! That each tool works at all: what people and programs do with S3, under a lock.

use std::path::Path;

use tokio::process::Command;

use super::site::{Site, equip};
use super::tools::{python, scripts};
use crate::cli;
use crate::setup::{SetUp, on_both};

/// The resources that the scripts write to.
const RESOURCES: [&str; 6] = ["lake", "lake:orders", "lake:list", "lake:a", "lake:a-b", "flat"];

on_both!(sdk_for_python);

async fn sdk_for_python(setup: SetUp) {
    under_a_lock(setup, &unittest("sdk_for_python", "test_*.py")).await;
}

#[tokio::test]
async fn object_store() {
    under_a_lock(SetUp::Embedded, &unittest("", "test_object_store.py")).await;
}

#[tokio::test]
async fn command_lines() {
    under_a_lock(SetUp::Embedded, &unittest("", "test_command_lines.py")).await;
}

#[tokio::test]
async fn sdk_for_javascript() {
    let script = scripts().join("ordinary/sdk_for_javascript.test.mjs");
    let script = script.to_str().unwrap().to_owned();
    under_a_lock(SetUp::Embedded, &["node".into(), "--test".into(), script]).await;
}

/// Those tests in `tests/s3/ordinary`.
fn unittest(folder: &str, files: &str) -> Vec<String> {
    let folder = scripts().join("ordinary").join(folder);
    let text = |path: &Path| path.to_str().unwrap().to_owned();
    let words = ["-m", "unittest", "discover", "-s"].map(str::to_owned);
    [vec![text(&python())], words.into(), vec![text(&folder), "-p".into(), files.into()]].concat()
}

async fn under_a_lock(setup: SetUp, words: &[String]) {
    let site = Site::on(setup).await;
    site.make_bucket("flat", 0).await;
    let mut run: Vec<_> = ["run", "--s3"].into();
    run.extend(RESOURCES.iter().flat_map(|resource| ["-r", resource]));
    run.extend(["--max-runtime", "10m", "--"]);
    run.extend(words.iter().map(String::as_str));
    let home = tempfile::tempdir().unwrap();
    let mut command: Command = cli::fence(&site.gateway.url(), &run);
    equip(&mut command, home.path());
    let said = command.output().await.unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(said.status.success(), "{}{}", text(&said.stdout), text(&said.stderr));
}
