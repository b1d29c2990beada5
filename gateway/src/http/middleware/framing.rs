//! Rules of HTTP that the framework leaves to the application.

use axum::extract::{Request, State};
use axum::http::{HeaderMap, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use fence_core::ErrorCode;

use crate::http::problem::Problem;
use crate::http::state::{App, Limits};

/// What the connection saw of a request's framing that its headers no longer show.
#[derive(Debug, Clone, Copy)]
pub struct Framing {
    /// Its length was not said exactly once, by one `Content-Length` or by `Transfer-Encoding: chunked`
    /// alone: proxies may disagree where the body ends, which is how requests are smuggled.
    pub unclear_length: bool,
    /// The request line had a `#`. The parser drops it with all that follows, so that a key which
    /// was not percent-encoded would silently become another key.
    pub fragment: bool,
    /// A line of its head ended in a line feed without a carriage return, where proxies may disagree
    /// as well.
    pub bare_newline: bool,
    /// It is not certain where this request begins.
    pub lost: bool,
}

/// Refuses what is malformed or too large before anything else looks at it.
pub async fn check(State(app): State<App>, request: Request, next: Next) -> Response {
    match examine(&request, &app.limits) {
        Ok(()) => next.run(request).await,
        Err(problem) => problem.into_response(),
    }
}

fn examine(request: &Request, limits: &Limits) -> Result<(), Problem> {
    if let Some(framing) = request.extensions().get::<Framing>() {
        whole(*framing)?;
    }
    sizes(request.uri(), request.headers(), limits)?;
    host(request)
}

fn whole(framing: Framing) -> Result<(), Problem> {
    if framing.lost {
        let why = "the requests before this one on its connection were framed in a doubtful way";
        return Err(Problem::malformed(why).and_close());
    }
    if framing.unclear_length {
        let why =
            "send one Content-Length, or Transfer-Encoding: chunked and nothing else, but not both";
        return Err(Problem::malformed(why).and_close());
    }
    if framing.bare_newline {
        let why = "each line of a head ends with a carriage return and a line feed";
        return Err(Problem::malformed(why).and_close());
    }
    if framing.fragment {
        return Err(Problem::malformed("send a '#' in a path as %23").and_close());
    }
    Ok(())
}

fn sizes(uri: &Uri, headers: &HeaderMap, limits: &Limits) -> Result<(), Problem> {
    let path = uri.path_and_query().map_or(0, |path| path.as_str().len());
    if path > limits.uri_bytes_max {
        let why = format!("path and query may have at most {} bytes", limits.uri_bytes_max);
        return Err(Problem::new(ErrorCode::UriTooLong, why));
    }
    // Each line also has ": " and an end of line.
    let bytes: usize =
        headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
    if headers.len() > limits.headers_max || bytes > limits.header_bytes_max {
        let why = format!(
            "at most {} headers with {} bytes are taken",
            limits.headers_max, limits.header_bytes_max
        );
        return Err(Problem::new(ErrorCode::HeadersTooLarge, why));
    }
    Ok(())
}

fn host(request: &Request) -> Result<(), Problem> {
    let mut lines = request.headers().get_all(header::HOST).iter();
    let host = lines.next();
    if lines.next().is_some() {
        return Err(Problem::malformed("Host may be sent only once"));
    }
    if host.is_none() && request.version() >= Version::HTTP_11 {
        return Err(Problem::malformed("HTTP/1.1 needs a Host header"));
    }
    let (Some(authority), Some(host)) = (request.uri().authority(), host) else {
        return Ok(());
    };
    if host.as_bytes().eq_ignore_ascii_case(authority.as_str().as_bytes()) {
        return Ok(());
    }
    Err(Problem::malformed("the host in the request line is not the one in Host"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::body::Body;

    fn examined(uri: &str, headers: &[(&str, &str)]) -> Result<(), ErrorCode> {
        let mut request = Request::builder().uri(uri);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Body::empty()).unwrap();
        examine(&request, &Limits::default()).map_err(|problem| problem.code())
    }

    #[test]
    fn the_host_is_there_once_and_agrees_with_the_request_line() {
        let malformed = Err(ErrorCode::RequestMalformed);
        assert_eq!(examined("/locks", &[("host", "a")]), Ok(()));
        assert_eq!(examined("/locks", &[]), malformed);
        assert_eq!(examined("/locks", &[("host", "a"), ("host", "a")]), malformed);
        assert_eq!(examined("http://a:1/locks", &[("host", "A:1")]), Ok(()));
        assert_eq!(examined("http://evil/locks", &[("host", "a")]), malformed);
    }

    #[test]
    fn paths_and_headers_are_bounded() {
        let long = format!("/{}", "x".repeat(9000));
        assert_eq!(examined(&long, &[("host", "a")]), Err(ErrorCode::UriTooLong));
        let wide = "x".repeat(17 * 1024);
        let headers = [("host", "a"), ("x-wide", wide.as_str())];
        assert_eq!(examined("/", &headers), Err(ErrorCode::HeadersTooLarge));
        let mut many = vec![("x-many", "1"); 100];
        many.push(("host", "a"));
        assert_eq!(examined("/", &many), Err(ErrorCode::HeadersTooLarge));
    }

    #[test]
    fn what_was_dropped_closes_the_connection() {
        for at in 0..4 {
            let [unclear_length, fragment, bare_newline, lost] = [0, 1, 2, 3].map(|one| one == at);
            let framing = Framing { unclear_length, fragment, bare_newline, lost };
            let mut request = Request::builder().header("host", "a").body(Body::empty()).unwrap();
            request.extensions_mut().insert(framing);
            let response = examine(&request, &Limits::default()).unwrap_err().into_response();
            assert_eq!(response.headers()["connection"], "close");
        }
    }
}
