//! Traces: one from `fence run` to the ledger's commit, seen in a collector; and what the log, problems and upstreams are
//! told of it.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::collections::BTreeSet;

use fence_tests::access::{Key, Rules};
use fence_tests::client::Call;
use fence_tests::collector::{Collector, Span};
use fence_tests::gateway::Gateway;
use fence_tests::upstream::Upstream;
use futures::future::join_all;
use reqwest::Method;
use serde_json::Value;
use tokio::process::Command;

use crate::cli;
use crate::setup::{SetUp, on_both};
use crate::upstreams::requests::through;

on_both!(one_trace_leads_from_a_run_to_the_ledger, a_batch_names_the_requests_that_it_holds);

pub(super) const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

pub(super) fn traceparent(flags: &str) -> String {
    format!("00-{TRACE}-{PARENT}-{flags}")
}

/// `fence run` of a script that finds the command line in `$FENCE`; what it printed.
async fn run(gateway: &Gateway, script: &str, traceparent: Option<&str>) -> String {
    let mut command: Command = cli::fence(&gateway.url(), &["run", "-r", "r", "-c", script]);
    command.env("FENCE", cli::binary());
    command.envs(traceparent.map(|it| ("TRACEPARENT", it)));
    let output = command.output().await.unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

/// The trace, the span and the flags of a `traceparent`.
fn parts(traceparent: &str) -> [&str; 3] {
    let parts: Vec<_> = traceparent.split('-').collect();
    let [version, trace, span, flags] = parts[..] else { panic!("{traceparent:?}") };
    assert_eq!((version, trace.len(), span.len(), flags.len()), ("00", 32, 16, 2));
    [trace, span, flags]
}

fn word<'a>(span: &'a Span, key: &str) -> Option<&'a str> {
    span.words.get(key).map(String::as_str)
}

async fn one_trace_leads_from_a_run_to_the_ledger(setup: SetUp) {
    let collector = Collector::start().await;
    let adjust = |settings| collector.of(settings).env("OTEL_EXPORTER_OTLP_HEADERS", "x-team=blue");
    let gateway = setup.start_with_high_tokens(adjust).await;
    let script = "echo $TRACEPARENT; echo $FENCE_TOKEN $FENCE_LOCK_ID; \
                  echo hello | \"$FENCE\" put r k --quiet";
    let printed = run(&gateway, script, None).await;
    let (named, secrets) = printed.split_once('\n').unwrap();
    let [trace, of_run, flags] = parts(named);
    assert_eq!(flags, "01");
    let below = async |parent: &str, name: &str, act: Option<&str>| {
        let is_it = |span: &Span| {
            (&*span.trace, &*span.parent, &*span.name) == (trace, parent, name)
                && word(span, "fencegate.act") == act
        };
        collector.span(&format!("{name} of {act:?} below {parent}"), is_it).await
    };
    // The write: request, batch, commit.
    let put = below(of_run, "PUT /resources/{resource}/objects/{*key}", None).await;
    assert!(put.is_server && !put.is_failed && put.links.is_empty(), "{put:?}");
    for (key, value) in [
        ("http.request.method", "PUT"),
        ("http.route", "/resources/{resource}/objects/{*key}"),
        ("http.response.status_code", "201"),
        ("fencegate.verdict", "admitted"),
        ("fencegate.resource", "r"),
        ("error.type", "none"),
    ] {
        assert_eq!(word(&put, key).unwrap_or("none"), value, "{key} of {put:?}");
    }
    assert_eq!(put.program.get("service.name").map(String::as_str), Some("fencegate"));
    let batch = below(&put.id, "engine.batch", Some("commit")).await;
    assert_eq!(batch.links, [(trace.to_owned(), put.id.clone())]);
    assert_eq!(word(&batch, "fencegate.batch.items"), Some("1"));
    below(&batch.id, "ledger.commit", None).await;
    // The lock that `fence run` took: request, batch, number, seal.
    let lock = below(of_run, "POST /locks", None).await;
    assert!(lock.is_server && word(&lock, "fencegate.resource") == Some("r"), "{lock:?}");
    let batch = below(&lock.id, "engine.batch", Some("seal")).await;
    below(&batch.id, "mint.number", None).await;
    below(&batch.id, "ledger.commit", None).await;
    // Nothing that lets anybody act in the holder's stead.
    let all = format!("{:?}", collector.spans());
    for secret in secrets.split_whitespace() {
        assert!(!all.contains(secret), "{secret} is in a span: {all}");
    }
    assert!(collector.headers().iter().all(|headers| headers["x-team"] == "blue"));
    // Probes of the gateway itself have no span.
    assert!(!collector.spans().iter().any(|span| span.name.contains("/readyz")), "{all}");
}

#[tokio::test]
async fn an_upload_is_part_of_its_request() {
    let collector = Collector::start().await;
    let gateway = collector.of(Gateway::embedded()).start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    let call = client.put("r", "big", vec![b'x'; 300_000]).under(&lock);
    call.header("traceparent", traceparent("01")).send().await.expect(201);
    let put = collector.span("the request", |span| span.parent == PARENT).await;
    let is_upload = |span: &Span| span.name == "blob.upload" && span.parent == put.id;
    let upload = collector.span("its upload", is_upload).await;
    assert_eq!((&*upload.trace, word(&upload, "fencegate.blob.size")), (TRACE, Some("300000")));
    assert!(!upload.is_failed, "{upload:?}");
}

async fn a_batch_names_the_requests_that_it_holds(setup: SetUp) {
    let collector = Collector::start().await;
    let gateway = collector.of(setup.settings().await).start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    // While one is under way the others gather.
    let put = |key: usize| {
        let call = client.put("r", &key.to_string(), "x").under(&lock);
        // Every second one is not recorded.
        let traceparent = format!("00-{key:032x}-{PARENT}-{:02x}", key % 2);
        async move { call.header("traceparent", traceparent).send().await.expect(201) }
    };
    let is_shared =
        |span: &Span| word(span, "fencegate.act") == Some("commit") && span.links.len() > 1;
    let mut at = 1;
    let batch = loop {
        join_all((at..at + 40).map(put)).await;
        at += 40;
        // The spans of all of them have ended; the last of them is here.
        let last = format!("{:032x}", at - 1 - (at % 2));
        collector.span("the last request", |span| span.trace == last && span.is_server).await;
        if let Some(batch) = collector.spans().into_iter().find(is_shared) {
            break batch;
        }
        assert!(at < 4_000, "no two requests ever shared a batch");
    };
    let items: usize = word(&batch, "fencegate.batch.items").unwrap().parse().unwrap();
    assert!(batch.links.len() <= items, "{batch:?}");
    // It is in the trace of the first, and linked to requests that were recorded.
    assert_eq!((&batch.trace, &batch.parent), (&batch.links[0].0, &batch.links[0].1));
    let traces: BTreeSet<_> = batch.links.iter().map(|(trace, _)| trace).collect();
    assert_eq!(traces.len(), batch.links.len(), "each request once");
    for (trace, span) in &batch.links {
        let is_it = |one: &Span| one.is_server && &one.trace == trace && &one.id == span;
        collector.span("a request of the batch", is_it).await;
    }
    // Of those whose callers do not record there is nothing.
    let is_odd = |span: &Span| u128::from_str_radix(&span.trace, 16).unwrap() % 2 == 1;
    let requests = collector.spans().into_iter().filter(|span| span.parent == PARENT);
    let requests: Vec<_> = requests.collect();
    assert!(!requests.is_empty() && requests.iter().all(is_odd), "{requests:?}");
}

/// Callers that nobody knows could fill a collector, however few requests the settings have recorded.
#[tokio::test]
async fn under_rules_only_who_is_somebody_has_a_request_recorded() {
    let (rules, collector) = (Rules::new().await, Collector::start().await);
    let sampled =
        [("OTEL_TRACES_SAMPLER", "parentbased_traceidratio"), ("OTEL_TRACES_SAMPLER_ARG", "0")];
    let settings = collector.of(Gateway::embedded());
    let settings =
        sampled.iter().fold(settings, |settings, (name, value)| settings.env(name, value));
    let gateway = settings.start().await;
    rules.put_in_force(&gateway, &rules.admin()).await;
    let client = gateway.client();
    let named = |at: u8, call: Call| {
        call.header("traceparent", format!("00-{at:032x}-{PARENT}-01"))
            .header("x-request-id", format!("n{at}"))
    };
    let stranger = Key::new().await;
    named(1, client.get("/locks")).send().await.refused(401, "unauthenticated");
    named(2, stranger.by(client.get("/locks"))).send().await.refused(401, "unauthenticated");
    named(3, client.get("/healthz")).send().await.expect(200);
    named(4, rules.admin.by(client.get("/access"))).send().await.expect(200);
    let trace = |at: u8| format!("{at:032x}");
    let span = collector.span("the administrator's", |span| span.trace == trace(4)).await;
    assert_eq!((&*span.parent, &*span.name, span.is_server), (PARENT, "GET /access", true));
    let others: Vec<_> =
        collector.spans().into_iter().filter(|span| span.trace != trace(4)).collect();
    assert!(others.is_empty(), "{others:?}");
    // The log has the trace of all of them.
    let line = gateway.logged("\"n1\"").await;
    assert!(line.contains(&format!("trace_id={}", trace(1))), "{line}");
}

#[tokio::test]
async fn the_log_and_problems_name_the_trace() {
    for format in ["json", "text"] {
        let gateway = Gateway::embedded().flag("--log-format", format).start().await;
        let client = gateway.client();
        let problem = async |id: &str, lines: &[&str]| {
            let call = client.put("r", "k", "x").header("x-request-id", id);
            let named = |call: Call, line: &&str| call.header("traceparent", line);
            let call = lines.iter().fold(call, named);
            let problem = call.send().await.refused(428, "fence-token-missing").problem();
            let line = gateway.logged(&format!("\"{id}\"")).await;
            (problem.trace_id, line)
        };
        let (told, line) = problem("with", &[&traceparent("00")]).await;
        assert_eq!(told.as_deref(), Some(TRACE));
        let shown = match format {
            "json" => serde_json::from_str::<Value>(&line).unwrap()["trace_id"] == TRACE,
            _ => line.contains(&format!(" trace_id={TRACE}")),
        };
        assert!(shown, "{line}");
        // What cannot be read is ignored, and nothing is refused for it.
        let upper = traceparent("01").to_uppercase();
        let newer = traceparent("01").replacen("00", "01", 1);
        let good = traceparent("01");
        let cases: [&[&str]; 5] = [&[], &["00-nonsense"], &[&upper], &[&newer], &[&good, &good]];
        for (at, lines) in cases.iter().enumerate() {
            let (told, line) = problem(&format!("without-{at}"), lines).await;
            assert_eq!(told, None, "{lines:?}");
            assert!(!line.contains("trace_id"), "{lines:?}: {line}");
        }
    }
}

#[tokio::test]
async fn an_upstream_is_told_the_trace() {
    let (upstream, collector) = (Upstream::start().await, Collector::start().await);
    let settings = || Gateway::embedded().flag("--upstream", &upstream.setting("drained", ""));
    let told = async |gateway: &Gateway, lines: &[(&str, &str)]| {
        let client = gateway.client();
        let call = through(&client, Method::GET, "1", "");
        let call = lines.iter().fold(call, |call, (name, value)| call.header(name, value));
        call.send().await.expect(200);
        let seen = upstream.seen().pop().unwrap().headers;
        let text = |name: &str| seen.get(name).map(|value| value.to_str().unwrap().to_owned());
        (text("traceparent"), text("tracestate"))
    };
    let good = traceparent("01");
    let named = [("traceparent", good.as_str()), ("tracestate", "vendor=1")];
    let odd = [("traceparent", "00-nonsense"), ("tracestate", "vendor=1")];
    let text = |text: &str| Some(text.to_owned());
    // Nothing is recorded here: it is told what the caller said.
    let off = settings().start().await;
    assert_eq!(told(&off, &named).await, (text(&good), text("vendor=1")));
    assert_eq!(told(&off, &odd).await, (text("00-nonsense"), text("vendor=1")));
    assert_eq!(told(&off, &[]).await, (None, None));
    // Recorded: it is a child of our span, which is a child of the caller's.
    let on = collector.of(settings()).start().await;
    let (parent, state) = told(&on, &named).await;
    let parent = parent.unwrap();
    let [trace, ours, flags] = parts(&parent);
    assert_eq!((trace, flags, state), (TRACE, "01", text("vendor=1")));
    let request = collector.span("our span", |span| span.id == ours).await;
    assert_eq!((&*request.parent, request.is_server), (PARENT, true));
    // A trace of ours does not go on with what is said of one that cannot be read.
    let (parent, state) = told(&on, &odd).await;
    let parent = parent.unwrap();
    assert_ne!(parts(&parent)[0], TRACE);
    assert_eq!(state, None);
    // The caller does not record: nobody would find a span of ours.
    let unrecorded = traceparent("00");
    let kept = told(&on, &[("traceparent", &unrecorded)]).await;
    assert_eq!(kept, (Some(unrecorded), None));
}

#[tokio::test]
async fn a_run_goes_on_with_the_trace_of_its_caller() {
    let gateway = Gateway::embedded().flag("--log-format", "json").start().await;
    let script = "echo $TRACEPARENT $TRACESTATE";
    assert_eq!(run(&gateway, script, Some(&traceparent("00"))).await, traceparent("00"));
    gateway.logged(&format!("\"trace_id\":\"{TRACE}\"")).await;
    let first = run(&gateway, script, Some("00-nonsense")).await;
    let second = run(&gateway, script, None).await;
    assert_ne!(parts(&first)[0], parts(&second)[0], "each run has a trace of its own");
}
