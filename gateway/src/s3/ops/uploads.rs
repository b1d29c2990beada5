//! Lists the uploads of a bucket that go on.

use axum::response::Response;
use fence_core::listing::path;
use fence_core::ports::{BlobId, MultipartRecord, MultipartsPage, after_all};
use fencegate_access::Action;
use fencegate_s3::bucket::Depth;
use fencegate_s3::operation::{ListScope, ListUploads};
use fencegate_s3::xml::write::{ListedUpload, UploadsPage, list_uploads};
use uuid::Uuid;

use super::list::is_prefix;
use super::multipart::checksum_of_upload;
use super::{Call, owner, xml};
use crate::engine::access::Want;
use crate::s3::failure::Failure;
use crate::s3::place;

/// How many uploads are read at once to make a page.
const READ_AT_ONCE: i64 = 1000;

/// `ListMultipartUploads`
pub async fn list(call: Call, asked: ListUploads) -> Result<Response, Failure> {
    let scope = &asked.scope;
    let (bucket, depth) = place::bucket(&call.front, &scope.bucket).await?;
    call.may(Want::All(Action::List, scope.bucket.to_string())).await?;
    let mut page = Page::of(scope, depth);
    let mut after = asked.key_marker.as_ref().map(|key| {
        let at = format!("{}/{key}", scope.bucket);
        let id = asked.upload_id_marker.as_deref().and_then(|id| Uuid::try_parse(id).ok());
        match id {
            // All that begin with it are behind us.
            None if is_prefix(scope, key) => (after_all(&at).unwrap_or(at), None),
            // Without an id all uploads of the key are.
            id => (at, Some(BlobId(id.unwrap_or(Uuid::max())))),
        }
    });
    loop {
        let wanted = MultipartsPage { bucket: bucket.name.clone(), after, limit: READ_AT_ONCE };
        let found = call.front.app.engine.multiparts(wanted).await?;
        let is_last = (found.len() as i64) < READ_AT_ONCE;
        after = found.last().map(place_of);
        let has_room = found.into_iter().all(|record| page.takes(record));
        if is_last || !has_room {
            break;
        }
    }
    Ok(xml(list_uploads(&asked, &owner(), &page.told)))
}

/// Where an upload lies among others.
fn place_of(record: &MultipartRecord) -> (String, Option<BlobId>) {
    let key = record.multipart.key.as_str();
    (path(record.multipart.resource.as_str()) + key, Some(record.upload))
}

/// A page in the making.
struct Page<'a> {
    scope: &'a ListScope,
    depth: Depth,
    told: UploadsPage,
    /// What it has last.
    last: Option<(String, Option<String>)>,
}

impl<'a> Page<'a> {
    fn of(scope: &'a ListScope, depth: Depth) -> Self {
        let told = UploadsPage { uploads: vec![], common_prefixes: vec![], next_after: None };
        Self { scope, depth, told, last: None }
    }

    /// Takes an upload, if it belongs into the list. `false`: there is no room for it.
    fn takes(&mut self, record: MultipartRecord) -> bool {
        let multipart = &record.multipart;
        let key =
            self.depth.key_of(&self.scope.bucket, &multipart.resource, multipart.key.as_str());
        let Some(key) = key else { return true };
        let Some(rest) = key.strip_prefix(&self.scope.prefix) else { return true };
        let delimiter = self.scope.delimiter.as_deref();
        let cut = delimiter.and_then(|by| Some(rest.find(by)? + by.len()));
        let prefix = cut.map(|cut| key[..self.scope.prefix.len() + cut].to_owned());
        if prefix.is_some() && prefix.as_ref() == self.told.common_prefixes.last() {
            return true;
        }
        let has = self.told.uploads.len() + self.told.common_prefixes.len();
        if has == usize::from(self.scope.max_items) {
            self.told.next_after = self.last.take();
            return false;
        }
        match prefix {
            Some(prefix) => {
                self.last = Some((prefix.clone(), None));
                self.told.common_prefixes.push(prefix);
            }
            None => {
                let upload = record.upload.to_string();
                self.last = Some((key.clone(), Some(upload.clone())));
                let checksum = checksum_of_upload(&record);
                let begun = record.begun_at;
                self.told.uploads.push(ListedUpload { key, upload, begun, checksum });
            }
        }
        true
    }
}
