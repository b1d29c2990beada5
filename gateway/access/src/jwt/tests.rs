//! Which tokens are taken, and what is wrong with the others.

use std::sync::LazyLock;

use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair as RsaKeyPair, KeySize};
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
};
use jsonwebtoken::jwk::Jwk;
use jsonwebtoken::{Algorithm as Signing, EncodingKey, crypto};
use serde_json::{Value, json};

use super::*;
use crate::rules::Algorithm;

const ALGORITHMS: [Algorithm; 5] =
    [Algorithm::RS256, Algorithm::PS256, Algorithm::ES256, Algorithm::ES384, Algorithm::EdDSA];

struct Pair {
    signing: EncodingKey,
    public: Value,
}

impl Pair {
    fn new(algorithm: Algorithm) -> Self {
        let signing = match algorithm {
            Algorithm::RS256 | Algorithm::PS256 => {
                let pair = RsaKeyPair::generate(KeySize::Rsa2048).expect("a pair");
                let pkcs8 = AsDer::<Pkcs8V1Der<'_>>::as_der(&pair).expect("DER");
                // The library takes the inner form (PKCS #1), behind 26 bytes that say so.
                EncodingKey::from_rsa_der(&pkcs8.as_ref()[26..])
            }
            Algorithm::ES256 => {
                let pair =
                    EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a pair");
                EncodingKey::from_ec_der(pair.to_pkcs8v1().expect("DER").as_ref())
            }
            Algorithm::ES384 => {
                let pair =
                    EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).expect("a pair");
                EncodingKey::from_ec_der(pair.to_pkcs8v1().expect("DER").as_ref())
            }
            Algorithm::EdDSA => {
                let pair = Ed25519KeyPair::generate().expect("a pair");
                EncodingKey::from_ed_der(pair.to_pkcs8v1().expect("DER").as_ref())
            }
        };
        let public = Jwk::from_encoding_key(&signing, algorithm.into()).expect("a public key");
        Self { signing, public: serde_json::to_value(public).expect("JSON") }
    }

    /// As an issuer publishes it.
    fn public(&self, kid: &str) -> Value {
        let mut public = self.public.clone();
        public["kid"] = kid.into();
        public["use"] = "sig".into();
        public
    }
}

/// Making them takes long.
static PAIRS: LazyLock<Vec<Pair>> =
    LazyLock::new(|| ALGORITHMS.into_iter().map(Pair::new).collect());

fn issuer(algorithms: &[Algorithm]) -> Arc<Issuer> {
    Arc::new(Issuer {
        name: "i".to_owned(),
        issuer: "https://issuer.example".to_owned(),
        audience: "fencegate".to_owned(),
        jwks_file: None,
        jwks_url: None,
        algorithms: algorithms.to_vec(),
    })
}

fn keys() -> TokenKeys {
    // Of each kind one: both RSA algorithms share a key's id only if they share the key.
    let keys =
        PAIRS.iter().zip(["rs", "ps", "es", "es3", "ed"]).map(|(pair, kid)| pair.public(kid));
    set(&keys.collect::<Vec<_>>()).unwrap_or_else(|why| panic!("{why}"))
}

fn set(keys: &[Value]) -> Result<TokenKeys, KeysError> {
    TokenKeys::parse(&json!({ "keys": keys }).to_string())
}

const NOW: i64 = 1_800_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(seconds).expect("a time")
}

fn part(json: &str) -> String {
    URL_SAFE_NO_PAD.encode(json)
}

/// A token whose signature is good, whatever else it says.
fn signed(head: &str, claims: &str, pair: &Pair, algorithm: Algorithm) -> String {
    let signed = format!("{}.{}", part(head), part(claims));
    let signature = crypto::sign(signed.as_bytes(), &pair.signing, algorithm.into());
    format!("{signed}.{}", signature.expect("it can be signed"))
}

fn taken(token: &str, issuer: &Arc<Issuer>, keys: &TokenKeys) -> Result<Identity, BadToken> {
    let token = Token::parse(token)?;
    token.verified(token.issuer([issuer].into_iter())?, keys, at(NOW))
}

fn good_claims() -> Value {
    json!({
        "iss": "https://issuer.example", "aud": ["other", "fencegate"], "sub": "system:a", "jti": "7",
        "exp": NOW + 600, "nbf": NOW - 1, "iat": NOW, "kubernetes.io": { "namespace": "a" },
    })
}

/// A token of the Ed25519 key, with this head and these claims.
fn ed(head: &str, claims: &str) -> Result<Identity, BadToken> {
    let token = signed(head, claims, &PAIRS[4], Algorithm::EdDSA);
    taken(&token, &issuer(&ALGORITHMS), &keys())
}

const HEAD: &str = r#"{"alg":"EdDSA","kid":"ed","typ":"JWT"}"#;

#[test]
fn a_good_token_is_taken_however_it_is_signed() {
    for ((pair, algorithm), kid) in
        PAIRS.iter().zip(ALGORITHMS).zip(["rs", "ps", "es", "es3", "ed"])
    {
        let head = json!({ "alg": algorithm.as_str(), "kid": kid }).to_string();
        let token = signed(&head, &good_claims().to_string(), pair, algorithm);
        let found = taken(&token, &issuer(&[algorithm]), &keys());
        let Ok(Identity::Jwt { issuer: from, claims, expires }) = found else {
            panic!("{algorithm:?}: {found:?}")
        };
        assert_eq!((from.name.as_str(), claims["sub"].as_str()), ("i", "system:a"));
        assert_eq!(expires, at(NOW + 660));
        assert!(!claims.contains_key("kubernetes.io"), "only texts can be asked for");
        // The issuer does not sign so.
        let others: Vec<_> = ALGORITHMS.into_iter().filter(|other| *other != algorithm).collect();
        let refused = taken(&token, &issuer(&others), &keys()).map(|_| ());
        assert_eq!(refused, Err(BadToken::Algorithm));
        // Another key of the same kind.
        let other = set(&[Pair::new(algorithm).public(kid)]).unwrap_or_else(|why| panic!("{why}"));
        let refused = taken(&token, &issuer(&[algorithm]), &other).map(|_| ());
        assert_eq!(refused, Err(BadToken::Signature));
    }
}

#[test]
fn what_the_head_brings_along_is_not_taken() {
    let claims = good_claims().to_string();
    for (head, why) in [
        (r#"{"alg":"none","kid":"ed"}"#, BadToken::Algorithm),
        (r#"{"alg":"HS256","kid":"ed"}"#, BadToken::Algorithm),
        (r#"{"alg":"eddsa","kid":"ed"}"#, BadToken::Algorithm),
        (r#"{"kid":"ed"}"#, BadToken::Algorithm),
        (r#"{"alg":7,"kid":"ed"}"#, BadToken::Algorithm),
        (r#"{"alg":"EdDSA"}"#, BadToken::NoKid),
        (r#"{"alg":"EdDSA","kid":null}"#, BadToken::NoKid),
        (r#"{"alg":"EdDSA","kid":"../ed"}"#, BadToken::UnknownKey),
        (r#"{"alg":"EdDSA","kid":""}"#, BadToken::UnknownKey),
        (r#"{"alg":"ES256","kid":"ed"}"#, BadToken::UnknownKey),
        (r#"{"alg":"EdDSA","kid":"ed","jwk":{}}"#, BadToken::Head("jwk")),
        (r#"{"alg":"EdDSA","kid":"ed","jku":"https://evil.example"}"#, BadToken::Head("jku")),
        (r#"{"alg":"EdDSA","kid":"ed","x5u":null}"#, BadToken::Head("x5u")),
        (r#"{"alg":"EdDSA","kid":"ed","crit":["b64"],"b64":false}"#, BadToken::Head("crit")),
        (r#"{"alg":"EdDSA","kid":"ed","typ":"JWE"}"#, BadToken::Head("typ")),
        (
            r#"{"alg":"EdDSA","alg":"EdDSA","kid":"ed"}"#,
            BadToken::Malformed("its head is no JSON object"),
        ),
        (r#"["alg"]"#, BadToken::Malformed("its head is no JSON object")),
    ] {
        assert_eq!(ed(head, &claims).map(|_| ()), Err(why), "{head}");
    }
    assert!(ed(r#"{"alg":"EdDSA","kid":"ed","typ":"at+JWT","x":1}"#, &claims).is_ok());
}

#[test]
pub(crate) fn whose_it_is_and_until_when_must_be_said_and_once() {
    let with = |name: &str, value: Value| {
        let mut claims = good_claims();
        claims[name] = value;
        ed(HEAD, &claims.to_string()).map(|_| ())
    };
    let without = |name: &str| {
        let mut claims = good_claims();
        claims.as_object_mut().expect("an object").remove(name);
        ed(HEAD, &claims.to_string()).map(|_| ())
    };
    assert_eq!(with("aud", json!("fencegate")), Ok(()));
    for aud in [
        json!("other"),
        json!(["other"]),
        json!([]),
        json!(["fencegate", 7]),
        json!(7),
        json!("Fencegate"),
        Value::Null,
    ] {
        assert_eq!(with("aud", aud.clone()), Err(BadToken::Issuer), "{aud}");
    }
    for iss in [json!("https://issuer.example/"), json!(["https://issuer.example"]), Value::Null] {
        assert_eq!(with("iss", iss.clone()), Err(BadToken::Issuer), "{iss}");
    }
    assert_eq!(without("aud"), Err(BadToken::Issuer));
    assert_eq!(without("iss"), Err(BadToken::Issuer));
    assert_eq!(without("exp"), Err(BadToken::Claim("exp")));
    for exp in [
        json!("2100-01-01"),
        json!((NOW + 600).to_string()),
        Value::Null,
        json!(1e300),
        json!(true),
    ] {
        assert_eq!(with("exp", exp.clone()), Err(BadToken::Claim("exp")), "{exp}");
    }
    let huge = good_claims().to_string().replace(&(NOW + 600).to_string(), "1e400");
    assert_eq!(
        ed(HEAD, &huge).map(|_| ()),
        Err(BadToken::Malformed("its claims are no JSON object"))
    );
    // The clocks may be a minute apart.
    assert_eq!(with("exp", json!(NOW as f64 + 0.5)), Ok(()));
    assert_eq!(with("nbf", json!(NOW + 60)), Ok(()));
    assert_eq!(with("nbf", json!(NOW + 61)), Err(BadToken::Early(at(NOW + 61))));
    assert_eq!(with("nbf", json!("soon")), Err(BadToken::Claim("nbf")));
    for id in [json!(7), json!(""), json!("a\nb"), json!("x".repeat(257)), Value::Null] {
        assert_eq!(with("jti", id.clone()), Err(BadToken::Claim("jti")), "{id}");
    }
    let twice = good_claims().to_string().replacen('{', r#"{"sub":"system:b","#, 1);
    assert_eq!(
        ed(HEAD, &twice).map(|_| ()),
        Err(BadToken::Malformed("its claims are no JSON object"))
    );
    let long = with("team", json!("x".repeat(2_000)));
    assert_eq!(long, Ok(()), "it is taken, and nobody can ask for the long claim");
}

#[test]
fn when_it_ends_is_told_with_whose_it_is_and_to_nobody_else() {
    let mut claims = good_claims();
    claims["exp"] = json!(1);
    let claims = claims.to_string();
    let Ok(Identity::Jwt { expires, .. }) = ed(HEAD, &claims) else { panic!("it was good") };
    assert_eq!(expires, at(61));
    let forged = signed(HEAD, &claims, &Pair::new(Algorithm::EdDSA), Algorithm::EdDSA);
    let told = taken(&forged, &issuer(&ALGORITHMS), &keys()).map(|_| ());
    assert_eq!(told, Err(BadToken::Signature));
}

#[test]
fn a_token_for_two_issuers_of_the_rules_is_neithers() {
    let one = issuer(&ALGORITHMS);
    let other = Arc::new(Issuer { audience: "other".to_owned(), ..(*one).clone() });
    let text = signed(HEAD, &good_claims().to_string(), &PAIRS[4], Algorithm::EdDSA);
    let token = Token::parse(&text).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(token.issuer([&one].into_iter()), Ok(&one));
    assert_eq!(token.issuer([&one, &other].into_iter()), Err(BadToken::Issuers));
}

/// The library that reads JSON takes an object with this name for the text that it has.
#[test]
fn a_value_has_one_reading() {
    for name in ["$serde_json::private::RawValue", "$serde_json::private::Number"] {
        let claims = good_claims().to_string();
        let aud = json!({ name: "\"fencegate\"" }).to_string();
        let claims = claims.replace(r#"["other","fencegate"]"#, &aud);
        assert!(claims.contains(name));
        assert_eq!(ed(HEAD, &claims).map(|_| ()), Err(BadToken::Issuer), "{name}");
    }
}

/// The public key is no secret: a token that is signed with it as one (HS256) is anybody's.
#[test]
fn a_public_key_is_no_secret() {
    let public =
        EncodingKey::from_secret(PAIRS[0].public["n"].as_str().expect("a modulus").as_bytes());
    for alg in ["HS256", "RS256"] {
        let head = part(&json!({ "alg": alg, "kid": "rs" }).to_string());
        let signed = format!("{head}.{}", part(&good_claims().to_string()));
        let signature =
            crypto::sign(signed.as_bytes(), &public, Signing::HS256).expect("it can be signed");
        let told = taken(&format!("{signed}.{signature}"), &issuer(&ALGORITHMS), &keys());
        assert!(told.is_err(), "{alg}");
    }
}

#[test]
fn a_token_with_any_change_is_none() {
    let (issuer, keys) = (issuer(&ALGORITHMS), keys());
    let token = signed(HEAD, &good_claims().to_string(), &PAIRS[4], Algorithm::EdDSA);
    assert!(taken(&token, &issuer, &keys).is_ok());
    for at in 0..token.len() {
        let mut changed = token.clone().into_bytes();
        changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
        let changed = String::from_utf8(changed).expect("it is ASCII");
        assert!(taken(&changed, &issuer, &keys).is_err(), "{at}");
        assert!(taken(&token[..at], &issuer, &keys).is_err(), "{at}");
    }
    let (signed, _) = token.rsplit_once('.').expect("a signature");
    let zeros = format!("{signed}.{}", URL_SAFE_NO_PAD.encode([0; 64]));
    for bad in [
        format!("{token}."),
        format!(".{token}"),
        format!("{token} "),
        format!("{signed}."),
        zeros,
        format!("{token}="),
        "..".to_owned(),
        String::new(),
        "a.b.c".to_owned(),
    ] {
        assert!(taken(&bad, &issuer, &keys).is_err(), "{bad}");
    }
    let long = format!("{token}{}", "A".repeat(TOKEN_BYTES_MAX));
    assert_eq!(taken(&long, &issuer, &keys).map(|_| ()), Err(BadToken::TooLong));
}

/// CVE-2022-21449: zeros are a signature of everything, for who does not look.
#[test]
fn an_ecdsa_signature_of_zeros_is_none() {
    for (at, algorithm, kid, len) in
        [(2, Algorithm::ES256, "es", 64), (3, Algorithm::ES384, "es3", 96)]
    {
        let head = json!({ "alg": algorithm.as_str(), "kid": kid }).to_string();
        let token = signed(&head, &good_claims().to_string(), &PAIRS[at], algorithm);
        let (signed, _) = token.rsplit_once('.').expect("a signature");
        let zeros = format!("{signed}.{}", URL_SAFE_NO_PAD.encode(vec![0; len]));
        let told = taken(&zeros, &issuer(&ALGORITHMS), &keys()).map(|_| ());
        assert_eq!(told, Err(BadToken::Signature));
    }
}

#[test]
fn a_set_of_keys_has_what_can_be_used() {
    let ed = |kid: &str| PAIRS[4].public(kid);
    let mut for_encryption = ed("a");
    for_encryption["use"] = "enc".into();
    let mut nameless = ed("a");
    nameless.as_object_mut().expect("an object").remove("kid");
    let symmetric = json!({ "kty": "oct", "k": "AAAA", "kid": "a", "alg": "HS256" });
    let odd = json!({ "kty": "odd", "kid": "a" });
    for useless in [for_encryption.clone(), nameless, symmetric, odd, json!(7)] {
        let alone = set(std::slice::from_ref(&useless)).expect("a set");
        assert!(alone.is_empty(), "{useless}");
        assert!(!set(&[useless, ed("b")]).expect("a set").is_empty());
    }
    // An issuer withdraws all of its keys so.
    assert!(set(&[]).expect("a set").is_empty());
    assert_eq!(set(&[ed("a"), ed("a")]).err(), Some(KeysError::Twice("a".to_owned())));
    assert!(matches!(TokenKeys::parse("{}").err(), Some(KeysError::Unreadable(_))));
    let many: Vec<_> = (0..101).map(|number| ed(&number.to_string())).collect();
    assert_eq!(set(&many).err(), Some(KeysError::TooLong));
    assert_eq!(TokenKeys::parse(&" ".repeat(KEYS_BYTES_MAX + 1)).err(), Some(KeysError::TooLong));
    // A key that is for another algorithm of its kind.
    let mut only_ps = PAIRS[0].public("rs");
    only_ps["alg"] = "PS256".into();
    let keys = set(&[only_ps]).unwrap_or_else(|why| panic!("{why}"));
    let token = signed(
        r#"{"alg":"RS256","kid":"rs"}"#,
        &good_claims().to_string(),
        &PAIRS[0],
        Algorithm::RS256,
    );
    assert_eq!(taken(&token, &issuer(&ALGORITHMS), &keys).map(|_| ()), Err(BadToken::UnknownKey));
}
