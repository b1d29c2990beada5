//! Upstreams by TLS: they are verified, told who the gateway is, and shown its credential and nobody else's.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts what stands before an upstream")]

use std::net::SocketAddr;
use std::sync::Arc;

use fence_tests::access::{Key, Rules};
use fence_tests::client::Client;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use fence_tests::upstream::Upstream;
use reqwest::Method;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::{RootCertStore, ServerConfig};

use super::requests::through;
use crate::http::tls::rig::{Authority, Files, Pair};
use crate::setup::SetUp;

/// Ends TLS before an upstream, as a load balancer does that takes certificates of this authority alone. Returns where.
async fn ends_tls(own: &Pair, callers: &Authority, upstream: &Upstream) -> SocketAddr {
    let target: SocketAddr = upstream.url().strip_prefix("http://").unwrap().parse().unwrap();
    let der = |pem: &str| CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(der(&callers.pem())).unwrap();
    let provider = Arc::new(default_provider());
    let verifier =
        WebPkiClientVerifier::builder_with_provider(Arc::new(roots), Arc::clone(&provider));
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(
            vec![der(&own.certificate)],
            PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap(),
        )
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                let Ok(mut secured) = acceptor.accept(stream).await else { return };
                let mut plain = TcpStream::connect(target).await.unwrap();
                let _ = copy_bidirectional(&mut secured, &mut plain).await;
            });
        }
    });
    address
}

/// A gateway before an upstream at this address, with these settings besides.
async fn before(url: &str, more: &str) -> Gateway {
    let setting = format!(
        "name=u,url={url},resource=/r/{{resource}},resource_form=digits,guarantee=admission,{more}"
    );
    SetUp::Embedded.settings().await.flag("--upstream", &setting).start().await
}

async fn status(client: &Client) -> u16 {
    through(client, Method::GET, "1", "").send().await.status.as_u16()
}

/// What the upstream saw of the last request in `Authorization`.
fn shown(upstream: &Upstream) -> Option<String> {
    let seen = upstream.seen();
    let value = seen.last().unwrap().headers.get("authorization")?;
    Some(value.to_str().unwrap().to_owned())
}

#[tokio::test]
async fn files_of_tls_and_a_credential_count_as_they_are_now() {
    let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
    let upstream = Upstream::start().await;
    let first = ends_tls(&ours.server(1), &callers, &upstream).await;
    let own = callers.client(1);
    let files = Files::new(&own);
    files.put("ca.pem", &ours.pem());
    files.put("credential", "Bearer one\n");
    let path = |name: &str| files.path(name).to_str().unwrap().to_owned();
    let more = format!(
        "ca_file={},cert_file={},key_file={},authorization=file:{}",
        path("ca.pem"),
        path("own.pem"),
        path("own-key.pem"),
        path("credential")
    );
    let gateway = before(&format!("https://{first}"), &more).await;
    let client = gateway.client();
    let call = || {
        let call = through(&client, Method::GET, "1", "");
        call.header("authorization", "Bearer of-the-caller").header("cookie", "a=b")
    };
    call().send().await.expect(200);
    assert_eq!(shown(&upstream).as_deref(), Some("Bearer one"));
    assert!(!upstream.seen().last().unwrap().headers.contains_key("cookie"));
    files.put("credential", "Bearer two");
    call().send().await.expect(200);
    assert_eq!(shown(&upstream).as_deref(), Some("Bearer two"));
    for bad in ["", "two\nlines"] {
        files.put("credential", bad);
        call().send().await.refused(502, "upstream-unreachable");
    }
    files.put("credential", "Bearer three");
    assert!(!gateway.log().contains("Bearer t"), "the log has a credential");

    // Files that are no good change nothing; other authorities count before long.
    files.put("ca.pem", "nothing");
    eventually("it says that they are no good", async || {
        assert_eq!(status(&client).await, 200);
        gateway.log().contains("files of TLS are no good").then_some(())
    })
    .await;
    files.put("ca.pem", &Authority::new("others").pem());
    eventually("the upstream is not trusted any more", async || {
        (status(&client).await == 502).then_some(())
    })
    .await;
    files.put("ca.pem", &ours.pem());
    eventually("it is trusted", async || (status(&client).await == 200).then_some(())).await;
}

#[tokio::test]
async fn an_upstream_that_is_somebody_else_gets_nothing() {
    let (ours, callers) = (Authority::new("ours"), Authority::new("callers"));
    let upstream = Upstream::start().await;
    let address = ends_tls(&ours.server(1), &callers, &upstream).await;
    let (own, stranger) = (Files::new(&callers.client(1)), Files::new(&ours.client(1)));
    for files in [&own, &stranger] {
        files.put("ca.pem", &ours.pem());
    }
    let pair = |files: &Files| {
        let [cert, key] = ["own.pem", "own-key.pem"].map(|name| files.path(name));
        format!("cert_file={},key_file={}", cert.display(), key.display())
    };
    let ca = format!("ca_file={}", own.path("ca.pem").display());
    let good = format!("https://{address}");
    // Its certificate has this address, and not this name.
    let other = format!("https://localhost:{}", address.port());
    for (what, url, more) in [
        ("by an authority that the machine does not trust", &good, pair(&own)),
        ("under another name", &other, format!("{ca},{}", pair(&own))),
        ("without a certificate of ours", &good, ca.clone()),
        ("with one that it does not take", &good, format!("{ca},{}", pair(&stranger))),
    ] {
        let gateway = before(url, &more).await;
        let client = gateway.client();
        assert_eq!(status(&client).await, 502, "{what}");
        let lock = client.acquire("u:1", "1m").await;
        let write = through(&client, Method::POST, "1", "").under(&lock).body("x");
        let refused = write.send().await;
        assert_eq!(refused.status, 502, "{what}");
    }
    assert_eq!(upstream.seen().len(), 0);
    let gateway = before(&good, &format!("{ca},{}", pair(&own))).await;
    assert_eq!(status(&gateway.client()).await, 200);
}

#[tokio::test]
async fn what_lets_callers_into_the_gateway_stays_there() {
    let upstream = Upstream::start().await;
    let front = upstream.setting("admission", ",authorization=pass");
    let settings = SetUp::Clustered.settings().await.flag("--upstream", &front);
    let (rules, ann) = (Rules::new().await, Key::new().await);
    let may =
        "allow = [\"lock\", \"write\", \"forward-read\"]\nresources = [\"*\"]\nupstreams = [\"*\"]";
    let text = rules.text(may, &[("ann", &ann)]);
    let gateway = SetUp::Clustered.start_ruled(settings, &rules, &text).await;
    let client = gateway.client();
    let body = serde_json::json!({ "resource": "u:1", "ttl": "1m", "owner": "ann" });
    let lock: fence_core::wire::Lock = ann.by(client.lock(&body)).send().await.expect(201).parse();
    for call in [
        through(&client, Method::GET, "1", ""),
        through(&client, Method::POST, "1", "").under(&lock).body("x"),
    ] {
        ann.by(call).send().await.expect(200);
        assert_eq!(shown(&upstream), None, "the upstream was shown a key of the gateway");
    }
    // Cookies that it sets would be shown to the gateway.
    let answer = ann.by(through(&client, Method::GET, "1", "loud")).send().await.expect(200);
    assert_eq!(answer.header("set-cookie"), None);
    assert_eq!(answer.header("x-own"), Some("kept"));
}
