//! Headers on their way through: those of one connection stay there, and those that only the gateway sets are
//! removed.

use axum::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use axum::http::{Method, Version};

use super::is_fenced;
use crate::config::Credentials;
use crate::http::problem::Problem;
use crate::http::serve::Ends;

/// What a proxy must not pass on (RFC 9110, 7.6.1), with what stood in for it before.
const HOP_BY_HOP: &[&str] = &[
    "connection",
    "keep-alive",
    "proxy-connection",
    "proxy-authenticate",
    "proxy-authorization",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Ours in a request, or made anew: `X-Lock-Id` is the holder's key to its lock, which no upstream is
/// to see.
const NOT_PASSED_ON: &[&str] =
    &["host", "content-length", "expect", "x-lock-id", "x-if-resource-version", "x-request-id"];

/// What says where a request came from. Only proxies that the settings name are trusted to say so: else the upstream
/// is told what this gateway saw. With these goes all that begins with `x-forwarded-`.
const ORIGINS: &[&str] =
    &["forwarded", "x-real-ip", "x-client-ip", "x-cluster-client-ip", "true-client-ip"];

/// What the fence says to an upstream. No other header that begins with `x-fence-` goes there.
const FENCE: &[&str] = &["x-fence-token", "x-fence-seq"];

/// What identifies a caller.
const CREDENTIALS: &[&str] = &["authorization", "cookie"];

/// Ours in an answer, or about more than this answer: upstreams share one origin, the gateway's, and none may
/// decide for it. With these go all that begin with `x-fence-` and `access-control-`.
const NOT_PASSED_BACK: &[&str] = &[
    "x-operation-id",
    "x-request-id",
    "service-worker-allowed",
    "clear-site-data",
    "alt-svc",
    "nel",
    "report-to",
    "reporting-endpoints",
    "strict-transport-security",
    "public-key-pins",
    "content-security-policy",
    "content-security-policy-report-only",
    "cross-origin-resource-policy",
    "x-content-type-options",
];

/// Headers with which frameworks let one method stand for another.
const OVERRIDES: &[&str] = &["x-http-method-override", "x-http-method", "x-method-override"];

/// Headers with which frameworks let one path stand for another: the fenced path would not be the one that
/// is acted on.
const REWRITES: &[&str] = &["x-original-url", "x-rewrite-url"];

/// What the fence and this gateway say of a request to the upstream.
const SAID: &[&str] = &["idempotency-key", "via"];

/// Refuses what would get past the fence, or needs more than requests and answers.
///
/// # Errors
/// The problem to answer with.
pub fn refuse_tricks(method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
    let upgrade = listed(headers, &header::CONNECTION).any(|name| name == "upgrade");
    if upgrade || headers.contains_key(header::UPGRADE) {
        let why =
            "upgrades such as WebSocket are not forwarded: nobody could fence what they carry";
        return Err(Problem::malformed(why));
    }
    if !is_fenced(method) && OVERRIDES.iter().any(|name| headers.contains_key(*name)) {
        let why = "a method that needs no token must not stand for another one";
        return Err(Problem::malformed(why));
    }
    if let Some(name) = REWRITES.iter().find(|name| headers.contains_key(**name)) {
        let why = format!("{name} is not forwarded: a path must not stand for another one");
        return Err(Problem::malformed(why));
    }
    if let Some(name) = headers.keys().find(|name| is_disguised(name)) {
        let why =
            format!("{name} is not forwarded: servers that read '_' as '-' take it for another");
        return Err(Problem::malformed(why));
    }
    Ok(())
}

/// Whether servers that read `_` as `-`, as CGI and its heirs do, would take it for a header that is
/// decided on here.
fn is_disguised(name: &HeaderName) -> bool {
    if !name.as_str().contains('_') {
        return false;
    }
    let read = name.as_str().replace('_', "-");
    let decided = [HOP_BY_HOP, NOT_PASSED_ON, ORIGINS, SAID, OVERRIDES, REWRITES];
    decided.iter().any(|list| list.contains(&read.as_str()))
        || ["x-forwarded-", "x-fence-"].iter().any(|begin| read.starts_with(begin))
}

/// The headers of a request as the upstream gets them. The fence's own are named again, so that no
/// `Connection` header drops them on the way.
pub fn to_upstream(
    headers: &HeaderMap,
    version: Version,
    ends: Option<&Ends>,
    request_id: HeaderValue,
    authorization: &Credentials,
) -> HeaderMap {
    let trusted = ends.is_some_and(|ends| ends.is_trusted);
    let mut passed = end_to_end(headers, |name| {
        NOT_PASSED_ON.contains(&name)
            || (!trusted && is_origin(name))
            || (name.starts_with("x-fence-") && !FENCE.contains(&name))
            || (*authorization != Credentials::Pass && CREDENTIALS.contains(&name))
    });
    for name in ["x-fence-token", "x-fence-seq", "idempotency-key"] {
        if let (Some(value), Ok(name)) = (headers.get(name), name.parse::<HeaderName>()) {
            passed.insert(name, value.clone());
        }
    }
    via(&mut passed, version);
    saw(&mut passed, headers.get(header::HOST), ends);
    passed.insert(HeaderName::from_static("x-request-id"), request_id);
    passed
}

fn is_origin(name: &str) -> bool {
    ORIGINS.contains(&name) || name.starts_with("x-forwarded-")
}

/// Says what this gateway saw of where a request came from, after what a trusted proxy has said already.
fn saw(passed: &mut HeaderMap, host: Option<&HeaderValue>, ends: Option<&Ends>) {
    if let Some(peer) = ends.and_then(|ends| ends.peer) {
        let mut hops: Vec<String> = passed
            .get_all("x-forwarded-for")
            .iter()
            .map(|line| String::from_utf8_lossy(line.as_bytes()).into_owned())
            .collect();
        hops.push(peer.ip().to_canonical().to_string());
        if let Ok(hops) = HeaderValue::try_from(hops.join(", ")) {
            passed.insert("x-forwarded-for", hops);
        }
    }
    if let Some(host) = host {
        passed.entry("x-forwarded-host").or_insert_with(|| host.clone());
    }
    let proto = if ends.is_some_and(|ends| ends.is_secured) { "https" } else { "http" };
    passed.entry("x-forwarded-proto").or_insert(HeaderValue::from_static(proto));
}

/// The headers of an answer as the caller gets them.
pub(super) fn to_caller(
    headers: &HeaderMap,
    version: Version,
    authorization: &Credentials,
) -> HeaderMap {
    let mut passed = end_to_end(headers, |name| {
        NOT_PASSED_BACK.contains(&name)
            || name.starts_with("x-fence-")
            || name.starts_with("access-control-")
            || (*authorization != Credentials::Pass && name == "set-cookie")
    });
    via(&mut passed, version);
    passed
}

/// Without what belongs to the connection, what `Connection` names, and what is `dropped`.
fn end_to_end(headers: &HeaderMap, dropped: impl Fn(&str) -> bool) -> HeaderMap {
    let named: Vec<String> = listed(headers, &header::CONNECTION).collect();
    let stays = |name: &HeaderName| {
        let name = name.as_str();
        !HOP_BY_HOP.contains(&name) && !dropped(name) && !named.iter().any(|one| one == name)
    };
    let mut passed = HeaderMap::with_capacity(headers.len() + 4);
    for (name, value) in headers.iter().filter(|(name, _)| stays(name)) {
        passed.append(name.clone(), value.clone());
    }
    passed
}

/// The members of a header that is a list, in lower case.
fn listed<'h>(headers: &'h HeaderMap, name: &HeaderName) -> impl Iterator<Item = String> + use<'h> {
    let lines = headers.get_all(name).into_iter();
    lines
        .filter_map(|line| line.to_str().ok())
        .flat_map(|line| line.split(','))
        .map(|member| member.trim().to_ascii_lowercase())
}

fn via(headers: &mut HeaderMap, version: Version) {
    let version = if version == Version::HTTP_10 { "1.0 fencegate" } else { "1.1 fencegate" };
    headers.append(header::VIA, HeaderValue::from_static(version));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::peers::Proxies;

    fn map(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in lines {
            map.append(*name, HeaderValue::from_static(value));
        }
        map
    }

    fn passed(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        passed_from(&Proxies::default(), lines)
    }

    fn passed_from(proxies: &Proxies, lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let peer = "[::ffff:10.0.0.9]:1".parse().ok();
        let ends = Ends::of(peer, None, proxies);
        let id = HeaderValue::from_static("r1");
        to_upstream(&map(lines), Version::HTTP_11, Some(&ends), id, &Credentials::Strip)
    }

    #[test]
    fn a_proxy_that_is_trusted_says_where_a_request_came_from() {
        let said = [
            ("host", "gate:8080"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-forwarded-for", "192.0.2.2"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-port", "443"),
            ("forwarded", "for=192.0.2.1"),
            ("x-real-ip", "192.0.2.1"),
            ("x-lock-id", "secret"),
        ];
        let headers = passed_from(&Proxies::new(["10.0.0.0/8".parse().unwrap()]), &said);
        assert_eq!(headers["x-forwarded-for"], "192.0.2.1, 192.0.2.2, 10.0.0.9");
        assert_eq!(headers.get_all("x-forwarded-for").iter().count(), 1);
        assert_eq!(headers["x-forwarded-proto"], "https");
        assert_eq!(headers["x-forwarded-port"], "443");
        assert_eq!(headers["x-forwarded-host"], "gate:8080");
        assert_eq!(
            (&headers["forwarded"], &headers["x-real-ip"]),
            (&"for=192.0.2.1".parse().unwrap(), &"192.0.2.1".parse().unwrap())
        );
        assert!(!headers.contains_key("x-lock-id"));
        let headers = passed_from(&Proxies::new(["10.1.0.0/16".parse().unwrap()]), &said);
        assert_eq!(headers["x-forwarded-for"], "10.0.0.9");
        assert_eq!(headers["x-forwarded-proto"], "http");
        for gone in ["x-forwarded-port", "forwarded", "x-real-ip"] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
    }

    #[test]
    fn an_upstream_is_told_whether_the_caller_came_by_tls() {
        let ends = Ends::of("10.0.0.9:1".parse().ok(), None, &Proxies::default());
        for (is_secured, proto) in [(true, "https"), (false, "http")] {
            let ends = Ends { is_secured, ..ends };
            let id = HeaderValue::from_static("r1");
            let strip = Credentials::Strip;
            let headers = to_upstream(&map(&[]), Version::HTTP_11, Some(&ends), id, &strip);
            assert_eq!(headers["x-forwarded-proto"], proto);
        }
    }

    #[test]
    fn what_belongs_to_a_connection_stays_there() {
        let headers = passed(&[
            ("host", "gate:8080"),
            ("connection", "close, X-Private"),
            ("x-private", "a"),
            ("te", "trailers"),
            ("transfer-encoding", "chunked"),
            ("content-length", "3"),
            ("expect", "100-continue"),
            ("proxy-authorization", "b"),
            ("authorization", "c"),
            ("cookie", "d"),
            ("x-lock-id", "secret"),
            ("via", "1.0 other"),
            ("x-forwarded-for", "10.0.0.1"),
            ("x-forwarded-host", "evil.example"),
            ("x-forwarded-proto", "https"),
            ("x-forwarded-user", "root"),
            ("forwarded", "for=10.0.0.1"),
            ("x-real-ip", "10.0.0.1"),
            ("x-fence-principal", "root"),
        ]);
        for gone in [
            "host",
            "connection",
            "x-private",
            "te",
            "transfer-encoding",
            "content-length",
            "expect",
            "proxy-authorization",
            "authorization",
            "cookie",
            "x-lock-id",
            "x-forwarded-user",
            "forwarded",
            "x-real-ip",
            "x-fence-principal",
        ] {
            assert!(!headers.contains_key(gone), "{gone}");
        }
        let all =
            |name| headers.get_all(name).iter().map(|v| v.to_str().unwrap()).collect::<Vec<_>>();
        assert_eq!(all("via"), ["1.0 other", "1.1 fencegate"]);
        assert_eq!(all("x-forwarded-for"), ["10.0.0.9"]);
        assert_eq!(all("x-forwarded-host"), ["gate:8080"]);
        assert_eq!(all("x-forwarded-proto"), ["http"]);
        assert_eq!(headers["x-request-id"], "r1");
    }

    #[test]
    fn no_connection_header_drops_the_fence() {
        let headers = passed(&[
            ("connection", "x-fence-token, idempotency-key"),
            ("x-fence-token", "7"),
            ("idempotency-key", "k"),
            ("x-fence-seq", "3"),
        ]);
        assert_eq!(headers["x-fence-token"], "7");
        assert_eq!(headers["idempotency-key"], "k");
        assert_eq!(headers["x-fence-seq"], "3");
    }

    #[test]
    fn credentials_pass_where_the_settings_say_so() {
        let sent = map(&[("authorization", "c"), ("cookie", "d"), ("x-real-ip", "10.0.0.1")]);
        let id = HeaderValue::from_static("r1");
        let headers = to_upstream(&sent, Version::HTTP_11, None, id, &Credentials::Pass);
        assert_eq!(
            (&headers["authorization"], &headers["cookie"]),
            (&sent["authorization"], &sent["cookie"])
        );
        assert!(!headers.contains_key("x-real-ip"));
        let answer = map(&[("set-cookie", "e=f"), ("www-authenticate", "Basic")]);
        for (authorization, passes) in [(Credentials::Strip, false), (Credentials::Pass, true)] {
            let headers = to_caller(&answer, Version::HTTP_11, &authorization);
            assert_eq!(headers.contains_key("set-cookie"), passes, "{authorization:?}");
            assert!(headers.contains_key("www-authenticate"));
        }
    }

    #[test]
    fn an_upstream_does_not_speak_for_the_fence_nor_for_the_origin() {
        let answer = map(&[
            ("x-fence-verdict", "refused"),
            ("x-fence-token", "7"),
            ("access-control-allow-origin", "*"),
            ("service-worker-allowed", "/"),
            ("clear-site-data", "*"),
            ("alt-svc", "h3=\":1\""),
            ("strict-transport-security", "max-age=1"),
            ("set-cookie", "a=b"),
            ("content-security-policy", "script-src *"),
            ("connection", "x-b"),
            ("x-b", "1"),
            ("x-c", "2"),
        ]);
        let headers = to_caller(&answer, Version::HTTP_11, &Credentials::Strip);
        let mut left: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        left.sort_unstable();
        assert_eq!(left, ["via", "x-c"]);
    }

    #[test]
    fn upgrades_and_disguised_methods_are_refused() {
        let refused = |method, lines: &[_]| refuse_tricks(&method, &map(lines)).is_err();
        assert!(refused(Method::GET, &[("connection", "keep-alive, Upgrade")]));
        assert!(refused(Method::POST, &[("upgrade", "websocket")]));
        assert!(refused(Method::GET, &[("x-http-method-override", "DELETE")]));
        assert!(!refused(Method::POST, &[("x-http-method-override", "PATCH")]));
        assert!(!refused(Method::GET, &[("connection", "keep-alive")]));
    }

    #[test]
    fn disguised_paths_and_headers_are_refused() {
        let refused = |method, name| refuse_tricks(&method, &map(&[(name, "1")])).is_err();
        for name in [
            "x-original-url",
            "x-rewrite-url",
            "x_original_url",
            "x_fence_token",
            "x-fence_token",
            "x_fence-seq",
            "idempotency_key",
            "x_lock_id",
            "x-if-resource_version",
            "x_request_id",
            "x_forwarded_for",
            "x_forwarded_port",
            "x_real_ip",
            "x_fence_principal",
            "x_http_method_override",
            "x-http_method",
            "transfer_encoding",
            "content_length",
        ] {
            assert!(refused(Method::GET, name) && refused(Method::POST, name), "{name}");
        }
        for name in ["x-fence-token", "x_own", "x_fence", "x-original-uri", "my_x-fence-token"] {
            assert!(!refused(Method::POST, name), "{name}");
        }
    }
}
