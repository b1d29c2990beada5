//! Callers' certificates: who is let in with which, and who without one.

use super::line::{connects, is_let_in};
use super::rig::{Authority, Files, is_ready};
use fence_tests::process::eventually;

#[tokio::test]
async fn only_callers_with_a_certificate_of_the_right_authority_are_let_in() {
    let (ours, callers, others) =
        (Authority::new("ours"), Authority::new("callers"), Authority::new("others"));
    let files = Files::new(&ours.server(1));
    let settings = files.gateway_for(&callers, &callers.revokes(9));
    let gateway = settings.flag("--tls-client-auth", "required").begin();
    let good = callers.client(8);
    is_ready(&gateway, &ours.caller(false, Some(&good))).await;
    for (who, own) in [
        ("nobody", None),
        ("one of another authority", Some(others.client(8))),
        ("one that is revoked", Some(callers.client(9))),
        ("one that has ended", Some(callers.client_until(-3600))),
        ("one that is for servers", Some(callers.server(8))),
    ] {
        assert!(!is_let_in(&gateway, &connects(&ours, own.as_ref())).await, "{who} is let in");
    }
    // What is revoked later is not let in any more.
    files.put("revoked.pem", &callers.revokes(8));
    eventually("it is not let in any more", async || {
        (!is_let_in(&gateway, &connects(&ours, Some(&good))).await).then_some(())
    })
    .await;
    assert!(is_let_in(&gateway, &connects(&ours, Some(&callers.client(10)))).await);
}

#[tokio::test]
async fn a_certificate_may_be_left_out_unless_it_is_required() {
    let (ours, callers, others) =
        (Authority::new("ours"), Authority::new("callers"), Authority::new("others"));
    let files = Files::new(&ours.server(1));
    let gateway = files.gateway_for(&callers, &callers.revokes(9)).begin();
    is_ready(&gateway, &ours.caller(false, None)).await;
    assert!(is_let_in(&gateway, &connects(&ours, Some(&callers.client(8)))).await);
    // Whoever shows one must show a good one.
    for bad in [others.client(8), callers.client(9), callers.client_until(-3600)] {
        assert!(!is_let_in(&gateway, &connects(&ours, Some(&bad))).await);
    }
}
