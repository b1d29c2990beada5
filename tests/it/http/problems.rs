//! Every way out of the gateway with an error is a problem document, whoever found the error: the
//! rule, a handler, the router or the HTTP library.

use std::collections::BTreeSet;

use fence_core::ErrorCode;
use fence_core::wire::Problem;
use fence_tests::gateway::Gateway;
use fence_tests::raw::{RawAnswer, RawConnection, exchange};

/// A request, and the status and code of its answer.
fn exits() -> Vec<(&'static str, String, u16, &'static str)> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let post = |path: &str, kind: &str, body: &str| {
        let length = body.len();
        format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {kind}\r\n\
             Content-Length: {length}\r\n\r\n{body}"
        )
    };
    let json = "application/json";
    let nobody = "/locks/67e55044-10b1-426f-9247-bb680e5fe0c8";
    let wide = "x".repeat(20_000);
    vec![
        ("an unknown path", get("/nowhere"), 404, "route-not-found"),
        ("an unknown path below a known one", get("/resources/r/x"), 404, "route-not-found"),
        ("a slash at the end", get("/locks/"), 404, "route-not-found"),
        ("a page that is not there", get("/docs/errors/nothing"), 404, "route-not-found"),
        ("a lock that is not there", get(nobody), 404, "lock-not-found"),
        ("a resource that is not there", get("/resources/r"), 404, "resource-not-found"),
        (
            "an operation that is not there",
            get("/operations/67e55044-10b1-426f-9247-bb680e5fe0c8"),
            404,
            "operation-not-found",
        ),
        ("an id that is none", get("/locks/1"), 400, "request-malformed"),
        ("another method", get("/locks").replace("GET", "PATCH"), 405, "method-not-allowed"),
        ("a made-up method", get("/locks").replace("GET", "BREW"), 405, "method-not-allowed"),
        ("a method that may not be", get("/locks").replace("GET", "G(T"), 400, "request-malformed"),
        ("an unknown query", get("/resources?limt=1"), 400, "query-malformed"),
        ("a query that is no number", get("/resources?limit=ten"), 400, "query-malformed"),
        ("a limit of zero", get("/resources?limit=0"), 400, "query-malformed"),
        ("bad JSON", post("/locks", json, "{"), 400, "body-malformed"),
        (
            "an unknown field",
            post("/locks", json, r#"{"resource":"r","a":1}"#),
            400,
            "body-malformed",
        ),
        ("no JSON", post("/locks", "text/plain", "{}"), 415, "unsupported-media-type"),
        ("too much JSON", post("/locks", json, &" ".repeat(100_000)), 413, "payload-too-large"),
        ("a long path", get(&format!("/{wide}")), 414, "uri-too-long"),
        (
            "a wide header",
            get("/locks").replace("Host: localhost", &format!("Host: localhost\r\nX-Wide: {wide}")),
            431,
            "headers-too-large",
        ),
        ("no HTTP", "hello\r\n\r\n".to_owned(), 400, "request-malformed"),
        ("no host", "GET /locks HTTP/1.1\r\n\r\n".to_owned(), 400, "request-malformed"),
        ("a head that stalls", "GET /locks HTTP/1.1\r\nHo".to_owned(), 408, "request-timeout"),
    ]
}

/// Whether an answer is a whole problem document; what is wrong with it otherwise.
fn examine(answer: &RawAnswer) -> Result<Problem, String> {
    let problem: Problem = serde_json::from_slice(&answer.body)
        .map_err(|error| format!("{error}: {} {}", answer.status, answer.text()))?;
    let code = ErrorCode::ALL.iter().find(|code| code.as_str() == problem.code);
    let code = code.ok_or_else(|| format!("the code {} is not in the list", problem.code))?;
    let sound = answer.header("content-type") == Some("application/problem+json")
        && answer.header("x-request-id") == Some(&problem.request_id)
        && !problem.request_id.is_empty()
        && (problem.status, code.status()) == (answer.status, answer.status)
        && problem.title == code.title()
        && problem.retryable == code.retryable()
        && !problem.detail.is_empty()
        && problem.kind == format!("/docs/errors/{code}");
    if sound { Ok(problem) } else { Err(format!("{answer:?}\n{}", answer.text())) }
}

#[tokio::test]
async fn every_exit_is_a_problem_document_with_a_page() {
    let gateway = Gateway::embedded().start().await;
    let address = gateway.address();
    let mut failures = Vec::new();
    let mut pages = BTreeSet::new();
    let answers = exits().into_iter().map(|exit| async move {
        let answer = exchange(address, exit.1.as_bytes()).await;
        (exit.0, (exit.2, exit.3), answer)
    });
    for (name, expected, answer) in futures::future::join_all(answers).await {
        let Some(answer) = answer else {
            failures.push(format!("{name}: closed without an answer"));
            continue;
        };
        match examine(&answer) {
            Ok(problem) if (problem.status, problem.code.as_str()) == expected => {
                pages.insert(problem.kind);
            }
            Ok(problem) => failures.push(format!(
                "{name}: {} {} ({}), not {expected:?}",
                problem.status, problem.code, problem.detail
            )),
            Err(why) => failures.push(format!("{name}: {why}")),
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    for page in pages {
        gateway.client().get(page).unchecked().send().await.expect(200);
    }
}

#[tokio::test]
async fn every_code_has_a_page_that_explains_it() {
    let gateway = Gateway::embedded().start().await;
    for code in ErrorCode::ALL {
        let page = gateway.client().get(format!("/docs/errors/{code}")).send().await.expect(200);
        assert!(page.text().contains(code.as_str()), "{code}");
    }
}

#[tokio::test]
async fn a_request_id_of_the_caller_is_kept_and_one_is_made_up_otherwise() {
    let gateway = Gateway::embedded().start().await;
    let ask = async |id: &str| {
        let request =
            format!("GET /nowhere HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: {id}\r\n\r\n");
        let answer = exchange(gateway.address(), request.as_bytes()).await.unwrap();
        examine(&answer).unwrap().request_id
    };
    assert_eq!(ask("my-id-1").await, "my-id-1");
    for strange in ["", "a b", "é", &"x".repeat(129)] {
        assert_ne!(ask(strange).await, strange);
    }
    gateway.logged("my-id-1").await;
}

#[tokio::test]
async fn a_refused_method_names_the_allowed_ones() {
    let gateway = Gateway::embedded().start().await;
    let request = "PATCH /locks HTTP/1.1\r\nHost: localhost\r\n\r\n";
    let answer = exchange(gateway.address(), request.as_bytes()).await.unwrap();
    assert_eq!(answer.status, 405);
    let allowed = answer.header("allow").unwrap_or_default();
    assert!(allowed.contains("GET") && allowed.contains("POST"), "{allowed:?}");
}

#[tokio::test]
async fn an_error_in_answer_to_head_has_no_body() {
    let gateway = Gateway::embedded().start().await;
    let mut connection = RawConnection::open(gateway.address()).await;
    for (path, status) in [("/nowhere", 404), ("/resources/r/objects/k", 404), ("/readyz", 200)] {
        let request = format!("HEAD {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        connection.send(request.as_bytes()).await;
        let answer = connection.head_answer().await.unwrap();
        assert_eq!(answer.status, status, "{path}");
    }
}
