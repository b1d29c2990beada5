//! What these tests share: a gateway with a bucket, and a picture of all that can be seen there.

use std::net::SocketAddr;

use fence_core::wire::{Lock, S3Access};
use fence_tests::client::{Client, resource_path};
use fence_tests::gateway::{Gateway, Settings};
use fence_tests::process::{free_port, loopback};
use fence_tests::raw::RawAnswer;
use fence_tests::s3::{Key, Request, text_of};
use reqwest::Method;
use serde_json::json;

use crate::setup::SetUp;

/// The bucket: the first segment of a key names the resource.
pub const BUCKET: &str = "lake";
/// The resource that most tests are about, and where it lies in the bucket.
pub const R: &str = "lake:r";
/// An object of it.
pub const A: &str = "/lake/r/a";
/// What is above this goes to the store.
pub const INLINE_BYTES_MAX: usize = 4096;

/// A gateway that speaks S3.
pub struct Site {
    /// The gateway.
    pub gateway: Gateway,
    /// Where it speaks S3.
    pub s3: SocketAddr,
}

/// Lets a gateway speak S3 at a port of its own.
pub fn speaking_s3(settings: Settings) -> (Settings, SocketAddr) {
    let address = loopback(free_port());
    let settings = settings
        .flag("--s3-listen", &address.to_string())
        .flag("--inline-bytes-max", &INLINE_BYTES_MAX.to_string());
    (settings, address)
}

impl Site {
    /// Starts one that has the bucket.
    pub async fn start(setup: SetUp) -> Self {
        Self::of(setup.settings().await).await
    }

    /// The same with these settings.
    pub async fn of(settings: Settings) -> Self {
        let (settings, s3) = speaking_s3(settings);
        let site = Self { gateway: settings.start().await, s3 };
        site.make_bucket().await;
        site
    }

    /// Makes the bucket.
    pub async fn make_bucket(&self) {
        let call = self.client().call(Method::PUT, format!("/buckets/{BUCKET}"));
        let call = call.header("content-type", "application/json");
        call.body(json!({ "depth": 1 }).to_string()).send().await.expect(201);
    }

    /// A client of its own calls.
    pub fn client(&self) -> Client {
        self.gateway.client()
    }

    /// Takes a lock, and its key.
    pub async fn lock(&self, resource: &str, ttl: &str) -> (Lock, Key) {
        let lock = self.client().acquire(resource, ttl).await;
        let key = Key::of(&lock);
        (lock, key)
    }

    /// A key that reads.
    pub async fn reader(&self) -> Key {
        let made = self.client().post("/admin/s3-keys", &json!({ "rights": "read" })).send().await;
        let made = made.expect(200).json();
        let text = |name: &str| made[name].as_str().expect("a key has both").to_owned();
        Key { id: text("access_key_id"), secret: text("secret_access_key") }
    }

    /// Sends a request under a key; it must succeed.
    pub async fn ask(&self, key: &Key, request: Request) -> RawAnswer {
        let what = format!("{} {}?{}", request.method, request.path, request.query);
        let answer = request.sign(self.s3, key).send(self.s3).await;
        assert!((200..300).contains(&answer.status), "{what}: {}", answer.text());
        answer
    }

    /// Begins an upload; returns its id.
    pub async fn begin(&self, key: &Key, path: &str) -> String {
        let begun = self.ask(key, Request::begin(path)).await.text();
        text_of(&begun, "UploadId").expect("an upload has an id").to_owned()
    }

    /// Uploads parts, from the first on; returns their tags.
    pub async fn send_parts(
        &self,
        key: &Key,
        path: &str,
        upload: &str,
        parts: &[bytes::Bytes],
    ) -> Vec<String> {
        let mut tags = Vec::new();
        for (number, part) in (1..).zip(parts) {
            let sent = self.ask(key, Request::part(path, upload, number, part.clone())).await;
            tags.push(sent.header("etag").expect("a part has a tag").to_owned());
        }
        tags
    }

    /// The bytes of an object; `None` if there is none.
    pub async fn bytes(&self, key: &Key, path: &str) -> Option<Vec<u8>> {
        let answer = Request::get(path).sign(self.s3, key).send(self.s3).await;
        match answer.status {
            200 => Some(answer.body),
            404 => None,
            _ => panic!("{path}: {}", answer.text()),
        }
    }

    /// All that can be seen of the bucket: the list of objects, their bytes, the uploads and their parts; and what writes
    /// there were. `reader` is a key that reads.
    pub async fn picture(&self, reader: &Key) -> Picture {
        let list = Request::get("/lake").query("list-type", "2");
        let list = self.ask(reader, list).await.text();
        let mut objects = Vec::new();
        for key in fence_tests::s3::texts(&list, "Key") {
            objects.push(self.bytes(reader, &format!("/lake/{key}")).await);
        }
        let uploads = self.ask(reader, Request::get("/lake").word("uploads")).await.text();
        let ids = fence_tests::s3::texts(&uploads, "UploadId");
        let mut parts = Vec::new();
        for (key, id) in fence_tests::s3::texts(&uploads, "Key").into_iter().zip(ids) {
            let listed = Request::get(&format!("/lake/{key}")).query("uploadId", id);
            parts.push(self.ask(reader, listed).await.text());
        }
        let versions = format!("{}/versions", resource_path(R));
        let versions = self.client().get(versions).send().await;
        Picture { list, objects, uploads, parts, versions: versions.text() }
    }
}

/// All that can be seen.
#[derive(Debug, PartialEq, Eq)]
pub struct Picture {
    list: String,
    objects: Vec<Option<Vec<u8>>>,
    uploads: String,
    parts: Vec<String>,
    versions: String,
}

/// The key in an answer of `POST /locks`.
pub fn key_in(lock: &serde_json::Value) -> Key {
    let access: S3Access = serde_json::from_value(lock["s3"].clone()).expect("a key");
    Key::from(&access)
}
