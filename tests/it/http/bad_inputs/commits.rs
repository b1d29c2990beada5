//! Bad commits: their lists, their parts and what they are under.

use super::row::{Row, row};

const LIST: &str = r#"{"operations":[{"op":"put","resource":"live","key":"new","body":"b"}]}"#;

/// A commit with these header lines and this body, whose boundary is `XX`.
fn commit(lines: &str, body: &str) -> String {
    format!(
        "POST /commit HTTP/1.1\r\nHost: localhost\r\n{lines}Content-Type: multipart/form-data; \
         boundary=XX\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn part(name: &str, headers: &str, body: &str) -> String {
    let disposition = format!("Content-Disposition: form-data; name=\"{name}\"\r\n");
    format!("--XX\r\n{disposition}{headers}\r\n{body}\r\n")
}

fn listed(list: &str) -> String {
    part("operations", "Content-Type: application/json\r\n", list)
}

/// A whole body with this list and one byte.
fn form(list: &str) -> String {
    format!("{}{}--XX--\r\n", listed(list), part("b", "", "x"))
}

/// A commit with the live token.
fn live(body: &str) -> String {
    commit("X-Fence-Token: {live}\r\n", body)
}

pub fn rows() -> Vec<Row> {
    [headers(), lists(), parts()].into_iter().flatten().collect()
}

fn headers() -> Vec<Row> {
    let bad = |name, lines: &str| {
        let lines = format!("X-Fence-Token: {{live}}\r\n{lines}");
        row(name, commit(&lines, &form(LIST)), 400, "request-malformed")
    };
    let token = |name, token: &str, status, code| {
        row(name, commit(&format!("X-Fence-Token: {token}\r\n"), &form(LIST)), status, code)
    };
    let typed = |name, content_type: &str| {
        let request = live(&form(LIST)).replace("multipart/form-data; boundary=XX", content_type);
        row(name, request, 415, "unsupported-media-type")
    };
    let get = "GET /commit HTTP/1.1\r\nHost: localhost\r\n\r\n";
    vec![
        row("a commit without a token", commit("", &form(LIST)), 428, "fence-token-missing"),
        token("a commit with zero", "0", 400, "fence-token-malformed"),
        token("a commit with a stale token", "{stale}", 412, "fence-token-stale"),
        token("a commit with a token never granted", "{never}", 403, "fence-token-unknown"),
        token("a commit with a token of another resource", "{other}", 403, "fence-token-unknown"),
        bad("a commit with a condition in a header", "If-Match: *\r\n"),
        bad("a commit with a version in a header", "X-If-Resource-Version: 1\r\n"),
        bad("a commit with two keys", "Idempotency-Key: a\r\nIdempotency-Key: b\r\n"),
        row(
            "a commit under the id of another lock",
            commit("X-Fence-Token: {live}\r\nX-Lock-Id: {other-id}\r\n", &form(LIST)),
            403,
            "lock-id-mismatch",
        ),
        row(
            "a commit under a used key",
            commit("X-Fence-Token: {live}\r\nIdempotency-Key: used\r\n", &form(LIST)),
            422,
            "idempotency-key-reused",
        ),
        row(
            "a commit with the last sequence again",
            commit("X-Fence-Token: {live}\r\nX-Fence-Seq: 5\r\n", &form(LIST)),
            409,
            "sequence-out-of-order",
        ),
        row(
            "a commit with a query",
            live(&form(LIST)).replace("/commit", "/commit?a=b"),
            400,
            "query-malformed",
        ),
        typed("a commit in JSON", "application/json"),
        typed("a commit without a boundary", "multipart/form-data"),
        typed("a commit in mixed parts", "multipart/mixed; boundary=XX"),
        row("a commit that is got", get, 405, "method-not-allowed"),
    ]
}

fn lists() -> Vec<Row> {
    let bad = |name, list: &str| row(name, live(&form(list)), 400, "body-malformed");
    let with = |name, field: &str| {
        bad(name, &LIST.replace(r#""body":"b""#, &format!(r#""body":"b",{field}"#)))
    };
    let many = |count: usize| {
        let one = |key| format!(r#"{{"op":"delete","resource":"live","key":"{key}"}}"#);
        format!(r#"{{"operations":[{}]}}"#, (0..count).map(one).collect::<Vec<_>>().join(","))
    };
    let spread: Vec<_> = (0..33)
        .map(|name| format!(r#"{{"op":"delete","resource":"r{name}","key":"k"}}"#))
        .collect();
    let twice = r#"{"op":"delete","resource":"live","key":"k"}"#;
    vec![
        bad("a list that is no JSON", "{"),
        bad("a list without operations", r#"{"operations":[]}"#),
        bad("a list that is a list", "[]"),
        bad("a list of too many operations", &many(1001)),
        bad("a list of too many resources", &format!(r#"{{"operations":[{}]}}"#, spread.join(","))),
        bad("an object twice", &format!(r#"{{"operations":[{twice},{twice}]}}"#)),
        bad("a put without a body", &LIST.replace(r#","body":"b""#, "")),
        bad(
            "an operation as a list",
            r#"{"operations":[["put","live","new","b",null,null,null]]}"#,
        ),
        bad("an operation that is an object", &LIST.replace(r#""put""#, r#"{"put":null}"#)),
        bad("an unknown operation", &LIST.replace("put", "delete_all")),
        bad("a delete with a body", &LIST.replace("put", "delete")),
        row(
            "a resource that is no name",
            live(&form(&LIST.replace("live", "a/b"))),
            400,
            "resource-name-invalid",
        ),
        row(
            "a key that is none",
            live(&form(&LIST.replace("new", "a//b"))),
            400,
            "object-key-invalid",
        ),
        with("an unknown field", r#""ttl":1"#),
        with("a tag without quotes", r#""if_match":"g0-v1""#),
        with("both conditions", r#""if_match":"*","if_none_match":"*""#),
        with("a tag that must not be there", r#""if_none_match":"\"g0-v1\"""#),
        with("an empty content type", r#""content_type":"""#),
        with("a content type with a line end", r#""content_type":"a\r\nb""#),
        bad(
            "a version below zero",
            r#"{"operations":[{"op":"delete","resource":"live","key":"k"}],"versions":{"live":-1}}"#,
        ),
        row(
            "a version that is another",
            live(&format!(
                "{}--XX--",
                listed(
                    r#"{"operations":[{"op":"delete","resource":"live","key":"k"}],
                        "versions":{"live":99}}"#
                )
            )),
            412,
            "version-mismatch",
        ),
        Row {
            closes: true,
            ..row(
                "a list of more than a megabyte",
                live(&format!("{}{}", listed(&" ".repeat(1_100_000)), "--XX--")),
                413,
                "payload-too-large",
            )
        },
    ]
}

fn parts() -> Vec<Row> {
    let bad = |name, body: &str| row(name, live(body), 400, "body-malformed");
    let b = || part("b", "", "x");
    vec![
        bad("an empty form", "--XX--\r\n"),
        bad("no form at all", "x"),
        bad("text before the first part", &format!("text\r\n{}", form(LIST))),
        bad("text behind the last part", &format!("{}text", form(LIST))),
        bad("a form without its end", &format!("{}{}", listed(LIST), b())),
        bad("a missing body", &format!("{}--XX--", listed(LIST))),
        bad("a body twice", &format!("{}{}{}--XX--", listed(LIST), b(), b())),
        bad("a body that nobody names", &format!("{}{}--XX--", listed(LIST), part("c", "", "x"))),
        bad("a body before the list", &format!("{}{}--XX--", b(), listed(LIST))),
        bad("a list twice", &format!("{}{}{}--XX--", listed(LIST), listed(LIST), b())),
        bad("a part without a name", &form(LIST).replace("; name=\"b\"", "")),
        bad("a name with spaces", &form(LIST).replace("\"operations\"", "\" operations \"")),
        bad("empty parameters", &form(LIST).replace("; name=\"b\"", ";;; name=\"b\"")),
        bad("a name in another way", &form(LIST).replace("\"b\"", "\"b\"; name*=utf-8''c")),
        bad("a part with two names", &form(LIST).replace("name=\"b\"", "name=b; name=b")),
        bad("a part with a large head", &form(LIST).replace("name=\"b\"", &"x".repeat(20_000))),
        row(
            "a list that does not say that it is JSON",
            live(&form(LIST).replace("application/json", "text/plain")),
            415,
            "unsupported-media-type",
        ),
        row(
            "a body with another digest",
            live(&format!(
                "{}{}--XX--",
                listed(LIST),
                part("b", "Content-MD5: XUFAKrxLKna5cZ2REBfFkg==\r\n", "x")
            )),
            400,
            "digest-mismatch",
        ),
        row(
            "a body that is too large",
            live(&format!("{}{}--XX--", listed(LIST), part("b", "", &"x".repeat(2000)))),
            413,
            "payload-too-large",
        ),
        row(
            "a commit that stalls",
            live(&form(LIST)).replace("Content-Length: ", "Content-Length: 9"),
            408,
            "request-timeout",
        ),
        Row {
            hangs_up: true,
            ..row(
                "a commit that ends early",
                live(&form(LIST)).replace("Content-Length: ", "Content-Length: 9"),
                400,
                "request-malformed",
            )
        },
    ]
}
