//! A certificate and a key on one request: they are of one principal, or the certificate is nobody's.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::access::{Key, Rules, role};
use fence_tests::gateway::Gateway;
use rcgen::SanType;
use serde_json::{Value, json};

use super::line::{Line, connects};
use super::rig::{Authority, Files, Pair, is_ready};

/// A principal with a key, and with the certificate of a host.
fn person(name: &str, key: &Key) -> String {
    format!(
        "[[principals]]\nname = \"{name}\"\nroles = [\"worker\"]\nkeys = [{}]\n\
         match = {{ dns = \"{name}.example.com\" }}\n",
        key.line
    )
}

/// The status of an answer, and its body.
fn parsed(answer: &str) -> (u16, Value) {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, serde_json::from_str(body).unwrap())
}

struct Rig {
    ours: Authority,
    callers: Authority,
    _files: Files,
    gateway: Gateway,
}

impl Rig {
    async fn start() -> Self {
        let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
        let files = Files::new(&ours.server(1));
        let gateway = files.gateway_for(&callers, &callers.revokes(9)).begin();
        is_ready(&gateway, &ours.caller(false, None)).await;
        Self { ours, callers, _files: files, gateway }
    }

    fn of_host(&self, host: &str) -> Pair {
        let name = SanType::DnsName(host.try_into().unwrap());
        self.callers.client_named("whoever", vec![name])
    }

    /// Asks for a lock of this resource with a certificate and a line of the head, on a connection of its own.
    async fn lock(&self, own: Option<&Pair>, line: &str, resource: &str) -> (u16, Value) {
        let mut to = Line::open(&self.gateway, &connects(&self.ours, own)).await.unwrap();
        let wish = json!({ "resource": resource, "ttl": "1h" }).to_string();
        to.send(&format!(
            "POST /locks HTTP/1.1\r\nhost: localhost\r\n{line}content-type: application/json\r\n\
             content-length: {}\r\n\r\n{wish}",
            wish.len()
        ))
        .await;
        parsed(&to.answer().await.unwrap())
    }
}

#[tokio::test]
async fn a_certificate_and_a_key_are_of_one_principal_or_the_request_is_of_none() {
    let rig = Rig::start().await;
    let rules = Rules::new().await;
    let (ann, bob, stranger) = (Key::new().await, Key::new().await, Key::new().await);
    let worker = role("worker", "allow = [\"lock\"]\nresources = [\"*\"]");
    let text = rules.admin() + &worker + &person("ann", &ann) + &person("bob", &bob);
    rules.put_in_force(&rig.gateway, &text).await;
    let of_ann = rig.of_host("ann.example.com");
    let of_proxy = rig.of_host("proxy.example.com");
    let of_no_name = rig.callers.client_named("ann.example.com", Vec::new());
    let bearer = |key: &Key| format!("authorization: Bearer {}\r\n", key.text);
    let none = String::new;
    for (number, (what, own, line, expected)) in [
        ("a certificate alone", Some(&of_ann), none(), Ok("ann")),
        ("a key alone", None, bearer(&bob), Ok("bob")),
        ("both of one", Some(&of_ann), bearer(&ann), Ok("ann")),
        ("of two", Some(&of_ann), bearer(&bob), Err((400, "credentials-conflict"))),
        // A proxy in between may have one of its own.
        ("a proxy's, and a key", Some(&of_proxy), bearer(&bob), Ok("bob")),
        ("without a name, and a key", Some(&of_no_name), bearer(&bob), Ok("bob")),
        ("a proxy's alone", Some(&of_proxy), none(), Err((401, "unauthenticated"))),
        // What is no good is not made good by a certificate.
        ("and a bad key", Some(&of_ann), bearer(&stranger), Err((401, "unauthenticated"))),
        (
            "and something else",
            Some(&of_ann),
            "authorization: Basic YTpi\r\n".to_owned(),
            Err((401, "unauthenticated")),
        ),
        (
            "and no scheme",
            Some(&of_ann),
            "authorization: \r\n".to_owned(),
            Err((401, "unauthenticated")),
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let (status, body) = rig.lock(own, &line, &format!("r{number}")).await;
        match expected {
            Ok(name) => {
                assert_eq!((status, &body["principal"]), (201, &json!(name)), "{what}: {body}");
            }
            Err((expected, code)) => {
                assert_eq!((status, &body["code"]), (expected, &json!(code)), "{what}: {body}");
            }
        }
    }
}
