//! `Error`, the body of every refusal.

use super::Document;
use crate::code::S3Error;

/// A refusal, and the request that it answers.
#[derive(Debug, Clone)]
pub struct Failure<'a> {
    /// What is wrong.
    pub error: &'a S3Error,
    /// The path of the request, as it was sent.
    pub resource: &'a str,
    /// The request's id, as in `x-amz-request-id`.
    pub request_id: &'a str,
    /// Which gateway answers, as in `x-amz-id-2`.
    pub host_id: &'a str,
}

/// The body of a refusal. Answers to `HEAD` and 304 have none.
pub fn error(failure: &Failure<'_>) -> String {
    Document::bare("Error", |document| {
        document.text("Code", failure.error.code.as_str());
        document.text("Message", &failure.error.message);
        for (name, value) in &failure.error.details {
            document.text(name, value);
        }
        document.text("Resource", failure.resource);
        document.text("RequestId", failure.request_id);
        document.text("HostId", failure.host_id);
    })
}
