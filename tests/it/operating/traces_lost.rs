//! What is not recorded, and collectors that are away, hang or come back: no request waits for any of them.
#![expect(clippy::disallowed_methods, reason = "a test sleeps on the real clock")]

use std::time::Duration;

use fence_tests::collector::Collector;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::{eventually, free_port, loopback};
use tokio::net::TcpListener;

use super::traces::{TRACE, traceparent};

/// Sends so many requests, which have to be answered well.
async fn send(gateway: &Gateway, count: usize) {
    let client = gateway.client();
    for _ in 0..count {
        let call = client.get("/resources").header("traceparent", traceparent("01"));
        call.send().await.expect(200);
    }
}

/// How often the log says this.
fn times(gateway: &Gateway, text: &str) -> usize {
    gateway.log().lines().filter(|line| line.contains(text)).count()
}

/// Exports there, soon.
fn to(settings: Settings, endpoint: &str) -> Settings {
    let settings = settings.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint);
    settings.env("OTEL_BSP_SCHEDULE_DELAY", "20")
}

#[tokio::test]
async fn what_is_not_sampled_is_not_exported() {
    let samplers: [(&str, &[&str], &[&str]); 3] = [
        // The sampler, what is recorded, what is not.
        ("", &["01", ""], &["00"]),
        ("parentbased_always_off", &["01"], &["00", ""]),
        ("always_on", &["00", "01", ""], &[]),
    ];
    for (sampler, recorded, others) in samplers {
        let collector = Collector::start().await;
        let settings = collector.of(Gateway::embedded());
        let settings = match sampler {
            "" => settings,
            sampler => settings.env("OTEL_TRACES_SAMPLER", sampler),
        };
        let gateway = settings.start().await;
        let client = gateway.client();
        let ask = async |flags: &str| {
            let call = client.get("/resources").header("x-request-id", format!("asked-{flags}"));
            match flags {
                "" => call.send().await.expect(200),
                flags => call.header("traceparent", traceparent(flags)).send().await.expect(200),
            }
        };
        for flags in others.iter().chain(recorded) {
            ask(flags).await;
        }
        for flags in recorded {
            let of = format!("asked-{flags}");
            let is_it = |span: &fence_tests::collector::Span| {
                span.words.get("fencegate.request_id") == Some(&of)
                    && (flags.is_empty() || span.trace == TRACE)
            };
            collector.span(&format!("{of} under {sampler:?}"), is_it).await;
        }
        let spans = collector.spans();
        let served = spans.iter().filter(|span| span.is_server).count();
        assert_eq!(served, recorded.len(), "{sampler:?}: {spans:?}");
    }
}

#[tokio::test]
async fn a_collector_that_is_away_is_said_once_and_nobody_waits() {
    let address = loopback(free_port());
    let gateway = to(Gateway::embedded(), &format!("http://{address}"));
    let gateway = gateway.env("OTEL_EXPORTER_OTLP_TIMEOUT", "100").start().await;
    let away = "the collector takes no spans";
    for _ in 0..3 {
        send(&gateway, 5).await;
        gateway.logged(away).await;
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert_eq!(times(&gateway, away), 1, "{}", gateway.log());
    assert!(!gateway.log().contains("ERROR"), "{}", gateway.log());
    let collector = Collector::start_at(address).await;
    let back = "the collector of spans takes them again";
    eventually("it is said that the collector is back", async || {
        send(&gateway, 1).await;
        (times(&gateway, back) == 1).then_some(())
    })
    .await;
    collector.span("a span", |span| span.trace == TRACE).await;
}

#[tokio::test]
async fn a_collector_that_hangs_holds_up_neither_requests_nor_a_stop() {
    // It accepts connections, by the system, and never answers.
    let hangs = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let endpoint = format!("http://{}", hangs.local_addr().expect("an address"));
    let settings = to(Gateway::embedded(), &endpoint).env("OTEL_BSP_MAX_QUEUE_SIZE", "4");
    // As long as a sending may take.
    let settings = settings.env("OTEL_EXPORTER_OTLP_TIMEOUT", "60000");
    let mut gateway = settings.start().await;
    send(&gateway, 30).await;
    // The queue is full, which is said once.
    gateway.logged("SpanDroppingStarted").await;
    send(&gateway, 30).await;
    assert_eq!(times(&gateway, "SpanDroppingStarted"), 1, "{}", gateway.log());
    gateway.term();
    assert!(gateway.wait_for_exit().await.success());
    assert!(gateway.log().contains("the last spans were not exported"), "{}", gateway.log());
    // What was being sent then was not waited for: that would have ended with this.
    assert_eq!(times(&gateway, "the collector takes no spans"), 0, "{}", gateway.log());
}

#[tokio::test]
async fn a_stop_sends_what_is_left() {
    let collector = Collector::start().await;
    let settings = collector.of(Gateway::embedded()).env("OTEL_BSP_SCHEDULE_DELAY", "3600000");
    let settings = settings.env("OTEL_SERVICE_NAME", "gate-a").flag("--log", "info,request=off");
    let mut gateway = settings.env("OTEL_RESOURCE_ATTRIBUTES", "team=blue").start().await;
    send(&gateway, 1).await;
    gateway.client().acquire("r", "10m").await;
    assert!(collector.spans().is_empty(), "nothing is sent before its time");
    gateway.term();
    assert!(gateway.wait_for_exit().await.success());
    let spans = collector.spans();
    let span = spans.iter().find(|span| span.name == "GET /resources").expect("the request");
    // A span says what it is about, whatever the log leaves out.
    let lock = spans.iter().find(|span| span.name == "POST /locks").expect("the lock");
    assert_eq!(lock.words.get("fencegate.resource").map(String::as_str), Some("r"));
    let program = |key: &str| span.program.get(key).map(String::as_str);
    assert_eq!((program("service.name"), program("team")), (Some("gate-a"), Some("blue")));
}

#[tokio::test]
async fn what_is_wrong_with_the_settings_is_a_warning() {
    let on = |settings: Settings| to(settings, "http://127.0.0.1:9");
    let grpc = on(Gateway::embedded()).env("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc").start().await;
    let line = grpc.logged("no spans are exported").await;
    assert!(line.contains("WARN") && line.contains("grpc is not spoken"), "{line}");
    let odd = to(Gateway::embedded(), "no address at all").start().await;
    odd.logged("no spans are exported").await;
    send(&odd, 1).await;
    for (name, value) in [("OTEL_SDK_DISABLED", "true"), ("OTEL_TRACES_EXPORTER", "none")] {
        let disabled = on(Gateway::embedded()).env(name, value).start().await;
        send(&disabled, 1).await;
        disabled.logged("/resources").await;
        assert!(!disabled.log().contains("spans"), "{}", disabled.log());
    }
}
