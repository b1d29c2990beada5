//! Keys: the one that is good, and all that is not quite it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts those who guess")]

use fence_tests::access::{Key, Rules};
use fence_tests::raw::{RawConnection, exchange};

use super::signer::part;
use super::{MAY, head, let_in, told, told_to, unauthenticated};
use crate::setup::SetUp;

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

/// A key of this id and this secret, with the checksum that goes with them.
fn key_of(kid: &str, secret: &str) -> String {
    const DIGITS: &[u8] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
    let body = format!("fgk_{kid}_{secret}");
    let mut rest = crc32fast::hash(body.as_bytes()) as usize;
    let mut digits = [' '; 6];
    for digit in digits.iter_mut().rev() {
        *digit = DIGITS[rest % 62].into();
        rest /= 62;
    }
    format!("{body}_{}", digits.iter().collect::<String>())
}

/// The id and the secret. The secret may have the character that stands between the two.
fn parts_of(key: &str) -> (&str, &str) {
    let (body, _checksum) = key.rsplit_once('_').unwrap();
    body.strip_prefix("fgk_").unwrap().split_once('_').unwrap()
}

/// These have the form of a key and its checksum, so nothing but the secret itself tells them from a good one.
#[tokio::test]
async fn the_id_of_a_key_lets_nobody_in_without_its_secret() {
    let rules = Rules::new().await;
    let (ann, bob, stranger) = (Key::new().await, Key::new().await, Key::new().await);
    let gateway = SetUp::Embedded.start().await;
    let people = [("ann", &ann), ("bob", &bob)];
    rules.put_in_force(&gateway, &rules.text(MAY, &people)).await;
    let ((ann_id, ann_secret), (bob_id, bob_secret)) = (parts_of(&ann.text), parts_of(&bob.text));
    let (no_id, no_secret) = parts_of(&stranger.text);
    // As here keys are put together, the good ones are, too.
    for (key, id, secret) in [(&ann, ann_id, ann_secret), (&bob, bob_id, bob_secret)] {
        assert_eq!(key_of(id, secret), key.text);
        assert_eq!(told_to(&gateway, &key.text).await, let_in());
    }
    let zeros = part([0; 32]);
    for (what, key, why) in [
        ("a secret that nobody has", key_of(ann_id, no_secret), "not the secret of this key"),
        ("zeros for a secret", key_of(ann_id, &zeros), "not the secret of this key"),
        ("another's secret", key_of(ann_id, bob_secret), "not the secret of this key"),
        ("another's id", key_of(bob_id, ann_secret), "not the secret of this key"),
        ("an id that nobody has", key_of(no_id, ann_secret), "no key has this id"),
    ] {
        assert_eq!(told_to(&gateway, &key).await, unauthenticated(), "{what}");
        gateway.logged(why).await;
    }
    assert_eq!(told_to(&gateway, &ann.text).await, let_in());
    assert!(!gateway.log().contains(ann_secret), "the log has a secret");
}

/// How many guesses there are, on how many connections.
const GUESSES: usize = 10_000;
const GUESSERS: usize = 4;
const MIB: u64 = 1 << 20;

/// Guesses are refused one by one, keep nobody out who has a key, and leave nothing behind.
#[tokio::test]
async fn ten_thousand_wrong_keys_keep_nobody_out_and_take_no_room() {
    let rules = Rules::new().await;
    let ann = Key::new().await;
    let gateway = SetUp::Embedded.start().await;
    rules.put_in_force(&gateway, &rules.text(MAY, &[("ann", &ann)])).await;
    let known_id = parts_of(&ann.text).0.to_owned();
    let address = gateway.address();
    let guess = |number: usize| {
        let known_id = known_id.clone();
        tokio::spawn(async move {
            let mut connection = RawConnection::open(address).await;
            for round in 0..GUESSES / GUESSERS {
                // Every second one has an id that is there.
                let id = if round % 2 == 0 { &known_id } else { &format!("g{number}x{round}") };
                let key = key_of(id, &part(rand::random::<[u8; 32]>()));
                let request = format!(
                    "GET /locks HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {key}\r\n\r\n"
                );
                connection.send(request.as_bytes()).await;
                let answer = connection.answer().await.expect("an answer");
                assert_eq!((answer.status, answer.code()), unauthenticated(), "{round}");
            }
        })
    };
    // What a first few take is not counted: buffers, and what is made once.
    for _ in 0..100 {
        assert_eq!(told_to(&gateway, &ann.text).await, let_in());
        let key = key_of(&known_id, &part(rand::random::<[u8; 32]>()));
        assert_eq!(told_to(&gateway, &key).await, unauthenticated());
    }
    let before = gateway.rss_bytes();
    let client = gateway.client();
    let guessers: Vec<_> = (0..GUESSERS).map(guess).collect();
    let mut calls = 0;
    while calls == 0 || guessers.iter().any(|guesser| !guesser.is_finished()) {
        let answer = ann.by(client.get("/locks")).unchecked().send().await;
        // Who asks all the time on a busy machine has used up her share. She is told so as who she is: she is not kept out.
        if answer.status == 429 {
            answer.refused(429, "rate-limited");
        } else {
            answer.expect(200);
            calls += 1;
        }
    }
    for guesser in guessers {
        guesser.await.unwrap();
    }
    let grown = gateway.rss_bytes().saturating_sub(before);
    eprintln!("{calls} good calls beside {GUESSES} guesses; {} KiB more", grown / 1024);
    assert!(grown < 32 * MIB, "{} MiB", grown / MIB);
    assert_eq!(told_to(&gateway, &ann.text).await, let_in());
}
