//! What rules may say, whom they take for whom, and what they allow.

use std::time::Duration;

use fencegate_wire::ResourceName;
use jiff::SignedDuration;

use super::*;
use crate::action::Action;
use crate::caller::{Denied, LockTerms};

fn now() -> Timestamp {
    "2026-06-01T00:00:00Z".parse().expect("a time")
}

fn rules(text: &str) -> Rules {
    Rules::parse(text).unwrap_or_else(|why| panic!("{why}"))
}

fn wrong(text: &str) -> String {
    Rules::parse(text).expect_err("it is refused").to_string()
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("a name")
}

/// The issuer of the example, or one of another name.
fn k8s(name: &str) -> Issuer {
    Issuer {
        name: name.to_owned(),
        issuer: "https://kubernetes.default.svc".to_owned(),
        audience: "fencegate".to_owned(),
        jwks_file: Some("/etc/fencegate/k8s-jwks.json".to_owned()),
        jwks_url: None,
        algorithms: vec![Algorithm::RS256],
    }
}

fn jwt(issuer: &str, claims: &[(&str, &str)]) -> Identity {
    let claims = claims.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let expires = "2026-06-01T01:00:00Z".parse().expect("a time");
    Identity::Jwt { issuer: Arc::new(k8s(issuer)), claims: claims.collect(), expires }
}

fn certificate(name: CertificateName) -> Identity {
    let expires = "2026-06-01T01:00:00Z".parse().expect("a time");
    let authorities = vec!["ca01".repeat(16)];
    Identity::Certificate { name, fingerprint: "ab12".repeat(16), authorities, expires }
}

/// One role with one pattern, and a principal for whoever is at the socket as user 7.
fn one(role: &str) -> Caller {
    let text = format!(
        "[[roles]]\nname = \"r\"\n{role}\n[[principals]]\nname = \"me\"\nroles = [\"r\"]\nmatch = {{ unix_uid = 7 }}\n"
    );
    rules(&text).caller(&Identity::Unix { uid: 7, gid: 7 }, now()).expect("it is me")
}

const EXAMPLE: &str = r#"
revoked = ["jti:k8s#1f2e", "cert:sha256:cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34cd34"]

[[issuers]]
name = "k8s"
issuer = "https://kubernetes.default.svc"
audience = "fencegate"
jwks_file = "/etc/fencegate/k8s-jwks.json"
algorithms = ["RS256"]

[[roles]]
name = "billing"
allow = ["lock", "write", "read", "list"]
resources = ["invoices:*", "ledger:eu:*"]
deny = [{ actions = ["write"], resources = ["invoices:archive:*"] }]
ttl_max = "5m"

[[roles]]
name = "home"
allow = ["lock", "write"]
resources = ["home:${principal}", "home:${principal}:*"]

[[roles]]
name = "operator"
allow = ["observe", "break", "freeze", "protect", "resolve", "forward-read"]
resources = ["*"]
upstreams = ["crm/records/*"]

[[principals]]
name = "billing/${sub}"
match = { issuer = "k8s", sub = "system:serviceaccount:billing:*" }
roles = ["billing"]

[[principals]]
name = "alice"
match = { dns = "alice.example" }
roles = ["home", "billing"]

[[principals]]
name = "ops"
match = { spiffe = "spiffe://example.org/ops/*", unix_gid = 990 }
roles = ["operator"]
"#;

#[test]
fn what_is_shown_makes_one_principal() {
    let rules = rules(EXAMPLE);
    let name =
        |identity: &Identity| rules.caller(identity, now()).map(|caller| caller.name().to_string());
    let subject = "system:serviceaccount:billing:worker";
    let spiffe = |id: &str| certificate(CertificateName::Spiffe(id.to_owned()));
    let dns = |name: &str| certificate(CertificateName::Dns(name.to_owned()));
    assert_eq!(name(&jwt("k8s", &[("sub", subject)])), Ok(format!("billing/{subject}")));
    assert_eq!(name(&spiffe("spiffe://example.org/ops/a")), Ok("ops".to_owned()));
    assert_eq!(name(&Identity::Unix { uid: 1, gid: 990 }), Ok("ops".to_owned()));
    assert_eq!(name(&dns("alice.example")), Ok("alice".to_owned()));
    for nobody in [
        jwt("other", &[("sub", subject)]),
        jwt("k8s", &[("sub", "system:serviceaccount:billing2:worker")]),
        jwt("k8s", &[]),
        spiffe("spiffe://example.org/operations/a"),
        dns("spiffe://example.org/ops/a"),
        Identity::Unix { uid: 990, gid: 1 },
    ] {
        assert_eq!(name(&nobody), Err(Unauthenticated::Nobody), "{nobody:?}");
    }
    let odd = jwt("k8s", &[("sub", "system:serviceaccount:billing:a*")]);
    assert!(matches!(name(&odd), Err(Unauthenticated::NoName(_))));
    let long = format!("system:serviceaccount:billing:{}", "a".repeat(128));
    assert!(matches!(name(&jwt("k8s", &[("sub", &long)])), Err(Unauthenticated::NoName(_))));
}

#[test]
fn each_key_tells_when_it_lapses() {
    let key = |id: &str, expires: &str| {
        format!("{{ id = \"{id}\", sha256 = \"{}\", expires = {expires} }}", "ab".repeat(32))
    };
    let keys = [
        key("aaaaaaaaaa", "2026-09-01T00:00:00Z"),
        key("bbbbbbbbbb", "2026-06-15T00:00:00Z"),
        key("cccccccccc", "2026-05-31T00:00:00Z"),
        key("dddddddddd", "2026-06-02T00:00:00Z"),
    ];
    let rules = rules(&format!(
        "revoked = [\"key:dddddddddd\"]\n[[roles]]\nname = \"r\"\nallow = [\"read\"]\nresources = [\"*\"]\n\
         [[principals]]\nname = \"me\"\nroles = [\"r\"]\nkeys = [{}]\n",
        keys.join(", ")
    ));
    let told = [
        "key cccccccccc of me has lapsed: 2026-05-31T00:00:00Z, -1 days",
        "key bbbbbbbbbb of me lapses soon: 2026-06-15T00:00:00Z, 14 days",
        "key aaaaaaaaaa of me lapses: 2026-09-01T00:00:00Z, 92 days",
    ];
    assert_eq!(rules.lapses(now()), told);
}

#[test]
fn what_is_revoked_or_has_ended_is_nobodys() {
    let rules = rules(EXAMPLE);
    let why = |identity: &Identity, at: &str| {
        rules.caller(identity, at.parse().expect("a time")).map(|_| ()).expect_err("it is nobody's")
    };
    let early = "2026-06-01T00:00:00Z";
    let subject = ("sub", "system:serviceaccount:billing:worker");
    assert_eq!(why(&jwt("k8s", &[subject, ("jti", "1f2e")]), early), Unauthenticated::Revoked);
    let end: Timestamp = "2026-06-01T01:00:00Z".parse().expect("a time");
    assert_eq!(why(&jwt("k8s", &[subject]), "2026-06-01T01:00:00Z"), Unauthenticated::Expired(end));
    let revoked = Identity::Certificate {
        name: CertificateName::Dns("alice.example".to_owned()),
        fingerprint: "cd34".repeat(16),
        authorities: Vec::new(),
        expires: end,
    };
    assert_eq!(why(&revoked, early), Unauthenticated::Revoked);
}

/// An authority can sign any name.
#[test]
fn a_name_counts_if_one_of_its_authorities_has_signed_it() {
    let (ours, partners) = ("ca01".repeat(16), "ca02".repeat(16));
    let with = |matches: &str, authorities: &str| {
        format!(
            "[[principals]]\nname = \"it\"\nroles = []\nmatch = {{ {matches}, authorities = [{authorities}] }}\n"
        )
    };
    let [spiffe, dns] = ["spiffe = \"spiffe://td/*\"", "dns = \"it.example\""];
    let shown = [
        CertificateName::Spiffe("spiffe://td/a".to_owned()),
        CertificateName::Dns("it.example".to_owned()),
    ];
    for (matches, name) in [spiffe, dns].into_iter().zip(shown) {
        let is_it = |authorities: &str| {
            rules(&with(matches, authorities)).caller(&certificate(name.clone()), now()).is_ok()
        };
        assert!(is_it("") && is_it(&format!("\"{ours}\"")), "{matches}");
        assert!(is_it(&format!("\"{partners}\", \"{ours}\"")), "{matches}");
        assert!(!is_it(&format!("\"{partners}\"")), "{matches}");
    }
    assert!(wrong(&with(spiffe, "\"AB\"")).contains("`AB` is no SHA-256 of 64 digits"));
    let alone = with("unix_uid = 7", &format!("\"{ours}\""));
    assert!(wrong(&alone).contains("`authorities` needs `spiffe` or `dns`"));
}

#[test]
fn user_and_group_hold_together() {
    let text = "[[principals]]\nname = \"a\"\nroles = []\nmatch = { unix_uid = 1, unix_gid = 2 }\n";
    let whose = |uid, gid| rules(text).caller(&Identity::Unix { uid, gid }, now()).is_ok();
    assert_eq!([whose(1, 2), whose(1, 3), whose(3, 2)], [true, false, false]);
}

#[test]
fn what_is_one_callers_is_no_others() {
    let caller = |name: &str| {
        let text = format!(
            "[[roles]]\nname = \"r\"\nallow = [\"write\"]\nresources = [\"home:${{principal}}\", \"home:${{principal}}:*\"]\n\
             [[principals]]\nname = \"{name}\"\nroles = [\"r\"]\nmatch = {{ unix_uid = 7 }}\n"
        );
        rules(&text).caller(&Identity::Unix { uid: 7, gid: 7 }, now()).expect("it is known")
    };
    let desk = resource("home:alice:desk");
    assert!(caller("alice").may(Action::Write, &desk).is_ok());
    assert!(caller("alice:desk").may(Action::Write, &desk).is_err());
}

#[test]
fn a_key_that_was_put_into_the_rules_is_not_told() {
    let key = ApiKey::generate().expect("random bytes");
    let secret = key.reveal();
    for text in [
        format!("revoked = [\"{secret}\"]\n"),
        format!(
            "[[principals]]\nname = \"a\"\nroles = []\nkeys = [{{ id = \"a\", sha256 = \"{secret}\", expires = 2027-01-01T00:00:00Z }}]\n"
        ),
    ] {
        assert!(!wrong(&text).contains(secret), "{text}");
    }
}

#[test]
fn whoever_could_be_two_is_nobody() {
    let text = "[[principals]]\nname = \"a\"\nroles = []\nmatch = { unix_uid = 1 }\n\
                [[principals]]\nname = \"b\"\nroles = []\nmatch = { unix_gid = 2 }\n";
    let both = rules(text).caller(&Identity::Unix { uid: 1, gid: 2 }, now()).map(|_| ());
    assert_eq!(both, Err(Unauthenticated::Ambiguous("a".to_owned(), "b".to_owned())));
}

#[test]
pub(crate) fn a_key_is_its_principals_until_it_expires_or_is_revoked() {
    let key = ApiKey::generate().expect("random bytes");
    let (kid, digest) = (key.kid(), key.digest().to_hex());
    let entry = format!(
        "keys = [{{ id = \"{kid}\", sha256 = \"{digest}\", expires = 2026-07-01T00:00:00Z }}]"
    );
    let text = format!("[[principals]]\nname = \"worker\"\nroles = []\n{entry}\n");
    let whose = |rules: &Rules, key: &ApiKey, at: &str| {
        let identity = Identity::Key(key.clone());
        rules
            .caller(&identity, at.parse().expect("a time"))
            .map(|caller| caller.credential().to_owned())
    };
    let (early, end) = ("2026-06-01T00:00:00Z", "2026-07-01T00:00:00Z");
    let rules_of = rules(&text);
    assert_eq!(whose(&rules_of, &key, early), Ok(format!("key:{kid}")));
    let time = |text: &str| text.parse::<Timestamp>().expect("a time");
    let kept = rules_of.caller(&Identity::Key(key.clone()), time(early)).expect("it is good");
    assert_eq!([early, end].map(|at| kept.has_expired(time(at))), [false, true]);
    let ended = Unauthenticated::Expired(time(end));
    assert_eq!(whose(&rules_of, &key, end), Err(ended));
    let other = ApiKey::generate().expect("random bytes");
    assert_eq!(whose(&rules_of, &other, early), Err(Unauthenticated::UnknownKey));
    // Somebody else's secret under this id: what was said of it is not said to them, expired or not.
    let same_id = key.reveal().replacen(kid, other.kid(), 1);
    assert_eq!(ApiKey::parse(&same_id), None, "the checksum covers the id");
    let text_of_other = text.replace(kid, other.kid());
    for at in [early, end] {
        assert_eq!(whose(&rules(&text_of_other), &other, at), Err(Unauthenticated::WrongSecret));
    }
    let revoked = rules(&format!("revoked = [\"key:{kid}\"]\n{text}"));
    assert_eq!(whose(&revoked, &key, early), Err(Unauthenticated::Revoked));
}

#[test]
fn a_key_of_s3_is_its_principals_by_its_id() {
    let text = "[[principals]]\nname = \"loader\"\nroles = []\ns3_keys = [\"a7\", \"b8\"]\n";
    let shown = |kid: &str| Identity::S3Key { kid: kid.to_owned() };
    let whose = |rules: &Rules, kid: &str| {
        rules.caller(&shown(kid), now()).map(|caller| caller.name().to_string())
    };
    let loader = rules(text);
    assert_eq!(whose(&loader, "a7"), Ok("loader".to_owned()));
    assert_eq!(whose(&loader, "b8"), Ok("loader".to_owned()));
    assert_eq!(whose(&loader, "c9"), Err(Unauthenticated::UnknownKey));
    assert_eq!(shown("a7").credential(), "key:a7");
    let revoked = rules(&format!("revoked = [\"key:a7\"]\n{text}"));
    assert_eq!(whose(&revoked, "a7"), Err(Unauthenticated::Revoked));
    assert_eq!(whose(&revoked, "b8"), Ok("loader".to_owned()));
    let three = text.replace("\"b8\"", "\"b8\", \"c9\"");
    assert!(wrong(&three).contains("3 keys of S3, where there may be 2"));
    assert!(wrong(&text.replace("b8", "B8")).contains("`B8` is no id of a key of S3"));
    assert!(wrong(&text.replace("b8", "a7")).contains("another key with the id `a7`"));
    let digest = "0".repeat(64);
    let api = format!(
        "keys = [{{ id = \"a7\", sha256 = \"{digest}\", expires = 2026-07-01T00:00:00Z }}]"
    );
    assert!(wrong(&format!("{text}{api}\n")).contains("another key with the id `a7`"));
    let template = text.replace("\"loader\"", "\"loader:${jwt.sub}\"");
    assert!(wrong(&template).contains("not for keys"));
    assert!(loader.check_admin(now()).is_err());
}

/// Rules must not lock everybody out: the way back would be the ledger itself.
#[test]
fn somebody_can_change_the_rules_after_them() {
    let digest = "0".repeat(64);
    let key = |id: &str, expires: &str| {
        format!("{{ id = \"{id}\", sha256 = \"{digest}\", expires = {expires} }}")
    };
    let (old, new) = (key("a7", "2026-05-01T00:00:00Z"), key("b8", "2026-07-01T00:00:00Z"));
    let role = |name: &str, rest: &str| {
        format!("[[roles]]\nname = \"{name}\"\nallow = [\"admin\"]\nresources = [\"*\"]\n{rest}\n")
    };
    let text = |revoked: &str, denied: &str, shows: &str| {
        let deny = format!("deny = [{{ actions = [\"{denied}\"], resources = [\"*\"] }}]");
        let roles = role("admin", "") + &role("other", &deny);
        let principal = "[[principals]]\nname = \"root\"\nroles = [\"admin\", \"other\"]";
        format!("revoked = [{revoked}]\n{roles}{principal}\n{shows}\n")
    };
    let keys = format!("keys = [{old}, {new}]");
    let told = |text: &str| rules(text).check_admin(now()).map_err(|why| why.to_string());
    assert_eq!(told(&text("", "break", &keys)), Ok(()));
    assert_eq!(told(&text("\"key:a7\"", "break", &keys)), Ok(()));
    for locked_out in [
        text("", "break", &format!("keys = [{old}]")),
        text("\"key:b8\"", "break", &keys),
        text("", "admin", &keys),
        text("", "admin", "match = { unix_uid = 7 }"),
        text("", "break", "s3_keys = [\"a7\"]"),
    ] {
        let why = told(&locked_out).expect_err(&locked_out);
        assert!(why.contains("nobody who can show who they are"), "{why}");
    }
    assert_eq!(
        told(&text("\"key:b8\"", "break", &format!("{keys}\nmatch = {{ unix_uid = 7 }}"))),
        Ok(())
    );
}

#[test]
fn what_is_denied_as_a_whole_may_be_done_nowhere() {
    let denied = |resources: &str| {
        one(&format!(
            "allow = [\"write\", \"read\"]\nresources = [\"a\", \"b:*\"]\n\
             deny = [{{ actions = [\"write\"], resources = [{resources}] }}]"
        ))
    };
    for part in ["\"a\"", "\"b:*\"", "\"a\", \"b:c:*\"", "\"b\", \"b:c\""] {
        assert!(denied(part).may_somewhere(Action::Write), "{part}");
    }
    for all in ["\"*\"", "\"a\", \"b:*\""] {
        let caller = denied(all);
        assert!(!caller.may_somewhere(Action::Write), "{all}");
        assert!(caller.may_somewhere(Action::Read) && !caller.may_somewhere(Action::Break));
    }
}

/// With the key of a lock the one asks who took it, by what the rules say now.
#[test]
fn a_key_of_a_lock_is_of_whoever_took_it() {
    let taken_by = |name: &str| Identity::S3Lock {
        principal: PrincipalName::new(name).expect("a name"),
        credential: None,
        ends: None,
    };
    let rules = rules(EXAMPLE);
    let known = certificate(CertificateName::Dns("alice.example".to_owned()));
    let alice = rules.caller(&known, now()).expect("it is alice");
    let by_lock = rules.caller(&taken_by(alice.name().as_str()), now()).expect("it is alice");
    for (action, name) in [(Action::Write, "invoices:7"), (Action::Write, "home:alice")] {
        assert!(by_lock.may(action, &resource(name)).is_ok(), "{name}");
    }
    assert!(by_lock.may(Action::Write, &resource("home:bob")).is_err());
    let gone = rules.caller(&taken_by("nobody"), now()).map(|_| ());
    assert_eq!(gone, Err(Unauthenticated::Nobody));
}

/// As long as the credential is good that took the lock or renewed it last.
#[test]
fn a_key_of_a_lock_ends_with_the_credential_of_the_lock() {
    let digest = ApiKey::generate().expect("random bytes").digest().to_hex();
    let key = format!("{{ id = \"a7\", sha256 = \"{digest}\", expires = 2026-07-01T00:00:00Z }}");
    let kate = format!("\n[[principals]]\nname = \"kate\"\nroles = []\nkeys = [{key}]\n");
    let rules = rules(&format!("{EXAMPLE}{kate}"));
    let alice = certificate(CertificateName::Dns("alice.example".to_owned()));
    let alice = rules.caller(&alice, now()).expect("it is alice");
    let by = |credential: &str, ends: Option<Timestamp>| {
        let credential = Some(credential.to_owned());
        rules.caller(&Identity::S3Lock { principal: alice.name().clone(), credential, ends }, now())
    };
    let good = by("key:a7", None).expect("it is good");
    let ends = "2026-07-01T00:00:00Z".parse().expect("a time");
    assert_eq!(good.expires(), Some(ends), "the rules say it");
    let later = now() + SignedDuration::from_secs(1);
    let token = by("jti:k8s#another", Some(later)).expect("it is good");
    assert_eq!((token.credential(), token.expires()), ("jti:k8s#another", Some(later)));
    let digest = "cd34".repeat(16);
    for (credential, ends, why) in [
        ("jti:k8s#another".to_owned(), Some(now()), Unauthenticated::Expired(now())),
        ("jti:k8s#1f2e".to_owned(), Some(later), Unauthenticated::Revoked),
        (format!("cert:sha256:{digest}"), Some(later), Unauthenticated::Revoked),
        ("key:gone".to_owned(), None, Unauthenticated::Revoked),
        ("jwt:elsewhere".to_owned(), Some(later), Unauthenticated::Revoked),
        ("jti:elsewhere#1".to_owned(), Some(later), Unauthenticated::Revoked),
    ] {
        assert_eq!(by(&credential, ends).map(|_| ()), Err(why), "{credential}");
    }
}

#[test]
pub(crate) fn nothing_is_allowed_but_what_a_line_allows_and_what_denies_wins() {
    let rules = rules(EXAMPLE);
    let alice = certificate(CertificateName::Dns("alice.example".to_owned()));
    let alice = rules.caller(&alice, now()).expect("it is alice");
    let may = |action, name: &str| {
        alice.may(action, &resource(name)).map(|allowed| allowed.by.0.to_owned())
    };
    assert_eq!(may(Action::Write, "invoices:7"), Ok("billing".to_owned()));
    assert_eq!(may(Action::Write, "home:alice"), Ok("home".to_owned()));
    assert_eq!(may(Action::Write, "home:alice:desk"), Ok("home".to_owned()));
    assert!(alice.has_role("home") && !alice.has_role("operator"));
    for (action, name) in [
        (Action::Write, "invoices"),
        (Action::Write, "home:alicea"),
        (Action::Write, "home:bob"),
        (Action::Read, "home:alice"),
        (Action::Break, "invoices:7"),
        (Action::Clear, "invoices:7"),
    ] {
        assert_eq!(may(action, name), Err(Denied::NothingAllows), "{action} {name}");
    }
    let archived = may(Action::Write, "invoices:archive:7");
    assert!(matches!(archived, Err(Denied::By("billing", _))), "{archived:?}");
    assert_eq!(may(Action::Read, "invoices:archive:7"), Ok("billing".to_owned()));
}

#[test]
fn a_list_needs_a_prefix_that_is_allowed_as_a_whole() {
    let caller = one(
        "allow = [\"list\"]\nresources = [\"a:*\", \"b\"]\ndeny = [{ actions = [\"list\"], resources = [\"a:x:*\"] }]",
    );
    let may = |prefix: &str| caller.may_all(Action::List, prefix).map(|_| ());
    assert_eq!(may("a:b"), Ok(()));
    for outside in ["", "a", "b", "c:"] {
        assert!(may(outside).is_err(), "{outside}");
    }
    for (inside, is_denied) in [("a:", true), ("a:x", true), ("a:x:1", true), ("a:xy", false)] {
        assert_eq!(may(inside).is_err(), is_denied, "{inside}");
    }
    let scopes: Vec<_> = caller.scopes_of(Action::List).map(ToString::to_string).collect();
    assert_eq!(scopes, ["a:*", "b"]);
    let all = one("allow = [\"observe\"]\nresources = [\"*\"]");
    assert!(all.may_all(Action::Observe, "").is_ok());
}

#[test]
fn requests_to_upstreams_are_allowed_by_their_path() {
    let rules = rules(EXAMPLE);
    let ops = rules.caller(&Identity::Unix { uid: 1, gid: 990 }, now()).expect("it is ops");
    assert_eq!(ops.may(Action::ForwardRead, &resource("crm:7")), Err(Denied::NothingAllows));
    assert!(ops.may_forward_read("crm", "/records/7").is_ok());
    for (upstream, path) in
        [("crm", "/recordsx"), ("crm", "/"), ("crm2", "/records/7"), ("crm", "//records/7")]
    {
        assert!(ops.may_forward_read(upstream, path).is_err(), "{upstream} {path}");
    }
}

#[test]
fn one_line_alone_must_allow_all_terms_of_a_lock() {
    let role = |name: &str, limits: &str| {
        format!("[[roles]]\nname = \"{name}\"\nallow = [\"lock\"]\nresources = [\"*\"]\n{limits}\n")
    };
    let caller = |limits: &[&str]| {
        let names: Vec<_> = ["one", "two"].into_iter().take(limits.len()).collect();
        let roles: String =
            names.iter().zip(limits).map(|(name, limits)| role(name, limits)).collect();
        let text = format!(
            "{roles}[[principals]]\nname = \"me\"\nroles = {names:?}\nmatch = {{ unix_uid = 7 }}\n"
        );
        rules(&text).caller(&Identity::Unix { uid: 7, gid: 7 }, now()).expect("it is me")
    };
    let seconds = |count: Option<u64>| count.map(Duration::from_secs);
    let may = |limits: &[&str], ttl, max_hold, wait| {
        let terms =
            LockTerms { ttl: seconds(ttl), max_hold: seconds(max_hold), wait: seconds(wait) };
        match caller(limits).may_lock(&resource("a"), &terms) {
            Ok(_) => Ok(()),
            Err(Denied::Beyond(role, _)) => Err(role.to_owned()),
            Err(other) => panic!("{other:?}"),
        }
    };
    let beyond = || Err("one".to_owned());
    // Each limit by itself.
    assert_eq!(may(&[""], None, None, Some(9_999)), Ok(()));
    assert_eq!(may(&["ttl_max = \"5s\""], Some(5), None, None), Ok(()));
    assert_eq!(may(&["ttl_max = \"5s\""], Some(6), None, None), beyond());
    assert_eq!(may(&["ttl_max = \"5s\""], None, None, None), beyond());
    assert_eq!(may(&["ttl_max = \"5s\"\ninfinite = true"], None, None, None), Ok(()));
    assert_eq!(may(&["infinite = false"], None, None, None), beyond());
    assert_eq!(may(&["hold_max = \"5s\""], Some(1), Some(5), None), Ok(()));
    assert_eq!(may(&["hold_max = \"5s\""], Some(1), Some(6), None), beyond());
    assert_eq!(may(&["hold_max = \"5s\""], Some(1), None, None), beyond(), "it has no end");
    assert_eq!(may(&["wait_max = \"5s\""], Some(1), None, None), Ok(()));
    assert_eq!(may(&["wait_max = \"5s\""], Some(1), None, Some(6)), beyond());
    // Two roles do not add up to a third.
    let both = ["ttl_max = \"5s\"", "ttl_max = \"10s\"\nwait_max = \"1s\""];
    assert_eq!(may(&both, Some(10), None, Some(1)), Ok(()));
    assert_eq!(may(&both, Some(5), None, Some(9)), Ok(()));
    assert_eq!(may(&both, Some(10), None, Some(9)), beyond());
}

#[test]
fn a_line_that_denies_and_cannot_be_filled_in_denies_all() {
    let caller = one(
        "allow = [\"write\"]\nresources = [\"*\"]\ndeny = [{ actions = [\"write\"], resources = [\"t:${claim.team}:*\"] }]",
    );
    assert!(matches!(caller.may(Action::Write, &resource("a")), Err(Denied::By("r", _))));
}

#[test]
fn rules_that_cannot_be_meant_are_refused_with_their_place() {
    let role = |body: &str| format!("[[roles]]\nname = \"r\"\n{body}\n");
    let principal = |name: &str, body: &str| {
        format!(
            "[[roles]]\nname = \"r\"\nallow = [\"read\"]\nresources = [\"*\"]\n[[principals]]\nname = \"{name}\"\nroles = [\"r\"]\n{body}\n"
        )
    };
    let issuer = |body: &str| {
        format!(
            "[[issuers]]\nname = \"i\"\nissuer = \"x\"\naudience = \"y\"\nalgorithms = [\"RS256\"]\n{body}\n"
        )
    };
    let digest = "0".repeat(64);
    let key = |id: &str| {
        format!("{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2027-01-01T00:00:00Z }}")
    };
    let uid = "match = { unix_uid = 1 }";
    for (text, says) in [
        (role("allow = [\"read\"]"), "role `r`: `resources` is missing"),
        (role("allow = []\nresources = [\"*\"]"), "role `r`: there are no actions"),
        (role("allow = [\"reed\"]\nresources = [\"*\"]"), "unknown variant `reed`"),
        (
            role("allow = [\"read\"]\nresources = [\"job*\"]"),
            "role `r`: pattern `job*`: before `*`",
        ),
        (role("allow = [\"forward-read\"]"), "`forward-read` needs `upstreams`"),
        (
            role("allow = [\"read\"]\nresources = [\"*\"]\nupstreams = [\"crm/*\"]"),
            "is for `forward-read`",
        ),
        (role("allow = [\"read\"]\nresources = [\"*\"]\nttl_max = \"5m\""), "limits of locks"),
        (role("allow = [\"lock\"]\nresources = [\"*\"]\nttl_max = \"soon\""), "is not a duration"),
        (role("allow = [\"read\"]\nresources = [\"*\"]\nrate = 0"), "`rate` is between 1 and"),
        (role("allow = [\"read\"]\nresources = [\"*\"]\nstreams = -1"), "line "),
        (role("allow = [\"read\"]\nresources = [\"*\"]\nrates = 5"), "unknown field `rates`"),
        (role("allow = [\"read\"]\nresources = [\"*\"]\nlock = 3"), "unknown field `lock`"),
        (
            format!("{0}{0}", role("allow = [\"read\"]\nresources = [\"*\"]")),
            "another one with this name",
        ),
        (principal("a", ""), "principal `a`: it has neither keys nor `match`"),
        (principal("*", uid), "principal `*`: a principal's name begins with"),
        (principal("role:x", uid), "does not begin with `role:`"),
        (principal("a${sub}b", uid), "behind `${sub}`"),
        (principal("a", "match = { sub = \"x\" }"), "need `issuer`"),
        (principal("a", "match = { issuer = \"i\", sub = \"x\" }"), "there is no issuer `i`"),
        (principal("a", "match = { spiffe = \"spiffe://TD/x\" }"), "is not `spiffe://DOMAIN/PATH`"),
        (principal("a", "match = { spiffe = \"spiffe://td\" }"), "is not `spiffe://DOMAIN/PATH`"),
        (principal("a", "match = { dns = \"*.example\" }"), "is no DNS name"),
        (principal("a", "roles = []"), "duplicate key"),
        (
            principal("a", "revoked = [\"key:a\"]\nmatch = { unix_uid = 1 }"),
            "unknown field `revoked`",
        ),
        (principal("a", &format!("keys = [{}]", key("A"))), "`A` is no id of a key"),
        (
            principal("a", &format!("keys = [{}, {}]", key("a"), key("a"))),
            "another key with the id `a`",
        ),
        (
            role("allow = [\"admin\"]\nresources = [\"a:*\"]"),
            "role `r`: `admin` is about the rules as a whole",
        ),
        (
            principal("a", uid).replace("roles = [\"r\"]", "roles = [\"r\", \"r\"]"),
            "principal `a`: role `r` stands there twice",
        ),
        (principal("a/${sub}", &format!("keys = [{}]", key("a"))), "is for `match`, not for keys"),
        (
            principal(
                "a",
                "keys = [{ id = \"a\", sha256 = \"9f\", expires = 2027-01-01T00:00:00Z }]",
            ),
            "64 hexadecimal",
        ),
        (
            principal("a", &format!("keys = [{{ id = \"a\", sha256 = \"{digest}\" }}]")),
            "missing field `expires`",
        ),
        (
            principal(
                "a",
                &format!("keys = [{{ id = \"a\", sha256 = \"{digest}\", expires = 2027-01-01 }}]"),
            ),
            "is not a time",
        ),
        (
            "[[principals]]\nname = \"a\"\nroles = [\"x\"]\nmatch = { unix_uid = 1 }\n".to_owned(),
            "there is no role `x`",
        ),
        ("revoked = [\"worker\"]\n".to_owned(), "revoked: entry 1: it is none of"),
        ("revoked = [\"key:fgk_a7_AAAA\"]\n".to_owned(), "revoked: entry 1"),
        ("revoked = [\"jti:k8s#1\"]\n".to_owned(), "revoked: entry 1"),
        (format!("revoked = [\"cert:sha256:{}\"]\n", "AB:12".repeat(16)), "revoked: entry 1"),
        (
            role(
                "allow = [\"forward-read\"]\nupstreams = [\"crm/*\"]\ndeny = [{ actions = [\"forward-read\"], resources = [\"a\"] }]",
            ),
            "say in `upstreams` what is allowed",
        ),
        (issuer(""), "there is one of jwks_file and jwks_url"),
        (
            issuer("jwks_file = \"a\"\njwks_url = \"https://b\""),
            "there is one of jwks_file and jwks_url",
        ),
        (issuer("jwks_url = \"http://b\""), "jwks_url is an https URL"),
        (issuer("jwks_file = \"a\"").replace("RS256", "HS256"), "unknown variant `HS256`"),
        (issuer("jwks_file = \"a\"").replace("RS256", "none"), "unknown variant `none`"),
        ("nonsense = 1\n".to_owned(), "unknown field `nonsense`"),
        ("[[roles]\n".to_owned(), "line 1"),
    ] {
        let told = wrong(&text);
        assert!(told.contains(says), "{text}\n{told}\nwanted: {says}");
    }
    assert_eq!(wrong(&" ".repeat(RULES_BYTES_MAX + 1)), RulesError::TooLong.to_string());
}

#[test]
fn two_live_keys_are_enough_and_no_clock_ends_the_rules() {
    let digest = "0".repeat(64);
    let text = ["a", "b", "c"].map(|id| {
        format!("{{ id = \"{id}\", sha256 = \"{digest}\", expires = 2027-01-01T00:00:00Z }}")
    });
    let text = format!("[[principals]]\nname = \"a\"\nroles = []\nkeys = [{}]\n", text.join(", "));
    let rules = rules(&text);
    let told = rules.check_live_keys(now()).expect_err("three").to_string();
    assert!(told.contains("principal `a`: 3 keys that have not expired"), "{told}");
    assert_eq!(rules.check_live_keys("2027-01-01T00:00:00Z".parse().expect("a time")), Ok(()));
}

/// Rules may change whom a name stands for; what was verified under the old ones is nobody's under the new ones.
#[test]
fn a_token_counts_only_where_its_issuer_is_the_same() {
    let rules = rules(EXAMPLE);
    let whose = |issuer: Issuer| {
        let Identity::Jwt { claims, expires, .. } =
            jwt("k8s", &[("sub", "system:serviceaccount:billing:worker")])
        else {
            panic!("it is a token")
        };
        rules
            .caller(&Identity::Jwt { issuer: Arc::new(issuer), claims, expires }, now())
            .map(|_| ())
    };
    assert_eq!(whose(k8s("k8s")), Ok(()));
    let other = Issuer { issuer: "https://other.example".to_owned(), ..k8s("k8s") };
    assert_eq!(whose(other), Err(Unauthenticated::Nobody));
    let weaker = Issuer { algorithms: vec![Algorithm::ES256], ..k8s("k8s") };
    assert_eq!(whose(weaker), Err(Unauthenticated::Nobody));
}

#[test]
fn no_made_name_can_become_another_principals() {
    let issuer = "[[issuers]]\nname = \"i\"\nissuer = \"x\"\naudience = \"y\"\nalgorithms = [\"RS256\"]\njwks_file = \"a\"\n";
    let principal = |name: &str| {
        format!(
            "[[principals]]\nname = \"{name}\"\nroles = []\nmatch = {{ issuer = \"i\", sub = \"x:*\" }}\n"
        )
    };
    let two = |one: &str, other: &str| {
        Rules::parse(&format!("{issuer}{}{}", principal(one), principal(other)))
    };
    for (one, other) in [
        ("ci/${sub}", "ci/admin"),
        ("${sub}", "admin"),
        ("a${sub}", "a${dns}"),
        ("ci/${sub}", "ci/a/${sub}"),
    ] {
        for (one, other) in [(one, other), (other, one)] {
            let told = two(one, other).expect_err("it is refused").to_string();
            assert!(told.contains("one could become the other"), "{told}");
        }
    }
    for (one, other) in [("ci/${sub}", "cd/${sub}"), ("ci/${sub}", "ci"), ("ci", "ci/a")] {
        assert!(two(one, other).is_ok(), "{one} {other}");
    }
}

#[test]
fn a_principal_is_known_by_its_name_alone() {
    let all = rules(EXAMPLE);
    let may = |name: &str, action, on: &str| {
        let caller = all.named(&PrincipalName::new(name).expect("a name"))?;
        Some(caller.may(action, &resource(on)).is_ok())
    };
    let own = rules(
        "[[roles]]\nname = \"r\"\nallow = [\"lock\"]\nresources = [\"of:${sub}:*\", \"at:${claim.site}:*\"]\n\
         [[issuers]]\nname = \"i\"\nissuer = \"i\"\naudience = \"a\"\njwks_file = \"/k\"\nalgorithms = [\"ES256\"]\n\
         [[principals]]\nname = \"job/${sub}\"\nroles = [\"r\"]\nmatch = { issuer = \"i\", sub = \"*\" }\n",
    );
    let caller = own.named(&PrincipalName::new("job/ann").expect("a name")).expect("it is made so");
    assert!(caller.may(Action::Lock, &resource("of:ann:1")).is_ok());
    assert!(caller.may(Action::Lock, &resource("of:bob:1")).is_err());
    // What its token would say is not known.
    assert!(caller.may(Action::Lock, &resource("at:home:1")).is_err());
    assert!(own.named(&PrincipalName::new("jobs/ann").expect("a name")).is_none());
    assert_eq!(may("nobody", Action::Lock, "x"), None);
}

#[test]
fn the_example_of_the_page_is_good() {
    let page = include_str!("../../../../docs/access.md");
    let blocks = page.split("```toml\n").skip(1).filter_map(|rest| rest.split("```").next());
    let examples: Vec<&str> = blocks.filter(|block| block.contains("[[roles]]")).collect();
    assert_eq!(examples.len(), 1);
    rules(examples[0]);
}
