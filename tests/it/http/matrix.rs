//! Every operation of the contract, for everybody who might call it: who is let in, what the others are told, and that
//! nothing has changed where somebody was refused.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::{BTreeMap, BTreeSet};

use fence_core::wire::Lock;
use fence_tests::access::{Key, principal, role};
use fence_tests::client::{Answer, Call, Client};
use fence_tests::etcd::Etcd;
use fence_tests::gateway::Gateway;
use fence_tests::multipart::commit;
use fence_tests::postgres::{Postgres, database_in};
use fence_tests::process::eventually;
use fence_tests::spec::Spec;
use fence_tests::upstream::Upstream;
use fencegate_access::Action;
use reqwest::Method;
use serde_json::json;
use tempfile::TempDir;

use crate::setup::random_id;

/// What an operation needs.
#[derive(Debug, Clone, Copy)]
enum Needs {
    /// Nothing: it is open to everybody.
    Open,
    /// A credential of anybody.
    Known,
    /// This action on the resource.
    Action(&'static str),
    /// This action on all resources.
    Everywhere(&'static str),
    /// This action on something: what it is to comes out later.
    Somewhere(&'static str),
    /// To be able to read or write the resource.
    Outcome,
}

/// One operation: a call of it as it must be, what it needs, and what whoever may gets.
struct Row {
    call: Call,
    needs: Needs,
    gets: &'static [u16],
    /// What those get who have the action, but elsewhere, if they are not refused for that.
    elsewhere: u16,
}

/// A ledger with things in it, and a gateway with rules.
struct Site {
    gateway: Gateway,
    database: String,
    _upstream: Upstream,
    keys: BTreeMap<String, Key>,
    /// The lock of `boss` on `mine:1`, with writers.
    lock: Lock,
    /// Another one, of a resource that is to be deleted.
    doomed: Lock,
    operation: String,
}

const ACTIONS: [&str; 15] = [
    "lock",
    "fence",
    "fence-force",
    "write",
    "clear",
    "read",
    "list",
    "forward-read",
    "observe",
    "break",
    "freeze",
    "protect",
    "resolve",
    "delegate",
    "admin",
];
/// Roles that have all actions but this one, one of them for each action.
const ALL_BUT: &str = "all-but-";
/// Roles that have this action alone.
const ONLY: &str = "only-";

/// Which resources an action of the rules is about: some of them are about all.
fn scope(action: &str, mine: &str) -> String {
    match action {
        "admin" | "observe" | "resolve" => "*".to_owned(),
        _ => mine.to_owned(),
    }
}

/// A role with these actions on resources and paths that begin so.
fn with(name: &str, actions: &[&str], mine: &str) -> String {
    let list = |of: &[&str]| of.iter().map(|it| format!("\"{it}\"")).collect::<Vec<_>>().join(", ");
    let resources: BTreeSet<_> = actions
        .iter()
        .filter(|it| **it != "forward-read")
        .map(|action| scope(action, &format!("{mine}:*")))
        .collect();
    // `admin` takes no other pattern than `*`; with it all the others are everywhere, too.
    let resources = match resources.contains("*") {
        true => "resources = [\"*\"]\n".to_owned(),
        false if resources.is_empty() => String::new(),
        false => format!("resources = [\"{mine}:*\"]\n"),
    };
    let upstreams = match actions.contains(&"forward-read") {
        true => format!("upstreams = [\"up/{mine}/*\"]\n"),
        false => String::new(),
    };
    role(name, &format!("allow = [{}]\n{resources}{upstreams}", list(actions)))
}

impl Site {
    async fn new() -> Self {
        let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
        let url = postgres.database().await;
        let upstream = Upstream::start().await;
        let front = format!(
            "name=up,url={},resource=/mine/{{resource}},resource_form=any,resource_prefix=mine:,guarantee=drained",
            upstream.url()
        );
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        let settings = settings.flag("--upstream", &front).flag("--s3-listen", "127.0.0.1:0");
        let gateway = settings.start().await;
        let (text, keys) = rules().await;
        let home = TempDir::new().unwrap();
        let file = home.path().join("access.toml");
        std::fs::write(&file, text).unwrap();
        let args = ["access", "apply", file.to_str().unwrap(), "--reason", "the matrix"];
        let (code, out, log) = gateway.run(&args).await;
        assert_eq!(code, Some(0), "{out}{log}");
        let client = gateway.client();
        let boss = &keys["boss"];
        let lock = async |resource: &str| {
            let writers = ["write", "clear"].map(|it| format!("{ONLY}{it}"));
            let body =
                json!({ "resource": resource, "ttl": "1h", "owner": "boss", "writers": writers });
            boss.by(client.lock(&body)).send().await.expect(201).parse::<Lock>()
        };
        for resource in ["mine:5", "mine:6"] {
            lock(resource).await;
        }
        let bucket = client.call(Method::PUT, "/buckets/doomed");
        boss.by(bucket).send().await.expect(201);
        let (lock, doomed) = (lock("mine:1").await, lock("mine:8").await);
        let put = client.put("mine:1", "k", "x").under(&lock);
        let written = boss.by(put).send().await.expect(201);
        let operation = written.must_have("x-operation-id").to_owned();
        let database = database_in(&url).to_owned();
        Self { gateway, database, _upstream: upstream, keys, lock, doomed, operation }
    }

    /// Nothing is under way at the upstream any more.
    async fn settled(&self) {
        let mut connection = Postgres::shared().await.connect(&self.database).await;
        eventually("all that was forwarded has ended", async || {
            let open = "SELECT count(*) FROM fencegate.upstream_intents WHERE closed IS NULL";
            let open: i64 = sqlx::query_scalar(open).fetch_one(&mut connection).await.unwrap();
            (open == 0).then_some(())
        })
        .await;
    }

    /// All that the ledger has but what gateways tell of themselves, in one text.
    async fn ledger(&self) -> String {
        let mut connection = Postgres::shared().await.connect(&self.database).await;
        let tables: Vec<String> = sqlx::query_scalar(
            "SELECT table_name FROM information_schema.tables
             WHERE table_schema = 'fencegate' AND table_type = 'BASE TABLE'
               AND table_name NOT IN ('seal_guard', 'write_guard', 'gateways', 'milestones', 'own_time', 'history', 'blob_garbage', 'audit_tree', 'audit_tiles')
               AND table_name NOT LIKE 'events%' AND table_name NOT LIKE 'stock%'
             ORDER BY 1",
        )
        .fetch_all(&mut connection)
        .await
        .unwrap();
        let mut all = String::new();
        for table in tables {
            // That somebody was refused is on record.
            let but = match table.as_str() {
                "audit" => "WHERE t.action NOT IN ('denied', 'auth-failed')",
                _ => "",
            };
            let rows = format!(
                "SELECT coalesce(string_agg(t::text, E'\\n' ORDER BY t::text), '') FROM fencegate.{table} t {but}"
            );
            let rows: String = sqlx::query_scalar(sqlx::AssertSqlSafe(rows))
                .fetch_one(&mut connection)
                .await
                .unwrap();
            all += &format!("{table}:\n{rows}\n");
        }
        all
    }
}

/// The rules of the matrix, and a key for everybody in them.
async fn rules() -> (String, BTreeMap<String, Key>) {
    let mut text = String::new();
    let mut keys = BTreeMap::new();
    let mut people = Vec::new();
    text += &with("all", &ACTIONS, "mine");
    people.extend(
        [("boss".to_owned(), "all"), ("ended".to_owned(), "all"), ("gone".to_owned(), "all")]
            .map(|(name, role)| (name, role.to_owned())),
    );
    text += &with("operator", &["observe", "break", "freeze", "protect", "resolve"], "mine");
    people.push(("operator".to_owned(), "operator".to_owned()));
    let local: Vec<&str> = ACTIONS.into_iter().filter(|it| scope(it, "mine:*") != "*").collect();
    text += &with("elsewhere", &local, "theirs");
    people.push(("elsewhere".to_owned(), "elsewhere".to_owned()));
    for action in ACTIONS {
        let others: Vec<&str> = ACTIONS.into_iter().filter(|it| *it != action).collect();
        for (name, actions) in
            [(format!("{ALL_BUT}{action}"), &others[..]), (format!("{ONLY}{action}"), &[action])]
        {
            text += &with(&name, actions, "mine");
            people.push((name.clone(), name));
        }
    }
    let mut revoked = String::new();
    for (name, of) in people {
        let mut key = Key::new().await;
        if name == "ended" {
            let (before, _) = key.line.split_once("expires = ").unwrap();
            key.line = format!("{before}expires = 2020-01-01T00:00:00Z }}");
        }
        if name == "gone" {
            let kid = key.text.split('_').nth(1).unwrap();
            revoked = format!("revoked = [\"key:{kid}\"]\n");
        }
        text += &principal(&name, &of, &[&key]);
        keys.insert(name, key);
    }
    (revoked + &text, keys)
}

impl Site {
    /// The row of an operation; none if nobody has thought of it.
    #[expect(clippy::too_many_lines, reason = "one line for each operation")]
    async fn row(&self, id: &str) -> Option<Row> {
        use Needs::{Action, Everywhere, Known, Open, Outcome, Somewhere};
        let client = self.gateway.client();
        let get = |path: &str| client.get(path);
        let reason = json!({ "reason": "the matrix" });
        let post = |path: &str| client.post(path, &reason);
        let (lock, operation) = (&self.lock, &self.operation);
        let resource = "/resources/mine:1";
        let through = |method: Method| client.call(method, "/upstreams/up/mine/1").under(lock);
        let own = async || {
            let body = json!({ "resource": format!("mine:{id}"), "ttl": "1h" });
            let held = self.keys["only-lock"].by(client.lock(&body)).send().await;
            held.expect(201).parse::<Lock>()
        };
        let at = |call, needs, gets| Some(Row { call, needs, gets, elsewhere: 403 });
        let to_id = |call, gets| Some(Row { call, needs: Somewhere("lock"), gets, elsewhere: 404 });
        match id {
            "health" => at(get("/healthz"), Open, &[200]),
            "readiness" => at(get("/readyz"), Open, &[200]),
            "openapi" => at(get("/openapi.yaml"), Open, &[200]),
            "errorPage" => at(get("/docs/errors/lock-held"), Open, &[200]),
            "status" => at(get("/status"), Known, &[200]),
            "metrics" => at(get("/metrics"), Everywhere("observe"), &[200]),
            "listAudit" => at(get("/audit").query("resource", "mine:1"), Action("observe"), &[200]),
            "getAuditCheckpoint" => {
                at(get("/audit/checkpoint"), Everywhere("observe"), &[200, 503])
            }
            "getAuditProof" => {
                let between = get("/audit/proof").query("from", "1").query("to", "1");
                at(between, Everywhere("observe"), &[200, 400])
            }
            "exportAudit" => at(get("/audit/export"), Everywhere("observe"), &[200, 503]),
            "listRejections" => {
                at(get("/rejections").query("resource", "mine:1"), Action("observe"), &[200])
            }
            "listIntents" => at(get("/admin/intents"), Everywhere("observe"), &[200]),
            "resolveIntent" => {
                let path = format!("/admin/intents/{operation}/resolve");
                at(post(&path), Everywhere("resolve"), &[404])
            }
            "resolveDoubts" => {
                let body = json!({ "upstream": "up", "reason": "the matrix" });
                at(client.post("/admin/intents/resolve", &body), Everywhere("resolve"), &[200])
            }
            "getUsage" => at(get("/admin/usage"), Everywhere("observe"), &[200]),
            "getOwnAccess" => at(get("/access"), Known, &[200]),
            "getAccess" => at(get("/admin/access"), Everywhere("admin"), &[200]),
            "putAccess" => {
                let body = json!({ "rules": "no rules", "reason": "the matrix" });
                let call = client.call(Method::PUT, "/admin/access").body(body.to_string());
                at(call.header("content-type", "application/json"), Everywhere("admin"), &[400])
            }
            "explainAccess" => {
                let body = json!({ "principal": "boss", "action": "lock", "resource": "mine:1" });
                at(client.post("/admin/access/explain", &body), Everywhere("admin"), &[200])
            }
            "listBuckets" => {
                let needs = Somewhere("list");
                Some(Row { call: get("/buckets"), needs, gets: &[200], elsewhere: 200 })
            }
            "makeBucket" => {
                at(client.call(Method::PUT, "/buckets/lake"), Everywhere("admin"), &[201])
            }
            "deleteBucket" => {
                at(client.call(Method::DELETE, "/buckets/doomed"), Everywhere("admin"), &[204])
            }
            "makeS3Key" => {
                at(client.call(Method::POST, "/admin/s3-keys"), Everywhere("admin"), &[200])
            }
            "getLockS3Key" => to_id(get(&format!("/locks/{}/s3", own().await.id)), &[200]),
            "acquireLock" => {
                let body = json!({ "resource": "mine:3", "ttl": "1s" });
                at(client.lock(&body), Action("lock"), &[201])
            }
            "listLocks" => at(get("/locks").query("prefix", "mine:"), Action("list"), &[200]),
            "listResources" => {
                at(get("/resources").query("prefix", "mine:"), Action("list"), &[200])
            }
            "renewLocks" => {
                let body = json!({ "ids": [own().await.id] });
                let call = client.post("/locks/renew", &body);
                Some(Row { call, needs: Somewhere("lock"), gets: &[200], elsewhere: 200 })
            }
            "getLock" => to_id(client.lock_of(&own().await), &[200]),
            "watchLock" => {
                // One that has ended: its stream ends as well.
                let lock = own().await;
                self.keys["only-lock"].by(client.release(&lock)).send().await.expect(204);
                to_id(get(&format!("/locks/{}/events", lock.id)), &[200])
            }
            "renewLock" => to_id(client.renew(&own().await, None), &[200]),
            "releaseLock" => to_id(client.release(&own().await), &[204]),
            "transferLock" => {
                let path = format!("/locks/{}/transfer", own().await.id);
                to_id(client.post(&path, &json!({ "owner": "next" })), &[201])
            }
            "getResource" => at(get(resource), Action("read"), &[200]),
            "listWaiters" => at(get("/resources/mine:1/waiters"), Action("read"), &[200]),
            "listVersions" => at(get("/resources/mine:1/versions"), Action("read"), &[200]),
            "listObjects" => at(get("/resources/mine:1/objects"), Action("list"), &[200]),
            "getObject" => at(client.read("mine:1", "k"), Action("read"), &[200]),
            "headObject" => {
                let call = client.call(Method::HEAD, "/resources/mine:1/objects/k");
                at(call, Action("read"), &[200])
            }
            "findOperations" => at(
                get("/resources/mine:1/operations").query("idempotency_key", "x"),
                Outcome,
                &[200],
            ),
            "getOperation" => {
                let call = get(&format!("/operations/{operation}"));
                Some(Row { call, needs: Outcome, gets: &[200], elsewhere: 404 })
            }
            "listEvents" => {
                let needs = Somewhere("read");
                Some(Row { call: get("/events"), needs, gets: &[200], elsewhere: 200 })
            }
            "setFence" => {
                let body = json!({ "id": random_id(), "order": "7", "owner": "f" });
                at(client.fence("mine:4", &body), Action("fence"), &[200, 201])
            }
            "breakLock" => {
                let call = client.break_lock("mine:5", &reason);
                at(call, Action("break"), &[200])
            }
            "freezeResource" => at(post("/resources/mine:6/freeze"), Action("freeze"), &[200]),
            "unfreezeResource" => at(post("/resources/mine:6/unfreeze"), Action("freeze"), &[200]),
            "protectResource" => at(post("/resources/mine:6/protect"), Action("protect"), &[200]),
            "unprotectResource" => {
                at(post("/resources/mine:6/unprotect"), Action("protect"), &[200])
            }
            "putObject" => {
                at(client.put("mine:1", "n", "x").under(lock), Action("write"), &[200, 201])
            }
            "deleteObject" => at(client.delete("mine:1", "n").under(lock), Action("write"), &[204]),
            "deleteResource" => {
                at(client.delete_resource("mine:8").under(&self.doomed), Action("clear"), &[204])
            }
            "commit" => {
                let deletion = json!({ "op": "delete", "resource": "mine:1", "key": "none" });
                let operations = json!({ "operations": [deletion] });
                at(commit(&client, &operations, &[]).under(lock), Action("write"), &[200])
            }
            "readUpstream" => at(get("/upstreams/up/mine/1"), Action("forward-read"), &[200]),
            "headUpstream" => at(
                client.call(Method::HEAD, "/upstreams/up/mine/1"),
                Action("forward-read"),
                &[200],
            ),
            "optionsUpstream" => {
                let call = client.call(Method::OPTIONS, "/upstreams/up/mine/1");
                at(call, Action("forward-read"), &[200])
            }
            "postUpstream" => at(through(Method::POST), Action("write"), &[200]),
            "putUpstream" => at(through(Method::PUT), Action("write"), &[200]),
            "patchUpstream" => at(through(Method::PATCH), Action("write"), &[200]),
            "deleteUpstream" => at(through(Method::DELETE), Action("write"), &[200]),
            _ => None,
        }
    }

    /// What somebody is answered.
    async fn answered(&self, who: Option<&str>, call: Call) -> Answer {
        match who {
            Some(who) => self.keys[who].by(call).send().await,
            None => call.send().await,
        }
    }
}

/// The expected status and code of each column, in the order in which they are asked: those who are refused before those
/// who are let in, since these change something.
fn columns(needs: Needs, elsewhere: u16) -> Vec<(Option<String>, Vec<u16>, Option<&'static str>)> {
    let mut columns = Vec::new();
    let is_open = matches!(needs, Needs::Open);
    let denied = || (vec![403], Some("permission-denied"));
    for (who, status, code) in [
        (None, 401, "unauthenticated"),
        (Some("ended"), 401, "credential-expired"),
        (Some("gone"), 401, "unauthenticated"),
    ] {
        let (status, code) = if is_open { (vec![200], None) } else { (vec![status], Some(code)) };
        columns.push((who.map(str::to_owned), status, code));
    }
    let may_be_elsewhere = || match elsewhere {
        403 => denied(),
        other => (vec![other], None),
    };
    match needs {
        Needs::Open | Needs::Known => {}
        Needs::Action(action) | Needs::Everywhere(action) | Needs::Somewhere(action) => {
            let (status, code) = may_be_elsewhere();
            columns.push((Some("elsewhere".to_owned()), status, code));
            let (status, code) = denied();
            columns.push((Some(format!("{ALL_BUT}{action}")), status, code));
        }
        Needs::Outcome => {
            let (status, code) = may_be_elsewhere();
            columns.push((Some("elsewhere".to_owned()), status.clone(), code));
            columns.push((Some(format!("{ONLY}list")), status, code));
        }
    }
    columns
}

/// Who may, by a role that has nothing else.
fn right(needs: Needs) -> String {
    match needs {
        Needs::Open | Needs::Known => format!("{ONLY}list"),
        Needs::Action(action) | Needs::Everywhere(action) | Needs::Somewhere(action) => {
            format!("{ONLY}{action}")
        }
        Needs::Outcome => format!("{ONLY}read"),
    }
}

/// What an operator gets, who has the actions of one and no others.
fn operator_may(needs: Needs) -> bool {
    let of = ["observe", "break", "freeze", "protect", "resolve"];
    match needs {
        Needs::Open | Needs::Known => true,
        Needs::Action(action) | Needs::Everywhere(action) | Needs::Somewhere(action) => {
            of.contains(&action)
        }
        Needs::Outcome => false,
    }
}

/// Calls that need a right beside that of their operation: what they are by, the call, and the right.
fn beside(client: &Client, lock: &Lock) -> Vec<(&'static str, Call, &'static str)> {
    let forced = json!({ "id": random_id(), "force": true, "owner": "f" });
    let unordered = json!({ "id": random_id(), "owner": "f" });
    let shared = json!({ "resource": "mine:20", "ttl": "1s", "writers": ["operator"] });
    let given = json!({ "owner": "next", "principal": format!("{ONLY}lock") });
    vec![
        ("fence", client.fence("mine:21", &forced), "fence-force"),
        ("fence", client.fence("mine:22", &unordered), "fence-force"),
        ("lock", client.lock(&shared), "delegate"),
        ("lock", client.post(format!("/locks/{}/transfer", lock.id), &given), "delegate"),
    ]
}

#[tokio::test]
async fn each_action_of_the_rules_is_asked_for() {
    let site = Site::new().await;
    let client = site.gateway.client();
    let mut asked = BTreeSet::new();
    for id in Spec::get().operations() {
        match site.row(&id).await.unwrap().needs {
            Needs::Action(it) | Needs::Everywhere(it) | Needs::Somewhere(it) => asked.insert(it),
            Needs::Open | Needs::Known | Needs::Outcome => continue,
        };
    }
    let has_all = format!("{ALL_BUT}observe");
    for (has, call, needs) in beside(&client, &site.lock) {
        asked.insert(needs);
        // Of the lock others know nothing.
        let to_others = if has == "lock" && call.is_to("transfer") { 404 } else { 403 };
        for who in [format!("{ALL_BUT}{needs}"), format!("{ONLY}{has}"), "elsewhere".to_owned()] {
            let answer = site.answered(Some(&who), call.clone()).await;
            assert_eq!(answer.status, to_others, "{who}: {}", answer.text());
        }
        let who = if to_others == 404 { "boss" } else { &has_all };
        let answer = site.answered(Some(who), call).await;
        assert!([200, 201].contains(&answer.status.as_u16()), "{who}: {}", answer.text());
    }
    let all: BTreeSet<_> = Action::ALL.iter().map(|action| action.as_str()).collect();
    assert_eq!(all, ACTIONS.into_iter().collect());
    assert_eq!(all, asked, "there is an action that nothing asks for");
}

#[tokio::test]
async fn everybody_gets_what_the_rules_say_and_nothing_else() {
    let site = Site::new().await;
    let mut failures = Vec::new();
    let mut said = String::new();
    for id in Spec::get().operations() {
        let Some(Row { call, needs, gets, elsewhere }) = site.row(&id).await else {
            failures.push(format!("{id}: the matrix has no row of it"));
            continue;
        };
        site.settled().await;
        let before = site.ledger().await;
        let mut refused = columns(needs, elsewhere);
        if !operator_may(needs) {
            let hidden = matches!(needs, Needs::Outcome) && elsewhere == 404;
            let (status, code) = match hidden {
                true => (vec![404], None),
                false => (vec![403], Some("permission-denied")),
            };
            refused.push((Some("operator".to_owned()), status, code));
        }
        for (who, status, code) in refused {
            let answer = site.answered(who.as_deref(), call.clone()).await;
            said += &format!("{:?} {}\n", answer.headers, answer.text());
            let is_head = answer.body.is_empty();
            let is_code = code.is_none_or(|code| is_head || answer.code() == code);
            if !status.contains(&answer.status.as_u16()) || !is_code {
                failures.push(format!("{id} by {who:?}: {} {}", answer.status, answer.text()));
            }
        }
        let after = site.ledger().await;
        let known: BTreeSet<&str> = before.lines().collect();
        if let Some(line) = after.lines().find(|line| !known.contains(line)) {
            failures.push(format!("{id}: after all were refused the ledger has {line}"));
        }
        assert!(after.len() >= before.len(), "{id}: something is gone from the ledger");
        let mut let_in = vec![right(needs)];
        if operator_may(needs) {
            let_in.push("operator".to_owned());
        }
        for who in let_in {
            let answer = site.answered(Some(&who), call.clone()).await;
            said += &format!("{:?} {}\n", answer.headers, answer.text());
            if !gets.contains(&answer.status.as_u16()) {
                failures.push(format!("{id} by {who}: {} {}", answer.status, answer.text()));
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    let client = site.gateway.client();
    let metrics = site.answered(Some("operator"), client.get("/metrics")).await.expect(200).text();
    for line in [
        "fencegate_auth_total{method=\"key\",outcome=\"accepted\"}",
        "fencegate_auth_total{method=\"key\",outcome=\"expired\"}",
        "fencegate_auth_total{method=\"key\",outcome=\"refused\"}",
        "fencegate_auth_total{method=\"none\",outcome=\"refused\"}",
        "fencegate_denied_total{action=\"write\"}",
        "fencegate_access_generation 1",
        "fencegate_access_reloads_total{outcome=\"loaded\"}",
    ] {
        assert!(metrics.contains(line), "{line}: {metrics}");
    }
    // The audit says who did it, and by which credential.
    let audit = client.get("/audit").query("resource", "mine:1");
    let audit = site.answered(Some("operator"), audit).await.expect(200).json();
    let by: Vec<_> = audit["items"].as_array().unwrap().iter().map(|it| &it["principal"]).collect();
    assert!(by.iter().any(|by| by.is_string()), "{audit}");
    assert!(audit.to_string().contains("\"credential\":\"key:"), "{audit}");
    let log = site.gateway.log();
    for said in ["a credential was not accepted", "it is revoked", "permission-denied"] {
        assert!(log.contains(said), "the log does not say: {said}");
    }
    // Who somebody is stands in no metric: there may be many, and not everybody who sees metrics is to know.
    for name in site.keys.keys().filter(|name| name.contains('-')) {
        assert!(!metrics.contains(&format!("\"{name}\"")), "the metrics name {name}");
    }
    // Nobody's secret is anywhere but with whoever sent it.
    for (place, text) in [
        ("an answer", said),
        ("the metrics", metrics),
        ("the log", site.gateway.log()),
        ("the ledger", site.ledger().await),
    ] {
        assert!(!text.is_empty(), "{place} was looked at");
        for (name, key) in &site.keys {
            // `fgk_`, an id, 43 characters of secret, a checksum; a secret may have `_` in it.
            let secret = &key.text.splitn(3, '_').nth(2).unwrap()[..43];
            assert!(!text.contains(secret), "{place} has the key of {name}");
        }
    }
}
