//! Bodies of S3 in XML: a line with what the body is of, then the body.

use fencegate_s3::address::check_key;
use fencegate_s3::xml::read::{
    OBJECTS_MAX, PARTS_MAX, complete_multipart_upload, create_bucket, delete_objects,
};
use fencegate_s3::xml::write::{DeleteOutcome, delete_result};

use crate::first_line;

/// What is taken lies within its bounds, has nothing behind it and no document type; and a key that is told in an answer
/// is read as it was.
pub fn s3_bodies(input: &[u8]) {
    let (call, body) = first_line(input);
    let taken = match call {
        b"delete" => delete_objects(body).map(|read| {
            assert!((1..=OBJECTS_MAX).contains(&read.objects.len()));
            read.objects.iter().for_each(|object| told(&object.key));
        }),
        b"complete" => complete_multipart_upload(body).map(|parts| {
            assert!((1..=PARTS_MAX).contains(&parts.len()));
            assert!(parts.iter().all(|part| (1..=10_000).contains(&part.number.get())));
        }),
        b"bucket" => create_bucket(body).map(|location| assert!(location.as_deref() != Some(""))),
        _ => return,
    };
    if taken.is_err() || body.trim_ascii().is_empty() {
        return;
    }
    let refused = |body: &[u8]| match call {
        b"delete" => delete_objects(body).is_err(),
        b"complete" => complete_multipart_upload(body).is_err(),
        _ => create_bucket(body).is_err(),
    };
    assert!(refused(&[body, b"x"].concat()) && refused(&[body, b"<x/>"].concat()));
    assert!(refused(&[b"<!DOCTYPE x>", body].concat()));
}

fn told(key: &str) {
    check_key(key).unwrap();
    let answer = delete_result(&[DeleteOutcome { key: key.to_owned(), refusal: None }], false);
    // An answer names its objects as a request does, in other elements. No key has such a tag: it would be escaped.
    let tags = [
        ("<DeleteResult ", "<Delete "),
        ("</DeleteResult>", "</Delete>"),
        ("<Deleted>", "<Object>"),
        ("</Deleted>", "</Object>"),
    ];
    let request = tags.iter().fold(answer, |text, (from, to)| text.replace(from, to));
    let read = delete_objects(request.as_bytes()).unwrap();
    assert_eq!(read.objects[0].key, key);
}
