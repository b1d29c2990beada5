//! Bad calls other than writes: about locks, by operators, and reading what was written.

use super::row::{Row, json_to, row};

pub fn rows() -> Vec<Row> {
    [locks(), watching(), terms(), fences(), marks(), feed()].into_iter().flatten().collect()
}

fn locks() -> Vec<Row> {
    let bad = |name, body: &str| row(name, json_to("/locks", body), 400, "body-malformed");
    let no_name =
        |name, body: &str| row(name, json_to("/locks", body), 400, "resource-name-invalid");
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
        no_name("a resource with a slash", r#"{"resource":"a/b"}"#),
        no_name("NUL in the resource", r#"{"resource":"a\u0000b"}"#),
        no_name("an empty resource", r#"{"resource":""}"#),
        no_name("one of several resources", r#"{"resources":["fresh",".."]}"#),
        bad("NUL in the owner", r#"{"resource":"fresh","owner":"a\u0000b"}"#),
        bad("a lone surrogate", r#"{"resource":"fresh","owner":"\ud800"}"#),
        bad("a long owner", &format!(r#"{{"resource":"fresh","owner":"{}"}}"#, "o".repeat(257))),
        bad("an id that is none", r#"{"resource":"fresh","id":"1"}"#),
        bad(
            "an id of zeros",
            r#"{"resource":"fresh","id":"00000000-0000-0000-0000-000000000000"}"#,
        ),
        bad(
            "an id made of time",
            r#"{"resource":"fresh","id":"c232ab00-9414-11ec-b3c8-9f6bdeced846"}"#,
        ),
        bad(
            "an id made of a name",
            r#"{"resource":"fresh","id":"2ed6657d-e927-568b-95e1-2665a8aea6a2"}"#,
        ),
        bad(
            "an id without hyphens",
            r#"{"resource":"fresh","id":"67e5504410b1426f9247bb680e5fe0c8"}"#,
        ),
        row(
            "JSON under another type",
            json_to("/locks", r#"{"resource":"fresh"}"#).replace("application/json", "text/plain"),
            415,
            "unsupported-media-type",
        ),
    ]
}

fn watching() -> Vec<Row> {
    let get = |path: &str| format!("GET /locks/{path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
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
        row(
            "a look at an id made of time",
            get("c232ab00-9414-11ec-b3c8-9f6bdeced846"),
            400,
            "request-malformed",
        ),
        absent("waiting for an unknown lock", "?wait=50s"),
        absent("waiting for another word of an unknown lock", "?wait=50s&since=leased"),
        absent("events of an unknown lock", "/events"),
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

/// Freeze and protect; all on a resource that must stay writable.
fn marks() -> Vec<Row> {
    let freeze = |body: &str| json_to("/resources/live/freeze", body);
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
            json_to("/resources/live/freeze?x=1", good),
            400,
            "query-malformed",
        ),
        row(
            "a freeze of a bad name",
            json_to("/resources/a%2Fb/freeze", good),
            400,
            "resource-name-invalid",
        ),
        row(
            "a freeze of what was never locked",
            json_to("/resources/nowhere/freeze", good),
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
            json_to("/resources/live/protect", "{}"),
            400,
            "body-malformed",
        ),
        row("a thaw", json_to("/resources/live/thaw", good), 404, "route-not-found"),
        row(
            "an audit of an unknown action",
            "GET /audit?action=thaw HTTP/1.1\r\nHost: localhost\r\n\r\n",
            400,
            "query-malformed",
        ),
        row(
            "an audit of a bad name",
            "GET /audit?resource=a%2Fb HTTP/1.1\r\nHost: localhost\r\n\r\n",
            400,
            "query-malformed",
        ),
    ]
}

/// The feed of committed writes, and the history of a resource.
fn feed() -> Vec<Row> {
    let get = |path: &str| format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let stream = |lines: &str| {
        format!(
            "GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{lines}\r\n"
        )
    };
    let feed =
        |name, query: &str| row(name, get(&format!("/events?{query}")), 400, "query-malformed");
    let versions = |name, query: &str| {
        row(name, get(&format!("/resources/live/versions?{query}")), 400, "query-malformed")
    };
    let id = |name, id: &str| {
        row(name, stream(&format!("Last-Event-ID: {id}\r\n")), 400, "request-malformed")
    };
    let intents = |name, query: &str| {
        row(name, get(&format!("/admin/intents?{query}")), 400, "query-malformed")
    };
    vec![
        intents("intents of what is no name of an upstream", "upstream=a%2Fb"),
        intents("intents after an id with a sign", "cursor=%2B1"),
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
            "DELETE /events HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
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
