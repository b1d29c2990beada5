//! `fencegate drill`: what it says of gateways that are sound, of none, and of broken ones.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};
use fence_tests::access::{Key, Rules};
use fence_tests::client::resource_path;
use fence_tests::gateway::Gateway;
use fence_tests::nginx::Nginx;
use fence_tests::postgres::Postgres;
use fence_tests::upstream::Upstream;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::operating::commands::{Ended, fencegate};
use crate::setup::{SetUp, look, on_both, until_state};

on_both!(
    a_sound_gateway_passes_and_nothing_is_left_behind,
    a_canary_may_be_drilled_again,
    a_stale_write_that_is_said_to_succeed_fails_the_drill,
    a_late_write_that_takes_effect_fails_the_drill,
    an_intruder_is_refused,
);

const STEPS: [&str; 14] = [
    "ready",
    "canary",
    "first-lock",
    "first-write",
    "no-token",
    "forged-token",
    "first-object",
    "takeover",
    "second-write",
    "late-write",
    "second-object",
    "history",
    "rejection",
    "cleanup",
];

/// Drills on the resource `canary`.
async fn drill(url: &str, more: &[&str]) -> Ended {
    fencegate(&[&["drill", url, "--resource", "canary"], more].concat(), &[]).await
}

/// The report, and the steps that came out so.
fn report(ended: &Ended) -> Value {
    serde_json::from_str(&ended.out).unwrap_or_else(|_| panic!("{}{}", ended.out, ended.err))
}

fn steps(report: &Value, outcome: &str) -> Vec<String> {
    let steps = report["steps"].as_array().unwrap().iter();
    let steps = steps.filter(|step| step["outcome"] == outcome);
    steps.map(|step| step["step"].as_str().unwrap().to_owned()).collect()
}

async fn a_sound_gateway_passes_and_nothing_is_left_behind(setup: SetUp) {
    let gateway = setup.start().await;
    let ended = drill(&gateway.url(), &[]).await;
    assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
    let lines: Vec<&str> = ended.out.lines().collect();
    assert_eq!(lines.len(), STEPS.len() + 1, "{}", ended.out);
    assert!(lines[..STEPS.len()].iter().all(|line| line.starts_with("ok ")), "{}", ended.out);
    for told in [
        "a write without a token is refused: 428, fence-token-missing",
        "far higher token is refused: 403, fence-token-unknown",
        "late write is refused: 412, fence-token-stale",
        "no other: 200, versions [1, 2]",
        "ledger works, mint works",
    ] {
        assert!(ended.out.contains(told), "{told}: {}", ended.out);
    }
    assert_eq!(lines.last(), Some(&"the fence holds"));

    let client = gateway.client();
    let view = look(&client, "canary").await;
    assert_eq!((view.state.as_str(), view.objects, view.version), ("released", 0, 3));
    let rejections = client.get("/rejections").query("resource", "canary").send().await;
    let rejections = rejections.expect(200).json();
    let reasons = rejections["items"].as_array().unwrap().iter().map(|item| &item["reason"]);
    let reasons: Vec<_> = reasons.collect();
    assert!(reasons.contains(&&json!("fence-token-stale")), "{reasons:?}");
}

async fn a_canary_may_be_drilled_again(setup: SetUp) {
    let gateway = setup.start().await;
    let first = drill(&gateway.url(), &["--json"]).await;
    let second = drill(&format!("{}/", gateway.url()), &["--json"]).await;
    for ended in [&first, &second] {
        assert_eq!((ended.code, ended.err.as_str()), (Some(0), ""), "{}", ended.out);
        let report = report(ended);
        assert_eq!((&report["outcome"], &report["resource"]), (&json!("held"), &json!("canary")));
        assert_eq!(steps(&report, "held"), STEPS);
    }
    assert_eq!(look(&gateway.client(), "canary").await.version, 6);
    // Without a name it takes a new one each time.
    let unnamed = fencegate(&["drill", &gateway.url(), "--json"], &[]).await;
    let name = report(&unnamed)["resource"].as_str().unwrap().to_owned();
    assert!(name.starts_with("fencegate-drill-"), "{name}");
    assert_eq!((unnamed.code, look(&gateway.client(), &name).await.version), (Some(0), 3));
}

#[tokio::test]
async fn what_others_use_is_left_alone() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    // Somebody's lock that has lapsed: a drill must not be the one that takes it over.
    let lock = client.acquire("canary", "1s").await;
    until_state(&client, "canary", "expired").await;
    let refused = drill(&gateway.url(), &[]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains(r#"was locked by "test"; choose another"#), "{}", refused.err);
    client.put("canary", "k", "mine").under(&lock).send().await.expect(201);
    client.release(&lock).send().await.expect(204);

    // A canary in which somebody has put something.
    let body = json!({ "resource": "odd", "owner": "fencegate drill, second holder" });
    let lock = client.lock(&body).send().await.expect(201).parse();
    client.put("odd", "k", "mine").under(&lock).send().await.expect(201);
    client.release(&lock).send().await.expect(204);
    let refused = fencegate(&["drill", &gateway.url(), "--resource", "odd"], &[]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains(r#"odd holds "k"; choose another"#), "{}", refused.err);
    assert_eq!(look(&client, "odd").await.version, 1);

    // A canary that another drill is using.
    let body = json!({ "resource": "busy", "owner": "fencegate drill, second holder" });
    client.lock(&body).send().await.expect(201);
    let refused = fencegate(&["drill", &gateway.url(), "--resource", "busy"], &[]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.out);
    assert!(refused.err.contains("first-lock: 409, lock-held"), "{}", refused.err);
    assert_eq!(look(&client, "busy").await.state.as_str(), "leased");
}

#[tokio::test]
async fn it_works_through_a_proxy_with_a_path_prefix() {
    let gateway = Gateway::embedded().start().await;
    let location = "location /store/fence/ {
        proxy_pass http://fencegate/;
        proxy_set_header Host $http_host;
    }";
    let nginx = Nginx::start(location, gateway.address()).await;
    for url in ["/store/fence", "/store/fence/"] {
        let ended = drill(&format!("{}{url}", nginx.url()), &[]).await;
        assert_eq!(ended.code, Some(0), "{}{}", ended.out, ended.err);
    }
    let beside = drill(&nginx.url(), &[]).await;
    assert_eq!(beside.code, Some(2), "{}", beside.out);
    assert!(beside.err.contains("ready: 404, this does not look like"), "{}", beside.err);
}

#[tokio::test]
async fn it_cannot_be_carried_out_where_no_gateway_answers() {
    let nobody = drill("http://127.0.0.1:1", &["--json"]).await;
    assert_eq!(nobody.code, Some(2), "{}", nobody.out);
    assert!(nobody.err.contains("ready: error sending request"), "{}", nobody.err);
    let told = report(&nobody);
    assert_eq!(told["outcome"], "not-done");
    assert_eq!(steps(&told, "not-done"), ["ready"]);

    let stranger = Upstream::start().await;
    let other = drill(&stranger.url(), &[]).await;
    assert_eq!(other.code, Some(2), "{}", other.out);
    assert!(other.err.contains("this does not look like a Fencegate"), "{}", other.err);
    // It is not asked to do anything.
    assert!(stranger.seen().iter().all(|seen| seen.method == Method::GET));

    let silent = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://user:hunter2@{}", silent.local_addr().unwrap());
    let late = drill(&url, &["--timeout", "5s"]).await;
    assert_eq!(late.code, Some(2), "{}", late.out);
    assert!(late.err.contains("no whole answer in time (--timeout)"), "{}", late.err);
    assert!(!(late.out + &late.err).contains("hunter2"));
}

#[tokio::test]
async fn a_gateway_that_cannot_grant_is_named_with_the_reason() {
    let url = Postgres::shared().await.database().await;
    let gateway = Gateway::clustered(&url, "127.0.0.1:1", "/fencegate").start().await;
    let ended = drill(&gateway.url(), &[]).await;
    assert_eq!(ended.code, Some(2), "{}", ended.out);
    assert!(ended.err.contains("ready: 503, gateway works, ledger works, mint does not: "));
    assert!(ended.out.starts_with("not done  the gateway is ready: 503"), "{}", ended.out);
}

#[tokio::test]
async fn what_is_no_url_name_or_time_is_refused_before_anything_is_asked() {
    for args in [
        &["drill"][..],
        &["drill", "localhost"],
        &["drill", "ftp://127.0.0.1:1"],
        &["drill", "http://127.0.0.1:1/?a=b"],
        &["drill", "http://127.0.0.1:1", "--resource", "a/b"],
        &["drill", "http://127.0.0.1:1", "--timeout", "0s"],
        &["drill", "http://127.0.0.1:1", "--timeout", "5"],
    ] {
        let ended = fencegate(args, &[]).await;
        assert_eq!((ended.code, ended.out.as_str()), (Some(2), ""), "{args:?}");
        assert!(ended.err.contains("Usage:") || ended.err.contains("--help"), "{}", ended.err);
    }
}

/// How a proxy spoils what passes through it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flaw {
    /// It says that a refused write with this code succeeded.
    Hides(&'static str),
    /// It sends what is stale again, under the token that was granted last.
    Forwards,
    /// It gives the token granted last to writes that have none.
    LendsTokens,
    /// It answers every write with 502.
    Fails,
}

struct Spoiling {
    http: reqwest::Client,
    gateway: String,
    flaw: Flaw,
    granted: Mutex<Option<HeaderValue>>,
}

/// The URL of a proxy with this flaw, in front of a gateway. It ends with the test.
async fn spoiled(gateway: &Gateway, flaw: Flaw) -> String {
    let http = reqwest::Client::builder().no_proxy().build().unwrap();
    let granted = Mutex::default();
    let state = Arc::new(Spoiling { http, gateway: gateway.url(), flaw, granted });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let app = Router::new().fallback(spoil).with_state(state);
    #[expect(clippy::disallowed_methods, reason = "a test is a program of its own")]
    tokio::spawn(async move { axum::serve(listener, app).await });
    url
}

async fn spoil(State(proxy): State<Arc<Spoiling>>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    let body = axum::body::to_bytes(body, usize::MAX).await.unwrap();
    let target = parts.uri.path_and_query().unwrap().to_string();
    let pass = async |headers: HeaderMap| {
        let url = format!("{}{target}", proxy.gateway);
        let call = proxy.http.request(parts.method.clone(), url).headers(headers);
        let answer = call.body(body.clone()).send().await.unwrap();
        let (status, headers) = (answer.status(), answer.headers().clone());
        (status, headers, answer.bytes().await.unwrap())
    };
    let granted = proxy.granted.lock().unwrap().clone();
    let (mut headers, mut again) = (parts.headers.clone(), parts.headers.clone());
    if let Some(token) = &granted {
        again.insert("x-fence-token", token.clone());
        again.remove("x-lock-id");
    }
    let writes = parts.method == Method::PUT;
    if writes && proxy.flaw == Flaw::LendsTokens && !headers.contains_key("x-fence-token") {
        headers = again.clone();
    }
    if writes && proxy.flaw == Flaw::Fails {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let (mut status, mut headers, mut answer) = pass(headers).await;
    if target == "/locks" && status == StatusCode::CREATED {
        *proxy.granted.lock().unwrap() = headers.get("x-fence-token").cloned();
    }
    let problem: Value = serde_json::from_slice(&answer).unwrap_or_default();
    match proxy.flaw {
        Flaw::Hides(code) if problem["code"] == code => {
            (status, headers, answer) = (StatusCode::OK, HeaderMap::new(), Bytes::from("{}"));
        }
        Flaw::Forwards if problem["code"] == "fence-token-stale" => {
            (status, headers, answer) = pass(again).await;
        }
        _ => {}
    }
    headers.remove("transfer-encoding");
    (status, headers, Body::from(answer)).into_response()
}

/// Drills through a proxy with this flaw: the drill must fail at these steps, and say so.
async fn fails_at(gateway: &Gateway, flaw: Flaw, failed: &[&str]) {
    let url = spoiled(gateway, flaw).await;
    let ended = drill(&url, &["--json"]).await;
    assert_eq!(ended.code, Some(1), "{flaw:?}: {}{}", ended.out, ended.err);
    assert!(ended.err.contains("NOT AS IT MUST BE"), "{}", ended.err);
    for step in failed {
        assert!(ended.err.contains(&format!("{step}: 20")), "{step}: {}", ended.err);
    }
    let told = report(&ended);
    assert_eq!((&told["outcome"], steps(&told, "failed")), (&json!("failed"), owned(failed)));
    // The steps after it are made all the same, and it cleans up.
    assert_eq!(told["steps"].as_array().unwrap().len(), STEPS.len());
    let listed = gateway.client().get(format!("{}/objects", resource_path("canary")));
    assert_eq!(listed.send().await.expect(200).json()["items"], json!([]));
    // For people it is as plain.
    let ended = drill(&url, &[]).await;
    assert_eq!(ended.code, Some(1), "{}", ended.out);
    let marked = ended.out.lines().filter(|line| line.starts_with("FAILED ")).count();
    assert_eq!(marked, failed.len(), "{}", ended.out);
    assert!(!ended.out.contains("the fence holds"), "{}", ended.out);
}

fn owned(names: &[&str]) -> Vec<String> {
    names.iter().map(|&name| name.to_owned()).collect()
}

async fn a_stale_write_that_is_said_to_succeed_fails_the_drill(setup: SetUp) {
    let gateway = setup.start().await;
    fails_at(&gateway, Flaw::Hides("fence-token-stale"), &["late-write"]).await;
}

async fn a_late_write_that_takes_effect_fails_the_drill(setup: SetUp) {
    let gateway = setup.start().await;
    let failed = ["late-write", "second-object", "history"];
    fails_at(&gateway, Flaw::Forwards, &failed).await;
}

#[tokio::test]
async fn a_forged_or_missing_token_that_gets_through_fails_the_drill() {
    let gateway = Gateway::embedded().start().await;
    fails_at(&gateway, Flaw::Hides("fence-token-unknown"), &["forged-token"]).await;
    fails_at(&gateway, Flaw::Hides("fence-token-missing"), &["no-token"]).await;
    let failed = ["no-token", "first-object", "history"];
    fails_at(&gateway, Flaw::LendsTokens, &failed).await;
}

#[tokio::test]
async fn writes_that_fail_decide_nothing_and_the_lock_is_given_back() {
    let gateway = Gateway::embedded().start().await;
    let ended = drill(&spoiled(&gateway, Flaw::Fails).await, &["--json"]).await;
    assert_eq!(ended.code, Some(2), "{}{}", ended.out, ended.err);
    let told = report(&ended);
    assert_eq!((&told["outcome"], steps(&told, "failed")), (&json!("not-done"), Vec::new()));
    assert_eq!(steps(&told, "not-done"), ["first-write"]);
    assert_eq!(look(&gateway.client(), "canary").await.state.as_str(), "released");
}

/// What a textfile says, by the name of the metric without its beginning. Each must say what it is and of which kind.
fn metrics(file: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(file).unwrap();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let told = samples.map(|line| {
        let (name, rest) = line.split_once('{').unwrap();
        let (labels, value) = rest.rsplit_once("} ").unwrap();
        assert!(labels.starts_with("url=\"http://127.0.0.1:"), "{line}");
        let kind = format!("# HELP {name} ");
        assert!(text.lines().any(|line| line.starts_with(&kind)), "{text}");
        assert!(text.lines().any(|line| line == format!("# TYPE {name} gauge")), "{text}");
        let name = name.strip_prefix("fencegate_drill_").unwrap();
        (name.to_owned(), value.parse().unwrap())
    });
    told.collect()
}

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the file has the time of the machine")]
async fn what_came_of_it_is_left_for_prometheus() {
    let gateway = Gateway::embedded().start().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("drill.prom");
    let into = ["--textfile", file.to_str().unwrap()];
    let now = || jiff::Timestamp::now().as_millisecond() as f64 / 1e3;

    let before = now();
    let held = drill(&gateway.url(), &into).await;
    assert_eq!((held.code, held.err.as_str()), (Some(0), ""), "{}", held.out);
    let told = metrics(&file);
    assert_eq!((told["success"], told["carried_out"], told.len()), (1.0, 1.0, 4));
    let (ended, took) = (told["last_run_timestamp_seconds"], told["duration_seconds"]);
    assert!(before - 1.0 <= ended && ended <= now() + 1.0, "{before} {ended}");
    // It waits for the end of a lock of a second.
    assert!((1.0..60.0).contains(&took), "{took}");
    // The collector is another user, and must find no half of a file.
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o644);
    let names = fs::read_dir(folder.path()).unwrap().map(|found| found.unwrap().file_name());
    assert_eq!(names.collect::<Vec<_>>(), ["drill.prom"]);

    let proxy = spoiled(&gateway, Flaw::Hides("fence-token-stale")).await;
    let failed = drill(&proxy, &into).await;
    assert_eq!(failed.code, Some(1), "{}{}", failed.out, failed.err);
    let told = metrics(&file);
    assert_eq!((told["success"], told["carried_out"]), (0.0, 1.0));

    // What was not carried out says nothing on the fence, be it that nobody answers or that it did not begin.
    let nobody = "http://127.0.0.1:1";
    for more in [&[][..], &["--auth-token-file", "/nowhere/at-all"]] {
        let undecided = drill(nobody, &[&into[..], more].concat()).await;
        assert_eq!(undecided.code, Some(2), "{}", undecided.out);
        let told = metrics(&file);
        assert_eq!((told.get("success"), told["carried_out"], told.len()), (None, 0.0, 3));
        assert_eq!(drill(&gateway.url(), &into).await.code, Some(0));
        assert!(metrics(&file).contains_key("success"));
    }
}

#[tokio::test]
async fn a_textfile_that_cannot_be_written_hides_no_failure() {
    let gateway = Gateway::embedded().start().await;
    let into = ["--textfile", "/nowhere/at-all/drill.prom"];
    let held = drill(&gateway.url(), &into).await;
    assert_eq!(held.code, Some(2), "{}{}", held.out, held.err);
    assert!(held.err.contains("cannot write /nowhere/at-all/drill.prom"), "{}", held.err);
    assert!(held.out.ends_with("the fence holds\n"), "{}", held.out);

    let proxy = spoiled(&gateway, Flaw::Hides("fence-token-stale")).await;
    let failed = drill(&proxy, &into).await;
    assert_eq!(failed.code, Some(1), "{}{}", failed.out, failed.err);
    assert!(failed.err.contains("cannot write"), "{}", failed.err);
    assert!(failed.err.contains("NOT AS IT MUST BE"), "{}", failed.err);
}

/// Another principal with the same rights gets nowhere with the right token and the right id.
async fn an_intruder_is_refused(setup: SetUp) {
    let rules = Rules::new().await;
    let (ann, bob) = (Key::new().await, Key::new().await);
    let gateway = setup.start().await;
    let files = ["ann", "bob", "boss"].map(|name| rules.home.path().join(name));
    for (file, key) in files.iter().zip([&ann, &bob, &rules.admin]) {
        key.store(file);
    }
    let [anns, bobs, bosses] = files.each_ref().map(|file| file.to_str().unwrap());
    let url = gateway.url();
    let run = async |canary: &str, intruder: &str| {
        let who = ["--auth-token-file", anns, "--intruder-token-file", intruder];
        let args = ["drill", &url, "--json", "--resource", canary];
        let ended = fencegate(&[&args[..], &who].concat(), &[]).await;
        (ended.code, report(&ended))
    };
    let intrusions = ["intruder-write", "intruder-renewal", "intruder-release"];
    let are_all = |told: &Value, outcome| {
        let found = steps(told, outcome);
        intrusions.iter().all(|step| found.iter().any(|it| it == step))
    };
    // Without rules everybody may do everything.
    let (code, told) = run("canary:open", bobs).await;
    assert!(code == Some(1) && are_all(&told, "failed"), "{told}");

    let may = "allow = [\"lock\", \"write\", \"read\", \"list\", \"observe\"]\nresources = [\"canary:*\"]";
    rules.put_in_force(&gateway, &rules.text(may, &[("ann", &ann), ("bob", &bob)])).await;
    let (code, told) = run("canary:1", bobs).await;
    assert!(code == Some(0) && are_all(&told, "held"), "{told}");
    // One without rights shows nothing.
    let (code, told) = run("canary:2", bosses).await;
    assert_eq!((code, steps(&told, "not-done")[0].as_str()), (Some(2), "intruder-write"), "{told}");
}
