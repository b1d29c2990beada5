//! How many connections one peer may have, with peers that are made up.

use super::*;
use crate::http::identify::Shown;
use axum::routing::get;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::mpsc;

/// Connections that a test hands in.
struct HandedIn(mpsc::UnboundedReceiver<(DuplexStream, Option<SocketAddr>)>);

impl Opening for DuplexStream {
    type Stream = Self;

    async fn open(self, _counted: Option<Peer>, _limit: Duration) -> Option<Opened<Self>> {
        Some(Opened::new(self, Shown::default()))
    }
}

impl Listen for HandedIn {
    type Accepted = DuplexStream;

    async fn accept(&mut self) -> io::Result<(DuplexStream, Option<SocketAddr>, Option<IpAddr>)> {
        match self.0.recv().await {
            Some((stream, peer)) => Ok((stream, peer, None)),
            None => std::future::pending().await,
        }
    }
}

struct Server(mpsc::UnboundedSender<(DuplexStream, Option<SocketAddr>)>);

impl Server {
    fn start(limits: Limits, proxies: Proxies) -> Self {
        let app = Router::new().route("/ok", get(|| async { "fine" }));
        let (send, connections) = mpsc::unbounded_channel();
        let never = CancellationToken::new;
        let door = Door::new(app, limits, proxies, false);
        tokio::spawn(serve(HandedIn(connections), door, never(), never()));
        Self(send)
    }

    /// A connection from an address; from none, as over a Unix socket.
    fn connect(&self, from: Option<&str>) -> DuplexStream {
        let (ours, theirs) = duplex(4096);
        let peer = from.map(|ip| SocketAddr::new(ip.parse().unwrap(), 40_000));
        self.0.send((theirs, peer)).unwrap();
        ours
    }
}

/// Whether a request is answered; else the connection was closed.
async fn is_served(stream: &mut DuplexStream) -> bool {
    let _ = stream.write_all(b"GET /ok HTTP/1.1\r\nhost: localhost\r\n\r\n").await;
    let (mut answer, mut more) = (Vec::new(), [0; 512]);
    while !answer.ends_with(b"fine") {
        let read = timeout(Duration::from_secs(10), stream.read(&mut more)).await.unwrap();
        match read {
            Ok(read) if read > 0 => answer.extend_from_slice(&more[..read]),
            _ => return false,
        }
    }
    true
}

const ONE: Option<&str> = Some("192.0.2.1");

#[tokio::test]
async fn one_peer_has_a_quarter_of_the_connections() {
    let limits = Limits { connections_max: 16, ..Limits::default() };
    let server = Server::start(limits, Proxies::new(["10.0.0.0/8".parse().unwrap()]));
    let mut held: Vec<_> = (0..4).map(|_| server.connect(ONE)).collect();
    assert!(is_served(&mut held[3]).await);
    for same in ["192.0.2.1", "::ffff:192.0.2.1"] {
        assert!(!is_served(&mut server.connect(Some(same))).await, "{same}");
    }
    // Peers that are the same subscriber.
    let subscriber: Vec<_> =
        (1..=4).map(|host| server.connect(Some(&format!("2001:db8::{host}")))).collect();
    assert!(!is_served(&mut server.connect(Some("2001:db8::5"))).await);
    assert!(is_served(&mut server.connect(Some("2001:db8:0:1::5"))).await);
    drop(subscriber);
    drop(held.pop());
    // Its end is seen in a moment.
    while !is_served(&mut server.connect(ONE)).await {
        sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test]
async fn this_machine_and_proxies_may_have_all_connections() {
    for from in [None, Some("127.0.0.1"), Some("::1"), Some("::ffff:127.0.0.2"), Some("10.9.9.9")] {
        let limits = Limits { connections_max: 8, ..Limits::default() };
        let server = Server::start(limits, Proxies::new(["10.0.0.0/8".parse().unwrap()]));
        let mut held: Vec<_> = (0..8).map(|_| server.connect(from)).collect();
        for stream in &mut held {
            assert!(is_served(stream).await, "{from:?}");
        }
    }
}

/// As many connections as there are from four peers that send nothing: a fifth gets in once they are over.
#[tokio::test]
async fn a_connection_without_a_request_is_closed() {
    let limits = Limits {
        connections_max: 8,
        head_timeout: Duration::from_millis(100),
        idle_timeout: Duration::from_secs(3600),
        ..Limits::default()
    };
    let server = Server::start(limits, Proxies::default());
    let mut kept = server.connect(None);
    assert!(is_served(&mut kept).await);
    let mut silent: Vec<_> = (0..7).map(|_| server.connect(None)).collect();
    assert!(is_served(&mut server.connect(ONE)).await, "it had to wait for one of them");
    for stream in &mut silent {
        let mut rest = Vec::new();
        timeout(Duration::from_secs(10), stream.read_to_end(&mut rest)).await.unwrap().unwrap();
        assert!(rest.is_empty(), "nothing was asked");
    }
    // One that had a request has the longer time.
    sleep(Duration::from_millis(300)).await;
    assert!(is_served(&mut kept).await);
}

/// Two heads that do not end, which together are larger than what there is for all: the second is closed, and it alone.
#[tokio::test]
async fn heads_that_do_not_end_share_what_there_is_for_all() {
    let limits = Limits { connections_max: 2, ..Limits::default() };
    let server = Server::start(limits, Proxies::default());
    // Both fit into it as one head does, each for itself.
    let begun =
        format!("GET /ok HTTP/1.1\r\nx-long: {}", "x".repeat(head_bytes_max(&limits) - 16 * 1024));
    let mut first = server.connect(None);
    first.write_all(begun.as_bytes()).await.unwrap();
    let mut second = server.connect(None);
    let _ = second.write_all(begun.as_bytes()).await;
    let mut answer = Vec::new();
    let ended = timeout(Duration::from_secs(10), second.read_to_end(&mut answer)).await;
    ended.expect("it is closed").ok();
    assert!(answer.is_empty(), "{}", String::from_utf8_lossy(&answer));
    drop(first);
    // Its end is seen in a moment; then there is room.
    while !is_served(&mut server.connect(None)).await {
        sleep(Duration::from_millis(5)).await;
    }
}
