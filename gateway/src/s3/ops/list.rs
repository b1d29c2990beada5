//! Lists what is in a bucket.

use axum::response::Response;
use fence_core::ResourceName;
use fence_core::ports::{ListingItem, ListingPage, after_all, after_key};
use fencegate_access::Action;
use fencegate_s3::about::About;
use fencegate_s3::code::{S3Code, S3Error};
use fencegate_s3::operation::{ListObjects, ListObjectsV2, ListScope};
use fencegate_s3::xml::write::{ListedObject, ObjectsPage, list_objects, list_objects_v2};

use super::{Call, owner, xml};
use crate::engine::access::Want;
use crate::s3::failure::Failure;
use crate::s3::place;

/// `ListObjectsV2`
pub async fn objects_v2(call: Call, asked: ListObjectsV2) -> Result<Response, Failure> {
    // A token names the item that the page before ended with; where that was a common prefix, all of it is behind us.
    let from = match asked.after() {
        None => Some(String::new()),
        Some(after) => match asked.continue_after.is_some() && is_prefix(&asked.scope, after) {
            true => after_all(after),
            false => Some(after_key(after)),
        },
    };
    let page = page(&call, &asked.scope, from).await?;
    Ok(xml(list_objects_v2(&asked, &owner(), &page)))
}

/// `ListObjects`
pub async fn objects(call: Call, asked: ListObjects) -> Result<Response, Failure> {
    let from = match asked.marker.as_deref() {
        None => Some(String::new()),
        Some(marker) if is_prefix(&asked.scope, marker) => after_all(marker),
        Some(marker) => Some(after_key(marker)),
    };
    let page = page(&call, &asked.scope, from).await?;
    Ok(xml(list_objects(&asked, &owner(), &page)))
}

/// Whether it is a common prefix of this list.
pub(super) fn is_prefix(scope: &ListScope, text: &str) -> bool {
    let Some(delimiter) = scope.delimiter.as_deref() else { return false };
    let rest = text.strip_prefix(scope.prefix.as_str());
    rest.and_then(|rest| Some(rest.find(delimiter)? + delimiter.len() == rest.len()))
        .unwrap_or(false)
}

/// Asks for leave to see all keys that begin so. With enough segments they are of one resource; else of all whose names
/// begin with what there is, and of the bucket's own.
async fn may_list(call: &Call, scope: &ListScope, depth: u8) -> Result<(), Failure> {
    let mut segments: Vec<&str> = scope.prefix.split('/').collect();
    let open = segments.pop().unwrap_or_default();
    segments.truncate(usize::from(depth));
    let is_one = segments.len() == usize::from(depth);
    let named = [&[scope.bucket.as_str()], &*segments].concat().join(":");
    // What no resource can be called has no keys.
    let on = |name: &str| ResourceName::new(name).ok().map(|name| Want::On(Action::List, name));
    let wants = match is_one {
        true => [on(&named), None],
        false => {
            [on(scope.bucket.as_str()), Some(Want::All(Action::List, format!("{named}:{open}")))]
        }
    };
    for want in wants.into_iter().flatten() {
        call.may(want).await?;
    }
    Ok(())
}

/// A page of the list, and one item more, which tells whether others follow.
async fn page(
    call: &Call,
    scope: &ListScope,
    from: Option<String>,
) -> Result<ObjectsPage, Failure> {
    let (bucket, depth) = place::bucket(&call.front, &scope.bucket).await?;
    may_list(call, scope, depth.get()).await?;
    let limit = usize::from(scope.max_items);
    let mut page = ObjectsPage { objects: vec![], common_prefixes: vec![], next_after: None };
    let (Some(from), true) = (from, limit > 0) else { return Ok(page) };
    let wanted = ListingPage {
        bucket: bucket.name,
        depth: bucket.depth,
        prefix: scope.prefix.clone(),
        delimiter: scope.delimiter.clone(),
        from,
        limit: limit + 1,
    };
    let mut items = call.front.app.engine.list_bucket(wanted).await?;
    if items.len() > limit {
        items.truncate(limit);
        page.next_after = items.last().map(|item| item.text().to_owned());
    }
    for item in items {
        match item {
            ListingItem::Prefix(prefix) => page.common_prefixes.push(prefix),
            ListingItem::Object { key, tag, size, written_at, about, .. } => {
                let about = About::from_json(about.as_deref());
                let about =
                    about.map_err(|why| S3Error::new(S3Code::InternalError, why.to_string()))?;
                let checksum = about.checksum.map(|checksum| (checksum.algorithm, checksum.kind));
                page.objects.push(ListedObject {
                    key,
                    last_modified: written_at,
                    etag: tag,
                    bytes: size.unsigned_abs(),
                    checksum,
                });
            }
        }
    }
    Ok(page)
}
