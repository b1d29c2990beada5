//! Buckets and keys of S3 as JSON.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// What an S3 tool is given in place of a token: the key *is* the lock. It names this lock's token for ever, and no other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct S3Access {
    /// Where the gateway speaks S3, such as `http://127.0.0.1:9000`.
    pub endpoint: String,
    /// The region that it says it is in.
    pub region: String,
    /// The id of the key.
    pub access_key_id: String,
    /// Its secret: whoever has it writes under the lock's token.
    pub secret_access_key: String,
}

impl std::fmt::Debug for S3Access {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { endpoint, region, access_key_id, .. } = self;
        write!(f, "S3Access({access_key_id} at {endpoint}, {region})")
    }
}

/// The body of `PUT /buckets/{name}`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct BucketRequest {
    /// How many leading segments of a key name its resource, and so its lock: 0 to 3. With 1 the object `orders/a.txt` of
    /// bucket `lake` is the object `a.txt` of the resource `lake:orders`. It is fixed for ever, also if the bucket is
    /// deleted and made again.
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 3))]
    #[serde(default)]
    pub depth: u8,
}

/// A bucket of S3.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Bucket {
    /// Its name.
    pub name: String,
    /// How many leading segments of a key name its resource.
    pub depth: u8,
    /// When it was made.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub created_at: Timestamp,
}

/// All buckets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct BucketList {
    /// In the order of their names.
    pub items: Vec<Bucket>,
}

/// The most buckets of a ledger.
pub const BUCKETS_MAX: usize = 10_000;

/// The body of `POST /admin/s3-keys`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct S3KeyRequest {
    /// What whoever has the key may do, where no rules of access are in force. Where there are some, it is left out: the key
    /// is that of a principal.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rights: Option<S3Rights>,
}

/// What a key of S3 allows that is no principal's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum S3Rights {
    /// To read everything.
    Read,
    /// Also to make and delete buckets. Not to write objects: that takes a lock.
    Admin,
}

/// A new key of S3.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct S3Key {
    /// What the rules of access are to call it, in `s3_keys` of a principal; absent for one that is no principal's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kid: Option<String>,
    /// The id of the key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
}

/// The key of a lock, as whoever asks for it reads it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
pub enum S3Credentials {
    /// With the endpoint and the region.
    Access(S3Access),
    /// With `as=process`.
    Process(ProcessCredentials),
    /// With `as=container`.
    Container(ContainerCredentials),
}

/// What `credential_process` of the AWS tools reads.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ProcessCredentials {
    /// 1.
    pub version: u8,
    /// The id of the key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
}

/// What the container credentials of the AWS tools read.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "PascalCase")]
pub struct ContainerCredentials {
    /// The id of the key.
    pub access_key_id: String,
    /// Its secret.
    pub secret_access_key: String,
    /// Always the same: the tools insist on a session token, and the gateway does not look at it.
    pub token: String,
    /// When the tools ask again. They get the same key as long as the lock lasts, and never another.
    #[cfg_attr(feature = "openapi", schema(value_type = String, format = DateTime))]
    pub expiration: Timestamp,
}
