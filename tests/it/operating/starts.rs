//! Starts while something is away: what the gateway can do without, and what it waits for.
#![expect(clippy::disallowed_methods, reason = "a test starts tasks of its own")]
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::sync::Arc;

use fence_core::wire::Readiness;
use fence_tests::etcd::Etcd;
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::postgres::{Postgres, Stop};
use fence_tests::process::eventually;
use fence_tests::stores::{Kind, Store};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::disasters::outages::part;
use crate::http::tls::rig::Authority;

const LARGE: usize = 1 << 20;

/// How a store is away.
#[derive(Clone, Copy)]
enum Away {
    /// Its port is closed.
    Stopped,
    /// It takes connections, and answers none.
    Frozen,
}

fn on(store: &Store) -> Settings {
    let settings = Gateway::embedded().flag("--blobs", &store.url());
    store.env(None).into_iter().fold(settings, |settings, (name, value)| settings.env(name, &value))
}

async fn without_the_store(away: Away) {
    let mut store = Store::start(Kind::S3).await;
    match away {
        Away::Stopped => store.kill9(),
        Away::Frozen => store.pause(),
    }
    let gateway = on(&store).start().await;
    let client = gateway.client();
    let lock = client.acquire("job:1", "10m").await;
    client.put("job:1", "small", "x").under(&lock).send().await.expect(201);
    let large = client.put("job:1", "large", vec![7; LARGE]).under(&lock);
    large.clone().send().await.refused(503, "blobs-unavailable");
    let ready: Readiness = client.get("/readyz").send().await.expect(200).parse();
    assert!(ready.ready && !part(&ready, "blobs").0, "{ready:?}");
    match away {
        Away::Stopped => store.restart().await,
        Away::Frozen => store.resume(),
    }
    eventually("the store is taken into use", async || {
        large.clone().send().await.status.is_success().then_some(())
    })
    .await;
    assert_eq!(client.read("job:1", "large").send().await.expect(200).body.len(), LARGE);
}

#[tokio::test]
async fn a_gateway_starts_while_its_store_is_stopped_and_uses_it_later() {
    without_the_store(Away::Stopped).await;
}

#[tokio::test]
async fn a_gateway_starts_while_its_store_hangs_and_uses_it_later() {
    without_the_store(Away::Frozen).await;
}

/// A store that comes later is held against the ledger like one that is there at once.
#[tokio::test]
async fn the_store_of_another_ledger_is_not_used_when_it_comes_later() {
    let mut store = Store::start(Kind::S3).await;
    let first = on(&store).start().await;
    let lock = first.client().acquire("job:1", "10m").await;
    let large = || vec![7; LARGE];
    first.client().put("job:1", "k", large()).under(&lock).send().await.expect(201);
    store.kill9();
    let second = on(&store).start().await;
    store.restart().await;
    eventually("it is told why the store is not used", async || {
        second.log().contains("has the blobs of another ledger").then_some(())
    })
    .await;
    let client = second.client();
    let lock = client.acquire("job:1", "10m").await;
    let refused = client.put("job:1", "k", large()).under(&lock).send().await;
    refused.refused(503, "blobs-unavailable");
}

#[tokio::test]
async fn a_start_waits_for_postgres() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::dedicated());
    let url = postgres.database().await;
    postgres.stop(Stop::Fast).await;
    let gateway = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix()).begin();
    eventually("it says that it waits", async || {
        gateway.log().contains("waiting up to 60 s for it").then_some(())
    })
    .await;
    postgres.start().await;
    let client = gateway.client();
    eventually("it has started", async || {
        let answer = client.get("/readyz").try_send().await;
        answer.is_ok_and(|answer| answer.status == 200).then_some(())
    })
    .await;
    client.acquire("job:1", "10m").await;
}

#[tokio::test]
async fn a_start_that_waits_for_postgres_can_be_stopped_and_has_an_end() {
    let etcd = Etcd::shared().await;
    let settings = Gateway::clustered("postgres://nobody@127.0.0.1:1/x", &etcd.endpoint(), "/x");
    let mut gateway = settings.clone().begin();
    eventually("it says that it waits", async || {
        gateway.log().contains("waiting up to 60 s for it").then_some(())
    })
    .await;
    gateway.term();
    assert_eq!(gateway.wait_for_exit().await.code(), Some(1), "{}", gateway.log());
    let (status, log) = settings.env("FENCEGATE_WAIT_FOR_LEDGER", "1s").start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("cannot use the Postgres server"), "{log}");
}

#[tokio::test]
async fn what_waiting_does_not_change_is_said_at_once() {
    let (etcd, postgres) = tokio::join!(Etcd::shared(), Postgres::shared());
    let url = postgres.url("no_such_database");
    let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
    let (status, log) = settings.start_refused().await;
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("no_such_database") && !log.contains("waiting"), "{log}");
}

/// A port where TLS is spoken as Postgres begins it, under a certificate that nobody trusts.
async fn untrusted_postgres() -> u16 {
    let pair = Authority::new("nobody's").server(1);
    let chain = CertificateDer::pem_slice_iter(pair.certificate.as_bytes());
    let chain = chain.collect::<Result<Vec<_>, _>>().unwrap();
    let key = PrivateKeyDer::from_pem_slice(pair.key.as_bytes()).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
    let acceptor = TlsAcceptor::from(Arc::new(config.unwrap()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut asked = [0; 8];
            stream.read_exact(&mut asked).await.unwrap();
            stream.write_all(b"S").await.unwrap();
            let _refused = acceptor.accept(stream).await;
        }
    });
    port
}

/// Ends a start at once for a cause that no wait can mend, and says what to look at.
#[tokio::test]
async fn a_start_does_not_wait_for_what_no_wait_can_mend() {
    let (postgres, etcd) = tokio::join!(Postgres::shared(), Etcd::shared());
    let (port, fake) = (postgres.port(), untrusted_postgres().await);
    let cases = [
        (format!("postgres://postgres@127.0.0.1:{fake}/x?sslmode=verify-full"), "sslrootcert"),
        (format!("postgres://postgres@127.0.0.1:{port}/postgres?sslmode=require"), "sslmode"),
        (postgres.url("a_database_that_is_not_there"), "the database in its URL"),
        (format!("postgres://nobody@127.0.0.1:{port}/postgres"), "the user in its URL"),
    ];
    for (url, hint) in cases {
        let settings = Gateway::clustered(&url, &etcd.endpoint(), &etcd.prefix());
        let (status, log) = settings.env("FENCEGATE_WAIT_FOR_LEDGER", "1h").start_refused().await;
        assert!(!status.success() && log.contains(hint), "{url}: {log}");
    }
}
