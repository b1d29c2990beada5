//! How lists of numbered entries are followed: `after` and `wait`, which the audit and the refused writes share.

use std::time::Duration;

use fence_core::{ErrorCode, ResourceName};
use fencegate_access::Action;

use crate::engine::access::Want;
use crate::engine::{Followed, RecordFrom};
use crate::http::extract::Asker;
use crate::http::peers::Counted;
use crate::http::problem::Problem;
use crate::http::state::App;

/// What is asked for to see records of a resource, or of all.
pub(super) fn observing(resource: Option<&str>) -> Want {
    match resource.and_then(|name| ResourceName::new(name).ok()) {
        Some(name) => Want::On(Action::Observe, name),
        None => Want::All(Action::Observe, String::new()),
    }
}

/// Where a list is followed from; `None` if it is not followed, but looked at from its end.
pub(super) fn from(
    after: Option<&str>,
    wait: Option<Duration>,
    cursor: Option<&str>,
) -> Result<Option<RecordFrom>, Problem> {
    let malformed = |why| Problem::new(ErrorCode::QueryMalformed, why);
    // `parse` would also take a sign and leading zeros.
    let exact = |text: &str| text.parse().ok().filter(|number: &i64| number.to_string() == text);
    match (after, wait, cursor) {
        (Some(_), _, Some(_)) => {
            Err(malformed("after goes on to newer entries and cursor to older ones; not both"))
        }
        (None, Some(_), _) => Err(malformed("wait needs after")),
        (None, None, _) => Ok(None),
        (Some("now"), ..) => Ok(Some(RecordFrom::Now)),
        (Some(text), ..) => match exact(text).filter(|number| *number >= 0) {
            Some(number) => Ok(Some(RecordFrom::After(number))),
            None => {
                Err(malformed("after is now, 0, or the next_cursor of a page that was followed"))
            }
        },
    }
}

/// The entries behind a place, and where to go on.
pub(super) async fn followed<R: Followed>(
    app: &App,
    counted: &Counted,
    (filter, limit): (R, i64),
    from: RecordFrom,
    wait: Option<Duration>,
) -> Result<(Vec<R::Entry>, String), Problem> {
    let wait = wait.filter(|wait| !wait.is_zero());
    let waits = wait.map(|_| app.room.long_calls.begin_stream(counted)).transpose()?;
    // One that waits is counted by that: its turn would last as long.
    let engine = match waits {
        Some(_) => app.engine.clone(),
        None => Asker::take(app, counted).await?.0,
    };
    let mut follower = engine.follow(filter, from).await?;
    let mut found = follower.page(limit).await?;
    if let Some(wait) = wait.filter(|_| found.is_empty()) {
        let next = async {
            tokio::select! {
                biased;
                next = follower.next(limit) => next,
                () = app.draining.cancelled() => Ok(Vec::new()),
            }
        };
        found = app.engine.runtime().within(wait, next).await.unwrap_or(Ok(Vec::new()))?;
    }
    Ok((found, follower.at().to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_followed_from_a_number_or_from_now() {
        let after = |text| from(Some(text), None, None).ok().flatten();
        assert_eq!(after("now"), Some(RecordFrom::Now));
        assert_eq!(after("0"), Some(RecordFrom::After(0)));
        assert_eq!(after("17"), Some(RecordFrom::After(17)));
        for bad in ["", "x", "-1", "+7", "07", "9223372036854775808", "Now"] {
            assert_eq!(after(bad), None, "{bad}");
        }
        assert_eq!(from(None, None, Some("17")).ok(), Some(None));
        assert!(from(None, Some(Duration::ZERO), None).is_err());
        assert!(from(Some("0"), None, Some("17")).is_err());
    }
}
