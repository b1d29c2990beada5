//! Bad writes: their tokens, conditions, names, bodies and framing.

use super::row::{Row, row};

pub fn rows() -> Vec<Row> {
    [tokens(), conditions(), resources(), keys(), bodies(), framing()]
        .into_iter()
        .flatten()
        .collect()
}

/// A put of one byte with these header lines.
fn put(lines: &str) -> String {
    put_at("/resources/live/objects/new", lines)
}

fn put_at(path: &str, lines: &str) -> String {
    format!("PUT {path} HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Length: 1\r\n\r\nx")
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
    let head = "PUT /resources/live/objects/new HTTP/1.1\r\nHost: localhost\r\n";
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
        bad("a lock id of zeros", "X-Lock-Id: 00000000-0000-0000-0000-000000000000\r\n"),
        bad("a lock id made of time", "X-Lock-Id: c232ab00-9414-11ec-b3c8-9f6bdeced846\r\n"),
        bad("a lock id made of a name", "X-Lock-Id: 2ed6657d-e927-568b-95e1-2665a8aea6a2\r\n"),
        bad("a lock id of another variant", "X-Lock-Id: 67e55044-10b1-426f-c247-bb680e5fe0c8\r\n"),
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
        "PUT /resources/live/objects/new HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {live}\r\n";
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
        "PUT /resources/live/objects/new HTTP/1.1\r\nHost: localhost\r\nX-Fence-Token: {live}\r\n";
    let bad = |name, request: String| row(name, request, 400, "request-malformed");
    let closing = |name, request: String| Row { closes: true, ..bad(name, request) };
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
        Row { closes: true, ..bad("53: two equal lengths", live("Content-Length: 1\r\n")) },
        closing("53: chunked twice", format!("{head}{chunked}{chunked}{end}")),
        closing("53: a list", format!("{head}Transfer-Encoding: identity, chunked\r\n{end}")),
        closing(
            "53: a list of one kind",
            format!("{head}Transfer-Encoding: chunked, chunked\r\n{end}"),
        ),
        closing(
            "53: compressed and chunked",
            format!("{head}Transfer-Encoding: gzip, chunked\r\n{end}"),
        ),
        closing("53: all lines bare", live("").replace("\r\n", "\n")),
        closing("53: a bare request line", live("").replacen("\r\n", "\n", 1)),
        closing("53: a bare header", live("X-Long: {}\n".replace("{}", &"x".repeat(200)).as_str())),
        closing("53: a bare end", live("").replace("\r\n\r\n", "\r\n\n")),
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
