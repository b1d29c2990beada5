//! The gateway's own certificate: what is served with it, and how it changes.

use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt as _;

use super::rig::{Authority, Files, Pair, answers, is_ready, metric, url};
use crate::operating::commands::fencegate;

#[tokio::test]
async fn a_lock_and_a_write_by_tls() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().begin();
    let caller = authority.caller(true, None);
    is_ready(&gateway, &caller).await;
    gateway.logged("listening on https://").await;
    let lock = caller.post(url(&gateway, "/locks")).json(&serde_json::json!({ "resource": "r" }));
    let lock: serde_json::Value = lock.send().await.unwrap().json().await.unwrap();
    let put = caller
        .put(url(&gateway, "/resources/r/objects/k"))
        .header("x-fence-token", lock["token"].as_str().unwrap())
        .body(vec![7; 300_000]);
    assert_eq!(put.send().await.unwrap().status(), 201);
    let read = caller.get(url(&gateway, "/resources/r/objects/k")).send().await.unwrap();
    assert_eq!(read.bytes().await.unwrap(), vec![7; 300_000]);
    let expires = metric(&gateway, &caller, "fencegate_tls_certificate_expires_seconds").await;
    assert_eq!(expires.as_deref(), Some("2208988800"));
    // Somebody who trusts others does not go on.
    let other = Authority::new("others").caller(false, None);
    assert!(!answers(&gateway, &other).await);
}

#[tokio::test]
async fn a_certificate_is_changed_without_ending_a_connection_and_a_bad_one_is_not_used() {
    let (old, new) = (Authority::new("old"), Authority::new("new"));
    let files = Files::new(&old.server(1));
    let gateway = files.gateway().begin();
    let kept = old.caller(true, None);
    is_ready(&gateway, &kept).await;
    // A certificate without its key is not used, whoever is told of it.
    let Pair { certificate, key } = new.server(2);
    files.put("own.pem", &certificate);
    gateway.hangup();
    gateway.logged("do not go together").await;
    assert!(answers(&gateway, &old.caller(false, None)).await);
    files.put("own-key.pem", &key);
    is_ready(&gateway, &new.caller(false, None)).await;
    assert!(!answers(&gateway, &old.caller(false, None)).await, "the old one is gone");
    assert!(answers(&gateway, &kept).await, "the connection is still open");
    let failures = metric(&gateway, &kept, "fencegate_tls_reload_failures_total").await;
    assert!(failures.is_some_and(|count| count != "0"));
}

/// Whoever has the key may have changed with its owner or its mode, which changes neither the file nor its time.
#[tokio::test]
async fn files_are_read_again_when_their_rights_have_changed() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().begin();
    let kept = authority.caller(true, None);
    is_ready(&gateway, &kept).await;
    set_permissions(files.path("own-key.pem"), Permissions::from_mode(0o640)).unwrap();
    gateway.logged("the certificate was read again").await;
    assert!(
        answers(&gateway, &kept).await && answers(&gateway, &authority.caller(false, None)).await
    );
}

/// A gateway that starts so is refused by all who look at its certificate, and looks well to itself.
#[tokio::test]
async fn a_certificate_that_is_not_in_date_is_told_at_the_start() {
    let authority = Authority::new("ours");
    for (years, from) in [(2020..2021, "2020-01-01"), (2039..2040, "2039-01-01"), (2020..2040, "")]
    {
        let files = Files::new(&authority.server_in(years));
        let says = format!("own.pem is good from {from}");
        let gateway = files.gateway().begin();
        let [cert, key] = ["own.pem", "own-key.pem"].map(|name| files.path(name));
        let flags =
            ["--tls-cert-file", cert.to_str().unwrap(), "--tls-key-file", key.to_str().unwrap()];
        let checked = fencegate(&[&["check-config"], &flags[..]].concat(), &[]).await;
        assert_eq!(checked.code, Some(0), "{}", checked.err);
        if from.is_empty() {
            is_ready(&gateway, &authority.caller(true, None)).await;
            assert!(!gateway.log().contains("is good from"), "{}", gateway.log());
            assert!(!checked.out.contains("is good from"), "{}", checked.out);
        } else {
            gateway.logged(&says).await;
            assert!(
                checked.out.contains(&says) && checked.out.contains("# warning: "),
                "{}",
                checked.out
            );
        }
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_are_told_at_the_start() {
    let authority = Authority::new("ours");
    let (own, other) = (authority.server(1), authority.server(2));
    let too_large = "x".repeat((1 << 20) + 1);
    for (certificate, key, says) in [
        ("", own.key.as_str(), "own.pem: it has no certificate"),
        (own.certificate.as_str(), "", "own-key.pem: it has no private key"),
        (own.certificate.as_str(), other.key.as_str(), "do not go together"),
        (too_large.as_str(), own.key.as_str(), "own.pem: it has more than 1048576 bytes"),
    ] {
        let files = Files::new(&Pair { certificate: certificate.to_owned(), key: key.to_owned() });
        let (status, log) = files.gateway().start_refused().await;
        assert_eq!(status.code(), Some(1), "{log}");
        assert!(log.contains(says), "{log}");
    }
    let files = Files::new(&own);
    std::fs::remove_file(files.path("own.pem")).unwrap();
    let (status, log) = files.gateway().start_refused().await;
    assert!(status.code() == Some(1) && log.contains("own.pem: No such file"), "{log}");
}
