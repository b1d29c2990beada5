//! Handshakes: what is none is told so, and what goes on too long holds up nobody.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use fence_tests::process::{DEADLINE, eventually};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::rustls::ClientConnection;
use tokio_rustls::rustls::pki_types::ServerName;

use super::line::{connects, is_let_in};
use super::rig::{Authority, Files, is_ready, metric};

const CLOSED: &str = "fencegate_connections_closed_total{reason=\"handshake\"}";

/// What comes on a connection until the gateway closes it.
async fn rest(stream: &mut TcpStream) -> Vec<u8> {
    let mut rest = Vec::new();
    // What was not read of ours may cut it off.
    timeout(DEADLINE, stream.read_to_end(&mut rest)).await.expect("it is closed").ok();
    rest
}

#[tokio::test]
async fn what_is_no_handshake_is_told_so_and_a_probe_counts_for_nothing() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().flag("--log", "info,fencegate=debug").begin();
    let caller = authority.caller(true, None);
    is_ready(&gateway, &caller).await;
    let connect = || async { TcpStream::connect(gateway.address()).await.unwrap() };
    for _ in 0..3 {
        drop(connect().await);
    }
    let mut probe = connect().await;
    probe.shutdown().await.unwrap();
    assert_eq!(rest(&mut probe).await, b"");
    assert_eq!(metric(&gateway, &caller, CLOSED).await, None, "nobody began a handshake");

    let mut plain = connect().await;
    plain.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = String::from_utf8(rest(&mut plain).await).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("use https://"), "{answer}");
    assert_eq!(answer.matches("HTTP/1.1").count(), 1, "{answer}");
    let mut rubbish = connect().await;
    rubbish.write_all(&[22; 600]).await.unwrap();
    rest(&mut rubbish).await;
    // A hello of almost 64 KiB is announced, and two thirds of it come: it is not waited for.
    let mut long = connect().await;
    let record = [&[22, 3, 1, 0x10, 0, 1, 0, 0xff, 0xf0][..], &[7; 0x1000 - 4]].concat();
    long.write_all(&record.repeat(10)).await.ok();
    gateway.logged("the handshake is too long").await;
    rest(&mut long).await;
    assert!(is_let_in(&gateway, &connects(&authority, None)).await);
    drop(plain);
    eventually("each is counted once", async || {
        (metric(&gateway, &caller, CLOSED).await.as_deref() == Some("3")).then_some(())
    })
    .await;
}

/// The record that asks for TLS 1.`minor - 1`: 32 random bytes, no session, a suite, no compression, and then the
/// methods of signing, the curve and the form of its points that go with it.
fn hello(minor: u8) -> Vec<u8> {
    let extensions = [0, 13, 0, 4, 0, 2, 4, 3, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0];
    let suite = [0, 0, 2, 0xc0, 0x2b, 1, 0];
    let hello = [&[3, minor][..], &[7; 32], &suite, &[0, 22], &extensions].concat();
    let length = u8::try_from(hello.len()).unwrap();
    [&[22, 3, 1, 0, length + 4, 1, 0, 0, length][..], &hello].concat()
}

/// To those who ask for less the answer is the fatal alert 70, `protocol_version`, and that is all.
#[tokio::test]
async fn tls_before_1_2_is_refused() {
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().begin();
    is_ready(&gateway, &authority.caller(false, None)).await;
    for minor in [1, 2] {
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        stream.write_all(&hello(minor)).await.unwrap();
        let answer = rest(&mut stream).await;
        assert!(answer.first() == Some(&21) && answer.ends_with(&[0, 2, 2, 70]), "{answer:?}");
    }
    // The same with the version that is spoken goes on with a handshake.
    let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
    stream.write_all(&hello(3)).await.unwrap();
    assert_eq!(stream.read_u8().await.unwrap(), 22);
}

/// More than there ever were turns for: each has got as far as somebody else is waited for.
#[tokio::test]
async fn handshakes_that_stall_end_in_time_and_hold_up_nobody() {
    const STALLED: usize = 400;
    let authority = Authority::new("ours");
    let files = Files::new(&authority.server(1));
    let gateway = files.gateway().begin();
    let config = connects(&authority, None);
    let caller = authority.caller(true, None);
    is_ready(&gateway, &caller).await;
    let mut stalled = Vec::new();
    for number in 0..STALLED {
        let mut hello = Vec::new();
        let name = ServerName::from(gateway.address().ip());
        let mut client = ClientConnection::new(config.clone(), name).unwrap();
        client.write_tls(&mut hello).unwrap();
        let mut stream = TcpStream::connect(gateway.address()).await.unwrap();
        // A whole hello, half of one, and nothing at all.
        let sent = [hello.len(), hello.len() / 2, 0][number % 3];
        stream.write_all(&hello[..sent]).await.unwrap();
        stalled.push(stream);
    }
    assert!(is_let_in(&gateway, &config).await, "it has its turn");
    for stream in &mut stalled {
        rest(stream).await;
    }
    assert!(is_let_in(&gateway, &config).await);
    eventually("each is counted", async || {
        (metric(&gateway, &caller, CLOSED).await == Some(STALLED.to_string())).then_some(())
    })
    .await;
}
