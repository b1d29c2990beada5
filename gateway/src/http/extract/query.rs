//! Queries: known parameters, each once. Lists share theirs.

use std::time::Duration;

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fence_core::lock::requested_duration;
use fence_core::names::KEY_BYTES_MAX;
use fence_core::ports::Page;
use fence_core::wire::WAIT_MAX;
use fence_core::{ErrorCode, ResourceName};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};

use crate::http::problem::Problem;

/// The number of items in a page, unless the caller asks otherwise.
pub const LIST_LIMIT_DEFAULT: i64 = 100;
/// The most items in a page.
pub const LIST_LIMIT_MAX: i64 = 1000;

/// The parameters of a call. Unknown and repeated ones are refused by the types themselves.
pub struct Query<T>(pub T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for Query<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        axum::extract::Query::try_from_uri(&parts.uri)
            .map(|axum::extract::Query(value)| Self(value))
            .map_err(|rejection| {
                let text = rejection.body_text();
                malformed(
                    text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text),
                )
            })
    }
}

fn malformed(why: impl Into<String>) -> Problem {
    Problem::new(ErrorCode::QueryMalformed, why)
}

fn bad_cursor() -> Problem {
    malformed("cursor is not the next_cursor of a page")
}

/// A call without parameters.
pub struct NoQuery;

impl<S: Sync> FromRequestParts<S> for NoQuery {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        match parts.uri.query() {
            None | Some("") => Ok(Self),
            Some(_) => Err(malformed("this call takes no query parameters")),
        }
    }
}

/// The parameters of a list of names.
#[derive(Debug, Default, Deserialize, utoipa::IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub struct List {
    /// Only names that begin with this.
    #[serde(default)]
    #[param(value_type = fence_core::schema::Prefix, required = false)]
    pub prefix: String,
    /// At most this many items.
    #[param(minimum = 1, maximum = 1000, default = 100)]
    pub limit: Option<i64>,
    /// `next_cursor` of the page before.
    #[param(value_type = Option<fence_core::schema::NameCursor>)]
    pub cursor: Option<String>,
}

impl List {
    /// The page to fetch: one item more than asked for, which tells whether there is another page.
    pub fn page(&self) -> Result<Page, Problem> {
        Ok(Page {
            prefix: prefix(self.prefix.clone())?,
            after: self.after()?,
            limit: limit(self.limit)? + 1,
        })
    }

    fn after(&self) -> Result<Option<String>, Problem> {
        let Some(cursor) = &self.cursor else {
            return Ok(None);
        };
        hex::decode(cursor)
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).ok())
            .and_then(name_part)
            // Only as it was given out: not empty, and in lower case.
            .filter(|name| !name.is_empty() && hex::encode(name) == *cursor)
            .map(Some)
            .ok_or_else(bad_cursor)
    }
}

/// Text that a name may begin with: bounded, and without the NUL that databases choke on.
fn name_part(text: String) -> Option<String> {
    (text.len() <= KEY_BYTES_MAX && !text.chars().any(char::is_control)).then_some(text)
}

/// What the names in a list begin with.
pub fn prefix(text: String) -> Result<String, Problem> {
    name_part(text).ok_or_else(|| malformed("bad prefix"))
}

/// A limit within its bounds.
pub fn limit(asked: Option<i64>) -> Result<i64, Problem> {
    match asked.unwrap_or(LIST_LIMIT_DEFAULT) {
        limit @ 1..=LIST_LIMIT_MAX => Ok(limit),
        _ => Err(malformed(format!("limit must be from 1 to {LIST_LIMIT_MAX}"))),
    }
}

/// How long a call may wait.
///
/// # Errors
/// No duration, or more than [`WAIT_MAX`].
pub fn wait<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let wait = requested_duration(deserializer)?;
    if wait > WAIT_MAX {
        return Err(serde::de::Error::custom("wait is at most 50s"));
    }
    Ok(Some(wait))
}

/// Cuts the item that was fetched beyond the limit; if there was one, the cursor is the last name
/// that stays, in hexadecimal so that nobody builds on its form.
pub fn cursor_after<T>(items: &mut Vec<T>, page: &Page, name: fn(&T) -> &str) -> Option<String> {
    cut(items, page.limit - 1)?;
    items.last().map(|last| hex::encode(name(last)))
}

/// Cuts what is beyond the limit; `None` if nothing was.
fn cut<T>(items: &mut Vec<T>, limit: i64) -> Option<()> {
    let keep = usize::try_from(limit).unwrap_or_default();
    (items.len() > keep).then(|| items.truncate(keep))
}

/// The number below which a page of numbered entries, newest first, begins.
pub fn before(cursor: Option<&str>) -> Result<Option<i64>, Problem> {
    // `parse` would also take a sign and leading zeros.
    let exact = |text: &str| text.parse().ok().filter(|number: &i64| number.to_string() == text);
    cursor.map(|text| exact(text).filter(|number| *number > 0).ok_or_else(bad_cursor)).transpose()
}

/// Like [`cursor_after`], for numbered entries: the cursor is the number of the last one that stays.
pub fn cursor_before<T>(
    items: &mut Vec<T>,
    limit: i64,
    number: impl Fn(&T) -> i64,
) -> Option<String> {
    cut(items, limit)?;
    items.last().map(|last| number(last).to_string())
}

/// The resource to which a list is narrowed.
pub fn narrowed_to(resource: Option<String>) -> Result<Option<ResourceName>, Problem> {
    let name = resource.map(ResourceName::new).transpose();
    name.map_err(|error| malformed(format!("resource: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::Uri;

    fn list(query: &str) -> Result<List, ()> {
        let uri: Uri = format!("/locks?{query}").parse().unwrap();
        axum::extract::Query::try_from_uri(&uri).map(|query| query.0).map_err(|_| ())
    }

    #[test]
    fn unknown_and_repeated_parameters_are_refused() {
        assert!(list("prefix=a&limit=3").is_ok());
        assert!(list("").is_ok());
        for bad in ["prefx=a", "limit=1&limit=2", "limit=x", "prefix=a&prefix=a"] {
            assert!(list(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn limits_and_prefixes_are_bounded() {
        for bad in [
            "limit=0",
            "limit=1001",
            "limit=-1",
            "prefix=a%00",
            "cursor=zz",
            "cursor=ff",
            "cursor=",
            "cursor=6A",
        ] {
            assert!(list(bad).unwrap().page().is_err(), "{bad}");
        }
        assert_eq!(list("").unwrap().page().unwrap().limit, LIST_LIMIT_DEFAULT + 1);
    }

    #[test]
    fn a_cursor_leads_to_the_next_page() {
        let page = list("limit=2").unwrap().page().unwrap();
        let mut items = vec!["a".to_owned(), "b".into(), "c".into()];
        let cursor = cursor_after(&mut items, &page, |item| item).unwrap();
        assert_eq!(items, ["a", "b"]);
        let next = list(&format!("cursor={cursor}")).unwrap().page().unwrap();
        assert_eq!(next.after.as_deref(), Some("b"));
        let mut last = vec!["c".to_owned()];
        assert_eq!(cursor_after(&mut last, &page, |item| item), None);
    }

    #[test]
    fn numbered_entries_have_cursors_too() {
        let mut items = vec![9, 7, 4];
        assert_eq!(cursor_before(&mut items, 2, |item| *item).as_deref(), Some("7"));
        assert_eq!(items, [9, 7]);
        assert_eq!(cursor_before(&mut items, 2, |item| *item), None);
        assert_eq!(before(Some("7")).unwrap(), Some(7));
        assert_eq!(before(None).unwrap(), None);
        for bad in ["", "x", "0", "-1", "+7", "07", "9223372036854775808"] {
            assert!(before(Some(bad)).is_err(), "{bad}");
        }
    }
}
