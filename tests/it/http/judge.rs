//! The judge of answers, judged: what `openapi.yaml` does not declare must be caught.

use fence_tests::spec::Spec;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderValue};

const CONTRACT: &str = r##"
openapi: 3.1.0
paths:
  /locks:
    post:
      responses:
        "201":
          headers:
            Location: { required: true, schema: { type: string } }
          content:
            application/json: { schema: { $ref: "#/components/schemas/Lock" } }
        "409": { $ref: "#/components/responses/Held" }
  /resources/{resource}/objects/{key}:
    get:
      responses:
        "200": { content: { "*/*": {} } }
        "304": {}
    delete:
      responses:
        "204": {}
components:
  responses:
    Held:
      content:
        application/problem+json:
          schema: { type: object, required: [code], properties: { code: { const: lock-held } } }
  schemas:
    Token: { type: string, pattern: "^[1-9][0-9]{0,18}$" }
    Lock:
      type: object
      required: [id, token]
      properties:
        id: { type: string, format: uuid }
        token: { $ref: "#/components/schemas/Token" }
"##;

const LOCK: &str = r#"{"id":"67e55044-10b1-426f-9247-bb680e5fe0c8","token":"7"}"#;

fn judged(call: &str, status: u16, headers: &[(&'static str, &str)], body: &str) -> bool {
    let (method, path) = call.split_once(' ').expect("a method and a path");
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.insert(*name, HeaderValue::from_str(value).expect("a header value"));
    }
    Spec::parse(CONTRACT).try_check(method, path, status, &map, body.as_bytes()).is_ok()
}

#[test]
fn declared_answers_pass() {
    let json = (CONTENT_TYPE.as_str(), "application/json; charset=utf-8");
    assert!(judged("POST /locks", 201, &[json, ("location", "/locks/1")], LOCK));
    let problem = [("content-type", "application/problem+json")];
    assert!(judged("POST /locks", 409, &problem, r#"{"code":"lock-held"}"#));
    assert!(judged("GET /resources/r/objects/a/b", 200, &[("content-type", "text/x")], "bytes"));
    assert!(judged("GET /resources/r/objects/a", 200, &[json], "not JSON, but a user's bytes"));
    assert!(judged("GET /resources/r/objects/a", 304, &[], ""));
    assert!(judged("DELETE /resources/r/objects/a", 204, &[], ""));
}

#[test]
fn undeclared_answers_are_caught() {
    let json = ("content-type", "application/json");
    let place = ("location", "/locks/1");
    let problem = ("content-type", "application/problem+json");
    for (why, passed) in [
        ("path", judged("POST /lock", 201, &[json, place], LOCK)),
        ("longer path", judged("POST /locks/x", 201, &[json, place], LOCK)),
        ("empty segment", judged("GET /resources//objects/a", 200, &[json], "x")),
        ("method", judged("PUT /locks", 201, &[json, place], LOCK)),
        ("status", judged("POST /locks", 200, &[json, place], LOCK)),
        ("content type", judged("POST /locks", 201, &[problem, place], LOCK)),
        ("no content type", judged("POST /locks", 201, &[place], LOCK)),
        ("missing header", judged("POST /locks", 201, &[json], LOCK)),
        ("missing member", judged("POST /locks", 201, &[json, place], r#"{"token":"7"}"#)),
        ("format", judged("POST /locks", 201, &[json, place], r#"{"id":"1","token":"7"}"#)),
        ("reference", judged("POST /locks", 201, &[json, place], &LOCK.replace("\"7\"", "7"))),
        ("pattern", judged("POST /locks", 201, &[json, place], &LOCK.replace("\"7\"", "\"07\""))),
        ("not JSON", judged("POST /locks", 201, &[json, place], "lock")),
        ("another problem", judged("POST /locks", 409, &[problem], r#"{"code":"lock-void"}"#)),
        ("a body with 204", judged("DELETE /resources/r/objects/a", 204, &[], "x")),
        ("a body with 304", judged("GET /resources/r/objects/a", 304, &[], "x")),
    ] {
        assert!(!passed, "not caught: {why}");
    }
}
