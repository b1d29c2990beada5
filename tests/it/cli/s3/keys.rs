//! `fence s3-key`: the key of a lock, for tools that ask for it.

use std::process::Stdio;

use serde_json::json;
use tokio::process::Command;

use super::super::{call, end};
use crate::rust_client::s3::front::{Front, key_of, secret_of};

#[tokio::test]
async fn a_key_is_printed_in_the_form_of_who_reads_it() {
    let front = Front::at("http://localhost:9").await;
    let lock = front.gateway.client().lock("lake:orders").acquire().await.unwrap();
    let id = lock.id().to_string();
    let (key, secret) = (key_of(&id), secret_of(&id));
    let process = call(front.url(), &["s3-key", &id]).await.with(0).json();
    assert_eq!(process, json!({"Version": 1, "AccessKeyId": key, "SecretAccessKey": secret}));
    let container = call(front.url(), &["s3-key", &id, "--as", "container"]).await.with(0).json();
    assert_eq!(container["AccessKeyId"], key);
    assert_eq!(container["SecretAccessKey"], secret);
    assert!(container["Token"].is_string() && container["Expiration"].is_string(), "{container}");
    let whole = call(front.url(), &["s3-key", &id, "--as", "json"]).await.with(0).json();
    assert_eq!(whole["endpoint"], "http://localhost:9");
    assert_eq!(whole["access_key_id"], key);
    // A shell that evaluates the variables has them, and not what misleads.
    let script = call(front.url(), &["s3-key", &id, "--as", "env"]).await.with(0).out();
    let mut shell = Command::new("sh");
    shell.args(["-c", "eval \"$1\"; echo $AWS_ACCESS_KEY_ID $AWS_ENDPOINT_URL_S3 [$AWS_PROFILE]"]);
    shell.args(["sh", &script]).env("AWS_PROFILE", "work");
    let said = end(shell.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()).await;
    assert_eq!(said.with(0).out(), format!("{key} http://127.0.0.1:9 []\n"));
    lock.release().await;
}

#[tokio::test]
async fn below_a_run_it_is_the_key_of_its_lock() {
    let front = Front::at("http://127.0.0.1:9").await;
    let script = "\"$0\" s3-key; echo $FENCE_LOCK_ID";
    let fence = super::super::binary();
    let words = ["run", "-r", "lake:orders", "--", "sh", "-c", script, fence.to_str().unwrap()];
    let said = call(front.url(), &words).await.with(0).out();
    let (document, id) = said.trim().split_once('\n').unwrap();
    let document: serde_json::Value = serde_json::from_str(document).unwrap();
    assert_eq!(document["AccessKeyId"], key_of(id));
}

#[tokio::test]
async fn a_lock_that_has_ended_has_no_key_whoever_has_the_resource_now() {
    let front = Front::at("http://127.0.0.1:9").await;
    let client = front.gateway.client();
    let first = client.lock("lake:orders").acquire().await.unwrap();
    let id = first.id().to_string();
    first.release().await;
    let second = client.lock("lake:orders").acquire().await.unwrap();
    for form in ["process", "container", "env", "json"] {
        let said = call(front.url(), &["s3-key", &id, "--as", form]).await.with(5);
        assert!(said.out().is_empty() && said.err().contains("lost"), "{form}: {said:?}");
    }
    let now = call(front.url(), &["s3-key", &second.id().to_string()]).await.with(0).json();
    assert_eq!(now["AccessKeyId"], key_of(&second.id().to_string()));
    second.release().await;
    let never = "0190a1b2-0000-7000-8000-000000000000";
    call(front.url(), &["s3-key", never]).await.with(3);
    call(front.url(), &["s3-key", "lake:orders"]).await.with(2);
    let said = call(front.url(), &["s3-key"]).await.with(2);
    assert!(said.err().contains("FENCE_LOCK_ID"), "{said:?}");
}
