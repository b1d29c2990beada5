//! Reading (CC47): objects whole or as streams, lists page by page, and what became of operations. No lock
//! is needed for any of it.

pub mod download;
pub mod object;
pub mod pages;
pub mod stream;
pub mod views;

use std::sync::Arc;

use fencegate_wire::{EntityTag, ErrorCode, ObjectKey, ResourceName};
use reqwest::header::HeaderMap;

use crate::client::{Client, Inner};
use crate::encoding::path;
use crate::error::{Details, Error};
use crate::names;

pub use self::download::Download;
pub use self::object::{Get, Look, Object, ObjectHead};
pub use self::pages::{Items, Listing, Page};
pub use self::stream::{Open, Reader};

/// An object to read, under names that were checked.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) inner: Arc<Inner>,
    pub(crate) resource: ResourceName,
    pub(crate) key: ObjectKey,
    version: Option<i64>,
}

impl Target {
    fn new(client: &Client, resource: &str, key: &str) -> Result<Self, Error> {
        let (resource, key) = (names::resource(resource)?, names::object(key)?);
        Ok(Self { inner: client.inner.clone(), resource, key, version: None })
    }

    /// The object as the write with this version left it.
    fn at(self, version: i64) -> Result<Self, Error> {
        match version {
            ..=0 => Err(Error::misuse("a version is 1 or more")),
            _ => Ok(Self { version: Some(version), ..self }),
        }
    }

    fn path(&self) -> String {
        let version = self.version.map(|version| ("version", version.to_string()));
        path::object(&self.resource, &self.key) + &path::query(version)
    }

    /// What the head of an answer with the whole object says of it.
    fn head(&self, headers: &HeaderMap) -> Result<ObjectHead, Error> {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        let missing = |what: &str| {
            let text = format!("the answer has no {what}: something on the way took it out");
            Error::GatewayFault(Details::local(text))
        };
        let etag = text("etag").ok_or_else(|| missing("ETag"))?;
        let size = text("content-length").and_then(|length| length.parse().ok());
        Ok(ObjectHead {
            resource: self.resource.clone(),
            key: self.key.clone(),
            etag: etag.to_owned(),
            version: EntityTag::parse(etag).map(|tag| tag.version),
            resource_version: text("x-resource-version").and_then(|version| version.parse().ok()),
            content_type: text("content-type").unwrap_or_default().to_owned(),
            size: size.ok_or_else(|| missing("Content-Length"))?,
            sha256: text("repr-digest").and_then(object::sha256_of).map(hex::encode),
        })
    }
}

/// Whether the object is not there, by the gateway's own word.
fn is_absent(error: &Error) -> bool {
    matches!(
        error.code().and_then(ErrorCode::parse),
        Some(ErrorCode::ObjectNotFound | ErrorCode::ResourceNotFound)
    )
}

/// `None` for an object that is not there.
fn present<T>(read: Result<T, Error>) -> Result<Option<T>, Error> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(error) if is_absent(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt as _;

    use super::*;
    use crate::client::Client;
    use crate::testing::scripted::{Act, play, problem, say};

    const DIGEST_OF_ABC: &str =
        "repr-digest: sha-256=:ungWv48Bz+pBQUDeXa4iI7ADYaOWF3qctBD/YfIAFa0=:\r\n";

    fn part(status: &str, version: i64, headers: &str, length: usize, bytes: &str) -> Vec<Act> {
        let head =
            format!("{status}\r\n{headers}etag: \"g0-v{version}\"\r\ncontent-length: {length}");
        vec![Act::Say(head, bytes.into())]
    }

    async fn all(client: &Client) -> Result<Vec<u8>, Error> {
        let (mut reader, mut bytes) = (client.open("r", "k").await?, Vec::new());
        while let Some(piece) = reader.next().await {
            bytes.extend(piece?);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn a_stream_goes_on_where_it_broke_off() {
        let (client, came) = play(|nth, _| match nth {
            0 => part("200 OK", 1, DIGEST_OF_ABC, 3, "a"),
            1 => part("206 x", 1, "content-range: bytes 1-2/3\r\n", 2, "b"),
            _ => part("200 OK", 1, "", 3, "abc"),
        })
        .await;
        assert_eq!(all(&client).await.unwrap(), b"abc");
        let came = came.lock().unwrap();
        assert!(came[1].contains("range: bytes=1-\r\nif-range: \"g0-v1\""), "{}", came[1]);
        assert!(came[2].contains("range: bytes=2-\r\n") && came.len() == 3);
    }

    #[tokio::test]
    async fn a_stream_that_breaks_again_and_again_ends() {
        let (client, came) = play(|_, _| part("200 OK", 1, "", 3, "")).await;
        assert!(matches!(all(&client).await, Err(Error::Unavailable(_))));
        assert_eq!(came.lock().unwrap().len(), 6);
    }

    #[tokio::test]
    async fn an_object_that_changed_or_went_meanwhile_is_not_pieced_together() {
        let (client, _) = play(|nth, _| part("200 OK", 1 + nth as i64, "", 3, "a")).await;
        assert!(matches!(all(&client).await, Err(Error::Changed(_))));
        let (client, _) = play(|nth, _| match nth {
            0 => part("200 OK", 1, "", 3, "a"),
            _ => vec![problem(404, "object-not-found", "")],
        })
        .await;
        assert!(matches!(all(&client).await, Err(Error::Changed(_))));
    }

    #[tokio::test]
    async fn a_whole_read_begins_again_instead() {
        let (client, _) = play(|nth, _| match nth {
            0 => part("200 OK", 1, "", 3, "a"),
            _ => part("200 OK", 2, "", 3, "xyz"),
        })
        .await;
        let object = client.get("r", "k").await.unwrap();
        assert_eq!((object.text().unwrap(), object.version), ("xyz", Some(2)));
    }

    async fn some(client: &Client, first: u64, last: Option<u64>) -> Result<Vec<u8>, Error> {
        let mut reader = client.open("r", "k").range(first, last).await?;
        assert_eq!(reader.head().size, 5, "the whole");
        let mut bytes = Vec::new();
        while let Some(piece) = reader.next().await {
            bytes.extend(piece?);
        }
        Ok(bytes)
    }

    #[tokio::test]
    async fn a_range_goes_on_where_it_broke_off_and_ends_where_it_should() {
        let (client, came) = play(|nth, _| match nth {
            0 => part("206 x", 1, "content-range: bytes 1-3/5\r\n", 3, "b"),
            _ => part("206 x", 1, "content-range: bytes 2-3/5\r\n", 2, "cd"),
        })
        .await;
        assert_eq!(some(&client, 1, Some(3)).await.unwrap(), b"bcd");
        let came = came.lock().unwrap();
        assert!(
            came[0].contains("range: bytes=1-3\r\n") && came[1].contains("range: bytes=2-3\r\n")
        );
    }

    #[tokio::test]
    async fn a_range_is_cut_out_where_something_on_the_way_knows_none() {
        for (first, last, expected) in
            [(1, Some(3), "bcd"), (2, None, "cde"), (0, Some(9), "abcde"), (7, None, "")]
        {
            let (client, _) = play(|_, _| part("200 OK", 1, DIGEST_OF_ABC, 5, "abcde")).await;
            let bytes = some(&client, first, last).await.unwrap();
            assert_eq!(bytes, expected.as_bytes(), "{first}");
        }
        let (client, _) =
            play(|_, _| part("206 x", 1, "content-range: bytes 0-2/5\r\n", 3, "abc")).await;
        assert!(matches!(some(&client, 1, Some(3)).await, Err(Error::GatewayFault(_))));
    }

    #[tokio::test]
    async fn other_bytes_than_the_gateway_has_are_an_error() {
        let (client, _) = play(|_, _| part("200 OK", 1, DIGEST_OF_ABC, 3, "abd")).await;
        assert!(matches!(client.get("r", "k").await, Err(Error::GatewayFault(_))));
        let (client, _) = play(|_, _| part("200 OK", 1, DIGEST_OF_ABC, 3, "abc")).await;
        let object = client.get("r", "k").await.unwrap();
        assert!(object.sha256.unwrap().starts_with("ba7816bf"));
        assert!(matches!(client.get("r", "k").limit(2).await, Err(Error::Misuse(_))));
    }

    #[tokio::test]
    async fn a_look_at_nothing_says_what_is_missing() {
        let (client, _) = play(|_, head| match head.starts_with("HEAD") {
            true => vec![Act::Say("404 x\r\ncontent-length: 9".into(), Vec::new())],
            false => vec![problem(404, "object-not-found", "")],
        })
        .await;
        assert!(matches!(client.head("r", "k").await, Err(Error::NotFound(_))));
        assert!(client.head("r", "k").optional().await.unwrap().is_none());
    }

    #[tokio::test]
    async fn names_are_refused_before_anything_is_sent() {
        let (client, came) = play(|_, _| Vec::new()).await;
        for (resource, key) in [("a/b", "k"), ("r", "k/"), ("", "k")] {
            let refused = client.get(resource, key).await;
            assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
        }
        assert!(
            client.list("a/b").all().await.is_err()
                && client.observe("a/b").next().await.unwrap().is_err()
        );
        for items in [0, 1001] {
            let refused = client.audit().page_size(items).all().await;
            assert!(matches!(refused, Err(Error::Misuse(_))), "{refused:?}");
        }
        assert!(came.lock().unwrap().is_empty());
    }

    #[tokio::test]
    async fn a_list_is_read_to_its_end_and_never_in_circles() {
        let audit = |cursor| say("200 OK", "", &format!(r#"{{"items":[]{cursor}}}"#));
        let (client, came) = play(move |nth, _| match nth {
            0 => vec![audit(r#","next_cursor":"7""#)],
            _ => vec![audit("")],
        })
        .await;
        assert!(client.audit().page_size(3).all().await.unwrap().is_empty());
        assert!(came.lock().unwrap()[1].starts_with("GET /audit?limit=3&cursor=7 "));
        let (client, _) = play(move |_, _| vec![audit(r#","next_cursor":"7""#)]).await;
        assert!(matches!(client.audit().all().await, Err(Error::GatewayFault(_))));
    }

    #[tokio::test]
    async fn a_download_takes_the_place_of_the_file_at_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let (path, part_path) = (folder.path().join("f"), folder.path().join("f.part"));
        std::fs::write(&path, "before").unwrap();
        let (client, _) = play(|_, _| part("200 OK", 1, DIGEST_OF_ABC, 3, "abd")).await;
        assert!(client.download("r", "k", &path).await.is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before");
        assert!(!part_path.exists());
        let (client, _) = play(|_, _| part("200 OK", 1, DIGEST_OF_ABC, 3, "abc")).await;
        let other = std::fs::File::create(&part_path).unwrap();
        other.lock().unwrap();
        assert!(matches!(client.download("r", "k", &path).await, Err(Error::Misuse(_))));
        drop(other);
        client.download("r", "k", &path).await.unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "abc");
        assert!(!part_path.exists());
    }
}
