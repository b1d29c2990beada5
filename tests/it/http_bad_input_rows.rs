//! The table of bad inputs: what is sent, and the status and code of the answer. Requests name
//! tokens as `{live}`, `{stale}`, `{released}`, `{other}` (live on another resource) and `{never}`.

/// A bad input.
pub struct Row {
    /// What is wrong with it.
    pub name: &'static str,
    /// Its bytes, with placeholders.
    pub request: String,
    /// The status of its answer.
    pub status: u16,
    /// The code of its answer.
    pub code: &'static str,
    /// Whether the gateway must close the connection after the answer.
    pub closes: bool,
    /// Whether the caller sends no more bytes; then an answer may be missing.
    pub hangs_up: bool,
}

/// All rows.
pub fn rows() -> Vec<Row> {
    let mut rows = Vec::new();
    for table in [
        tokens(),
        conditions(),
        resources(),
        keys(),
        bodies(),
        framing(),
        locks(),
        watching(),
        marks(),
        terms(),
        fences(),
        feed(),
    ] {
        rows.extend(table);
    }
    rows
}

fn row(name: &'static str, request: impl Into<String>, status: u16, code: &'static str) -> Row {
    let request = request.into();
    Row { name, request, status, code, closes: false, hangs_up: false }
}

/// A put of one byte with these header lines.
fn put(lines: &str) -> String {
    put_at("/resources/live/objects/new", lines)
}

fn put_at(path: &str, lines: &str) -> String {
    format!("PUT {path} HTTP/1.1\r\nHost: test\r\n{lines}Content-Length: 1\r\n\r\nx")
}

/// A put of one byte with this token.
fn token(value: &str) -> String {
    put(&format!("X-Fence-Token: {value}\r\n"))
}

/// A put of one byte with the live token and these header lines.
fn live(lines: &str) -> String {
    put(&format!("X-Fence-Token: {{live}}\r\n{lines}"))
}

fn tokens() -> Vec<Row> {
    let malformed = |name, value: &str| row(name, token(value), 400, "fence-token-malformed");
    let lines = |name, lines| row(name, put(lines), 400, "fence-token-malformed");
    let missing = |name, request: String| row(name, request, 428, "fence-token-missing");
    let head = "PUT /resources/live/objects/new HTTP/1.1\r\nHost: test\r\n";
    vec![
        missing("1: no token", put("")),
        malformed("2: an empty token", ""),
        malformed("2: a token of spaces", "   "),
        lines("3: two equal lines", "X-Fence-Token: {live}\r\nX-Fence-Token: {live}\r\n"),
        lines("4: two different lines", "X-Fence-Token: {live}\r\nX-Fence-Token: {stale}\r\n"),
        lines("4: two lines in two cases", "X-Fence-Token: {live}\r\nx-fence-token: {live}\r\n"),
        malformed("5: a list", "5, 9"),
        malformed("5: a list of one token", "{live},{live}"),
        malformed("7: a plus", "+{live}"),
        malformed("8: minus one", "-1"),
        malformed("8: minus zero", "-0"),
        malformed("9: zero", "0"),
        malformed("10: leading zeros", "00{live}"),
        malformed("11: hexadecimal", "0x21"),
        malformed("11: an exponent", "1e3"),
        malformed("11: an underscore", "1_000"),
        malformed("11: a fraction", "{live}.0"),
        malformed("12: Arabic digits", "٣"),
        malformed("12: fullwidth digits", "５"),
        malformed("12: a superscript", "²"),
        malformed("12: quotes", "\"{live}\""),
        row("13: the highest number", token("9223372036854775807"), 403, "fence-token-unknown"),
        malformed("14: 2^63", "9223372036854775808"),
        malformed("14: 2^64-1", "18446744073709551615"),
        malformed("14: 40 digits", &"9".repeat(40)),
        row("14: a megabyte of digits", token(&"9".repeat(1 << 20)), 431, "headers-too-large"),
        row("15: NUL", token("{live}\0"), 400, "request-malformed"),
        row("15: a carriage return", token("{live}\r5"), 400, "request-malformed"),
        row("15: a folded line", token("{live}\r\n 5"), 400, "request-malformed"),
        row(
            "16: a space before the colon",
            put("X-Fence-Token : {live}\r\n"),
            400,
            "request-malformed",
        ),
        missing("17: underscores", put("X_Fence_Token: {live}\r\n")),
        missing(
            "18: a trailer",
            format!(
                "{head}Transfer-Encoding: chunked\r\nTrailer: X-Fence-Token\r\n\r\n\
                 1\r\nx\r\n0\r\nX-Fence-Token: {{live}}\r\n\r\n"
            ),
        ),
        missing("19: a cookie", put("Cookie: X-Fence-Token={live}\r\n")),
        missing("19: a body", format!("{head}Content-Length: 23\r\n\r\nX-Fence-Token: 12345678")),
        row("20: superseded", token("{stale}"), 412, "fence-token-stale"),
        row("21: never granted", token("{never}"), 403, "fence-token-unknown"),
        row("22: of another resource", token("{other}"), 403, "fence-token-unknown"),
        row(
            "25: released",
            put_at("/resources/released/objects/new", "X-Fence-Token: {released}\r\n"),
            412,
            "fence-token-released",
        ),
        row(
            "a resource that was never locked",
            put_at("/resources/nowhere/objects/new", "X-Fence-Token: {live}\r\n"),
            403,
            "fence-token-unknown",
        ),
    ]
}

fn conditions() -> Vec<Row> {
    let bad = |name, lines: &str| row(name, live(lines), 400, "request-malformed");
    let kept = "/resources/live/objects/kept";
    let reused = |name, path: &str| {
        let lines = "X-Fence-Token: {live}\r\nIdempotency-Key: used\r\n";
        row(name, put_at(path, lines), 422, "idempotency-key-reused")
    };
    vec![
        row(
            "30: the last sequence again",
            live("X-Fence-Seq: 5\r\n"),
            409,
            "sequence-out-of-order",
        ),
        row("31: a lower sequence", live("X-Fence-Seq: 4\r\n"), 409, "sequence-out-of-order"),
        bad("32: a sequence above 2^63-1", "X-Fence-Seq: 9223372036854775808\r\n"),
        bad("32: a negative sequence", "X-Fence-Seq: -1\r\n"),
        bad("32: two sequences", "X-Fence-Seq: 6\r\nX-Fence-Seq: 7\r\n"),
        reused("34: a used key with another body", kept),
        reused("34: a used key on another object", "/resources/live/objects/new"),
        bad("36: two idempotency keys", "Idempotency-Key: a\r\nIdempotency-Key: b\r\n"),
        bad("36: an empty idempotency key", "Idempotency-Key:\r\n"),
        bad("36: a long idempotency key", &format!("Idempotency-Key: {}\r\n", "k".repeat(256))),
        bad("36: a tab in an idempotency key", "Idempotency-Key: a\tb\r\n"),
        row("37: another version", live("If-Match: \"g0-v99\"\r\n"), 412, "version-mismatch"),
        row(
            "37: it exists",
            put_at(kept, "X-Fence-Token: {live}\r\nIf-None-Match: *\r\n"),
            412,
            "version-mismatch",
        ),
        row(
            "37: another version of the resource",
            live("X-If-Resource-Version: 99\r\n"),
            412,
            "version-mismatch",
        ),
        bad("a lock id that is none", "X-Lock-Id: 1\r\n"),
        row("the id of another lock", live("X-Lock-Id: {other-id}\r\n"), 403, "lock-id-mismatch"),
    ]
}

fn resources() -> Vec<Row> {
    let bad = |name, resource: &str| {
        let path = format!("/resources/{resource}/objects/new");
        row(name, put_at(&path, "X-Fence-Token: {live}\r\n"), 400, "resource-name-invalid")
    };
    vec![
        bad("38: two dots", ".."),
        bad("38: one dot", "."),
        bad("38: encoded dots", "%2e%2E"),
        bad("39: an encoded slash", "a%2Fb"),
        bad("39: an encoded slash in lower case", "a%2fb"),
        bad("39: an encoded backslash", "a%5cb"),
        bad("41: NUL", "%00"),
        bad("41: NUL inside", "a%00b"),
        bad("42: not UTF-8", "%ff%fe"),
        bad("43: an accent", "%C3%A9"),
        bad("43: a combining accent", "e%CC%81"),
        bad("43: a fullwidth letter", "%EF%BC%A1"),
        bad("43: a ligature", "%EF%AC%81"),
        bad("44: a bidi mark", "a%E2%80%AEb"),
        bad("44: a joiner", "a%E2%80%8Db"),
        bad("44: a soft hyphen", "a%C2%ADb"),
        bad("45: 257 bytes", &"x".repeat(257)),
        bad("46: encoded twice", "%252e%252e"),
        bad("47: a space at the end", "a%20"),
        bad("a broken escape", "a%2"),
        bad("an escape that is none", "a%zz"),
    ]
}

fn keys() -> Vec<Row> {
    let at = |key: &str| {
        let path = format!("/resources/live/objects/{key}");
        put_at(&path, "X-Fence-Token: {live}\r\n")
    };
    let bad = |name, key: &str| row(name, at(key), 400, "object-key-invalid");
    vec![
        bad("38: two dots", ".."),
        bad("38: two dots inside", "a/../b"),
        bad("38: encoded dots", "a/%2e%2e/b"),
        bad("38: one dot", "./a"),
        bad("39: an encoded slash", "a%2Fb"),
        bad("40: an empty segment", "a//b"),
        bad("40: a slash at the start", "/a"),
        bad("40: a slash at the end", "a/"),
        bad("41: NUL", "%00"),
        bad("41: NUL inside", "a%00b"),
        bad("41: a line feed", "a%0Ab"),
        bad("42: not UTF-8", "%ff%fe"),
        bad("43: not in NFC", "e%CC%81"),
        bad("44: a bidi mark", "a%E2%80%AEb"),
        bad("44: a joiner", "a%E2%80%8Db"),
        bad("44: a soft hyphen", "a%C2%ADb"),
        bad("45: 1025 bytes", &"x".repeat(1025)),
        bad("a broken escape", "a%2"),
        row("an unencoded space", at("a b"), 400, "request-malformed"),
        row("a query that is unknown", at("new?x=1"), 400, "query-malformed"),
        row("19: a token in the query", at("new?X-Fence-Token={live}"), 400, "query-malformed"),
        row("a long path", at(&"x/".repeat(5000)), 414, "uri-too-long"),
    ]
}

fn bodies() -> Vec<Row> {
    let head =
        "PUT /resources/live/objects/new HTTP/1.1\r\nHost: test\r\nX-Fence-Token: {live}\r\n";
    let chunk = format!("400\r\n{}\r\n", "x".repeat(1024));
    vec![
        row(
            "49: a long body that is only announced",
            format!("{head}Content-Length: 1025\r\n\r\n"),
            413,
            "payload-too-large",
        ),
        row(
            "49: a body of terabytes",
            format!("{head}Content-Length: 9999999999999\r\n\r\n"),
            413,
            "payload-too-large",
        ),
        row(
            "50: a long body in chunks",
            format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunk}{chunk}0\r\n\r\n"),
            413,
            "payload-too-large",
        ),
        Row {
            hangs_up: true,
            ..row(
                "51: a body that ends early",
                format!("{head}Content-Length: 100\r\n\r\nxxx"),
                400,
                "request-malformed",
            )
        },
        Row {
            hangs_up: true,
            ..row(
                "51: chunks that end early",
                format!("{head}Transfer-Encoding: chunked\r\n\r\n10\r\nxxx"),
                400,
                "request-malformed",
            )
        },
        row(
            "56: a body that stalls",
            format!("{head}Content-Length: 100\r\n\r\nxxx"),
            408,
            "request-timeout",
        ),
        row(
            "61: a compressed body",
            format!("{head}Content-Encoding: gzip\r\nContent-Length: 1\r\n\r\nx"),
            415,
            "unsupported-media-type",
        ),
    ]
}

fn framing() -> Vec<Row> {
    let head =
        "PUT /resources/live/objects/new HTTP/1.1\r\nHost: test\r\nX-Fence-Token: {live}\r\n";
    let bad = |name, request: String| row(name, request, 400, "request-malformed");
    let chunked = "Transfer-Encoding: chunked\r\n";
    let end = "\r\n1\r\nx\r\n0\r\n\r\n";
    vec![
        Row {
            closes: true,
            ..bad("52: two lengths", format!("{head}Content-Length: 11\r\n{chunked}{end}"))
        },
        Row {
            closes: true,
            ..bad("52: two lengths, turned", format!("{head}{chunked}Content-Length: 11\r\n{end}"))
        },
        bad("53: two different lengths", live("Content-Length: 2\r\n")),
        bad("53: a negative length", format!("{head}Content-Length: -1\r\n\r\nx")),
        bad("53: a length with a plus", format!("{head}Content-Length: +1\r\n\r\nx")),
        bad("53: an unknown coding", format!("{head}Transfer-Encoding: xchunked\r\n{end}")),
        bad("53: a chunk size that is none", format!("{head}{chunked}\r\nzz\r\nx\r\n0\r\n\r\n")),
        bad(
            "54: another host in the request line",
            put_at("http://evil/resources/live/objects/new", "X-Fence-Token: {live}\r\n"),
        ),
        bad(
            "55: no host",
            "PUT /resources/live/objects/new HTTP/1.1\r\nX-Fence-Token: {live}\r\n\
             Content-Length: 1\r\n\r\nx"
                .to_owned(),
        ),
        bad("55: two hosts", live("Host: other\r\n")),
        bad("not HTTP", "\u{16}\u{3}\u{1}\r\n\r\n".to_owned()),
        bad("a version that is none", head.replace("HTTP/1.1", "HTTP/9.9") + "\r\n"),
        row(
            "many headers",
            live(&(0..500).map(|n| format!("X-{n}: 1\r\n")).collect::<String>()),
            431,
            "headers-too-large",
        ),
    ]
}

fn locks() -> Vec<Row> {
    let post = |body: &str| {
        format!(
            "POST /locks HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let bad = |name, body: &str| row(name, post(body), 400, "body-malformed");
    let ttl = |name, ttl: &str| bad(name, &format!(r#"{{"resource":"fresh","ttl":{ttl}}}"#));
    vec![
        bad("a list instead of an object", r#"["fresh"]"#),
        bad("a list instead of an object, after spaces", " \n[\"fresh\"]"),
        bad("a wait without unit in a body", r#"{"resource":"fresh","wait":"5"}"#),
        bad("a long wait in a body", r#"{"resource":"fresh","wait":"50001ms"}"#),
        bad("a wait as a number", r#"{"resource":"fresh","wait":5}"#),
        ttl("62: a ttl of nothing", "\"0s\""),
        ttl("62: a ttl that is negative", "\"-1s\""),
        ttl("62: a short ttl", "\"999ms\""),
        ttl("62: a long ttl", "\"25h\""),
        ttl("62: a ttl that overflows", "\"99999999999999999999s\""),
        ttl("62: a ttl without unit", "\"30\""),
        ttl("62: a ttl as a number", "30"),
        ttl("62: zero", "0"),
        ttl("62: an exponent", "1e12"),
        ttl("62: NaN", "NaN"),
        ttl("62: a word", "\"soon\""),
        ttl("infinite in capitals", "\"Infinite\""),
        ttl("infinite with a space", "\" infinite\""),
        bad("an unknown field", r#"{"resource":"fresh","tll":"30s"}"#),
        bad("a field twice", r#"{"resource":"fresh","resource":"fresh2"}"#),
        bad("no resource", "{}"),
        bad("not an object", "[]"),
        bad("nothing", ""),
        bad("half of it", r#"{"resource":"#),
        bad("something after it", r#"{"resource":"fresh"} x"#),
        bad("deeply nested", &"[".repeat(10_000)),
        bad("a resource with a slash", r#"{"resource":"a/b"}"#),
        bad("NUL in the resource", r#"{"resource":"a\u0000b"}"#),
        bad("NUL in the owner", r#"{"resource":"fresh","owner":"a\u0000b"}"#),
        bad("a lone surrogate", r#"{"resource":"fresh","owner":"\ud800"}"#),
        bad("a long owner", &format!(r#"{{"resource":"fresh","owner":"{}"}}"#, "o".repeat(257))),
        bad("an id that is none", r#"{"resource":"fresh","id":"1"}"#),
        row(
            "JSON under another type",
            post(r#"{"resource":"fresh"}"#).replace("application/json", "text/plain"),
            415,
            "unsupported-media-type",
        ),
    ]
}

fn watching() -> Vec<Row> {
    let get = |path: &str| format!("GET /locks/{path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let look = |name, query: &str| {
        row(name, get(&format!("{{other-id}}?{query}")), 400, "query-malformed")
    };
    let unknown = "67e55044-10b1-426f-9247-bb680e5fe0c8";
    let absent =
        |name, path: &str| row(name, get(&format!("{unknown}{path}")), 404, "lock-not-found");
    vec![
        look("a wait without unit", "wait=5"),
        look("an empty wait", "wait="),
        look("a long wait", "wait=50001ms"),
        look("a wait that is negative", "wait=-1s"),
        look("a wait that overflows", "wait=99999999999999999999s"),
        look("a wait of NaN", "wait=NaNs"),
        look("a wait for ever", "wait=infinite"),
        look("two waits", "wait=1s&wait=2s"),
        look("a word that is none", "wait=1s&since=soon"),
        look("a word in capitals", "wait=1s&since=LEASED"),
        look("an empty word", "since="),
        look("two words", "since=leased&since=expired"),
        look("an unknown parameter of a look", "since=leased&until=expired"),
        row("a query on events", get("{other-id}/events?wait=1s"), 400, "query-malformed"),
        row("events of an id that is none", get("1/events"), 400, "request-malformed"),
        absent("waiting for an unknown lock", "?wait=50s"),
        absent("waiting for another word of an unknown lock", "?wait=50s&since=leased"),
        absent("events of an unknown lock", "/events"),
    ]
}

/// The feed of committed writes, and the history of a resource.
fn feed() -> Vec<Row> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: test\r\n\r\n");
    let stream = |lines: &str| {
        format!("GET /events HTTP/1.1\r\nHost: test\r\nAccept: text/event-stream\r\n{lines}\r\n")
    };
    let feed =
        |name, query: &str| row(name, get(&format!("/events?{query}")), 400, "query-malformed");
    let versions = |name, query: &str| {
        row(name, get(&format!("/resources/live/versions?{query}")), 400, "query-malformed")
    };
    let id = |name, id: &str| {
        row(name, stream(&format!("Last-Event-ID: {id}\r\n")), 400, "request-malformed")
    };
    vec![
        feed("an empty place", "after="),
        feed("a place that is a number", "after=17"),
        feed("a place without number", "after=g0-"),
        feed("a place with a sign", "after=g0-%2B1"),
        feed("a place below zero", "after=g0--1"),
        feed("a place that overflows", "after=g0-9223372036854775808"),
        feed("a place with a zero ahead", "after=g00-1"),
        feed("a place of Arabic digits", "after=g0-%D9%A3"),
        feed("two places", "after=g0-0&after=g0-0"),
        feed("no events", "limit=0"),
        feed("many events", "limit=1001"),
        feed("a wait for events that is long", "wait=51s"),
        feed("a wait for events for ever", "wait=infinite"),
        feed("a wait for events without unit", "wait=5"),
        feed("a cursor of another list", "cursor=g0-0"),
        row("a place not reached", get("/events?after=g0-999999"), 410, "events-cursor-void"),
        row("a place of another generation", get("/events?after=g7-0"), 410, "events-cursor-void"),
        id("an id that is a number", "17"),
        id("an id with a letter", "g0-x"),
        row(
            "two ids",
            stream("Last-Event-ID: g0-0\r\nLast-Event-ID: g0-0\r\n"),
            400,
            "request-malformed",
        ),
        row(
            "events by another method",
            "DELETE /events HTTP/1.1\r\nHost: test\r\n\r\n".to_owned(),
            405,
            "method-not-allowed",
        ),
        versions("a version that is none", "cursor=x"),
        versions("version zero", "cursor=0"),
        versions("a version that overflows", "cursor=9223372036854775808"),
        versions("many versions", "limit=1001"),
        versions("versions with a bad prefix", "prefix=a%00"),
        versions("versions of an unknown parameter", "since=1"),
        row(
            "versions of what was never locked",
            get("/resources/nowhere/versions"),
            404,
            "resource-not-found",
        ),
        row(
            "versions of a bad name",
            get("/resources/a%2Fb/versions"),
            400,
            "resource-name-invalid",
        ),
    ]
}

/// Freeze and protect; all on a resource that must stay writable.
fn marks() -> Vec<Row> {
    let post = |path: &str, body: &str| {
        format!(
            "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            body.len()
        )
    };
    let freeze = |body: &str| post("/resources/live/freeze", body);
    let bad = |name, body: &str| row(name, freeze(body), 400, "body-malformed");
    let good = r#"{"reason":"x"}"#;
    let long = format!(r#"{{"reason":"{}"}}"#, "x".repeat(1025));
    vec![
        bad("a freeze without reason", "{}"),
        bad("a freeze for nothing", r#"{"reason":""}"#),
        bad("a freeze for a number", r#"{"reason":1}"#),
        bad("a freeze for null", r#"{"reason":null}"#),
        bad("a freeze with a long reason", &long),
        bad("NUL in a reason", r#"{"reason":"a\u0000b"}"#),
        bad("a line feed in a reason", r#"{"reason":"a\nb"}"#),
        bad("a freeze with an unknown field", r#"{"reason":"x","after":"1s"}"#),
        bad("a freeze with two reasons", r#"{"reason":"x","reason":"y"}"#),
        bad("a freeze with half a body", r#"{"reason":"#),
        bad("a freeze without body", ""),
        row(
            "a freeze under another type",
            freeze(good).replace("application/json", "text/plain"),
            415,
            "unsupported-media-type",
        ),
        row(
            "a freeze with a query",
            post("/resources/live/freeze?x=1", good),
            400,
            "query-malformed",
        ),
        row(
            "a freeze of a bad name",
            post("/resources/a%2Fb/freeze", good),
            400,
            "resource-name-invalid",
        ),
        row(
            "a freeze of what was never locked",
            post("/resources/nowhere/freeze", good),
            404,
            "resource-not-found",
        ),
        row(
            "a freeze by another method",
            freeze(good).replace("POST", "PUT"),
            405,
            "method-not-allowed",
        ),
        row(
            "protection without reason",
            post("/resources/live/protect", "{}"),
            400,
            "body-malformed",
        ),
        row("a thaw", post("/resources/live/thaw", good), 404, "route-not-found"),
        row(
            "an audit of an unknown action",
            "GET /audit?action=thaw HTTP/1.1\r\nHost: test\r\n\r\n",
            400,
            "query-malformed",
        ),
        row(
            "an audit of a bad name",
            "GET /audit?resource=a%2Fb HTTP/1.1\r\nHost: test\r\n\r\n",
            400,
            "query-malformed",
        ),
    ]
}

/// What a lock may be bound by or carry.
fn terms() -> Vec<Row> {
    let bad = |name, field: &str, value: &str| {
        let body = format!(r#"{{"resource":"fresh","{field}":{value}}}"#);
        row(name, json_to("/locks", &body), 400, "body-malformed")
    };
    let hold = |name, value: &str| bad(name, "max_hold", value);
    let words = |name, value: &str| bad(name, "metadata", value);
    let many: Vec<String> = (0..17).map(|n| format!("\"{n}\":\"\"")).collect();
    let large: Vec<String> = (0..5).map(|n| format!("\"{n}\":\"{}\"", "x".repeat(1000))).collect();
    vec![
        hold("a longest hold of nothing", "\"0s\""),
        hold("a short longest hold", "\"999ms\""),
        hold("a long longest hold", "\"721h\""),
        hold("a longest hold without unit", "\"30\""),
        hold("a longest hold as a number", "30"),
        hold("an infinite longest hold", "\"infinite\""),
        hold("a longest hold that overflows", "\"99999999999999999999d\""),
        words("metadata as a list", "[]"),
        words("metadata as a string", "\"x\""),
        words("metadata of numbers", r#"{"a":1}"#),
        words("metadata of objects", r#"{"a":{}}"#),
        words("metadata of null", r#"{"a":null}"#),
        words("an empty key of metadata", r#"{"":"x"}"#),
        words("a long key of metadata", &format!(r#"{{"{}":"x"}}"#, "k".repeat(65))),
        words("a control character in a key", r#"{"a\nb":"x"}"#),
        words("a C1 control character in a key", r#"{"a\u0085b":"x"}"#),
        words("a key twice", r#"{"a":"x","a":"y"}"#),
        words("NUL in a value", r#"{"a":"x\u0000"}"#),
        words("a lone surrogate in a value", r#"{"a":"\ud800"}"#),
        words("a long value", &format!(r#"{{"a":"{}"}}"#, "x".repeat(1025))),
        words("much metadata", &format!("{{{}}}", many.join(","))),
        words("large metadata", &format!("{{{}}}", large.join(","))),
        words("large once it is escaped", &format!(r#"{{"a":"{}"}}"#, "\\u0001".repeat(700))),
        bad("only_if_exists as a word", "only_if_exists", "\"yes\""),
        row(
            "only if it exists, and it does not",
            json_to("/locks", r#"{"resource":"fresh","only_if_exists":true}"#),
            404,
            "resource-not-found",
        ),
    ]
}

/// Fences without a lock, on a resource that they must not change.
fn fences() -> Vec<Row> {
    let path = "/resources/released/fence";
    let id = "\"id\":\"01234567-89ab-4def-8123-456789abcdef\"";
    let bad = |name, body: &str| row(name, json_to(path, body), 400, "body-malformed");
    let order = |name, order: &str| bad(name, &format!(r#"{{{id},"order":{order}}}"#));
    vec![
        bad("a fence without an id", "{}"),
        bad("a fence with half an id", r#"{"id":"0123"}"#),
        bad("a fence with an unknown field", &format!(r#"{{{id},"ttl":"30s"}}"#)),
        bad("force as a word", &format!(r#"{{{id},"force":"yes"}}"#)),
        bad("NUL in the owner of a fence", &format!(r#"{{{id},"owner":"a\u0000"}}"#)),
        order("an order of zero", "0"),
        order("an order below zero", "-1"),
        order("an order of 2^63", "9223372036854775808"),
        order("an order of 2^64", "18446744073709551616"),
        order("an order as a fraction", "1.5"),
        order("an order with an exponent", "1e3"),
        order("an order that is a list", "[1]"),
        order("an order that is true", "true"),
        order("an empty order", "\"\""),
        order("zero as digits", "\"0\""),
        order("2^63 as digits", "\"9223372036854775808\""),
        order("an order with a sign", "\"+1\""),
        order("an order with a zero ahead", "\"01\""),
        order("an order with a space", "\"1 \""),
        order("an order in hexadecimal", "\"0x1\""),
        order("an order of Arabic digits", "\"\u{663}\""),
        row(
            "a fence on a live lock",
            json_to("/resources/live/fence", &format!("{{{id}}}")),
            409,
            "lock-held",
        ),
        row(
            "a fence on a name that is none",
            json_to("/resources/a%20b/fence", &format!("{{{id}}}")),
            400,
            "resource-name-invalid",
        ),
    ]
}

fn json_to(path: &str, body: &str) -> String {
    format!(
        "POST {path} HTTP/1.1\r\nHost: test\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
