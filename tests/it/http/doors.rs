//! Who is let in, and what leaves: hosts, origins, addresses, headers that act on a browser, files.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use fence_tests::gateway::Gateway;
use fence_tests::raw::{RawAnswer, RawConnection, exchange};
use fence_tests::upstream::Upstream;
use reqwest::Method;
use serde_json::json;

use crate::operating::commands::fencegate;
use crate::setup::SetUp;
use crate::upstreams::requests::{fronted, through};

/// Sends a head with these lines and no body.
async fn head(gateway: &Gateway, line: &str, lines: &str) -> RawAnswer {
    let request = format!("{line} HTTP/1.1\r\n{lines}\r\n");
    let mut connection = RawConnection::open(gateway.address()).await;
    connection.send(request.as_bytes()).await;
    let answer = match line.starts_with("HEAD") {
        true => connection.head_answer().await,
        false => connection.answer().await,
    };
    answer.unwrap_or_else(|| panic!("no answer to {request}"))
}

/// What a page could do: read, write, lock, freeze, look at metrics, ask before it does.
const CALLS: &[&str] = &[
    "GET /resources/r/objects/k",
    "HEAD /resources/r/objects/k",
    "PUT /resources/r/objects/k",
    "DELETE /resources/r",
    "POST /locks",
    "POST /resources/r/freeze",
    "POST /resources/r/break",
    "GET /metrics",
    "GET /healthz",
    "GET /events",
    "OPTIONS /locks",
    "GET /upstreams/u/r/1",
    "PATCH /nowhere",
];

#[tokio::test]
async fn a_page_whose_name_was_made_to_point_here_is_refused() {
    let settings = Gateway::embedded().flag("--server-names", "gate.example.com,192.168.0.1");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    client.put("r", "k", "secret").under(&lock).send().await.expect(201);
    for call in CALLS {
        for host in ["evil.example:8080", "127.0.0.1.evil.example", "localhost.", "10.0.0.6", ""] {
            let lines =
                format!("Host: {host}\r\nX-Fence-Token: {}\r\nContent-Length: 0\r\n", lock.token);
            let answer = head(&gateway, call, &lines).await;
            assert_eq!(answer.status, 421, "{call} {host:?}: {}", answer.text());
            if !call.starts_with("HEAD") {
                assert_eq!(answer.code(), "host-not-served", "{call} {host:?}");
            }
        }
    }
    assert_eq!(client.version("r").await, 1);
    assert_eq!(client.read("r", "k").send().await.expect(200).text(), "secret");
    let port = gateway.address().port();
    for host in [
        format!("localhost:{port}"),
        "LOCALHOST".into(),
        format!("127.0.0.1:{port}"),
        "127.0.0.2".into(),
        "[::1]:1".into(),
        "gate.example.com".into(),
        "Gate.Example.com:443".into(),
        "192.168.0.1:8080".into(),
    ] {
        let answer = head(&gateway, "GET /healthz", &format!("Host: {host}\r\n")).await;
        assert_eq!(answer.status, 200, "{host}: {}", answer.text());
    }
    // No browser speaks so, but some health checks do.
    let old =
        exchange(gateway.address(), b"GET /healthz HTTP/1.0\r\n\r\n").await.expect("an answer");
    assert_eq!(old.status, 200);
    let old = b"GET http://evil.example/healthz HTTP/1.0\r\n\r\n";
    assert_eq!(
        exchange(gateway.address(), old).await.expect("an answer").code(),
        "host-not-served"
    );
    for (line, lines) in [
        ("GET /healthz", ""),
        ("GET /healthz", "Host: localhost\r\nHost: evil.example\r\n"),
        ("GET http://evil.example/healthz", "Host: localhost\r\n"),
    ] {
        assert_eq!(head(&gateway, line, lines).await.code(), "request-malformed", "{line} {lines}");
    }
}

#[tokio::test]
async fn pages_of_other_origins_are_refused_whatever_they_ask_for() {
    let settings = Gateway::embedded().flag("--cors-origin", "https://ops.example.com");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    client.put("r", "k", "secret").under(&lock).send().await.expect(201);
    let host = gateway.address();
    let other_port = format!("Origin: http://127.0.0.1:{}\r\n", host.port() ^ 1);
    for call in CALLS {
        for lines in [
            "Origin: https://evil.example\r\n",
            "Origin: null\r\n",
            "Origin: https://evil.example\r\nAccess-Control-Request-Method: PUT\r\n",
            "Origin: https://ops.example.com\r\nOrigin: https://evil.example\r\n",
            "Origin: https://ops.example.com.evil.example\r\n",
            "Sec-Fetch-Site: cross-site\r\n",
            "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\nSec-Fetch-Dest: document\r\n",
            &other_port,
        ] {
            let token = lock.token;
            let lines =
                format!("Host: {host}\r\n{lines}X-Fence-Token: {token}\r\nContent-Length: 0\r\n");
            let answer = head(&gateway, call, &lines).await;
            assert_eq!(answer.status, 403, "{call} {lines}: {}", answer.text());
            if !call.starts_with("HEAD") {
                assert_eq!(answer.code(), "origin-forbidden", "{call} {lines}");
            }
        }
    }
    assert_eq!(client.version("r").await, 1);

    let read = "GET /resources/r/objects/k";
    let page = "Origin: https://ops.example.com\r\nSec-Fetch-Site: cross-site\r\n";
    let answer = head(&gateway, read, &format!("Host: {host}\r\n{page}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    assert_eq!(answer.header("access-control-allow-origin"), Some("https://ops.example.com"));
    let asks = format!("Host: {host}\r\n{page}Access-Control-Request-Method: PUT\r\n");
    assert_eq!(head(&gateway, "OPTIONS /resources/r/objects/k", &asks).await.status, 200);
    let own = format!("Host: {host}\r\nOrigin: http://{host}\r\nSec-Fetch-Site: same-origin\r\n");
    assert_eq!(head(&gateway, read, &own).await.status, 200);
    let typed = format!("Host: {host}\r\nSec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n");
    assert_eq!(head(&gateway, read, &typed).await.status, 200);
}

#[tokio::test]
async fn a_page_may_send_and_read_what_clients_do() {
    let settings = Gateway::embedded().flag("--cors-origin", "https://ops.example.com");
    let gateway = settings.start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    client.put("r", "k", "x").under(&lock).send().await.expect(201);
    let page = format!("Host: {}\r\nOrigin: https://ops.example.com\r\n", gateway.address());
    let sent = "x-fence-token, x-lock-id, x-fence-seq, x-if-resource-version, x-fence-key-kept, \
                idempotency-key, if-match, if-none-match, if-range, range, content-type, content-md5, \
                content-digest, repr-digest, last-event-id, traceparent, tracestate, x-request-id, \
                x-of-an-upstream";
    let list = |answer: &RawAnswer, name: &str| -> Vec<String> {
        let value = answer.header(name).unwrap_or_else(|| panic!("no {name}"));
        value.split(',').map(|one| one.trim().to_ascii_lowercase()).collect()
    };
    for method in ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"] {
        let asks = format!(
            "{page}Access-Control-Request-Method: {method}\r\nAccess-Control-Request-Headers: {sent}\r\n"
        );
        let answer = head(&gateway, "OPTIONS /resources/r/objects/k", &asks).await;
        assert_eq!(answer.status, 200, "{}", answer.text());
        assert_eq!(answer.header("access-control-max-age"), Some("600"));
        let methods = list(&answer, "access-control-allow-methods");
        assert!(methods.contains(&method.to_ascii_lowercase()), "{methods:?}");
        let allowed = list(&answer, "access-control-allow-headers");
        for name in sent.split(',') {
            assert!(allowed.contains(&name.trim().to_owned()), "{name}: {allowed:?}");
        }
    }
    let answer = head(&gateway, "GET /resources/r/objects/k", &page).await;
    let exposed = list(&answer, "access-control-expose-headers");
    for name in [
        "etag",
        "location",
        "retry-after",
        "content-range",
        "accept-ranges",
        "repr-digest",
        "fencegate-version",
        "x-request-id",
        "x-operation-id",
        "x-resource-version",
        "x-fence-token",
        "x-fence-verdict",
        "x-fence-guarantee",
        "idempotent-replayed",
    ] {
        assert!(exposed.contains(&name.to_owned()), "{name}: {exposed:?}");
    }
}

#[tokio::test]
async fn a_link_may_lead_to_the_page_of_an_error_and_to_nothing_else() {
    let gateway = Gateway::embedded().start().await;
    let linked = |dest: &str, mode: &str| {
        format!(
            "Host: localhost\r\nSec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: {mode}\r\nSec-Fetch-Dest: {dest}\r\n"
        )
    };
    let page = "GET /docs/errors/lock-held";
    assert_eq!(head(&gateway, page, &linked("document", "navigate")).await.status, 200);
    for (line, dest, mode) in [
        (page, "iframe", "navigate"),
        (page, "empty", "cors"),
        (page, "image", "no-cors"),
        ("POST /docs/errors/lock-held", "document", "navigate"),
        ("GET /locks", "document", "navigate"),
        ("GET /openapi.yaml", "document", "navigate"),
    ] {
        let answer = head(&gateway, line, &linked(dest, mode)).await;
        assert_eq!(
            (answer.status, answer.code().as_str()),
            (403, "origin-forbidden"),
            "{line} {dest}"
        );
    }
}

#[tokio::test]
async fn the_network_is_listened_to_only_by_request() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        for command in ["serve", "check-config"] {
            let refused = fencegate(&[command, "--listen", address], &[]).await;
            assert_eq!(refused.code, Some(2), "{}", refused.err);
            for part in ["listen (from --listen)", address, "--open-to-network"] {
                assert!(refused.err.contains(part), "{part}: {}", refused.err);
            }
        }
        let args = ["check-config", "--listen", address, "--open-to-network"];
        let open = fencegate(&args, &[]).await;
        assert_eq!(open.code, Some(0), "{}", open.err);
        assert!(open.out.contains("# warning: whoever reaches"), "{}", open.out);
    }
    let args = ["check-config", "--cors-origin", "*"];
    let refused = fencegate(&args, &[]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("every page of the web"), "{}", refused.err);
}

#[tokio::test]
async fn backends_over_a_network_are_verified_unless_the_settings_say_otherwise() {
    let args = |sslmode: &str| {
        let url = format!("postgres://fence@db.example/fence?sslmode={sslmode}");
        ["check-config", "--postgres", &url, "--etcd", "e1.example:2379"].map(str::to_owned)
    };
    let refused = fencegate(&args("require").each_ref().map(String::as_str), &[]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("sslmode=verify-full"), "{}", refused.err);
    let refused = fencegate(&args("verify-full").each_ref().map(String::as_str), &[]).await;
    assert_eq!(refused.code, Some(2), "{}", refused.err);
    assert!(refused.err.contains("etcd_ca_file"), "{}", refused.err);
    let env = [("FENCEGATE_INSECURE_BACKENDS", "true")];
    let shown = fencegate(&args("require").each_ref().map(String::as_str), &env).await;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    let warned: Vec<&str> =
        shown.out.lines().filter(|line| line.starts_with("# warning: insecure_backends")).collect();
    assert_eq!(warned.len(), 2, "{}", shown.out);
}

#[tokio::test]
async fn a_variable_of_somebody_else_is_warned_about_and_a_slip_is_refused() {
    let settings = Gateway::embedded().env("FENCEGATE_BIN", "x").env("FENCEGATE_URL", "y");
    let gateway = settings.start().await;
    for stranger in ["FENCEGATE_BIN", "FENCEGATE_URL"] {
        let line = gateway.logged(stranger).await;
        assert!(line.contains("WARN") && line.contains("is not a setting"), "{line}");
    }
    let shown = fencegate(&["check-config"], &[("FENCEGATE_BIN", "x")]).await;
    assert_eq!(shown.code, Some(0), "{}", shown.err);
    assert!(shown.out.contains("# warning: FENCEGATE_BIN"), "{}", shown.out);
    let slip = Gateway::embedded().env("FENCEGATE_KEYS_KEP", "8d").start_refused().await;
    assert_eq!(slip.0.code(), Some(2), "{}", slip.1);
    assert!(slip.1.contains("did you mean FENCEGATE_KEYS_KEPT?"), "{}", slip.1);
}

#[tokio::test]
async fn what_is_stored_cannot_act_as_the_gateway_in_a_browser() {
    let gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    let page = client.put("r", "k", "<script>alert(1)</script>").under(&lock);
    let put = page.header("content-type", "text/html").send().await.expect(201);
    assert_eq!(put.must_have("x-content-type-options"), "nosniff");
    let contained = |answer: &fence_tests::client::Answer| {
        assert_eq!(answer.must_have("content-security-policy"), "sandbox; default-src 'none'");
        assert_eq!(answer.must_have("cross-origin-resource-policy"), "same-origin");
        assert_eq!(answer.must_have("x-content-type-options"), "nosniff");
    };
    let read = client.read("r", "k").send().await.expect(200);
    assert_eq!(read.must_have("content-type"), "text/html");
    contained(&read);
    let path = fence_tests::client::object_path("r", "k");
    contained(&client.call(Method::HEAD, path).send().await.expect(200));
    contained(&client.read("r", "k").header("range", "bytes=0-2").send().await.expect(206));
    for (line, status) in
        [("GET /locks", 200), ("GET /nowhere", 404), ("GET /healthz", 200), ("@", 400)]
    {
        let answer = head(&gateway, line, "Host: localhost\r\n").await;
        assert_eq!(answer.status, status, "{line}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{line}");
    }
}

#[tokio::test]
async fn an_upstream_cannot_act_as_the_gateway_in_a_browser() {
    let dropped = [
        "set-cookie",
        "access-control-allow-origin",
        "service-worker-allowed",
        "clear-site-data",
        "alt-svc",
        "strict-transport-security",
        "x-fence-token",
    ];
    for (more, passes) in [("", false), (",authorization=pass", true)] {
        let (gateway, _upstream) = fronted(SetUp::Embedded, "admission", more).await;
        let client = gateway.client();
        let answer = through(&client, Method::GET, "1", "loud").send().await.expect(200);
        assert_eq!(answer.must_have("content-security-policy"), "sandbox; default-src 'none'");
        assert_eq!(answer.must_have("cross-origin-resource-policy"), "same-origin");
        assert_eq!(answer.must_have("x-content-type-options"), "nosniff");
        assert_eq!(answer.must_have("x-own"), "kept");
        for name in dropped {
            let kept = passes && name == "set-cookie";
            assert_eq!(answer.header(name).is_some(), kept, "{name}");
        }
    }
}

#[tokio::test]
async fn who_calls_is_not_told_to_an_upstream_by_the_caller() {
    for (more, passes) in [("", false), (",authorization=pass", true)] {
        let (gateway, upstream) = fronted(SetUp::Embedded, "drained", more).await;
        let client = gateway.client();
        let lock = client.acquire("u:1", "10m").await;
        for (method, fenced) in [(Method::GET, false), (Method::POST, true)] {
            let mut call = through(&client, method, "1", "")
                .header("authorization", "Bearer secret")
                .header("cookie", "session=secret")
                .header("x-forwarded-for", "10.9.9.9")
                .header("x-forwarded-host", "evil.example")
                .header("x-forwarded-proto", "https")
                .header("x-forwarded-user", "root")
                .header("forwarded", "for=10.9.9.9")
                .header("x-real-ip", "10.9.9.9")
                .header("x-fence-principal", "root")
                .header("x-own", "kept");
            if fenced {
                call = call.under(&lock);
            }
            call.send().await.expect(200);
        }
        for seen in upstream.seen() {
            let header = |name: &str| {
                let all = seen.headers.get_all(name).iter();
                all.map(|value| value.to_str().expect("text").to_owned()).collect::<Vec<_>>()
            };
            for name in ["authorization", "cookie"] {
                assert_eq!(!header(name).is_empty(), passes, "{name} of {}", seen.method);
            }
            for name in ["x-forwarded-user", "forwarded", "x-real-ip", "x-fence-principal"] {
                assert_eq!(header(name), [""; 0], "{name} of {}", seen.method);
            }
            assert_eq!(header("x-forwarded-for"), ["127.0.0.1"]);
            assert_eq!(header("x-forwarded-host"), [gateway.address().to_string()]);
            assert_eq!(header("x-forwarded-proto"), ["http"]);
            assert_eq!(header("x-own"), ["kept"]);
        }
        assert_eq!(upstream.seen().len(), 2);
    }
}

#[tokio::test]
async fn one_record_of_an_upstream_has_one_fence() {
    let (gateway, upstream) = fronted(SetUp::Embedded, "drained", "").await;
    let client = gateway.client();
    let held = client.acquire("u:7", "10m").await;
    for alias in ["7.json", "07", "007", "7a", "+7", "7;v=1", "%37.json", "7%20", "7e0"] {
        let name = alias.replace("%37", "7").replace("%20", "");
        let body = json!({ "resource": format!("u:{}", name.replace(';', "")), "ttl": "10m" });
        let other = client.lock(&body).send().await;
        let token = if other.status == 201 {
            other.parse::<fence_core::wire::Lock>().token
        } else {
            held.token
        };
        let write = through(&client, Method::PUT, alias, "").token(token.get()).send().await;
        let refused = write.refused(400, "upstream-path-invalid");
        assert!(refused.text().contains("number without leading zeros"), "{}", refused.text());
    }
    assert_eq!(upstream.begun(), 0);
    through(&client, Method::PUT, "7", "").under(&held).send().await.expect(200);
    through(&client, Method::PUT, "%37", "").under(&held).send().await.expect(200);
    // Reads have no fence to go round.
    through(&client, Method::GET, "7.json", "").send().await.expect(200);
}

#[tokio::test]
async fn an_upstream_with_a_short_time_starts_and_any_form_is_warned_about() {
    let upstream = Upstream::start().await;
    let setting = upstream.setting("drained", ",timeout=2s").replace("=digits", "=any");
    let gateway = Gateway::embedded().flag("--upstream", &setting).start().await;
    let line = gateway.logged("resource_form").await;
    assert!(line.contains("WARN") && line.contains("two holders"), "{line}");
}

/// Everything below a folder, with the bits of its mode.
fn modes(folder: &Path) -> Vec<(String, u32)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let entry = entry.expect("an entry");
        let metadata = entry.metadata().expect("it is there");
        found.push((entry.path().display().to_string(), metadata.permissions().mode() & 0o777));
        if metadata.is_dir() {
            found.extend(modes(&entry.path()));
        }
    }
    found
}

#[tokio::test]
async fn what_is_written_is_for_this_user_alone() {
    let mut gateway = Gateway::embedded().start().await;
    let client = gateway.client();
    let lock = client.acquire("r", "10m").await;
    client.put("r", "k", vec![b'x'; 300_000]).under(&lock).send().await.expect(201);
    let all = modes(&gateway.data_dir());
    assert!(all.iter().any(|(path, _)| path.contains("/blobs/")), "{all:?}");
    let open: Vec<_> = all.iter().filter(|(_, mode)| mode & 0o077 != 0).collect();
    assert!(open.is_empty(), "{open:?}");

    gateway.term();
    gateway.wait_for_exit().await;
    let set = |mode| {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(gateway.data_dir(), mode).expect("our own folder");
    };
    set(0o777);
    let data = gateway.data_dir().display().to_string();
    let refused = fencegate(&["serve", "--listen", "127.0.0.1:0", "--data-dir", &data], &[]).await;
    assert_eq!(refused.code, Some(1), "{}", refused.err);
    assert!(refused.err.contains("others can write to the data directory"), "{}", refused.err);
    set(0o755);
    gateway.restart().await;
    assert_eq!(gateway.client().version("r").await, 1);
}
