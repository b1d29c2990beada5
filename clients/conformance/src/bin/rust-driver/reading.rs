//! Reading: objects, lists, the feed, who leads.

use fencegate_client::{FeedEvent, OnVoid};
use futures::StreamExt as _;
use serde_json::json;
use sha2::{Digest as _, Sha256};

use super::state::{State, Told};
use super::told;

/// Reads an object whole.
pub async fn get(state: &State, resource: &str, object: &str) -> Told {
    let found = state.client()?.get(resource, object).await;
    let found = found.map_err(|error| told::error(state, error))?;
    let text = String::from_utf8_lossy(&found.bytes);
    Ok(json!({"text": text, "etag": found.etag, "version": found.version}))
}

/// Reads an object as a stream.
pub async fn open(state: &State, resource: &str, object: &str) -> Told {
    let opened = state.client()?.open(resource, object).await;
    let mut reader = opened.map_err(|error| told::error(state, error))?;
    let (mut hash, mut size) = (Sha256::new(), 0);
    while let Some(piece) = reader.next().await {
        let piece = piece.map_err(|error| told::error(state, error))?;
        size += piece.len();
        hash.update(&piece);
    }
    Ok(json!({"size": size, "sha256": hex::encode(hash.finalize())}))
}

/// Reads an object into a file.
pub async fn download(state: &State, resource: &str, object: &str, to: &str) -> Told {
    let head = state.client()?.download(resource, object, to).await;
    let head = head.map_err(|error| told::error(state, error))?;
    Ok(json!({"size": head.size}))
}

/// Lists objects, all pages.
pub async fn list(state: &State, resource: &str, prefix: Option<String>) -> Told {
    let mut listing = state.client()?.list(resource);
    if let Some(prefix) = prefix {
        listing = listing.prefix(&prefix);
    }
    let entries = listing.all().await.map_err(|error| told::error(state, error))?;
    let objects: Vec<_> = entries.into_iter().map(|entry| entry.key).collect();
    Ok(json!({"objects": objects}))
}

/// Looks an operation up by its key.
pub async fn find(state: &State, resource: &str, key: &str) -> Told {
    let found = state.client()?.operation_by_key(resource, key).await;
    let found = found.map_err(|error| told::error(state, error))?;
    serde_json::to_value(found).map_err(|error| told::mistake(&error.to_string()))
}

/// Follows the feed.
pub async fn events(
    state: &State,
    stream: &str,
    after: Option<String>,
    on_void: Option<&str>,
) -> Told {
    let on_void = if on_void == Some("continue") { OnVoid::Continue } else { OnVoid::Fail };
    let mut events = state.client()?.events().after(after).on_void(on_void).stream();
    while let Some(event) = events.next().await {
        let event = event.map_err(|error| told::error(state, error))?;
        let cursor = event.cursor().to_owned();
        match event {
            FeedEvent::Write(write) => {
                let told = json!({
                    "stream": stream, "cursor": cursor, "resource": write.resource, "version": write.version,
                });
                state.out.event("write", told);
            }
            _ => state.out.event("void", json!({"stream": stream, "cursor": cursor})),
        }
    }
    Ok(json!({}))
}

/// Tells who leads.
pub async fn observe(state: &State, stream: &str, name: &str) -> Told {
    let mut leaders = state.client()?.observe(name);
    while let Some(leader) = leaders.next().await {
        let leader = leader.map_err(|error| told::error(state, error))?;
        let owner = leader.map(|leader| leader.owner);
        state.out.event("leader", json!({"stream": stream, "owner": owner}));
    }
    Ok(json!({}))
}
