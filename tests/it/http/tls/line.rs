//! One connection by TLS, on which a test sees what comes and that it ends.
#![expect(clippy::unwrap_used, reason = "tests and their helpers may panic")]

use std::io;
use std::sync::Arc;

use fence_tests::gateway::Gateway;
use fence_tests::process::DEADLINE;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::{
    ClientConfig, HandshakeKind, RootCertStore, SupportedProtocolVersion, version,
};

use super::rig::{Authority, Pair};

/// How a caller connects that trusts an authority, perhaps with a certificate of its own.
pub(super) fn connects(trusted: &Authority, own: Option<&Pair>) -> Arc<ClientConfig> {
    connects_by(&[&version::TLS13, &version::TLS12], trusted, own)
}

/// The same, by these versions alone.
pub(super) fn connects_by(
    versions: &[&'static SupportedProtocolVersion],
    trusted: &Authority,
    own: Option<&Pair>,
) -> Arc<ClientConfig> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(trusted.pem().as_bytes()).unwrap()).unwrap();
    let config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_protocol_versions(versions)
        .unwrap()
        .with_root_certificates(roots);
    Arc::new(match own {
        None => config.with_no_client_auth(),
        Some(Pair { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            config.with_client_auth_cert(chain, key).unwrap()
        }
    })
}

/// The connection.
pub(super) struct Line(TlsStream<TcpStream>);

impl Line {
    /// Opens one. With TLS 1.3 a certificate that is refused shows only when something is read.
    pub(super) async fn open(gateway: &Gateway, config: &Arc<ClientConfig>) -> io::Result<Self> {
        let stream = TcpStream::connect(gateway.address()).await?;
        let name = ServerName::from(gateway.address().ip());
        TlsConnector::from(Arc::clone(config)).connect(name, stream).await.map(Self)
    }

    /// Sends these bytes.
    pub(super) async fn send(&mut self, text: &str) {
        self.0.write_all(text.as_bytes()).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// Sends a request without a body, and reads its answer.
    pub(super) async fn get(&mut self, path: &str) -> io::Result<String> {
        let request = format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n");
        self.0.write_all(request.as_bytes()).await?;
        self.0.flush().await?;
        self.answer().await
    }

    /// Reads an answer, which has a `Content-Length`.
    pub(super) async fn answer(&mut self) -> io::Result<String> {
        let head = self.until("\r\n\r\n").await?;
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let mut body = vec![0; length.unwrap().parse().unwrap()];
        self.0.read_exact(&mut body).await?;
        Ok(head + &String::from_utf8(body).unwrap())
    }

    /// Reads up to this text.
    pub(super) async fn until(&mut self, text: &str) -> io::Result<String> {
        let mut read = String::new();
        while !read.ends_with(text) {
            let byte = timeout(DEADLINE, self.0.read_u8()).await.expect("something comes")?;
            read.push(char::from(byte));
        }
        Ok(read)
    }

    /// What comes until it ends, which the gateway must say.
    pub(super) async fn rest(&mut self) -> String {
        let mut rest = String::new();
        let end = timeout(DEADLINE, self.0.read_to_string(&mut rest)).await;
        end.expect("it ends").unwrap();
        rest
    }

    /// Whether the handshake went on with an earlier session.
    pub(super) fn is_resumed(&self) -> bool {
        self.0.get_ref().1.handshake_kind() == Some(HandshakeKind::Resumed)
    }
}

/// Whether a caller is let in, on a connection of its own.
pub(super) async fn is_let_in(gateway: &Gateway, config: &Arc<ClientConfig>) -> bool {
    match Line::open(gateway, config).await {
        Ok(mut line) => line.get("/readyz").await.is_ok_and(|answer| answer.contains(" 200 ")),
        Err(_) => false,
    }
}
