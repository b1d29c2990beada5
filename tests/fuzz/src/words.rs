//! Small texts in headers, queries and JSON: durations, metadata, tags and cursors. The input is one.

use fence_core::lock::{duration_text, requested_duration};
use fence_core::ports::EventCursor;
use fence_core::{EntityTag, MaxHold, Metadata, Ttl};
use fencegate::http::extract::{List, before};
use serde::Deserialize as _;
use serde::de::IntoDeserializer as _;
use serde::de::value::{Error, StrDeserializer};

/// What is taken lies within its bounds, and what prints itself prints as it was written.
pub fn words(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    durations(text);
    metadata(text);
    if let Some(tag) = EntityTag::parse(text) {
        assert_eq!(tag.to_string(), text);
        assert_eq!(tag.bare(), text.trim_matches('"'));
    }
    if let Some(cursor) = EventCursor::parse(text) {
        assert_eq!(cursor.to_string(), text);
        assert!(cursor.generation >= 0 && cursor.number >= 0);
    }
    if let Ok(Some(number)) = before(Some(text)) {
        assert!(number > 0);
        assert_eq!(number.to_string(), text);
    }
    let list = List { cursor: Some(text.to_owned()), ..List::default() };
    if let Ok(page) = list.page() {
        let hex: String = page.after.unwrap().bytes().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, text.to_lowercase());
    }
}

fn json(text: &str) -> StrDeserializer<'_, Error> {
    text.into_deserializer()
}

fn durations(text: &str) {
    let (ttl, hold) = (Ttl::deserialize(json(text)), MaxHold::deserialize(json(text)));
    let duration = duration_text(json(text));
    if let Ok(ttl) = ttl {
        assert!(ttl.is_infinite() == (text == "infinite"));
        assert!(ttl.is_infinite() || (1_000..=86_400_000).contains(&ttl.as_ms()));
        assert_eq!(Ttl::from_ms(ttl.as_ms()).as_ms(), ttl.as_ms());
    }
    if let Ok(hold) = hold {
        assert!((1_000..=30 * 86_400_000).contains(&hold.as_ms()));
    }
    let Ok(duration) = duration else {
        assert!(hold.is_err() && (ttl.is_err() || text == "infinite"));
        return;
    };
    // Without a unit or with a sign it is none.
    assert!(duration.is_zero() || text.chars().any(|c| c.is_ascii_alphabetic() || c == 'µ'));
    assert!(!text.trim_start().starts_with(['-', '+']));
    // Requests take one way to write a duration, settings all of them.
    let Ok(requested) = requested_duration(json(text)) else {
        assert!(ttl.is_err() && hold.is_err());
        return;
    };
    assert_eq!(requested, duration);
    assert_eq!(ttl.is_ok(), (Ttl::MIN..=Ttl::MAX).contains(&duration));
    assert_eq!(hold.is_ok(), (MaxHold::MIN..=MaxHold::MAX).contains(&duration));
    let printed = humantime::format_duration(duration).to_string();
    let read = duration_text(json(&printed)).unwrap_or_else(|error| panic!("{printed}: {error}"));
    assert_eq!(read, duration);
}

fn metadata(text: &str) {
    let Ok(metadata) = serde_json::from_str::<Metadata>(text) else { return };
    let entries = metadata.entries();
    assert!(entries.len() <= 16 && metadata.to_json().len() <= 4096);
    for (key, value) in entries {
        assert!((1..=64).contains(&key.len()) && !key.chars().any(char::is_control));
        assert!(value.len() <= 1024 && !value.contains('\0'));
    }
    assert_eq!(Metadata::from_json(&metadata.to_json()).unwrap(), metadata);
    assert_eq!(serde_json::from_str::<Metadata>(&metadata.to_json()).unwrap(), metadata);
}
