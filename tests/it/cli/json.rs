//! `--json` is in the words of the API: each document is what `openapi.yaml` describes.

use fence_tests::spec::Spec;
use serde_json::Value;

use super::{call, call_with};
use crate::setup::{SetUp, on_both};

on_both!(documents_are_those_of_the_contract,);

async fn json(url: &str, words: &[&str]) -> Value {
    call_with(url, &[words, &["--json"]].concat(), b"x").await.with(0).json()
}

async fn documents_are_those_of_the_contract(setup: SetUp) {
    let gateway = setup.start().await;
    let (url, spec) = (&gateway.url(), Spec::get());
    let check = |name: &str, value: &Value| spec.check_schema(name, value);
    let written = json(url, &["put", "r", "k", "--lock"]).await;
    check("Written", &written);
    let operation = written["operation"].as_str().unwrap();
    check("Operation", &json(url, &["operation", operation]).await);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("x");
    std::fs::write(&file, "x").unwrap();
    let put = format!("r/j={}", file.display());
    check("Committed", &json(url, &["commit", "--put", &put, "--lock"]).await);
    check("ObjectList", &json(url, &["ls", "r"]).await);
    check("VersionList", &json(url, &["log", "r"]).await);
    let lock = json(url, &["lock", "-r", "r"]).await;
    check("Lock", &lock);
    let id = lock["id"].as_str().unwrap();
    check("Lock", &json(url, &["renew", id]).await);
    check("ResourceList", &json(url, &["ls"]).await);
    check("ResourceList", &json(url, &["locks"]).await);
    check("ResourceList", &json(url, &["locks", "--sort", "age"]).await);
    let next = json(url, &["transfer", id, "--to", "you"]).await;
    check("Lock", &next);
    let token = lock["token"].as_str().unwrap();
    call(url, &["put", "r", "k", "--token", token, "--lock-id", id]).await.with(5);
    check("RejectionList", &json(url, &["rejections"]).await);
    for act in ["freeze", "unfreeze", "protect", "unprotect"] {
        check("Resource", &json(url, &[act, "r", "--reason", "a test"]).await);
    }
    let broken = json(url, &["break", "r", "--reason", "a test", "--now", "--yes"]).await;
    check("Resource", &broken);
    check("AuditList", &json(url, &["audit"]).await);
    check("IntentList", &json(url, &["intents"]).await);
    check("Fence", &json(url, &["fence", "s"]).await);
    let shown = json(url, &["show", "r"]).await;
    check("Resource", &shown["resource"]);
    let status = json(url, &["status"]).await;
    check("Status", &status["status"]);
    check("Readiness", &status["ready"]);
    let never = json(url, &["unlock", "0190a1b2-0000-7000-8000-000000000000"]).await;
    check("NotReleased", &never);
    let events = call(url, &["events", "-o", "jsonl"]).await.with(0).out();
    for line in events.lines() {
        check("WriteEvent", &serde_json::from_str(line).unwrap());
    }
    // A refusal is a document, too, on standard error.
    let said = call(url, &["get", "r", "no-such-key", "--json"]).await.with(3);
    let problem: Value = serde_json::from_str(&said.err()).unwrap();
    assert_eq!(
        (&problem["code"], &problem["class"]),
        (&"object-not-found".into(), &"NotFound".into())
    );
}
