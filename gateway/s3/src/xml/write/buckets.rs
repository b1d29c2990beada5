//! What is told of buckets.

use jiff::Timestamp;

use super::{Document, Owner};
use crate::bucket::BucketName;
use crate::operation::{ListBuckets, continuation_token};

/// A bucket in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedBucket {
    /// Its name.
    pub name: BucketName,
    /// When it was made.
    pub created: Timestamp,
}

/// `ListAllMyBucketsResult`: a page of buckets. `more`: whether others follow the last of them.
pub fn list_buckets(
    request: &ListBuckets,
    owner: &Owner,
    buckets: &[ListedBucket],
    more: bool,
) -> String {
    Document::of("ListAllMyBucketsResult", |document| {
        owner.write(document, "Owner");
        document.element("Buckets", |list| {
            for bucket in buckets {
                list.element("Bucket", |item| {
                    item.text("Name", bucket.name.as_str());
                    item.time("CreationDate", bucket.created);
                });
            }
        });
        document.optional("Prefix", request.prefix.as_deref());
        if let (true, Some(last)) = (more, buckets.last()) {
            document.text("ContinuationToken", &continuation_token(last.name.as_str()));
        }
    })
}

/// `LocationConstraint`: the region. The oldest one is told as none, as S3 does.
pub fn location(region: &str) -> String {
    Document::of("LocationConstraint", |document| {
        if region != "us-east-1" {
            document.plain(region);
        }
    })
}

/// `VersioningConfiguration` of a bucket that never had versions.
pub fn versioning() -> String {
    Document::of("VersioningConfiguration", |_| {})
}

/// `AccessControlPolicy` of a bucket or object: its owner may do all. What others may is said elsewhere.
pub fn access_control_policy(owner: &Owner) -> String {
    Document::of("AccessControlPolicy", |document| {
        owner.write(document, "Owner");
        document.element("AccessControlList", |list| {
            list.element("Grant", |grant| {
                grant.grantee(|grantee| {
                    grantee.text("ID", &owner.id);
                    grantee.text("DisplayName", &owner.display_name);
                });
                grant.text("Permission", "FULL_CONTROL");
            });
        });
    })
}
