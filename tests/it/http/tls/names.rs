//! What a certificate must name to be somebody where rules of access are in force.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::access::{Rules, role};
use rcgen::SanType;

use super::line::{Line, connects};
use super::rig::{Authority, Files, is_ready};

fn uri(text: &str) -> SanType {
    SanType::URI(text.try_into().unwrap())
}

fn dns(text: &str) -> SanType {
    SanType::DnsName(text.try_into().unwrap())
}

/// The rules know each of these names, as far as they take it.
const MATCHED: &str = "
[[principals]]
name = \"spiffe\"
roles = [\"reader\"]
match = { spiffe = \"spiffe://td/*\" }

[[principals]]
name = \"dns\"
roles = [\"reader\"]
match = { dns = \"worker.example.com\" }
";

/// An authority signs what it likes: that of a partner must not make the operators of the house.
#[tokio::test]
async fn a_name_that_another_authority_has_signed_is_nobodys() {
    let (ours, callers, partner) =
        (Authority::new("ours"), Authority::new("callers"), Authority::new("partner"));
    let files = Files::new(&ours.server(1));
    let settings = files.gateway_for(&callers, &callers.revokes(9));
    files.put("callers.pem", &(callers.pem() + &partner.pem()));
    let gateway = settings.begin();
    is_ready(&gateway, &ours.caller(false, None)).await;
    let rules = Rules::new().await;
    let may = "allow = [\"read\", \"list\"]\nresources = [\"*\"]";
    let known = |name: &str, matches: &str, authority: &Authority| {
        let (digest, roles) = (authority.digest(), "roles = [\"reader\"]");
        format!(
            "[[principals]]\nname = \"{name}\"\n{roles}\nmatch = {{ {matches}, authorities = [\"{digest}\"] }}\n"
        )
    };
    let text = [
        known("ops", "spiffe = \"spiffe://td/ops/*\"", &callers),
        known("worker", "dns = \"worker.example.com\"", &callers),
        known("partner", "spiffe = \"spiffe://partner/*\"", &partner),
    ];
    let text = rules.admin() + &role("reader", may) + &text.concat();
    rules.put_in_force(&gateway, &text).await;
    for (authority, name, is_somebody) in [
        (&callers, uri("spiffe://td/ops/a"), true),
        (&callers, dns("worker.example.com"), true),
        (&partner, uri("spiffe://partner/a"), true),
        (&partner, uri("spiffe://td/ops/a"), false),
        (&partner, dns("worker.example.com"), false),
        (&callers, uri("spiffe://partner/a"), false),
    ] {
        let shown = format!("{name:?}");
        let own = authority.client_named("it", vec![name]);
        let line = Line::open(&gateway, &connects(&ours, Some(&own))).await;
        let answer = line.unwrap().get("/resources").await.unwrap();
        let says = if is_somebody { " 200 " } else { " 401 " };
        assert!(answer.contains(says), "{shown} of {}: {answer}", authority.digest());
    }
}

#[tokio::test]
async fn a_certificate_is_somebodys_by_one_spiffe_id_or_one_dns_name() {
    let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
    let files = Files::new(&ours.server(1));
    let gateway = files.gateway_for(&callers, &callers.revokes(9)).begin();
    is_ready(&gateway, &ours.caller(false, None)).await;
    let rules = Rules::new().await;
    let may = "allow = [\"read\", \"list\"]\nresources = [\"*\"]";
    rules.put_in_force(&gateway, &(rules.admin() + &role("reader", may) + MATCHED)).await;

    let (id, host) = ("spiffe://td/worker", "worker.example.com");
    for (names, is_somebody) in [
        (vec![uri(id)], true),
        (vec![dns(host)], true),
        // The id counts, whatever hosts are named beside it.
        (vec![uri(id), dns("other.example.com")], true),
        (vec![], false),
        (vec![uri(id), uri("spiffe://td/other")], false),
        (vec![uri("spiffe://TD/worker")], false),
        (vec![uri("https://td/worker")], false),
        (vec![dns("*.example.com")], false),
        (vec![dns("WORKER.example.com")], false),
        (vec![dns(host), dns("other.example.com")], false),
    ] {
        let shown = format!("{names:?}");
        // The subject is never read: with any of these names it would be somebody.
        for subject in [host, id] {
            let own = callers.client_named(subject, names.clone());
            let line = Line::open(&gateway, &connects(&ours, Some(&own))).await;
            let answer = line.unwrap().get("/resources").await.unwrap();
            let (status, says) =
                if is_somebody { (" 200 ", "") } else { (" 401 ", "unauthenticated") };
            assert!(answer.contains(status) && answer.contains(says), "{shown}: {answer}");
        }
    }
    let mut nobody = Line::open(&gateway, &connects(&ours, None)).await.unwrap();
    let answer = nobody.get("/resources").await.unwrap();
    assert!(answer.contains(" 401 ") && answer.contains("unauthenticated"), "{answer}");
}
