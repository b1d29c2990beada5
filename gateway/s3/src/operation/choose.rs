//! Which operation a request is.

use http::{HeaderMap, Method};

use super::refused::{check_headers, not_there, subresource};
use super::{
    CompleteMultipartUpload, CopyObject, CopySource, CreateMultipartUpload, DeleteObject,
    ListBuckets, ListObjects, ListObjectsV2, ListParts, ListUploads, ObjectAddress,
    ObjectAttributes, Operation, PutObject, Query, ReadObject, UploadAddress, UploadPart,
    UploadPartCopy,
};
use crate::address::Address;
use crate::bucket::BucketName;
use crate::code::{S3Code, S3Error};

/// Reads what a request asks for.
///
/// `headers` are those of [`Query::headers`], with what a presigned URL carries. Whatever asks for something that the
/// gateway does not have is refused by name: to do something else instead would be worse than to do nothing.
///
/// # Errors
/// `NotImplemented` for an operation, parameter or header that is not there, `MethodNotAllowed`, and what is said of
/// each operation's parameters.
pub fn read_operation(
    method: &Method,
    address: Address,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Operation, S3Error> {
    check_headers(method, headers)?;
    let about = subresource(method, query)?;
    match (address.bucket, address.key) {
        (None, _) => on_all(method, about, query),
        (Some(bucket), None) => on_bucket(method, bucket, about, query, headers),
        (Some(bucket), Some(key)) => {
            on_object(method, ObjectAddress { bucket, key }, about, query, headers)
        }
    }
}

fn on_all(method: &Method, about: Option<&str>, query: &Query) -> Result<Operation, S3Error> {
    match (method.as_str(), about) {
        ("GET", None) => Ok(Operation::ListBuckets(ListBuckets::read(query)?)),
        (_, Some(name)) => Err(not_there(name)),
        // Where S3 and the service of roles have one endpoint, this is how roles are asked for.
        ("POST", None) => Err(S3Error::not_implemented(
            "roles or session tokens: an access key here is a lock, which is taken by POST /locks of the native API",
        )),
        (_, None) => Err(S3Code::MethodNotAllowed.into()),
    }
}

fn on_bucket(
    method: &Method,
    bucket: BucketName,
    about: Option<&str>,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Operation, S3Error> {
    match (method.as_str(), about) {
        ("GET", None) => match query.filled("list-type") {
            None | Some("1") => Ok(Operation::ListObjects(ListObjects::read(bucket, query)?)),
            Some("2") => Ok(Operation::ListObjectsV2(ListObjectsV2::read(bucket, query)?)),
            Some(other) => Err(S3Error::argument("list-type", other, "This is 2.")),
        },
        ("GET", Some("location")) => Ok(Operation::GetBucketLocation(bucket)),
        ("GET", Some("versioning")) => Ok(Operation::GetBucketVersioning(bucket)),
        ("GET", Some("acl")) => Ok(Operation::GetBucketAcl(bucket)),
        ("GET", Some("uploads")) => {
            Ok(Operation::ListMultipartUploads(ListUploads::read(bucket, query)?))
        }
        ("HEAD", None) => Ok(Operation::HeadBucket(bucket)),
        ("PUT", None) => Ok(Operation::CreateBucket(bucket)),
        ("DELETE", None) => Ok(Operation::DeleteBucket(bucket)),
        ("POST", Some("delete")) => Ok(Operation::DeleteObjects(bucket)),
        ("POST", None) if is_form(headers) => Err(no_forms()),
        ("OPTIONS", _) => Err(S3Error::not_implemented("CORS")),
        (_, Some(name)) => Err(not_there(name)),
        (_, None) => Err(S3Code::MethodNotAllowed.into()),
    }
}

/// Whether a `POST` is the form of a browser, which is not signed as other requests are.
pub fn is_form(headers: &HeaderMap) -> bool {
    headers
        .get("content-type")
        .is_some_and(|value| value.as_bytes().starts_with(b"multipart/form-data"))
}

/// What is told of a form.
pub fn no_forms() -> S3Error {
    S3Error::not_implemented("uploads by POST of a form")
}

fn on_object(
    method: &Method,
    object: ObjectAddress,
    about: Option<&str>,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Operation, S3Error> {
    if let Some(upload) = UploadAddress::read(&object, query)? {
        return on_upload(method, upload, query, headers);
    }
    match (method.as_str(), about) {
        ("GET", None) => Ok(Operation::GetObject(ReadObject::read(object, query, headers)?)),
        ("HEAD", None) => Ok(Operation::HeadObject(ReadObject::read(object, query, headers)?)),
        ("GET", Some("attributes")) => {
            Ok(Operation::GetObjectAttributes(ObjectAttributes::read(object, query, headers)?))
        }
        ("GET", Some("tagging")) => Ok(Operation::GetObjectTagging(object)),
        ("GET", Some("acl")) => Ok(Operation::GetObjectAcl(object)),
        ("PUT", None) => {
            for name in ["partNumber", "versionId"] {
                // Without an upload this would replace the whole object by a part of it.
                if let Some(value) = query.get(name) {
                    return Err(S3Error::argument(
                        name,
                        value,
                        "This request does not take this parameter.",
                    ));
                }
            }
            match CopySource::read(headers)? {
                Some(source) => {
                    Ok(Operation::CopyObject(Box::new(CopyObject::read(object, source, headers)?)))
                }
                None => Ok(Operation::PutObject(Box::new(PutObject::read(object, headers)?))),
            }
        }
        ("DELETE", None) => {
            Ok(Operation::DeleteObject(DeleteObject::read(object, query, headers)?))
        }
        ("POST", Some("uploads")) => Ok(Operation::CreateMultipartUpload(Box::new(
            CreateMultipartUpload::read(object, headers)?,
        ))),
        ("OPTIONS", _) => Err(S3Error::not_implemented("CORS")),
        (_, Some(name)) => Err(not_there(name)),
        (_, None) => Err(S3Code::MethodNotAllowed.into()),
    }
}

fn on_upload(
    method: &Method,
    upload: UploadAddress,
    query: &Query,
    headers: &HeaderMap,
) -> Result<Operation, S3Error> {
    match method.as_str() {
        "GET" => Ok(Operation::ListParts(ListParts::read(upload, query)?)),
        "PUT" => match CopySource::read(headers)? {
            Some(source) => Ok(Operation::UploadPartCopy(Box::new(UploadPartCopy::read(
                upload, source, query, headers,
            )?))),
            None => Ok(Operation::UploadPart(UploadPart::read(upload, query, headers)?)),
        },
        "POST" => {
            Ok(Operation::CompleteMultipartUpload(CompleteMultipartUpload::read(upload, headers)?))
        }
        "DELETE" => Ok(Operation::AbortMultipartUpload(upload)),
        _ => Err(S3Code::MethodNotAllowed.into()),
    }
}
