//! Operators get in while everybody else's door is full, over TCP and over a Unix socket.

use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use fence_core::wire::Lock;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::{DEADLINE, eventually, free_port, loopback};
use fence_tests::raw::RawConnection;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout;

/// Connections behind `listen`, and how many of them may wait.
const CONNECTIONS: usize = 8;
const WAITING: usize = 7;

/// The admin door.
enum Door {
    Tcp(std::net::SocketAddr),
    Unix(PathBuf),
}

impl Door {
    fn setting(&self) -> String {
        match self {
            Self::Tcp(address) => address.to_string(),
            Self::Unix(path) => format!("unix:{}", path.display()),
        }
    }

    /// Sends a request on a connection of its own: the status and the body.
    async fn call(&self, method: &str, path: &str, body: Option<Value>) -> (u16, String) {
        self.call_as("localhost", method, path, body).await
    }

    async fn call_as(
        &self,
        host: &str,
        method: &str,
        path: &str,
        body: Option<Value>,
    ) -> (u16, String) {
        let body = body.map(|body| body.to_string()).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
            body.len()
        );
        let answer = match self {
            Self::Tcp(address) => talk(TcpStream::connect(address).await, &request),
            Self::Unix(path) => talk(UnixStream::connect(path).await, &request),
        };
        let answer = timeout(DEADLINE, answer).await.expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer in HTTP");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
        (status.expect("a status"), body.to_owned())
    }
}

fn talk<S: AsyncRead + AsyncWrite + Unpin + Send + 'static>(
    stream: std::io::Result<S>,
    request: &str,
) -> futures::future::BoxFuture<'static, String> {
    let (mut stream, request) = (stream.expect("the door is open"), request.to_owned());
    Box::pin(async move {
        stream.write_all(request.as_bytes()).await.expect("the request is taken");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.expect("an answer in text");
        answer
    })
}

fn behind(doors: &[&Door]) -> Settings {
    let settings = Gateway::embedded().env("FENCEGATE_CONNECTIONS_MAX", &CONNECTIONS.to_string());
    doors.iter().fold(settings, |settings, door| settings.flag("--admin-listen", &door.setting()))
}

/// Takes all connections of `listen`: some wait for a lock, the rest have asked something and are idle.
async fn fill(gateway: &Gateway, waiting: usize) -> Vec<RawConnection> {
    let mut held = Vec::new();
    for number in 0..CONNECTIONS {
        let mut connection = RawConnection::open(gateway.address()).await;
        connection.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
        assert_eq!(connection.answer().await.expect("an answer").status, 200);
        if number < waiting {
            let wish = r#"{"resource":"job:1","owner":"w","ttl":"1m","wait":"50s"}"#;
            let request = format!(
                "POST /locks HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n\
                 content-length: {}\r\n\r\n{wish}",
                wish.len()
            );
            connection.send(request.as_bytes()).await;
        }
        held.push(connection);
    }
    held
}

async fn get_in(door: Door, waiting: usize) {
    let gateway = behind(&[&door]).start().await;
    let post = async |path: &str, body: Value| door.call("POST", path, Some(body)).await;
    let acquire = async |resource: &str| -> Lock {
        let wish = serde_json::json!({ "resource": resource, "owner": "o", "ttl": "10m" });
        let (status, lock) = post("/locks", wish).await;
        assert_eq!(status, 201, "{lock}");
        serde_json::from_str(&lock).expect("a lock")
    };
    let (lock, other) = (acquire("job:1").await, acquire("job:2").await);
    let mut held = fill(&gateway, waiting).await;
    eventually("as many wait as do", async || {
        let (status, metrics) = door.call("GET", "/metrics", None).await;
        assert_eq!(status, 200);
        let waiters = metrics.lines().find_map(|line| line.strip_prefix("fencegate_waiters "));
        (waiters.unwrap_or("0") == waiting.to_string()).then_some(())
    })
    .await;
    // `listen` is full: one more connection is answered only once another has ended, whoever gets in here meanwhile.
    let mut late = RawConnection::open(gateway.address()).await;
    late.send(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let calls = async {
        for path in ["/healthz", "/readyz"] {
            assert_eq!(door.call("GET", path, None).await.0, 200, "{path}");
        }
        let renewed = door.call("POST", &format!("/locks/{}/renew", lock.id), None).await;
        assert_eq!(renewed.0, 200, "{renewed:?}");
        let broken = post("/resources/job:2/break", serde_json::json!({ "reason": "stuck" })).await;
        assert_eq!(broken.0, 200, "{broken:?}");
        // As many wait behind `listen` as may; here is room for others.
        let wish =
            serde_json::json!({ "resource": "job:1", "owner": "o", "ttl": "1m", "wait": "1ms" });
        let (status, waited) = post("/locks", wish).await;
        assert!(status == 409 && waited.contains("lock-wait-elapsed"), "{status} {waited}");
        let (status, ended) = door.call("GET", &format!("/locks/{}", other.id), None).await;
        assert!(status == 200 && ended.contains("broken"), "{status} {ended}");
        let evil = door.call_as("evil.example", "GET", "/healthz", None).await;
        assert!(evil.0 == 421 && evil.1.contains("host-not-served"), "{evil:?}");
        let released = door.call("DELETE", &format!("/locks/{}", lock.id), None).await;
        assert_eq!(released.0, 204, "{released:?}");
    };
    tokio::select! {
        biased;
        early = late.answer() => panic!("`listen` was not full: {early:?}"),
        () = calls => {}
    }
    drop(held.split_off(1));
    assert_eq!(late.answer().await.expect("room again").status, 200);
}

fn socket(directory: &tempfile::TempDir) -> PathBuf {
    directory.path().join("admin.sock")
}

fn directory() -> tempfile::TempDir {
    tempfile::tempdir().expect("a directory can be made")
}

#[tokio::test]
async fn operators_get_in_over_tcp_while_all_others_wait() {
    get_in(Door::Tcp(loopback(free_port())), WAITING).await;
}

#[tokio::test]
async fn operators_get_in_over_a_socket_while_all_others_wait() {
    let directory = directory();
    get_in(Door::Unix(socket(&directory)), WAITING).await;
}

#[tokio::test]
async fn operators_get_in_over_a_socket_while_all_others_are_idle() {
    let directory = directory();
    get_in(Door::Unix(socket(&directory)), 0).await;
}

fn is_private_socket(path: &Path) -> bool {
    let Ok(file) = std::fs::symlink_metadata(path) else { return false };
    file.file_type().is_socket() && file.permissions().mode() & 0o777 == 0o600
}

#[tokio::test]
async fn a_socket_is_private_replaced_when_stale_and_removed_at_the_end() {
    let directory = directory();
    let path = socket(&directory);
    let (unix, tcp) = (Door::Unix(path.clone()), Door::Tcp(loopback(free_port())));
    let mut gateway = behind(&[&unix, &tcp]).start().await;
    assert!(is_private_socket(&path));
    for door in [&unix, &tcp] {
        assert_eq!(door.call("GET", "/healthz", None).await.0, 200);
    }
    gateway.kill9();
    assert!(is_private_socket(&path), "it is left behind");
    gateway.restart().await;
    assert!(is_private_socket(&path));
    assert_eq!(unix.call("GET", "/healthz", None).await.0, 200);

    let (status, log) = behind(&[&unix]).start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("admin.sock: somebody answers there"), "{log}");
    assert_eq!(unix.call("GET", "/healthz", None).await.0, 200, "nothing happened to it");

    gateway.term();
    assert!(gateway.wait_for_exit().await.success());
    assert!(!path.exists(), "a clean stop removes it");
}

#[tokio::test]
async fn what_is_no_socket_of_a_gateway_that_died_stays() {
    let directory = directory();
    let path = socket(&directory);
    std::fs::write(&path, "precious").expect("a file can be written");
    let door = Door::Unix(path.clone());
    let (status, log) = behind(&[&door]).start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("admin.sock: there is a file that is no socket"), "{log}");
    assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), Some("precious"));
    std::fs::remove_file(&path).expect("the file is there");
    // Somebody listens, and answers nothing.
    let other = UnixListener::bind(&path).expect("a socket can be made");
    let (status, log) = behind(&[&door]).start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("somebody answers there"), "{log}");
    drop(other);
    let long = Door::Unix(directory.path().join("x".repeat(120)));
    let (status, log) = behind(&[&long]).start_refused().await;
    assert_eq!(status.code(), Some(2), "{log}");
    assert!(log.contains("the path of a socket has at most 107 bytes"), "{log}");
}
