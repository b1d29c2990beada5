//! What is shown in a request: which credentials are taken, and what all others are told.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "the times in tokens are those of the real clock")]

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
use fence_tests::access::{Key, Rules};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::raw::exchange;
use jiff::Timestamp;
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

use crate::setup::SetUp;

const MAY: &str = "allow = [\"lock\", \"read\", \"list\"]\nresources = [\"*\"]";

/// A request for a list, with these lines in its head.
fn head(lines: &[&str]) -> Vec<u8> {
    let lines: String = lines.iter().map(|line| format!("{line}\r\n")).collect();
    format!("GET /locks HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{lines}\r\n")
        .into_bytes()
}

async fn told(gateway: &Gateway, request: &[u8]) -> (u16, String) {
    let answer = exchange(gateway.address(), request).await.unwrap();
    (answer.status, answer.code())
}

/// The same key with one character of it changed.
fn changed(key: &str, at: usize) -> String {
    let mut bytes = key.as_bytes().to_vec();
    bytes[at] = if bytes[at] == b'A' { b'B' } else { b'A' };
    String::from_utf8(bytes).unwrap()
}

#[tokio::test]
async fn one_good_key_is_taken_and_nothing_else() {
    let rules = Rules::new().await;
    let (ann, bob) = (Key::new().await, Key::new().await);
    let gateway = SetUp::Clustered.start().await;
    rules.put_in_force(&gateway, &rules.text(MAY, &[("ann", &ann)])).await;
    let (good, other) = (&ann.text, &bob.text);
    for scheme in ["Bearer", "bearer", "BEARER"] {
        let request = head(&[&format!("authorization: {scheme} {good}")]);
        assert_eq!(told(&gateway, &request).await, (200, String::new()), "{scheme}");
    }
    let parts: Vec<&str> = good.split('_').collect();
    let others: Vec<&str> = other.split('_').collect();
    let unauthenticated = [
        String::new(),
        good.clone(),
        format!("Basic {good}"),
        format!("Bearer{good}"),
        "Bearer".to_owned(),
        "Bearer ".to_owned(),
        format!("Bearer {}", &good[..good.len() - 1]),
        format!("Bearer {good}x"),
        format!("Bearer {}", changed(good, good.len() - 1)),
        format!("Bearer {}", changed(good, 20)),
        // Another secret under the id of a key, and a whole key that nobody has.
        format!("Bearer fgk_{}_{}_{}", parts[1], others[2], parts[3]),
        format!("Bearer {other}"),
        format!("Bearer {}", "A".repeat(9_000)),
        "Bearer a.b.c".to_owned(),
    ];
    for line in unauthenticated {
        let line = format!("authorization: {line}");
        let (status, code) = told(&gateway, &head(&[&line])).await;
        assert_eq!((status, code.as_str()), (401, "unauthenticated"), "{line}");
    }
    for (lines, status, code) in [
        (vec![], 401, "unauthenticated"),
        (vec![format!("cookie: authorization=Bearer {good}")], 401, "unauthenticated"),
        (vec![format!("x-authorization: Bearer {good}")], 401, "unauthenticated"),
        (vec![format!("x_authorization: Bearer {good}")], 401, "unauthenticated"),
        (vec!["x-fence-principal: ann".to_owned()], 401, "unauthenticated"),
        (vec!["x-forwarded-user: ann".to_owned()], 401, "unauthenticated"),
        (vec![format!("authorization: Bearer {good}"); 2], 400, "credentials-conflict"),
        (
            vec![format!("authorization: Bearer {}", "A".repeat(17 * 1024))],
            431,
            "headers-too-large",
        ),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (found, told) = told(&gateway, &head(&lines)).await;
        assert_eq!((found, told.as_str()), (status, code), "{lines:.80?}");
    }
    // Bytes that are no text; and a byte that no head may have.
    let eight_bits = [&head(&["authorization: Bearer X"])[..]].concat();
    let at = eight_bits.iter().position(|byte| *byte == b'X').unwrap();
    for (byte, status) in [(0xe4, 401), (0x00, 400)] {
        let mut request = eight_bits.clone();
        request[at] = byte;
        assert_eq!(told(&gateway, &request).await.0, status, "{byte:#x}");
    }
    let in_url =
        format!("GET /locks?key={good} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
    let (status, code) = told(&gateway, in_url.as_bytes()).await;
    assert_eq!((status, code.as_str()), (400, "credentials-conflict"));
    assert!(!gateway.log().contains(good), "the log has a key");
    // What names a credential says how one is sent.
    let answer = exchange(gateway.address(), &head(&[])).await.unwrap();
    assert_eq!(answer.header("www-authenticate"), Some("Bearer realm=\"fencegate\""));
}

/// Somebody who signs tokens.
struct Issuer {
    kid: &'static str,
    signing: EncodingKey,
    public: Value,
}

impl Issuer {
    fn new(kid: &'static str) -> Self {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).unwrap();
        let signing = EncodingKey::from_ec_der(pair.to_pkcs8v1().unwrap().as_ref());
        let public = Jwk::from_encoding_key(&signing, Algorithm::ES256).unwrap();
        let mut public = serde_json::to_value(public).unwrap();
        public["kid"] = kid.into();
        public["use"] = "sig".into();
        Self { kid, signing, public }
    }

    fn token(&self, sub: &str, change: (&str, Value)) -> String {
        let now = Timestamp::now().as_second();
        let mut claims = json!({
            "iss": "https://issuer.example", "aud": "fencegate", "sub": sub, "exp": now + 600, "jti": "one",
        });
        claims[change.0] = change.1;
        let head = Header { kid: Some(self.kid.to_owned()), ..Header::new(Algorithm::ES256) };
        encode(&head, &claims, &self.signing).unwrap()
    }

    fn bearer(&self, sub: &str) -> String {
        format!("authorization: Bearer {}", self.token(sub, ("none", Value::Null)))
    }
}

/// Tokens of an issuer: each subject is a principal of its own; and the issuer's keys change without a gap.
#[tokio::test]
async fn tokens_are_taken_by_the_keys_that_their_issuer_has_now() {
    let rules = Rules::new().await;
    let (first, second) = (Issuer::new("first"), Issuer::new("second"));
    let file = rules.home.path().join("jwks.json");
    let publish = |issuers: &[&Issuer]| {
        let keys: Vec<_> = issuers.iter().map(|issuer| &issuer.public).collect();
        let beside = file.with_extension("new");
        std::fs::write(&beside, json!({ "keys": keys }).to_string()).unwrap();
        std::fs::rename(&beside, &file).unwrap();
    };
    publish(&[&first]);
    let gateway = SetUp::Clustered.start().await;
    let issuer = format!(
        "[[issuers]]\nname = \"i\"\nissuer = \"https://issuer.example\"\naudience = \"fencegate\"\n\
         jwks_file = \"{}\"\nalgorithms = [\"ES256\"]\n\
         [[principals]]\nname = \"job/${{sub}}\"\nroles = [\"worker\"]\n\
         match = {{ issuer = \"i\", sub = \"billing:*\" }}\n",
        file.display()
    );
    let text = rules.text(MAY, &[]) + &issuer;
    rules.put_in_force(&gateway, &text).await;
    let status = async |line: &str| told(&gateway, &head(&[line])).await;
    let unauthenticated = (401, "unauthenticated".to_owned());
    assert_eq!(status(&first.bearer("billing:a")).await, (200, String::new()));
    assert_eq!(status(&second.bearer("billing:a")).await, unauthenticated);
    for sub in ["other:a", "billing", "billing:*", "billing:a b", ""] {
        assert_eq!(status(&first.bearer(sub)).await, unauthenticated, "{sub}");
    }
    let now = Timestamp::now().as_second();
    for (change, code) in [
        (("aud", json!("other")), "unauthenticated"),
        (("iss", json!("https://issuer.example/")), "unauthenticated"),
        (("nbf", json!(now + 600)), "unauthenticated"),
        (("exp", json!("soon")), "unauthenticated"),
        (("exp", json!(now - 600)), "credential-expired"),
    ] {
        let token = first.token("billing:a", change.clone());
        let (found, told) = status(&format!("authorization: Bearer {token}")).await;
        assert_eq!((found, told.as_str()), (401, code), "{change:?}");
    }
    // Whose lock it is, the token says.
    let client = gateway.client();
    let body = json!({ "resource": "r", "ttl": "1h" });
    let token = first.token("billing:a", ("none", Value::Null));
    let lock = client.lock(&body).header("authorization", format!("Bearer {token}"));
    assert_eq!(lock.send().await.expect(201).json()["principal"], "job/billing:a");

    // A key that the gateway has not seen is looked for at once; one that is gone is good no more.
    publish(&[&first, &second]);
    assert_eq!(status(&second.bearer("billing:a")).await, (200, String::new()));
    publish(&[&second]);
    eventually("the first key is gone", async || {
        (status(&first.bearer("billing:a")).await == unauthenticated).then_some(())
    })
    .await;
    assert_eq!(status(&second.bearer("billing:a")).await, (200, String::new()));
    rules.put_in_force(&gateway, &format!("revoked = [\"jti:i#one\"]\n{text}")).await;
    assert_eq!(status(&second.bearer("billing:a")).await, unauthenticated);
}
