//! The keys of issuers behind https URLs: who is believed, how far, and when they are asked again.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]
#![expect(clippy::disallowed_methods, reason = "a test starts what stands at an URL")]

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use fence_tests::access::Rules;
use fence_tests::gateway::Gateway;
use fence_tests::process::eventually;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::signer::{Signer, claims, set, trusted};
use super::{MAY, let_in, told_to, unauthenticated};
use crate::http::tls::rig::{Authority, Pair};
use crate::setup::SetUp;

/// The most bytes that a set of keys has.
const BYTES_MAX: usize = 256 * 1024;
/// Far more than anybody would read who has a limit.
const ENDLESS: usize = 16 << 20;

/// What somebody asks for gets these bytes for an answer.
type Answers = Arc<dyn Fn(&str) -> Vec<u8> + Send + Sync>;

/// A server of keys. It notes the paths that it was asked for.
struct Server {
    address: SocketAddr,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    async fn start(own: &Pair, answers: impl Fn(&str) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let chain = vec![CertificateDer::from_pem_slice(own.certificate.as_bytes()).unwrap()];
        let key = PrivateKeyDer::from_pem_slice(own.key.as_bytes()).unwrap();
        let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (noted, answers): (_, Answers) = (Arc::clone(&asked), Arc::new(answers));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, noted, answers) =
                    (acceptor.clone(), Arc::clone(&noted), Arc::clone(&answers));
                tokio::spawn(async move {
                    let Ok(mut stream) = acceptor.accept(stream).await else { return };
                    let Some(path) = path_asked(&mut stream).await else { return };
                    let answer = answers(&path);
                    noted.lock().unwrap().push(path);
                    // Who does not want all of it hangs up.
                    let _cut = stream.write_all(&answer).await;
                    let _closed = stream.shutdown().await;
                });
            }
        });
        Self { address, asked }
    }

    fn url(&self, path: &str) -> String {
        format!("https://{}{path}", self.address)
    }

    fn was_asked(&self, path: &str) -> bool {
        self.asked.lock().unwrap().iter().any(|asked| asked == path)
    }
}

/// The path of the one request on a connection.
async fn path_asked(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> Option<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).ok()?;
    head.split(' ').nth(1).map(str::to_owned)
}

fn answer(status: &str, more: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n{more}\r\n{body}"
    )
    .into_bytes()
}

/// The same set of keys with spaces up to this length.
fn padded(keys: &str, bytes: usize) -> String {
    format!("{keys}{}", " ".repeat(bytes - keys.len()))
}

/// A gateway that trusts this authority alone, with an issuer for each of these names and URLs.
async fn trusting(authority: &Authority, issuers: &[(&str, String)]) -> (Gateway, Rules) {
    let rules = Rules::new().await;
    let roots = rules.home.path().join("roots.pem");
    std::fs::write(&roots, authority.pem()).unwrap();
    let settings = SetUp::Embedded.settings().await;
    let gateway = settings.env("SSL_CERT_FILE", roots.to_str().unwrap()).start().await;
    let issuers = issuers
        .iter()
        .map(|(name, url)| trusted(name, &iss(name), &format!("jwks_url = \"{url}\"")));
    let text = rules.text(MAY, &[]) + &issuers.collect::<String>();
    rules.put_in_force(&gateway, &text).await;
    (gateway, rules)
}

fn iss(name: &str) -> String {
    format!("https://{name}.example")
}

/// A good token of the issuer with this name.
fn token(signer: &Signer, name: &str) -> String {
    let mut claims: Value = claims("billing:a");
    claims["iss"] = iss(name).into();
    signer.claiming(&claims)
}

#[tokio::test]
async fn keys_come_from_the_https_url_of_the_rules_and_from_nowhere_else() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let signer = Signer::new("k");
    let keys = set(&[&signer]);
    let served = keys.clone();
    let answers = move |path: &str| match path {
        "/good" => answer("200 OK", "", &served),
        "/just" => answer("200 OK", "", &padded(&served, BYTES_MAX)),
        "/long" => answer("200 OK", "", &padded(&served, BYTES_MAX + 1)),
        "/endless" => [b"HTTP/1.1 200 OK\r\n\r\n", padded(&served, ENDLESS).as_bytes()].concat(),
        "/moved" => answer("302 Found", "location: /good\r\n", &served),
        "/gone" => answer("404 Not Found", "", &served),
        "/page" => answer("200 OK", "", "<html>"),
        _ => answer("200 OK", "", &served),
    };
    let server = Server::start(&ours.server(1), answers.clone()).await;
    let stranger = Server::start(&others.server(1), answers).await;
    // The certificate has the address, and not this name.
    let by_name = format!("https://localhost:{}/name", server.address.port());
    let rows = [
        ("just", server.url("/just"), ""),
        ("long", server.url("/long"), "it has more than 262144 bytes"),
        ("endless", server.url("/endless"), "it has more than 262144 bytes"),
        ("moved", server.url("/moved"), "it answers with 302 Found"),
        ("gone", server.url("/gone"), "404"),
        ("page", server.url("/page"), "it is no JWKS"),
        ("stranger", stranger.url("/good"), "certificate"),
        ("name", by_name, "certificate"),
        ("good", server.url("/good"), ""),
    ];
    let issuers: Vec<_> = rows.iter().map(|(name, url, _)| (*name, url.clone())).collect();
    let (gateway, _rules) = trusting(&ours, &issuers).await;
    for (name, _, why) in &rows {
        let expected = if why.is_empty() { let_in() } else { unauthenticated() };
        assert!(!server.was_asked("/good"), "a redirect was followed");
        assert_eq!(told_to(&gateway, &token(&signer, name)).await, expected, "{name}");
        if !why.is_empty() {
            let line = format!("issuer=\"{name}\"");
            let reason = format!("the log has a reason: {name}");
            let said = eventually(&reason, async || {
                let log = gateway.log();
                let said = |it: &&str| it.contains(&line) && it.contains("cannot be read");
                log.lines().find(said).map(str::to_owned)
            })
            .await;
            assert!(said.contains(why), "{name}: {said}");
        }
    }
    assert!(server.was_asked("/moved") && server.was_asked("/good"));
    assert!(stranger.asked.lock().unwrap().is_empty(), "a stranger was asked");
    assert!(!server.was_asked("/name"), "it was asked under a name that it has not");
    // The keys of one issuer are not those of another.
    let mixed = token(&Signer::new("k"), "good");
    assert_eq!(told_to(&gateway, &mixed).await, unauthenticated());
}

/// It would be five minutes if it were asked as seldom as one that has answered.
#[tokio::test]
async fn a_url_that_has_not_answered_yet_is_asked_again_soon() {
    let ours = Authority::new("ours");
    let signer = Signer::new("k");
    let now = Arc::new(Mutex::new(answer("500 Internal Server Error", "", "")));
    let served = Arc::clone(&now);
    let server = Server::start(&ours.server(1), move |_| served.lock().unwrap().clone()).await;
    let (gateway, _rules) = trusting(&ours, &[("late", server.url("/keys"))]).await;
    let token = token(&signer, "late");
    assert_eq!(told_to(&gateway, &token).await, unauthenticated());
    assert!(server.was_asked("/keys"));
    *now.lock().unwrap() = answer("200 OK", "", &set(&[&signer]));
    eventually("its keys are known", async || {
        (told_to(&gateway, &token).await == let_in()).then_some(())
    })
    .await;
    // Callers who ask again and again do not have it asked as often.
    assert!(server.asked.lock().unwrap().len() < 20);
}
