//! The body of a commit (CC29): a first part with the list of operations, then the bodies in its order.

use bytes::Bytes;

/// The head of a part, with the boundary before it.
pub fn head(
    boundary: &str,
    is_first: bool,
    name: &str,
    content_type: &str,
    digest: Option<&str>,
) -> Bytes {
    let mut head = String::with_capacity(256);
    if !is_first {
        head.push_str("\r\n");
    }
    head.push_str("--");
    head.push_str(boundary);
    head.push_str("\r\nContent-Disposition: form-data; name=\"");
    head.push_str(name);
    head.push_str("\"\r\nContent-Type: ");
    head.push_str(content_type);
    if let Some(digest) = digest {
        head.push_str("\r\nRepr-Digest: ");
        head.push_str(digest);
    }
    head.push_str("\r\n\r\n");
    Bytes::from(head)
}

/// What follows the last part.
pub fn tail(boundary: &str) -> Bytes {
    Bytes::from(format!("\r\n--{boundary}--\r\n"))
}

/// The header of the whole.
pub fn content_type(boundary: &str) -> String {
    format!("multipart/form-data; boundary={boundary}")
}
