//! First contact with a gateway: what is said where none is, and what no wait can mend.

use std::process::Stdio;

use fence_tests::gateway::Gateway;
use fence_tests::process::{free_port, loopback};
use tokio::io::{AsyncBufReadExt as _, BufReader};

use super::{Dev, call, end, fence};
use crate::http::tls::rig::{Authority, Files, is_ready};

/// Longer than any test: what ends before has not waited for it.
const LONG: [&str; 2] = ["--wait-for-gateway", "1h"];

#[tokio::test]
async fn where_none_is_its_address_is_told_and_what_to_do() {
    let urls = [free_port(), free_port()].map(|port| format!("http://{}", loopback(port)));
    for words in [&["status"][..], &["locks"], &["lock", "-r", "r"], &["get", "r", "k"]] {
        let said = call(&urls.join(","), words).await.with(8).err();
        assert!(urls.iter().all(|url| said.contains(url)), "{words:?}: {said}");
        assert!(said.contains("is it running?") && said.contains("--wait-for-gateway"), "{said}");
    }
    let said = call(&urls[0], &["--wait-for-gateway", "0", "run", "-r", "r", "--", "true"]).await;
    assert!(said.with(125).err().contains(&urls[0]));
    let job = ["--wait-for-gateway", "0", "job", "check", "j"];
    assert!(call(&urls[0], &job).await.with(3).err().contains("is it running?"));
}

#[tokio::test]
async fn whoever_says_so_waits_longer() {
    let mut gateway = Gateway::embedded().start().await;
    let url = gateway.url();
    gateway.kill9();
    // What starts unattended waits by itself, and says for what; the others where that was said.
    let mut job = fence(&url, &["run", "-r", "r", "-c", "echo ran"]).spawn().unwrap();
    let mut lines = BufReader::new(job.stderr.take().unwrap()).lines();
    let line = lines.next_line().await.unwrap().unwrap();
    assert!(line.contains(&url) && line.contains("waiting for it"), "{line}");
    let by_flag = fence(&url, &[&LONG[..], &["lock", "-r", "l"]].concat()).spawn().unwrap();
    let mut command = fence(&url, &["status"]);
    let by_variable = command.env("FENCE_WAIT_FOR_GATEWAY", "1h").spawn().unwrap();
    gateway.restart().await;
    assert_eq!(end(job).await.with(0).out(), "ran\n");
    end(by_flag).await.with(0);
    end(by_variable).await.with(0);
    let mut command = fence(&url, &["status"]);
    let said = end(command.env("FENCE_WAIT_FOR_GATEWAY", "soon").spawn().unwrap()).await.with(2);
    assert!(said.err().contains("FENCE_WAIT_FOR_GATEWAY"), "{said:?}");
}

#[tokio::test]
async fn what_no_wait_can_mend_ends_at_once() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    files.put("ca.pem", &authority.pem());
    let open = files.gateway().begin();
    is_ready(&open, &authority.caller(true, None)).await;
    let callers = Authority::new("callers");
    let strict = files.gateway_for(&callers, &callers.revokes(9));
    let strict = strict.flag("--tls-client-auth", "required").begin();
    is_ready(&strict, &authority.caller(true, Some(&callers.client(1)))).await;
    let plain = Dev::start().await;
    let (address, ca_file) = (open.address(), files.path("ca.pem"));
    let cases = [
        (format!("https://{address}"), "--ca-file"),
        (format!("http://{address}"), "https://?"),
        (plain.url().replace("http:", "https:"), "http://?"),
        (format!("https://{}", strict.address()), "--cert-file"),
    ];
    for (url, hint) in &cases {
        for words in [&["status"][..], &["run", "-r", "r", "--", "true"]] {
            let mut command = fence(url, &[&LONG[..], words].concat());
            if *hint != "--ca-file" {
                command.env("FENCE_CA_FILE", &ca_file);
            }
            let said = end(command.spawn().unwrap()).await;
            let code = if words[0] == "run" { 125 } else { 8 };
            assert_eq!(said.code(), Some(code), "{url}: {said:?}");
            assert!(said.err().contains(hint) && said.err().contains(url), "{url}: {said:?}");
        }
    }
    // Of several the good one is asked, whatever is wrong with the first.
    let both = format!("https://{address},{}", plain.url());
    call(&both, &["locks"]).await.with(0);
    // A name that nobody can have: a label has at most 63 bytes.
    let url = format!("http://{}.invalid:1", "x".repeat(64));
    let said = call(&url, &["run", "-r", "r", "--", "true"]).await.with(125);
    assert!(said.err().contains("spelt right") && said.err().contains(&url), "{said:?}");
}

#[tokio::test]
async fn a_gateway_that_is_gone_at_the_end_of_a_command_is_told() {
    let gateway = Gateway::embedded().start().await;
    let script = format!("kill -9 {}; echo done", gateway.pid());
    let mut command = fence(&gateway.url(), &["run", "-r", "r", "--ttl", "1h", "-c", &script]);
    let said = end(command.stdin(Stdio::null()).spawn().unwrap()).await.with(0);
    assert_eq!(said.out(), "done\n");
    assert!(said.err().contains("stays until its ttl is over"), "{said:?}");
}
