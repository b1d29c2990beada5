//! JSON bodies: a line with the name of the call, then the body.

use std::fmt::Debug;

use fence_core::wire::{
    AcquireRequest, BreakRequest, CommitRequest, FenceRequest, MarkRequest, RenewManyRequest,
    RenewRequest, ResolveDoubtsRequest, TransferRequest,
};
use fencegate::http::extract::parse;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::first_line;

/// What is taken is one JSON object, is the same however it is spelled, and has nothing more in it.
pub fn bodies(input: &[u8]) {
    let (call, body) = first_line(input);
    match call {
        b"acquire" => literal::<AcquireRequest>(body),
        b"renew" => literal::<RenewRequest>(body),
        b"renew-many" => literal::<RenewManyRequest>(body),
        b"transfer" => literal::<TransferRequest>(body),
        b"fence" => literal::<FenceRequest>(body),
        b"break" => literal::<BreakRequest>(body),
        b"mark" => literal::<MarkRequest>(body),
        b"resolve" => literal::<ResolveDoubtsRequest>(body),
        b"commit" => literal::<CommitRequest>(body),
        _ => {}
    }
}

fn literal<T: DeserializeOwned + Debug>(body: &[u8]) {
    let Ok(taken) = parse::<T>(body) else { return };
    let shown = format!("{taken:?}");
    let same = |text: &[u8]| {
        let again = parse::<T>(text).map(|again| format!("{again:?}"));
        assert_eq!(again.ok().as_ref(), Some(&shown), "{}", String::from_utf8_lossy(text));
    };
    let value: Value = serde_json::from_slice(body).unwrap();
    let Value::Object(fields) = &value else { panic!("{value} was taken") };
    same(&serde_json::to_vec(&value).unwrap());
    same(&serde_json::to_vec_pretty(&value).unwrap());
    same(&[b" \t\r\n", body, b"\n"].concat());

    let refused = |text: &[u8]| {
        assert!(parse::<T>(text).is_err(), "{}", String::from_utf8_lossy(text));
    };
    refused(&[body, b"{}"].concat());
    refused(&[body, b"x"].concat());
    refused(&[b"[", body, b"]"].concat());
    let mut more = fields.clone();
    more.insert("tll".into(), Value::Null);
    refused(&serde_json::to_vec(&more).unwrap());
    // A field that comes twice would be read in two ways.
    let plain = serde_json::to_string(&value).unwrap();
    for (name, field) in fields {
        let twice =
            format!("{},{}:{field}}}", &plain[..plain.len() - 1], Value::from(name.clone()));
        refused(twice.as_bytes());
    }
}
