//! Where S3 tools reach the gateway: by address for `http`, by name for `https`.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use http::Uri;
use http::uri::Scheme;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

/// How long a name may take to be looked up. One that is not found stays: the command may know better.
const LOOKED_UP_WITHIN: Duration = Duration::from_secs(2);
/// How long each address of a name may take to answer, where there are several.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// At most so many addresses of a name are tried.
const ADDRESSES_MAX: usize = 4;

/// Where the gateway speaks S3.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Endpoint {
    is_http: bool,
    /// The host, and the port if it is not the scheme's own.
    host: String,
    /// What stands between the host and the name of a bucket: nothing, as a rule.
    path: String,
}

impl Endpoint {
    /// What the gateway says of it; for `http` with the address that its name stands for. Most SDKs put the name of a
    /// bucket in front of the name of a host, where nothing is found, and into the path of an address. With `https` the
    /// name stays, since the certificate is for it.
    ///
    /// # Errors
    /// It is no `http` or `https` address.
    pub async fn of(text: &str) -> anyhow::Result<Self> {
        let said = || format!("the gateway says that it speaks S3 at {text:?}");
        let uri: Uri = text.parse().with_context(said)?;
        let known = [Scheme::HTTP, Scheme::HTTPS];
        ensure!(uri.scheme().is_some_and(|it| known.contains(it)), "{}: no address", said());
        let authority = uri.authority().with_context(said)?;
        let is_http = uri.scheme() == Some(&Scheme::HTTP);
        let named = authority.host();
        // An address of version 6 stands in brackets.
        let is_address =
            named.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>().is_ok();
        let port = authority.port_u16();
        let found = match is_http && !is_address {
            true => address(named, port.unwrap_or(80)).await,
            false => None,
        };
        let host = match (found, port) {
            (None, _) => authority.as_str().to_owned(),
            (Some(found), Some(_)) => found.to_string(),
            (Some(SocketAddr::V6(found)), None) => format!("[{}]", found.ip()),
            (Some(found), None) => found.ip().to_string(),
        };
        let path = uri.path().trim_end_matches('/').to_owned();
        Ok(Self { is_http, host, path })
    }

    /// Whether it is not encrypted.
    pub fn is_http(&self) -> bool {
        self.is_http
    }

    /// The host and the port, for tools that want no scheme.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// The URL.
    pub fn url(&self) -> String {
        let scheme = if self.is_http { "http" } else { "https" };
        format!("{scheme}://{}{}", self.host, self.path)
    }
}

/// The address that a name stands for. Of several, the first that answers: `localhost` has two, and a gateway may listen
/// on one of them.
async fn address(name: &str, port: u16) -> Option<SocketAddr> {
    let found = timeout(LOOKED_UP_WITHIN, lookup_host((name, port))).await.ok()?.ok()?;
    let mut found: Vec<_> = found.collect();
    // Some tools do not read addresses of version 6.
    found.sort_by_key(SocketAddr::is_ipv6);
    found.truncate(ADDRESSES_MAX);
    if found.len() > 1 {
        for address in &found {
            if let Ok(Ok(_connection)) = timeout(ANSWERS_WITHIN, TcpStream::connect(address)).await
            {
                return Some(*address);
            }
        }
    }
    found.first().copied()
}

#[cfg(test)]
mod tests {
    use super::Endpoint;

    #[tokio::test]
    async fn names_become_addresses_where_nothing_is_encrypted() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        for (said, url, host) in [
            (format!("http://localhost:{port}"), format!("http://127.0.0.1:{port}"), None),
            (format!("http://localhost:{port}/"), format!("http://127.0.0.1:{port}"), None),
            ("http://10.1.2.3:9000".to_owned(), "http://10.1.2.3:9000".to_owned(), None),
            ("http://[::1]:9000".to_owned(), "http://[::1]:9000".to_owned(), Some("[::1]:9000")),
            ("https://gateway/s3/".to_owned(), "https://gateway/s3".to_owned(), Some("gateway")),
            ("https://localhost:9000".to_owned(), "https://localhost:9000".to_owned(), None),
            ("https://s3.example".to_owned(), "https://s3.example".to_owned(), Some("s3.example")),
            // What is not found stays.
            ("http://none.invalid:9000".to_owned(), "http://none.invalid:9000".to_owned(), None),
        ] {
            let endpoint = Endpoint::of(&said).await.expect("an endpoint");
            assert_eq!(endpoint.url(), url, "{said}");
            assert_eq!(endpoint.is_http(), said.starts_with("http:"));
            if let Some(host) = host {
                assert_eq!(endpoint.host(), host);
            }
        }
        for said in ["", "localhost:9000", "ftp://localhost", "/locks", "http://"] {
            Endpoint::of(said).await.expect_err(said);
        }
    }
}
