//! Names of resources and keys of objects: the input is a name, and also the raw segment of a path.

use fence_core::{NameError, ObjectKey, ResourceName};
use fencegate::http::extract::{InObject, InResource, resource_in};
use unicode_normalization::UnicodeNormalization as _;

use crate::requests::{decode, encode, encode_key, extracted};

/// A name is taken exactly by its rules, in whatever way it is sent, and what is refused in one way of
/// sending is refused in every other.
pub fn names(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    resource(text);
    key(text);
    raw(text);
}

fn resource(text: &str) {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "._~-:@#+=,".contains(c);
    let good =
        (1..=256).contains(&text.len()) && text.chars().all(allowed) && !matches!(text, "." | "..");
    let name = ResourceName::new(text);
    assert_eq!(name.is_ok(), good);
    let json = serde_json::to_string(text).unwrap();
    assert_eq!(serde_json::from_str::<ResourceName>(&json).is_ok(), good);
    if text.len() > 4096 {
        return;
    }
    let encoded = format!("/resources/{}", encode(text));
    let sent = extracted::<InResource>(&encoded).unwrap().ok().map(|sent| sent.0);
    assert_eq!(sent, name.clone().ok());
    assert_eq!(resource_in(&encoded), name.ok());
    // What is encoded twice holds a percent sign, unless there was nothing to encode.
    let twice = format!("/resources/{}", encode(&encode(text)));
    let sent = extracted::<InResource>(&twice).unwrap();
    assert_eq!(sent.is_ok(), good && encode(text) == text);
}

fn key(text: &str) {
    let key = ObjectKey::new(text);
    let normal = text.nfc().eq(text.chars());
    match &key {
        Ok(key) => {
            assert_eq!(key.as_str(), text);
            assert!(normal && (1..=1024).contains(&text.len()));
            assert!(!text.chars().any(char::is_control));
            assert!(text.split('/').all(|segment| !matches!(segment, "" | "." | "..")));
        }
        Err(NameError::NotNfc) => assert!(!normal),
        Err(_) => {}
    }
    let json = serde_json::to_string(text).unwrap();
    assert_eq!(serde_json::from_str::<ObjectKey>(&json).ok(), key.clone().ok());
    if text.len() > 4096 {
        return;
    }
    let sent = |target: &str| extracted::<InObject>(target).unwrap().ok().map(|sent| sent.key);
    assert_eq!(sent(&format!("/resources/r/objects/{}", encode_key(text))), key.ok());
    // A slash that is sent encoded is never a separator.
    if text.contains('/') {
        assert_eq!(sent(&format!("/resources/r/objects/{}", encode(text))), None);
    }
}

/// The text as it stands in a path: taken as what it decodes to, or not at all.
fn raw(text: &str) {
    if let Some(Ok(InResource(name))) = extracted(&format!("/resources/{text}")) {
        let segment = text.split(['/', '?', '#']).next().unwrap();
        assert_eq!(decode(segment), name.as_str().as_bytes());
    }
    if let Some(Ok(InObject { key, .. })) = extracted(&format!("/resources/r/objects/{text}")) {
        let rest = text.split(['?', '#']).next().unwrap();
        assert_eq!(decode(rest), key.as_str().as_bytes());
        assert_eq!(rest.matches('/').count(), key.as_str().matches('/').count());
    }
}
