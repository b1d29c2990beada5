//! Refuses requests from web pages. A browser sends requests to a developer's machine, or into a private
//! network, for any page that asks for it; a page whose name is made to point here (DNS rebinding) could even
//! read the answers.

use std::net::IpAddr;

use axum::extract::Request;
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, header};
use fence_core::ErrorCode;

use crate::config::HostName;
use crate::http::problem::Problem;
use crate::http::serve::Ends;

/// Under which names the gateway is reached, and whose pages may call it.
#[derive(Debug, Default)]
pub struct Doors {
    /// Names, beside those of this machine itself.
    pub server_names: Vec<HostName>,
    /// Origins whose pages may call; none by default.
    pub cors_origins: Vec<HeaderValue>,
}

/// Where a link in a log or a chat may lead: pages that hold nothing of anybody.
const LINKED: [&str; 2] = ["/docs/errors/", "/ui/"];

/// Refuses what was sent to another name, or by a page that may not.
///
/// With a `domain`, that and all names below it are ours, too.
///
/// # Errors
/// The problem to answer with.
pub fn keep_pages_out(
    request: &Request,
    doors: &Doors,
    domain: Option<&str>,
) -> Result<(), Problem> {
    if !domain.is_some_and(|domain| is_below(request, domain)) {
        host(request, doors)?;
    }
    origin(request, doors)
}

/// Whether it was sent to this domain, or to a name below it.
fn is_below(request: &Request, domain: &str) -> bool {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else { return false };
    let host = host.to_str().unwrap_or_default().to_ascii_lowercase();
    let name = host.split_once(':').map_or(&*host, |(name, _)| name);
    let below = name.strip_suffix(&domain.to_ascii_lowercase());
    below.is_some_and(|below| below.is_empty() || below.ends_with('.'))
}

/// A page can make its name point here, but no page can have a name of ours, or an address.
///
/// Without any there is no browser: it is HTTP/1.0, as of some health checks. What has two of them, or none in
/// HTTP/1.1, or one that is not that of the request line, is refused as malformed later.
fn host(request: &Request, doors: &Doors) -> Result<(), Problem> {
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (Some(_), Some(_)) => return Ok(()),
        (Some(host), None) => host.to_str().unwrap_or_default(),
        (None, _) => match request.uri().authority() {
            Some(authority) => authority.as_str(),
            None => return Ok(()),
        },
    };
    let local = request.extensions().get::<Ends>().and_then(|ends| ends.local);
    let name = host_name(host);
    if name.as_ref().is_some_and(|name| is_served(name, local, &doors.server_names)) {
        return Ok(());
    }
    let what = if name.is_some() { format!("{host:?}") } else { "what Host says".into() };
    let why = format!(
        "{what} is not among the names under which this gateway is reached; the setting server_names adds to \
         them"
    );
    Err(Problem::new(ErrorCode::HostNotServed, why))
}

fn is_served(name: &HostName, local: Option<IpAddr>, served: &[HostName]) -> bool {
    let is_local = || match (name, local) {
        (HostName::Address(named), Some(local)) => named.to_canonical() == local,
        _ => false,
    };
    name.is_loopback() || is_local() || served.contains(name)
}

/// What a `Host` header names, if it has a form that a browser or a client sends.
fn host_name(host: &str) -> Option<HostName> {
    let name_end = match host.starts_with('[') {
        true => host.find(']')? + 1,
        false => host.find(':').unwrap_or(host.len()),
    };
    let (name, port) = host.split_at(name_end);
    let digits = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit());
    let port_is_good = port.is_empty() || port.strip_prefix(':').is_some_and(digits);
    HostName::parse(name).filter(|_| port_is_good)
}

/// A page of this gateway's own may call it, and one of an origin in the settings; no other.
fn origin(request: &Request, doors: &Doors) -> Result<(), Problem> {
    let headers = request.headers();
    let mut origins = headers.get_all(header::ORIGIN).iter();
    let forbidden = |why: &str| Err(Problem::new(ErrorCode::OriginForbidden, why));
    match (origins.next(), origins.next()) {
        (Some(origin), None) if doors.cors_origins.contains(origin) => return Ok(()),
        (Some(origin), None) if is_same(origin, headers.get(header::HOST)) => {}
        (None, _) => {}
        _ => {
            return forbidden(
                "pages of this origin may not call the gateway; the setting cors_origin names those that may",
            );
        }
    }
    let says = |name: &str, word: &str| {
        headers
            .get_all(name)
            .iter()
            .any(|value| value.as_bytes().eq_ignore_ascii_case(word.as_bytes()))
    };
    let followed_a_link = request.method() == Method::GET
        && LINKED.iter().any(|linked| request.uri().path().starts_with(linked))
        && says("sec-fetch-mode", "navigate")
        && says("sec-fetch-dest", "document");
    if says("sec-fetch-site", "cross-site") && !followed_a_link {
        return forbidden("a browser says that a page of another site asks for this");
    }
    Ok(())
}

/// Whether an origin is the host that it calls, ports included.
fn is_same(origin: &HeaderValue, host: Option<&HeaderValue>) -> bool {
    let (Ok(origin), Some(Ok(host))) = (origin.to_str(), host.map(HeaderValue::to_str)) else {
        return false;
    };
    let Some((scheme, authority)) = origin.split_once("://") else { return false };
    let default = match scheme {
        "http" => ":80",
        "https" => ":443",
        _ => return false,
    };
    let host = host.strip_suffix(default).unwrap_or(host);
    host.eq_ignore_ascii_case(authority)
}

/// Keeps what a browser was given from acting as the gateway: its scripts do not run, no other site embeds it,
/// and nothing is taken for another type than it was stored with.
pub fn contain(headers: &mut HeaderMap, is_content: bool) {
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    if is_content {
        let policy = HeaderValue::from_static("sandbox; default-src 'none'");
        headers.insert(header::CONTENT_SECURITY_POLICY, policy);
        let same = HeaderValue::from_static("same-origin");
        headers.insert(HeaderName::from_static("cross-origin-resource-policy"), same);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_served_by_name_or_by_their_own_address() {
        let local: IpAddr = "10.0.0.5".parse().unwrap();
        let names = ["gate.example.com", "192.168.0.1"].map(|name| HostName::parse(name).unwrap());
        let served =
            |host: &str| host_name(host).is_some_and(|name| is_served(&name, Some(local), &names));
        for good in [
            "localhost",
            "LocalHost:8080",
            "127.0.0.1:8080",
            "127.9.9.9",
            "[::1]",
            "[::1]:8080",
            "10.0.0.5:8080",
            "Gate.Example.com:443",
            "192.168.0.1",
        ] {
            assert!(served(good), "{good}");
        }
        for bad in [
            "",
            "evil.example",
            "evil.example:8080",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "evil.localhost",
            "localhost.",
            "localhost:1@evil.example",
            "localhost@evil.example",
            "localhost:x",
            "10.0.0.6",
            "0.0.0.0",
            "0x7f.1",
            "2130706433",
            "[::ffff:127.0.0.1]",
            "::1",
            "[::1",
            "[::1]x",
            "gate.example.com.evil.example",
            "gate.example.com/",
            "localhost localhost",
        ] {
            assert!(!served(bad), "{bad}");
        }
    }

    #[test]
    fn an_origin_is_the_same_only_with_its_port() {
        let same = |origin: &'static str, host: &'static str| {
            is_same(&HeaderValue::from_static(origin), Some(&HeaderValue::from_static(host)))
        };
        assert!(same("http://localhost:8080", "localhost:8080"));
        assert!(same("https://gate.example.com", "Gate.example.com"));
        assert!(same("https://gate.example.com", "gate.example.com:443"));
        assert!(!same("http://localhost:3000", "localhost:8080"));
        assert!(!same("http://localhost", "localhost:8080"));
        assert!(!same("http://localhost:8080.evil.example", "localhost:8080"));
        assert!(!same("null", "localhost:8080"));
        assert!(!same("file://localhost:8080", "localhost:8080"));
        assert!(!is_same(&HeaderValue::from_static("http://a"), None));
    }
}
