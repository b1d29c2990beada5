//! Lists a bucket by looking for what comes next: no key is read that is not told, but the first of each common prefix.
//!
//! The ledger on Postgres does the same in `schema/postgres/acts/listing.sql`, so that a page is one call.

use async_trait::async_trait;

use crate::names::ResourceName;
use crate::ports::{LedgerError, ListingItem, ListingPage, Object, after_all, after_key};

/// Where resources and objects lie in order.
#[async_trait]
pub trait Shelf: Send {
    /// Objects of a resource in the order of their keys, without their bytes.
    async fn objects(&mut self, run: &Run) -> Result<Vec<Object>, LedgerError>;

    /// The first resource that has objects and whose [`path`] comes after this.
    async fn resource(&mut self, after: &str) -> Result<Option<ResourceName>, LedgerError>;
}

/// Objects that lie together: those of one resource, from a key on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// The resource.
    pub resource: String,
    /// What whole keys of its objects begin with.
    pub begins: String,
    /// The first key.
    pub from: String,
    /// The first key behind it; `None` for all.
    pub below: Option<String>,
    /// How many slashes are too many; `None` if there are never.
    pub slashes: Option<u8>,
    /// At most so many objects.
    pub limit: usize,
    /// Where the list goes on behind it; `None` if nothing comes there.
    pub then: Option<String>,
}

/// Where a resource lies among others: its name with slashes for colons, and one at the end.
pub fn path(resource: &str) -> String {
    resource.replace(':', "/") + "/"
}

/// Lists a bucket, in runs.
pub async fn list(
    shelf: &mut dyn Shelf,
    page: &ListingPage,
) -> Result<Vec<ListingItem>, LedgerError> {
    let mut items = Vec::new();
    // No key is empty.
    let mut at = page.from.clone().max(page.prefix.clone()).max(after_key(""));
    // How many are read at once: one where a common prefix may come, more where objects did.
    let first_step = if page.delimiter.is_some() { 1 } else { page.limit };
    let mut ahead = first_step;
    while items.len() < page.limit {
        let mut run = match run_of(page, &at) {
            Some(run) => run,
            None => run_between(shelf, page, &at).await?,
        };
        run.limit = ahead.min(page.limit - items.len());
        let objects = shelf.objects(&run).await?;
        ahead = (ahead * 2).min(page.limit);
        let mut next = if objects.len() < run.limit { run.then.clone() } else { None };
        for object in &objects {
            let key = format!("{}{}", run.begins, object.key.as_str());
            let Some(rest) = key.strip_prefix(&page.prefix) else { return Ok(items) };
            let cut = page.delimiter.as_deref().and_then(|by| Some(rest.find(by)? + by.len()));
            if let Some(length) = cut {
                let prefix = key[..page.prefix.len() + length].to_owned();
                next = after_all(&prefix);
                items.push(ListingItem::Prefix(prefix));
                ahead = first_step;
                break;
            }
            if objects.len() == run.limit {
                next = Some(after_key(&key));
            }
            items.push(item(key, object));
        }
        match next {
            Some(next) => at = next,
            None => break,
        }
    }
    Ok(items)
}

fn item(key: String, object: &Object) -> ListingItem {
    ListingItem::Object {
        key,
        tag: object.tag,
        size: object.size,
        written_at: object.written_at,
        about: object.about.clone(),
        parts: object.parts,
    }
}

/// The run that begins at this key, if the key has enough segments to name a resource.
fn run_of(page: &ListingPage, at: &str) -> Option<Run> {
    let begins = match page.depth {
        0 => "",
        depth => &at[..=at.match_indices('/').nth(usize::from(depth) - 1)?.0],
    };
    let segments: Vec<&str> = begins.split_terminator('/').collect();
    // Of such a key no resource is named: nothing lies there.
    let is_named = |segment: &&str| !segment.contains(':') && !["", ".", ".."].contains(segment);
    if !segments.iter().all(is_named) {
        return None;
    }
    Some(Run {
        resource: [&[page.bucket.as_str()], &*segments].concat().join(":"),
        begins: begins.to_owned(),
        from: at[begins.len()..].to_owned(),
        below: None,
        slashes: None,
        limit: 0,
        then: after_all(begins),
    })
}

/// What the bucket's own resource has from this key on, up to the next resource that keys name: keys with too few
/// segments lie between those of other resources, and never within one of them.
async fn run_between(
    shelf: &mut dyn Shelf,
    page: &ListingPage,
    at: &str,
) -> Result<Run, LedgerError> {
    let root = format!("{}/", page.bucket);
    let mut after = format!("{root}{at}");
    let next = loop {
        let Some(resource) = shelf.resource(&after).await? else { break None };
        after = path(resource.as_str());
        let Some(begins) = after.strip_prefix(&root) else { break None };
        let named = run_of(page, begins).is_some_and(|run| run.begins == begins);
        if named {
            break Some(begins.to_owned());
        }
    };
    Ok(Run {
        resource: page.bucket.clone(),
        begins: String::new(),
        from: at.to_owned(),
        below: next.clone(),
        slashes: Some(page.depth),
        limit: 0,
        then: next,
    })
}
