//! Processes at a Unix socket of `admin_listen`: who they are, and what they show beside it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use fence_tests::access::{Key, Rules, principal};
use fence_tests::gateway::Gateway;
use fence_tests::process::DEADLINE;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::UnixStream;
use tokio::time::timeout;

use super::{MAY, head, told, unauthenticated};
use crate::setup::SetUp;

/// What the kernel says of this process: its user and its group.
fn own_ids() -> (u32, u32) {
    let own = fs::metadata("/proc/self").unwrap();
    (own.uid(), own.gid())
}

/// Sends a request on a connection of its own: the status and the body.
async fn send(socket: &Path, request: &[u8]) -> (u16, Value) {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = String::new();
    let read = timeout(DEADLINE, stream.read_to_string(&mut answer));
    read.await.expect("an answer").unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer in HTTP");
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

async fn told_at(socket: &Path, lines: &[&str]) -> (u16, String) {
    let (status, body) = send(socket, &head(lines)).await;
    (status, body["code"].as_str().unwrap_or_default().to_owned())
}

/// Whose lock it is that whoever shows this takes there.
async fn taker(socket: &Path, resource: &str, line: &str) -> Value {
    let wish = json!({ "resource": resource, "ttl": "1h" }).to_string();
    let request = format!(
        "POST /locks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{line}\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n{wish}",
        wish.len()
    );
    let (status, lock) = send(socket, request.as_bytes()).await;
    assert_eq!(status, 201, "{lock}");
    lock["principal"].clone()
}

fn matching(name: &str, ids: &str) -> String {
    format!("[[principals]]\nname = \"{name}\"\nroles = [\"worker\"]\nmatch = {{ {ids} }}\n")
}

/// A gateway with a socket in the folder of the rules.
async fn behind_a_socket(rules: &Rules) -> (Gateway, std::path::PathBuf) {
    let socket = rules.home.path().join("door.sock");
    let settings = SetUp::Clustered.settings().await;
    let door = format!("unix:{}", socket.display());
    (settings.flag("--admin-listen", &door).start().await, socket)
}

#[tokio::test]
async fn a_process_at_a_socket_is_who_the_kernel_says() {
    let rules = Rules::new().await;
    let (gateway, socket) = behind_a_socket(&rules).await;
    let (uid, gid) = own_ids();
    let (other_uid, other_gid) = (uid + 1, gid + 1);
    let is = |ids: &str| matching("process", ids);
    let conflict = matching("user", &format!("unix_uid = {uid}"))
        + &matching("group", &format!("unix_gid = {gid}"));
    for (what, people, is_let_in) in [
        ("its user", is(&format!("unix_uid = {uid}")), true),
        ("another user", is(&format!("unix_uid = {other_uid}")), false),
        ("its group", is(&format!("unix_gid = {gid}")), true),
        ("another group", is(&format!("unix_gid = {other_gid}")), false),
        ("both", is(&format!("unix_uid = {uid}, unix_gid = {gid}")), true),
        ("its group alone", is(&format!("unix_uid = {other_uid}, unix_gid = {gid}")), false),
        ("its user alone", is(&format!("unix_uid = {uid}, unix_gid = {other_gid}")), false),
        // Which of the two is meant?
        ("one of two", conflict, false),
        ("nobody", String::new(), false),
    ] {
        rules.put_in_force(&gateway, &(rules.text(MAY, &[]) + &people)).await;
        let expected = if is_let_in { (200, String::new()) } else { unauthenticated() };
        assert_eq!(told_at(&socket, &[]).await, expected, "{what}");
        // Whoever comes by TCP shows no user, whichever it has.
        assert_eq!(told(&gateway, &head(&[])).await, unauthenticated(), "{what}");
    }
    let people = matching("process", &format!("unix_uid = {uid}"));
    rules.put_in_force(&gateway, &(rules.text(MAY, &[]) + &people)).await;
    assert_eq!(taker(&socket, "r", "").await, "process");
}

/// A proxy on this machine, or a shell of the gateway's own user, passes on what others show.
#[tokio::test]
async fn a_key_at_a_socket_counts_and_the_process_that_brings_it_does_not() {
    let rules = Rules::new().await;
    let (gateway, socket) = behind_a_socket(&rules).await;
    let (ann, stranger) = (Key::new().await, Key::new().await);
    let uid = own_ids().0;
    let known = matching("process", &format!("unix_uid = {uid}"));
    let unknown = matching("process", &format!("unix_uid = {}", uid + 1));
    let bearer = |key: &Key| format!("authorization: Bearer {}", key.text);
    for (process, people) in [("known", known), ("unknown", unknown)] {
        let ann_is = principal("ann", "worker", &[&ann]);
        rules.put_in_force(&gateway, &(rules.text(MAY, &[]) + &ann_is + &people)).await;
        let line = format!("{}\r\n", bearer(&ann));
        assert_eq!(taker(&socket, process, &line).await, "ann", "{process}");
        // What is no good is not made good by who brings it.
        for bad in [bearer(&stranger), "authorization: Basic YTpi".to_owned()] {
            assert_eq!(told_at(&socket, &[&bad]).await, unauthenticated(), "{process}: {bad}");
        }
        let twice = bearer(&ann);
        let conflict = (400, "credentials-conflict".to_owned());
        assert_eq!(told_at(&socket, &[&twice, &twice]).await, conflict, "{process}");
    }
}
