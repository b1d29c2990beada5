//! What is asked for cannot be had: documents that are none, uploads that are not there, parts that do not fit, conditions
//! that fail, and what S3 has and the gateway does not.

use fence_tests::s3::{Key, Request, list_of_parts};
use reqwest::Method;

use super::refused::{Row, refuse_all, row};
use super::rig::{A, R, Site};
use crate::setup::{SetUp, on_both};

on_both!(what_is_not_there_is_refused);

const XML: (u16, &str) = (400, "MalformedXML");
const NO_UPLOAD: (u16, &str) = (404, "NoSuchUpload");
const NOT_THERE: (u16, &str) = (501, "NotImplemented");
const ARGUMENT: (u16, &str) = (400, "InvalidArgument");
const FAILED: (u16, &str) = (412, "PreconditionFailed");

/// An upload with two parts that are each too small to be followed by another.
struct Upload {
    id: String,
    tags: Vec<String>,
    /// Another upload, of another object.
    other: String,
}

fn sign(site: &Site, key: &Key, request: Request, what: &str, told: (u16, &'static str)) -> Row {
    row(what, request.sign(site.s3, key), told)
}

fn documents(site: &Site, key: &Key, upload: &Upload) -> Vec<Row> {
    let bomb = {
        let more: String = (1..10)
            .map(|it| format!("<!ENTITY a{it} \"{}\">", format!("&a{};", it - 1).repeat(10)))
            .collect();
        format!(
            "<!DOCTYPE Delete [<!ENTITY a0 \"x\">{more}]><Delete><Object><Key>&a9;</Key></Object></Delete>"
        )
    };
    let file = "<!DOCTYPE Delete [<!ENTITY a SYSTEM \"file:///etc/passwd\">]><Delete><Object><Key>&a;</Key></Object></Delete>";
    let many: String = "<Object><Key>r/a</Key></Object>".repeat(1001);
    let deep = format!("<Delete>{}{}</Delete>", "<a>".repeat(100_000), "</a>".repeat(100_000));
    let mut rows = Vec::new();
    for (what, text) in [
        ("a bomb of entities", bomb.as_str()),
        ("an entity that is a file", file),
        ("nothing", ""),
        ("no XML", "r/a"),
        ("half of a document", "<Delete><Object><Key>r/a</Key>"),
        ("two documents", "<Delete><Object><Key>r/a</Key></Object></Delete><Delete/>"),
        ("another document", "<Remove><Object><Key>r/a</Key></Object></Remove>"),
        ("an entity that is not declared", "<Delete><Object><Key>r/&a;</Key></Object></Delete>"),
        ("a list of none", "<Delete></Delete>"),
        ("a list of too many", &format!("<Delete>{many}</Delete>")),
        ("an object without a key", "<Delete><Object></Object></Delete>"),
        ("elements without end", &deep),
    ] {
        let delete = Request::new(Method::POST, "/lake").word("delete").body(text.to_owned());
        rows.push(sign(site, key, delete, &format!("{what}, to delete"), XML));
        let text = text.replace("Delete>", "CompleteMultipartUpload>").replace("Object>", "Part>");
        let complete = Request::complete(A, &upload.id, &[]).body(text);
        rows.push(sign(site, key, complete, &format!("{what}, to complete"), XML));
    }
    let long = " ".repeat(9 << 20);
    let delete = Request::new(Method::POST, "/lake").word("delete").body(long);
    rows.push(sign(
        site,
        key,
        delete,
        "a document that is too long",
        (400, "MaxMessageLengthExceeded"),
    ));
    rows
}

fn uploads(site: &Site, key: &Key, upload: &Upload) -> Vec<Row> {
    let Upload { id, tags, other } = upload;
    let never = "0190d4a7-0000-4000-8000-000000000000";
    let complete = |id: &str, tags: &[String]| Request::complete(A, id, tags);
    let named = |list: &str| complete(id, &[]).body(list.to_owned());
    let part =
        |number: &str| Request::put(A, "x").query("partNumber", number).query("uploadId", id);
    let backwards = {
        let list = list_of_parts(tags);
        list.replace("<PartNumber>1<", "<PartNumber>3<")
    };
    let wrong_tag = [tags[1].clone(), tags[0].clone()];
    let mut rows = Vec::new();
    for (what, request, told) in [
        ("parts that are too small", complete(id, tags), (400, "EntityTooSmall")),
        ("parts in the wrong order", named(&backwards), (400, "InvalidPartOrder")),
        (
            "a part twice",
            named(&list_of_parts(&tags[..1]).replace(
                "</Complete",
                "<Part><PartNumber>1</PartNumber><ETag>x</ETag></Part></Complete",
            )),
            (400, "InvalidPartOrder"),
        ),
        ("tags of each other", complete(id, &wrong_tag), (400, "InvalidPart")),
        (
            "a part that was never sent",
            complete(id, &[tags[0].clone(), tags[1].clone(), tags[0].clone()]),
            (400, "InvalidPart"),
        ),
        ("no parts", complete(id, &[]), XML),
        (
            "another size",
            complete(id, &tags[..1]).header("x-amz-mp-object-size", "9"),
            (400, "InvalidRequest"),
        ),
        ("an upload that never was", complete(never, &tags[..1]), NO_UPLOAD),
        ("an upload with no such id", complete("../../x", &tags[..1]), NO_UPLOAD),
        ("the upload of another object", complete(other, &tags[..1]), NO_UPLOAD),
        ("an upload elsewhere", Request::complete("/lake/elsewhere/a", id, &tags[..1]), NO_UPLOAD),
        ("a part of an upload that never was", Request::part(A, never, 1, "x"), NO_UPLOAD),
        ("a part of another object's", Request::part(A, other, 1, "x"), NO_UPLOAD),
        ("an abort of one that never was", Request::abort(A, never), NO_UPLOAD),
        ("an abort of another object's", Request::abort(A, other), NO_UPLOAD),
        ("part 0", part("0"), ARGUMENT),
        ("part 10001", part("10001"), ARGUMENT),
        ("part one", part("one"), ARGUMENT),
        (
            "a part copied from nothing",
            Request::part(A, id, 1, "").header("x-amz-copy-source", "/lake/r/none"),
            (404, "NoSuchKey"),
        ),
        (
            "a part copied from beyond the end",
            Request::part(A, id, 1, "")
                .header("x-amz-copy-source", A)
                .header("x-amz-copy-source-range", "bytes=0-999"),
            ARGUMENT,
        ),
        (
            "a completion that must find nothing",
            complete(id, &tags[..1]).header("if-none-match", "*"),
            FAILED,
        ),
        (
            "a completion that must find another",
            complete(id, &tags[..1]).header("if-match", "\"g0-v999\""),
            FAILED,
        ),
    ] {
        rows.push(sign(site, key, request, what, told));
    }
    rows
}

fn asked(site: &Site, key: &Key) -> Vec<Row> {
    let put = || Request::put(A, "after");
    let long = format!("/lake/r/{}", "k".repeat(1025));
    let mut rows = Vec::new();
    for (what, request, told) in [
        (
            "too much metadata",
            put().header("x-amz-meta-a", &"m".repeat(9000)),
            (400, "MetadataTooLarge"),
        ),
        ("a key that is too long", Request::put(&long, "x"), (400, "KeyTooLongError")),
        ("a segment that names no resource", Request::put("/lake/a:b/x", "x"), ARGUMENT),
        ("another bucket", Request::put("/none/r/a", "x"), (404, "NoSuchBucket")),
        (
            "a name that is no bucket's",
            Request::put("/No_Bucket/r/a", "x"),
            (400, "InvalidBucketName"),
        ),
        ("what must not be there", put().header("if-none-match", "*"), FAILED),
        ("what must be another", put().header("if-match", "\"g0-v999\""), FAILED),
        (
            "what must be there",
            Request::put("/lake/r/none", "x").header("if-match", "*"),
            (404, "NoSuchKey"),
        ),
        ("a delete of another", Request::delete(A).header("if-match", "\"g0-v999\""), FAILED),
        ("a copy of nothing", Request::copy(A, "/lake/r/none"), (404, "NoSuchKey")),
        (
            "a copy of another",
            Request::copy(A, "/lake/r/b").header("x-amz-copy-source-if-match", "\"g0-v999\""),
            FAILED,
        ),
        ("a copy from no bucket", Request::copy(A, "/none/r/b"), (404, "NoSuchBucket")),
        ("a subresource", put().word("acl"), NOT_THERE),
        ("tags", put().word("tagging"), NOT_THERE),
        ("a subresource of tomorrow", put().word("tomorrow"), NOT_THERE),
        ("two subresources", put().word("acl").word("tagging"), ARGUMENT),
        ("a delete of a subresource", Request::delete(A).word("tagging"), NOT_THERE),
        ("a delete of a policy", Request::delete("/lake").word("policy"), NOT_THERE),
        ("encryption", put().header("x-amz-server-side-encryption", "AES256"), NOT_THERE),
        (
            "encryption with a key of the caller's",
            put().header("x-amz-server-side-encryption-customer-algorithm", "AES256"),
            NOT_THERE,
        ),
        ("a lock of the object", put().header("x-amz-object-lock-mode", "COMPLIANCE"), NOT_THERE),
        ("an ACL", put().header("x-amz-acl", "public-read"), NOT_THERE),
        ("a part of the object", put().header("content-range", "bytes 0-4/5"), NOT_THERE),
        ("an append", put().header("x-amz-write-offset-bytes", "6"), NOT_THERE),
        ("a delete of a version", Request::delete(A).query("versionId", "\"g0-v1\""), NOT_THERE),
        ("a bucket's delete", Request::delete("/lake"), (403, "AccessDenied")),
        ("a new bucket", Request::put("/sea", ""), (403, "AccessDenied")),
        ("a form", Request::new(Method::POST, "/lake").body("x"), (405, "MethodNotAllowed")),
        ("a method that is none", Request::new(Method::PATCH, A), (405, "MethodNotAllowed")),
        ("another host", put().header("host", "lake.s3.example.com"), (421, "HostNotServed")),
        ("a path that is none", Request { path: "/lake/%zz".into(), ..put() }, (400, "InvalidURI")),
        (
            "a token that is none",
            put().header("x-fence-token", "many"),
            (403, "FenceTokenMalformed"),
        ),
    ] {
        rows.push(sign(site, key, request, what, told));
    }
    rows
}

async fn what_is_not_there_is_refused(setup: SetUp) {
    let site = Site::start(setup).await;
    let (_lock, key) = site.lock(R, "10m").await;
    let (_elsewhere, _) = site.lock("lake:elsewhere", "10m").await;
    let reader = site.reader().await;
    site.ask(&key, Request::put(A, "before")).await;
    site.ask(&key, Request::put("/lake/r/b", "beside")).await;
    let id = site.begin(&key, A).await;
    let tags = site.send_parts(&key, A, &id, &["one".into(), "two".into()]).await;
    let other = site.begin(&key, "/lake/r/other").await;
    let upload = Upload { id, tags, other };
    let mut rows = documents(&site, &key, &upload);
    rows.extend(uploads(&site, &key, &upload));
    rows.extend(asked(&site, &key));
    refuse_all(&site, &reader, rows).await;
    // An id of a call stands for one request.
    let id = "0190d4a7-1111-4111-8111-000000000000";
    site.ask(&key, Request::put("/lake/r/c", "once").call_id(id)).await;
    let (path, again) = ("/lake/r/c", (400, "IdempotencyKeyReused"));
    let rows = vec![
        sign(
            &site,
            &key,
            Request::put(path, "twice").call_id(id),
            "other bytes under its id",
            again,
        ),
        sign(&site, &key, Request::delete(path).call_id(id), "a delete under its id", again),
    ];
    refuse_all(&site, &reader, rows).await;
    site.ask(&key, Request::complete(A, &upload.id, &upload.tags[..1])).await;
}
