//! What S3 callers ask for, done by the engine. A file for each kind of request.

mod buckets;
mod complete;
mod copy;
mod delete;
mod fixed;
mod get;
mod list;
mod multipart;
mod put;
mod uploads;
mod write;

use axum::body::Body;
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use axum::response::{IntoResponse as _, Response};
use fence_core::ResourceName;
use fencegate_access::Action;
use fencegate_s3::code::S3Code;
use fencegate_s3::key::Rights;
use fencegate_s3::operation::Operation;
use fencegate_s3::xml::write::Owner;

use super::Front;
use super::answer::XML;
use super::caller::Caller;
use super::failure::Failure;
use crate::engine::access::{Permit, Want};
use crate::http::identify::while_allowed;
use crate::http::middleware::RequestId;

/// A request whose caller is known.
pub struct Call {
    /// What it reaches.
    pub front: Front,
    /// Who asks.
    pub caller: Caller,
    /// Its head.
    pub parts: Parts,
    /// Its headers, with those that a presigned URL carries.
    pub headers: HeaderMap,
}

impl Call {
    /// Asks for leave to do something to a resource.
    async fn may_on(&self, action: Action, resource: &ResourceName) -> Result<Permit, Failure> {
        Ok(self.caller.asks.may_on(action, resource).await?)
    }

    /// Asks for leave to see something.
    async fn may(&self, want: Want) -> Result<(), Failure> {
        Ok(self.caller.asks.may(want).await?)
    }

    /// Asks for leave to make and delete buckets, which no lock's key has.
    async fn may_rule(&self) -> Result<Permit, Failure> {
        let is_lock = self.caller.fence.is_some();
        let is_open = !self.caller.asks.is_ruled();
        if is_lock || (is_open && self.caller.rights != Rights::Admin) {
            return Err(S3Code::AccessDenied.into());
        }
        self.may(Want::All(Action::Admin, String::new())).await?;
        Ok(self.caller.asks.permit())
    }

    fn request_id(&self) -> String {
        RequestId::of(&self.parts.extensions).to_owned()
    }
}

/// Does what is asked for. A read is held against the rules once more before a byte of its answer is sent: they may have
/// changed since. A body that takes its time ends once it is not allowed any more.
pub async fn carry_out(call: Call, operation: Operation, body: Body) -> Result<Response, Failure> {
    let asks = call.caller.asks.clone();
    let reads = [axum::http::Method::GET, axum::http::Method::HEAD].contains(&call.parts.method);
    let answered = match operation {
        Operation::PutObject(put) => put::put(call, *put, body).await,
        Operation::GetObject(get) | Operation::HeadObject(get) => get::get(call, get).await,
        Operation::GetObjectAttributes(asked) => get::attributes(call, asked).await,
        Operation::DeleteObject(delete) => delete::one(call, delete).await,
        Operation::DeleteObjects(bucket) => delete::many(call, bucket, body).await,
        Operation::CopyObject(copy) => copy::object(call, *copy).await,
        Operation::ListObjects(asked) => list::objects(call, asked).await,
        Operation::ListObjectsV2(asked) => list::objects_v2(call, asked).await,
        Operation::CreateMultipartUpload(begin) => multipart::begin(call, *begin).await,
        Operation::UploadPart(part) => multipart::part(call, part, body).await,
        Operation::UploadPartCopy(part) => copy::part(call, *part).await,
        Operation::CompleteMultipartUpload(complete) => {
            complete::complete(call, complete, body).await
        }
        Operation::AbortMultipartUpload(upload) => multipart::abort(call, upload).await,
        Operation::ListParts(asked) => multipart::parts(call, asked).await,
        Operation::ListMultipartUploads(asked) => uploads::list(call, asked).await,
        Operation::ListBuckets(asked) => buckets::list(call, asked).await,
        Operation::CreateBucket(bucket) => buckets::make(call, bucket, body).await,
        Operation::DeleteBucket(bucket) => buckets::drop(call, bucket).await,
        Operation::HeadBucket(bucket) => buckets::head(call, bucket).await,
        Operation::GetBucketLocation(bucket) => fixed::location(call, bucket).await,
        Operation::GetBucketVersioning(bucket) => fixed::versioning(call, bucket).await,
        Operation::GetBucketAcl(bucket) => fixed::bucket_acl(call, bucket).await,
        Operation::GetObjectAcl(object) => fixed::object_acl(call, object).await,
        Operation::GetObjectTagging(object) => fixed::tagging(call, object).await,
    };
    if !reads {
        return answered;
    }
    let answer = answered?;
    asks.confirm().await?;
    Ok(while_allowed(asks, answer))
}

/// A document.
fn xml(document: String) -> Response {
    let mut response = document.into_response();
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, XML);
    response
}

/// An answer without a body.
fn bare(status: StatusCode) -> Response {
    let mut response = Response::default();
    *response.status_mut() = status;
    response
}

/// The one owner that S3 callers are told of all there is.
fn owner() -> Owner {
    Owner { id: "fencegate".into(), display_name: "fencegate".into() }
}

/// A header of an answer whose value is plain ASCII.
fn set(headers: &mut HeaderMap, name: &'static str, value: impl std::fmt::Display) {
    if let Ok(value) = HeaderValue::try_from(value.to_string()) {
        headers.insert(HeaderName::from_static(name), value);
    }
}
