//! What S3 asks of a ledger and is shown, without what a clock made of it.

use fence_core::ports::{
    AbortVerdict, BlobId, KeySpace, Ledger, ListingItem, MultipartRecord, MultipartsPage, PARTS_MAX,
};

use super::super::moves::{KEYS, RESOURCES};
use super::{applied, refusal};
use crate::conformance::ledger::build::name;

/// An end that was asked for.
pub fn abort(verdict: &AbortVerdict) -> String {
    match verdict {
        AbortVerdict::Refused(why) => refusal(why),
        other => format!("{other:?}"),
    }
}

/// A line of a list.
pub fn listed(item: &ListingItem) -> String {
    match item {
        ListingItem::Prefix(prefix) => format!("listed {prefix}*"),
        ListingItem::Object { key, tag, size, about, parts, .. } => {
            format!("listed {key} {tag} {size} {about:?} {parts:?}")
        }
    }
}

fn record(record: &MultipartRecord) -> String {
    format!("upload {} {:?}", record.upload, record.multipart)
}

/// Uploads that go on, parts, and keys of all spaces.
pub async fn all_of_s3(ledger: &dyn Ledger, uploads: &[BlobId]) -> Vec<String> {
    let mut seen = Vec::new();
    for bucket in RESOURCES {
        let page = MultipartsPage { bucket: bucket.into(), after: None, limit: 1000 };
        seen.extend(ledger.multiparts(page).await.expect("read").iter().map(record));
    }
    for upload in uploads {
        let going_on = ledger.multipart(*upload).await.expect("read");
        seen.push(format!("{upload} {:?}", going_on.as_ref().map(record)));
        let parts = ledger.parts(*upload, 0, i64::from(PARTS_MAX)).await.expect("read");
        seen.extend(parts.iter().map(|(number, part)| {
            format!("part {number} {} {} {:?}", part.blob, part.size, part.checksum)
        }));
    }
    for resource in RESOURCES.map(name) {
        for space in [KeySpace::Native, KeySpace::Sdk, KeySpace::Upload] {
            for key in KEYS {
                let known = ledger.operation_by_key(&resource, &space.key(key)).await;
                let known = known.expect("read");
                seen.push(format!("{resource} {space:?} {key} {:?}", known.as_ref().map(applied)));
            }
        }
    }
    seen
}
