//! Lists of revoked certificates: which are taken, and what is told of them.

use super::line::{connects, is_let_in};
use super::rig::{Authority, Files, is_ready, metric};

#[tokio::test]
async fn a_list_that_no_authority_has_signed_is_refused() {
    let (ours, callers, others) =
        (Authority::new("ours"), Authority::new("callers"), Authority::new("others"));
    // Of the same name, with another key.
    let namesake = Authority::new("callers");
    let files = Files::new(&ours.server(1));
    let cases = [
        (others.revokes(9), "is of no authority in tls_client_ca_file"),
        (namesake.revokes(9), "is not signed by that authority"),
        (callers.revokes(9) + &callers.revokes(8), "it has two lists of"),
    ];
    for (list, says) in &cases {
        let (status, log) = files.gateway_for(&callers, list).start_refused().await;
        assert!(status.code() == Some(1) && log.contains(says), "{says}: {log}");
    }
    let gateway = files.gateway_for(&callers, &callers.revokes(9)).begin();
    let caller = ours.caller(false, None);
    is_ready(&gateway, &caller).await;
    for (list, says) in &cases {
        files.put("revoked.pem", list);
        gateway.hangup();
        gateway.logged(says).await;
    }
    let failures = metric(&gateway, &caller, "fencegate_tls_reload_failures_total").await.unwrap();
    assert!(failures.parse::<u64>().unwrap() >= 3, "{failures}");
    // What was read before is in use.
    assert!(!is_let_in(&gateway, &connects(&ours, Some(&callers.client(9)))).await);
    assert!(is_let_in(&gateway, &connects(&ours, Some(&callers.client(8)))).await);
}

#[tokio::test]
async fn a_list_that_has_lapsed_is_used_and_told() {
    let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
    let files = Files::new(&ours.server(1));
    let gateway = files.gateway_for(&callers, &callers.revokes_until(9, 2024)).begin();
    let caller = ours.caller(false, None);
    is_ready(&gateway, &caller).await;
    gateway.logged("a list of revoked certificates should have been replaced").await;
    let expires = metric(&gateway, &caller, "fencegate_tls_crl_expires_seconds").await;
    assert_eq!(expires.as_deref(), Some("1704067200"));
    assert!(!is_let_in(&gateway, &connects(&ours, Some(&callers.client(9)))).await);
    assert!(is_let_in(&gateway, &connects(&ours, Some(&callers.client(8)))).await);
}

/// Larger than other files may be.
#[tokio::test]
async fn a_list_has_room_for_many() {
    let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
    let files = Files::new(&ours.server(1));
    // What stands before a block of PEM is passed over.
    let list = |bytes: usize| format!("{}\n{}", "x".repeat(bytes), callers.revokes(9));
    let gateway = files.gateway_for(&callers, &list(15 << 20)).begin();
    is_ready(&gateway, &ours.caller(false, None)).await;
    assert!(!is_let_in(&gateway, &connects(&ours, Some(&callers.client(9)))).await);
    let (status, log) = files.gateway_for(&callers, &list(16 << 20)).start_refused().await;
    assert!(status.code() == Some(1) && log.contains("more than 16777216 bytes"), "{log}");
}
