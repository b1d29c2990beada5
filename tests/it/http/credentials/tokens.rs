//! Tokens, each with one thing that is not as it should be: what whoever shows it is told, and for which reason.

use std::net::TcpListener;

use fence_tests::access::{Rules, role};
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Value, json};

use super::signer::{
    ISSUER, Signer, claims, in_seconds, part, publish, set, signed_by, trusted_by_file,
};
use super::{MAY, let_in, told_to};
use crate::setup::SetUp;

const SUB: &str = "billing:a";

/// A token, what it is told, and what the log says of it; nothing of one that is taken, or is not looked at.
struct Row {
    what: String,
    token: String,
    told: (u16, &'static str),
    why: &'static str,
}

fn row(
    what: impl Into<String>,
    token: String,
    told: (u16, &'static str),
    why: &'static str,
) -> Row {
    Row { what: what.into(), token, told, why }
}

const TAKEN: (u16, &str) = (200, "");
const REFUSED: (u16, &str) = (401, "unauthenticated");
const ENDED: (u16, &str) = (401, "credential-expired");

/// Sends them one after the other. A refusal for another reason would show only that the token is bad in more ways than one.
async fn are_told(gateway: &Gateway, rows: &[Row]) {
    let refusals = || -> Vec<String> {
        let log = gateway.log();
        log.lines().filter(|line| line.contains("was not accepted")).map(str::to_owned).collect()
    };
    let mut logged = refusals().len();
    for Row { what, token, told, why } in rows {
        let (status, code) = told_to(gateway, token).await;
        assert_eq!((status, code.as_str()), *told, "{what}");
        if !why.is_empty() {
            let reason = format!("the log has a reason: {what}");
            let line = eventually(&reason, async || refusals().into_iter().nth(logged)).await;
            assert!(line.contains(why), "{what}: {line}");
            logged += 1;
        }
    }
    assert_eq!(refusals().len(), logged);
}

/// A gateway that takes tokens by this key, and the folder with the file that has it.
async fn by_key_of(signer: &Signer) -> (Gateway, Rules) {
    let rules = Rules::new().await;
    let file = rules.home.path().join("jwks.json");
    publish(&file, &[signer]);
    let gateway = SetUp::Embedded.start().await;
    rules.put_in_force(&gateway, &(rules.text(MAY, &[]) + &trusted_by_file(&file))).await;
    assert_eq!(told_to(&gateway, &signer.token(SUB)).await, let_in());
    (gateway, rules)
}

const ALGORITHM: &str = "its issuer does not sign with the algorithm";
const SIGNATURE: &str = "its signature is not that";
const UNKNOWN_KEY: &str = "its issuer has no key with the id";
const NO_OBJECT: &str = "its claims are no JSON object";

#[tokio::test]
async fn what_the_head_of_a_token_says_does_not_decide_how_it_is_checked() {
    let (signer, thief) = (Signer::new("k"), Signer::new("k"));
    let (gateway, rules) = by_key_of(&signer).await;
    // Where a path of an id would lead, and where URLs do, are keys of somebody who has none here.
    std::fs::write(rules.home.path().join("x"), set(&[&thief])).unwrap();
    let lure = TcpListener::bind("127.0.0.1:0").unwrap();
    let lure_url = format!("https://{}/jwks.json", lure.local_addr().unwrap());
    let said = claims(SUB).to_string();
    let with = |name: &str, value: Value| {
        let mut head = signer.head();
        head[name] = value;
        head.to_string()
    };
    let mut nameless = signer.head();
    nameless.as_object_mut().unwrap().remove("kid");
    let none = with("alg", "none".into());
    let good = signer.signed(&with("alg", "ES256".into()), &said);
    let good_signature = good.rsplit_once('.').unwrap().1;

    let mut rows = vec![
        row("as good as any", good.clone(), TAKEN, ""),
        row("none", format!("{}.{}.", part(&none), part(&said)), REFUSED, ALGORITHM),
        row("none, and signed", signer.signed(&none, &said), REFUSED, ALGORITHM),
        row("None", signer.signed(&with("alg", "None".into()), &said), REFUSED, ALGORITHM),
        row("another's", signer.signed(&with("alg", "ES384".into()), &said), REFUSED, ALGORITHM),
        row("no kid", signer.signed(&nameless.to_string(), &said), REFUSED, "has no `kid`"),
        row(
            "a kid of nobody",
            signer.signed(&with("kid", "n".into()), &said),
            REFUSED,
            UNKNOWN_KEY,
        ),
        row("a path", thief.signed(&with("kid", "../x".into()), &said), REFUSED, UNKNOWN_KEY),
        row("a path here", signer.signed(&with("kid", "../k".into()), &said), REFUSED, UNKNOWN_KEY),
        row("a thief's", thief.signed(&with("kid", "k".into()), &said), REFUSED, SIGNATURE),
        row(
            "of other claims",
            {
                let others = claims("billing:b").to_string();
                format!("{}.{}.{good_signature}", part(signer.head().to_string()), part(others))
            },
            REFUSED,
            SIGNATURE,
        ),
    ];
    // What it brings along is refused also beside a good signature: it may be meant for somebody who is less strict.
    for (name, value, why) in [
        ("jwk", thief.public.clone(), "its head has `jwk`"),
        ("jku", json!(lure_url), "its head has `jku`"),
        ("x5u", json!(lure_url), "its head has `x5u`"),
        ("x5c", json!([part(&thief.der)]), "its head has `x5c`"),
        ("crit", json!(["exp"]), "its head has `crit`"),
    ] {
        let head = with(name, value);
        rows.push(row(name, signer.signed(&head, &said), REFUSED, why));
        rows.push(row(format!("a thief's {name}"), thief.signed(&head, &said), REFUSED, why));
    }
    // The public key is everybody's: it is no secret to sign with.
    for (what, secret) in [
        ("the PEM", signer.pem().into_bytes()),
        ("the PEM without its last line break", signer.pem().trim_end().as_bytes().to_vec()),
        ("the DER", signer.der.clone()),
        ("the point", signer.point.clone()),
        ("the numbers", signer.point[1..].to_vec()),
        ("the JWK", signer.public.to_string().into_bytes()),
        ("nothing", Vec::new()),
    ] {
        let key = EncodingKey::from_secret(&secret);
        for (alg, why) in [("HS256", ALGORITHM), ("ES256", SIGNATURE)] {
            let token = signed_by(&with("alg", alg.into()), &said, &key, Algorithm::HS256);
            rows.push(row(format!("{alg} by {what}"), token, REFUSED, why));
        }
    }
    are_told(&gateway, &rows).await;
    lure.set_nonblocking(true).unwrap();
    assert!(lure.accept().is_err(), "the gateway went where a token led it");
}

/// A token of which this text is what it claims, signed well.
fn claiming(signer: &Signer, claims: &str) -> String {
    signer.signed(&signer.head().to_string(), claims)
}

#[tokio::test]
async fn a_token_is_for_us_by_our_issuer_and_in_its_time_or_it_is_nobodys() {
    const WHOSE: &str = "no issuer in the rules";
    const EXP: &str = "its claim `exp` is missing";
    let signer = Signer::new("k");
    let (gateway, _rules) = by_key_of(&signer).await;
    let with = |name: &str, value: Value| {
        let mut claims = claims(SUB);
        claims[name] = value;
        signer.claiming(&claims)
    };
    let without = |name: &str| {
        let mut claims = claims(SUB);
        claims.as_object_mut().unwrap().remove(name);
        signer.claiming(&claims)
    };
    // Some numbers are none to whoever writes JSON.
    let ends = |number: &str| {
        let mut claims = claims(SUB);
        claims["exp"] = "END".into();
        claiming(&signer, &claims.to_string().replace("\"END\"", number))
    };
    let rows = [
        row("aud missing", without("aud"), REFUSED, WHOSE),
        row("aud of another", with("aud", json!("other")), REFUSED, WHOSE),
        row("aud alike", with("aud", json!("fencegate ")), REFUSED, WHOSE),
        row("aud in a list of others", with("aud", json!(["a", "b"])), REFUSED, WHOSE),
        row("aud of an empty list", with("aud", json!([])), REFUSED, WHOSE),
        row("aud beside a number", with("aud", json!(["fencegate", 7])), REFUSED, WHOSE),
        // It is for us too, and any of the others could have sent it on.
        row("aud among others", with("aud", json!(["other", "fencegate"])), TAKEN, ""),
        row("iss missing", without("iss"), REFUSED, WHOSE),
        row("iss with a slash more", with("iss", json!(format!("{ISSUER}/"))), REFUSED, WHOSE),
        row("iss in a list", with("iss", json!([ISSUER])), REFUSED, WHOSE),
        row("exp missing", without("exp"), REFUSED, EXP),
        row("exp in text", with("exp", json!(in_seconds(600).to_string())), REFUSED, EXP),
        row("exp null", ends("null"), REFUSED, EXP),
        row("exp beyond all numbers", ends("1e400"), REFUSED, NO_OBJECT),
        row("exp beyond all times", ends("1e300"), REFUSED, EXP),
        row("exp beyond the calendar", ends("999999999999999"), REFUSED, EXP),
        row("exp to come", ends(&in_seconds(600).to_string()), TAKEN, ""),
        row("exp past", ends(&in_seconds(-600).to_string()), ENDED, "it expired at"),
        row("exp before 1970", ends("-1"), ENDED, "it expired at"),
        row("nbf ahead", with("nbf", json!(in_seconds(600))), REFUSED, "it is good from"),
        row("nbf in text", with("nbf", json!("soon")), REFUSED, "its claim `nbf`"),
        row("nbf past", with("nbf", json!(in_seconds(-5))), TAKEN, ""),
        row("sub missing", without("sub"), REFUSED, "no principal matches it"),
        row("sub of another kind", with("sub", json!([SUB])), REFUSED, "no principal matches it"),
        row("sub with a star", with("sub", json!("billing:*")), REFUSED, "the name `job/"),
        row("sub with a separator", with("sub", json!("billing:a:b")), TAKEN, ""),
    ];
    are_told(&gateway, &rows).await;
    // When somebody else's token ended is not told.
    let mut past = claims(SUB);
    past["exp"] = 1.into();
    let forged = row("forged", Signer::new("k").claiming(&past), REFUSED, SIGNATURE);
    are_told(&gateway, &[forged]).await;
}

#[tokio::test]
async fn a_token_has_one_form_one_reading_and_not_too_many_bytes() {
    const PARTS: &str = "it has not three parts";
    let signer = Signer::new("k");
    let (gateway, _rules) = by_key_of(&signer).await;
    let good = signer.token(SUB);
    let (signed, signature) = good.rsplit_once('.').unwrap();
    let (head, said) = (signer.head().to_string(), claims(SUB).to_string());
    let more = |more: &str| claiming(&signer, &said.replacen('{', &format!("{{{more},"), 1));
    let filled = |bytes: usize| more(&format!("\"x\":\"{}\"", "x".repeat(bytes)));
    let many = |open: &str, close: &str, times: usize| {
        more(&format!("\"x\":{}1{}", open.repeat(times), close.repeat(times)))
    };
    // Java took this for a signature of everything (CVE-2022-21449).
    let zeros = format!("{signed}.{}", part([0; 64]));
    let twice_in_head = head.replacen('{', "{\"kid\":\"n\",", 1);
    let rows = [
        row("zeros for a signature", zeros, REFUSED, SIGNATURE),
        row("no signature", format!("{signed}."), REFUSED, SIGNATURE),
        row("half of one", format!("{signed}.{}", &signature[..43]), REFUSED, SIGNATURE),
        row("padding", format!("{good}=="), REFUSED, SIGNATURE),
        row("a dot behind", format!("{good}."), REFUSED, PARTS),
        row("a dot before", format!(".{good}"), REFUSED, PARTS),
        row("two parts", signed.to_owned(), REFUSED, PARTS),
        row("five parts", format!("{good}.{signed}"), REFUSED, PARTS),
        // Whoever reads the first of two sees another subject than whoever reads the last.
        row("a claim twice", more("\"sub\":\"billing:b\""), REFUSED, NO_OBJECT),
        row("the same twice", more("\"sub\":\"billing:a\""), REFUSED, NO_OBJECT),
        row("twice in the head", signer.signed(&twice_in_head, &said), REFUSED, "its head is no"),
        row("something behind", claiming(&signer, &format!("{said} 1")), REFUSED, NO_OBJECT),
        row("a list", claiming(&signer, &format!("[{said}]")), REFUSED, NO_OBJECT),
        // Nobody asks for what is in there, and it is read without a frame of the stack for each.
        row("100 objects in each other", many("{\"a\":", "}", 100), TAKEN, ""),
        row("900 objects in each other", many("{\"a\":", "}", 900), TAKEN, ""),
        row("100 lists in each other", many("[", "]", 100), TAKEN, ""),
        row("2,000 lists in each other", many("[", "]", 2_000), REFUSED, NO_OBJECT),
        row("7 KiB", filled(5_000), TAKEN, ""),
        row("9 KiB", filled(6_500), REFUSED, "it has more than 8192 bytes"),
        row("17 KiB", filled(13_000), (431, "headers-too-large"), ""),
    ];
    let length = |what: &str| rows.iter().find(|row| row.what == what).unwrap().token.len();
    assert!((6 << 10..8 << 10).contains(&length("7 KiB")));
    assert!((8 << 10..10 << 10).contains(&length("9 KiB")));
    assert!((17 << 10..18 << 10).contains(&length("17 KiB")));
    are_told(&gateway, &rows).await;
    assert_eq!(told_to(&gateway, &good).await, let_in());
}

/// The rules give to each subject what bears its name. One with the character that ends a name there would have what is
/// another's: `eu:x` all of `own:eu:x:1`, which is `eu`'s.
#[tokio::test]
async fn a_subject_with_the_separator_of_a_pattern_has_nothing_by_that_pattern() {
    let rules = Rules::new().await;
    let signer = Signer::new("k");
    let file = rules.home.path().join("jwks.json");
    publish(&file, &[&signer]);
    let gateway = SetUp::Embedded.start().await;
    let own = role("worker", "allow = [\"lock\"]\nresources = [\"own:${sub}:*\"]");
    let text = rules.admin() + &own + &trusted_by_file(&file);
    let text = text.replace("sub = \"billing:*\"", "sub = \"*\"");
    rules.put_in_force(&gateway, &text).await;
    let client = gateway.client();
    for (sub, resource, is_allowed) in [
        ("eu", "own:eu:1", true),
        ("eu", "own:eu:x:1", true),
        ("eu", "own:us:1", false),
        ("eu:x", "own:eu:x:1", false),
        ("eu:", "own:eu::1", false),
    ] {
        let call = client.lock(&json!({ "resource": resource, "ttl": "1h" }));
        let bearer = format!("Bearer {}", signer.token(sub));
        let answer = call.header("authorization", bearer).send().await;
        match is_allowed {
            true => answer.expect(201),
            false => answer.refused(403, "permission-denied"),
        };
    }
}
