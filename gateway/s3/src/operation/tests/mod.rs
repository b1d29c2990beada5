//! Requests, as clients send them and as they should not.

mod clients;
mod refused;
mod values;

use http::{HeaderMap, HeaderName, HeaderValue, Method};

use super::{Operation, Query, read_operation};
use crate::address::Address;
use crate::code::{S3Code, S3Error};

/// A request: method, target, and headers, one a line.
fn read(method: &str, target: &str, headers: &str) -> Result<Operation, S3Error> {
    let (path, query) =
        target.split_once('?').map_or((target, None), |(path, query)| (path, Some(query)));
    let mut map = HeaderMap::new();
    for line in headers.lines().map(str::trim).filter(|line| !line.is_empty()) {
        let (name, value) = line.split_once(':').unwrap();
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value.trim().as_bytes()).unwrap());
    }
    let query = Query::parse(query)?;
    let headers = query.headers(&map)?;
    let method = Method::from_bytes(method.as_bytes()).unwrap();
    read_operation(&method, Address::read(None, path, None)?, &query, &headers)
}

fn code(method: &str, target: &str, headers: &str) -> S3Code {
    match read(method, target, headers) {
        Ok(operation) => panic!("{method} {target} was taken as {operation:?}"),
        Err(error) => error.code,
    }
}
