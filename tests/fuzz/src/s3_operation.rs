//! What an S3 request asks for: a line `METHOD target`, then its headers.

use axum::http::{HeaderMap, Method};
use fencegate_s3::about::About;
use fencegate_s3::address::{Address, check_key};
use fencegate_s3::operation::{Operation, PAGE_MAX, Query, continuation_token, read_operation};

use crate::{first_line, header_lines};

/// A read never asks for a write; numbers lie within their bounds; what is kept with an object comes back as it was; a
/// token is taken as it was made.
pub fn s3_operation(input: &[u8]) {
    let (line, rest) = first_line(input);
    let Some((method, target)) =
        std::str::from_utf8(line).ok().and_then(|line| line.split_once(' '))
    else {
        return;
    };
    let Ok(method) = Method::from_bytes(method.as_bytes()) else { return };
    let (path, raw) =
        target.split_once('?').map_or((target, None), |(path, raw)| (path, Some(raw)));
    let (headers, _) = header_lines(rest);
    let (Ok(address), Ok(query)) = (Address::read(None, path, None), Query::parse(raw)) else {
        return;
    };
    let Ok(headers) = query.headers(&headers) else { return };
    let Ok(operation) = read_operation(&method, address, &query, &headers) else { return };
    let reads = ["List", "Head", "Get"].iter().any(|start| operation.name().starts_with(start));
    assert_eq!(reads, method == Method::GET || method == Method::HEAD, "{operation:?}");
    match operation {
        Operation::ListObjects(list) => assert!(list.scope.max_items <= PAGE_MAX),
        Operation::ListObjectsV2(list) => {
            assert!(
                list.scope.max_items <= PAGE_MAX && list.scope.delimiter.as_deref() != Some("")
            );
            let again = list.continue_after.as_deref().map(continuation_token);
            assert_eq!(again, list.continuation_token);
        }
        Operation::GetObject(get) => assert!(get.part.is_none() || get.range.is_none()),
        Operation::PutObject(put) => kept(&put.description.about),
        Operation::CopyObject(copy) => {
            check_key(&copy.source.object.key).unwrap();
            let itself = copy.source.object == copy.object && copy.source.version.is_none();
            assert!(!itself || copy.description.is_some());
        }
        Operation::UploadPart(part) => assert!((1..=10_000).contains(&part.part.get())),
        _ => {}
    }
}

fn kept(about: &About) {
    let json = about.to_json().unwrap();
    assert_eq!(About::from_json(json.as_deref()).unwrap(), *about);
    let mut headers = HeaderMap::new();
    about.write(&mut headers);
    for (name, value) in &about.meta {
        assert_eq!(headers[&format!("x-amz-meta-{name}")].as_bytes(), value.as_bytes());
    }
}
