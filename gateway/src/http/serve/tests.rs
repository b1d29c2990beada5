//! Connections through real sockets.

use super::*;
use axum::Extension;
use axum::body::Bytes;
use axum::middleware::from_fn_with_state;
use axum::response::IntoResponse;
use axum::routing::{get, put};
use fence_core::wire;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::http::middleware::{Doors, Framing};
use crate::http::problem::Problem;

/// Stored bytes that look like hyper's own answer must come back as they are.
const LOOKALIKE: &str =
    "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

struct Server {
    address: std::net::SocketAddr,
    soft: CancellationToken,
    task: JoinHandle<io::Result<()>>,
}

async fn start(limits: Limits) -> Server {
    let app = Router::new()
        .route("/ok", get(|| async { "fine" }))
        .route("/lookalike", get(|| async { LOOKALIKE.repeat(20_000) }))
        .route(
            "/slow",
            get(|| async {
                sleep(Duration::from_millis(300)).await;
                "done"
            }),
        )
        .route(
            "/framing",
            put(|Extension(framing): Extension<Framing>, body: Bytes| async move {
                format!("{} {}", framing.unclear_length, body.len())
            }),
        )
        .route(
            "/refused",
            put(|| async { Problem::malformed("refused").and_close().into_response() }),
        )
        .layer(from_fn_with_state(Arc::<Doors>::default(), crate::http::middleware::answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let soft = CancellationToken::new();
    let task = tokio::spawn(serve(
        listener,
        Door::new(app, limits, Proxies::default(), false),
        soft.clone(),
        CancellationToken::new(),
    ));
    Server { address, soft, task }
}

async fn talk(server: &Server, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(request).await.unwrap();
    let mut answer = Vec::new();
    timeout(Duration::from_secs(5), stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    String::from_utf8(answer).unwrap()
}

fn code(answer: &str) -> String {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("content-type: application/problem+json"), "{answer}");
    assert!(head.contains("connection: close"), "{answer}");
    let document: wire::Problem = serde_json::from_str(body).unwrap();
    assert_eq!(document.request_id.len(), 36);
    document.code
}

#[tokio::test]
async fn what_hyper_cannot_parse_gets_a_problem_document() {
    let server = start(Limits::default()).await;
    for bad in [
        b"rubbish\r\n\r\n".as_slice(),
        b"GET /ok HTTP/1.1\r\nhost : a\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nhost: localhost\r\n folded\r\n\r\n",
        b"PUT /framing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
        b"PUT /framing HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: xchunked\r\n\r\n",
        b"GET /ok HTTP/1.1\r\nhost: localhost\r\nx: \0\r\n\r\n",
    ] {
        assert_eq!(code(&talk(&server, bad).await), "request-malformed");
    }
    let after = b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\nrubbish\r\n\r\n";
    let answer = talk(&server, after).await;
    let second = answer.find("HTTP/1.1 400").unwrap();
    assert!(answer[..second].ends_with("fine"), "{answer}");
}

#[tokio::test]
async fn heads_that_do_not_fit_say_what_is_too_long() {
    let server = start(Limits::default()).await;
    let wide = format!("GET /ok HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(200_000));
    assert_eq!(code(&talk(&server, wide.as_bytes()).await), "headers-too-large");
    let many = format!("GET /ok HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "x: 1\r\n".repeat(500));
    assert_eq!(code(&talk(&server, many.as_bytes()).await), "headers-too-large");
    let long = format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(200_000));
    assert_eq!(code(&talk(&server, long.as_bytes()).await), "uri-too-long");
}

#[tokio::test]
async fn stored_bytes_are_never_taken_for_an_answer_of_hyper() {
    let server = start(Limits::default()).await;
    let request = b"GET /lookalike HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    let answer = talk(&server, request).await;
    assert!(answer.ends_with(&LOOKALIKE.repeat(20_000)));
}

#[tokio::test]
async fn unclear_lengths_are_seen_by_the_service() {
    let server = start(Limits::default()).await;
    let both = "PUT /framing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\
                transfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n";
    let one = "PUT /framing HTTP/1.1\r\nhost: localhost\r\ncontent-length: 3\r\n\r\nabc";
    assert!(talk(&server, both.as_bytes()).await.ends_with("true 1"));
    let answer = talk(&server, [one, both].concat().as_bytes()).await;
    assert!(answer.contains("false 3") && answer.ends_with("true 1"), "{answer}");
}

#[tokio::test]
async fn a_head_that_stalls_times_out() {
    let limits = Limits { head_timeout: Duration::from_millis(50), ..Limits::default() };
    let server = start(limits).await;
    let answer = talk(&server, b"GET /ok HTTP/1.1\r\nho").await;
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert_eq!(code(&answer), "request-timeout");
}

#[tokio::test]
async fn an_answer_before_the_body_arrives() {
    let server = start(Limits::default()).await;
    let mut request =
        b"PUT /refused HTTP/1.1\r\nhost: localhost\r\ncontent-length: 900000\r\n\r\n".to_vec();
    request.resize(900_000, b'x');
    assert_eq!(code(&talk(&server, &request).await), "request-malformed");
}

#[tokio::test]
async fn a_soft_end_lets_requests_finish() {
    let server = start(Limits::default()).await;
    let mut idle = TcpStream::connect(server.address).await.unwrap();
    let soft = server.soft.clone();
    tokio::spawn(async move {
        sleep(Duration::from_millis(100)).await;
        soft.cancel();
    });
    let answer = talk(&server, b"GET /slow HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    assert!(answer.ends_with("done"), "{answer}");
    assert_eq!(idle.read(&mut [0; 1]).await.unwrap(), 0);
    timeout(Duration::from_secs(5), server.task).await.unwrap().unwrap().unwrap();
    assert!(TcpStream::connect(server.address).await.is_err());
}

/// Where proxies secure connections, nobody else is served over a network: a key would come in the clear.
#[tokio::test]
async fn with_tls_by_proxies_others_are_not_served() {
    let proxies = Proxies::new(["10.0.0.7/32".parse().unwrap()]);
    let door = |only| Door::new(Router::new(), Limits::default(), proxies.clone(), only);
    let (open, secured) = (door(false), door(true));
    for (peer, is_served) in [
        (Some("10.0.0.7:1"), true),
        (Some("10.0.0.8:1"), false),
        (Some("[2001:db8::1]:1"), false),
        (Some("[::ffff:10.0.0.8]:1"), false),
        (Some("127.0.0.1:1"), true),
        (Some("[::ffff:127.0.0.1]:1"), true),
        (Some("[::1]:1"), true),
        (None, true),
    ] {
        let ends = Ends::of(peer.map(|peer| peer.parse().unwrap()), None, &proxies);
        assert_eq!(secured.serves(&ends), is_served, "{peer:?}");
        assert_eq!(secured.beside(Router::new()).serves(&ends), is_served, "{peer:?}");
        assert!(open.serves(&ends), "{peer:?}");
    }
}
