//! Lists of buckets: as S3 sorts them, across resources, whatever prefix, delimiter and beginning.

use std::sync::Arc;

use fence_core::ObjectKey;
use fence_core::ports::{Effect, Grant, Ledger, ListingItem, ListingPage, Payload, after_key};
use rand::prelude::*;
use rand::rngs::SmallRng;

use super::build::*;

/// Where an object lies: its resource, its key there, and whole.
type Place = (String, String, String);

/// Segments that come close to each other in the order of bytes, and to the slash and the colon.
const SEGMENTS: [&str; 10] = ["a", "a-", "a.b", "a0", "a=", "b", "Z", "é", "a a", "\u{1}"];
/// Those that a resource may have.
const NAMED: usize = 7;

fn bucket(depth: u8) -> String {
    format!("bucket{depth}")
}

fn segment(random: &mut SmallRng, of: usize) -> &'static str {
    SEGMENTS[random.random_range(0..of)]
}

/// An object of a bucket of this depth, or one that no key of S3 reaches.
fn place(random: &mut SmallRng, depth: u8) -> (Place, bool) {
    let named = random.random_range(0..=usize::from(depth) + 1);
    let leading: Vec<_> = (0..named).map(|_| segment(random, NAMED)).collect();
    let bucket = bucket(depth);
    let resource = [&[bucket.as_str()], &*leading].concat().join(":");
    let rest: Vec<_> =
        (0..random.random_range(0..4)).map(|_| segment(random, SEGMENTS.len())).collect();
    let mut key = rest.join(if random.random_bool(0.1) { "//" } else { "/" });
    if random.random_bool(0.2) {
        key.push('/');
    }
    let whole = leading.iter().fold(String::new(), |whole, name| whole + name + "/") + &key;
    let short = key.matches('/').count() < usize::from(depth);
    let is_seen = match named {
        0 => !key.is_empty() && (depth == 0 || short),
        _ => named == usize::from(depth),
    };
    ((resource, key, whole), is_seen)
}

async fn put(ledger: &dyn Ledger, grant: &Grant, key: &str) {
    let effect = Effect::Put {
        key: ObjectKey::any(key).expect("a key"),
        content_type: "text/plain".into(),
        payload: Payload::Inline("x".into()),
        size: 1,
        sha256: [1; 32],
        about: Some(Arc::from("{\"n\":1}")),
        parts: None,
    };
    apply(ledger, write(grant, effect)).await;
}

/// What a list must have, from all whole keys in order.
fn expected(keys: &[String], page: &ListingPage) -> Vec<String> {
    let mut found: Vec<String> = Vec::new();
    let mut skipped: Option<String> = None;
    for key in keys.iter().filter(|key| key.starts_with(&page.prefix) && **key >= page.from) {
        if skipped.as_ref().is_some_and(|skipped| key.starts_with(skipped)) {
            continue;
        }
        let cut = page
            .delimiter
            .as_ref()
            .and_then(|by| Some(key[page.prefix.len()..].find(by)? + by.len()));
        match cut {
            None => found.push(key.clone()),
            Some(cut) => {
                let prefix = key[..page.prefix.len() + cut].to_owned();
                skipped = Some(prefix.clone());
                found.push(format!("{prefix}*"));
            }
        }
    }
    found.truncate(page.limit);
    found
}

fn told(items: &[ListingItem]) -> Vec<String> {
    let line = |item: &ListingItem| match item {
        ListingItem::Object { key, size, about, .. } => {
            assert_eq!((*size, about.as_deref()), (1, Some("{\"n\":1}")));
            key.clone()
        }
        ListingItem::Prefix(prefix) => format!("{prefix}*"),
    };
    items.iter().map(line).collect()
}

/// A bucket of each depth with random objects; random pages, and whole lists page by page.
pub async fn lists_are_in_the_order_of_whole_keys(ledger: &dyn Ledger) {
    for seed in 0..4 {
        let depth = seed as u8;
        let mut random = SmallRng::seed_from_u64(seed);
        let mut keys = Vec::new();
        let mut grants = std::collections::BTreeMap::new();
        for _ in 0..60 {
            let ((resource, key, whole), is_seen) = place(&mut random, depth);
            if !grants.contains_key(&resource) {
                let number = 1 + i64::try_from(grants.len()).expect("few") + 1000 * seed as i64;
                let grant = granted(ledger, seal([&*resource], number)).await;
                grants.insert(resource.clone(), grant);
            }
            put(ledger, &grants[&resource], &key).await;
            if is_seen {
                keys.push(whole);
            }
        }
        keys.sort();
        keys.dedup();
        for _ in 0..120 {
            let some_key = keys.choose(&mut random).cloned().unwrap_or_default();
            let cut = some_key.char_indices().map(|(at, _)| at).choose(&mut random).unwrap_or(0);
            let page = ListingPage {
                bucket: bucket(depth),
                depth,
                prefix: if random.random_bool(0.5) {
                    some_key[..cut].to_owned()
                } else {
                    String::new()
                },
                delimiter: [None, Some("/"), Some("a"), Some("//")]
                    .choose(&mut random)
                    .and_then(|by| by.map(str::to_owned)),
                from: match random.random_range(0..3) {
                    0 => String::new(),
                    1 => after_key(keys.choose(&mut random).map_or("", |key| key)),
                    _ => SEGMENTS
                        .choose(&mut random)
                        .map(|text| (*text).to_owned())
                        .unwrap_or_default(),
                },
                limit: *[1, 2, 7, 1000].choose(&mut random).expect("one"),
            };
            let found = ledger.list_page(page.clone()).await.expect("listed");
            assert_eq!(told(&found), expected(&keys, &page), "{page:?} of {keys:?}");
        }
        pages(ledger, depth, &keys).await;
    }
}

/// Page by page each is told once.
async fn pages(ledger: &dyn Ledger, depth: u8, keys: &[String]) {
    for delimiter in [None, Some("/".to_owned())] {
        let mut page = ListingPage {
            bucket: bucket(depth),
            depth,
            prefix: String::new(),
            delimiter,
            from: String::new(),
            limit: 3,
        };
        let all = expected(keys, &ListingPage { limit: 1000, ..page.clone() });
        let mut found = Vec::new();
        loop {
            let items = ledger.list_page(page.clone()).await.expect("listed");
            let Some(last) = items.last() else { break };
            found.extend(told(&items));
            match last.next() {
                Some(next) => page.from = next,
                None => break,
            }
        }
        assert_eq!(found, all);
    }
}
