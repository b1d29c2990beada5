//! What a request was about and who asked, as far as its handler found out: for the log.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use axum::extract::FromRequestParts;
use axum::http::request::Parts;
use fence_core::ResourceName;

use super::answer::is_logged;

/// A slip that the handler of a request fills in. Names alone: never a token or the id of a lock.
#[derive(Debug, Clone, Default)]
pub struct Named(Arc<Mutex<Names>>);

/// What is on it.
#[derive(Debug, Clone, Default)]
pub struct Names {
    /// The resources, with a space between them, which no name has.
    pub resources: Option<String>,
    /// Who asked, in the caller's own words.
    pub owner: Option<String>,
}

impl Named {
    /// Notes resources and owner, as far as they are known, if there is to be a log line.
    pub fn note(&self, resources: &[ResourceName], owner: &str) {
        if !is_logged() {
            return;
        }
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if !resources.is_empty() {
            let all: Vec<&str> = resources.iter().map(ResourceName::as_str).collect();
            names.resources = Some(all.join(" "));
        }
        if !owner.is_empty() {
            names.owner = Some(owner.to_owned());
        }
    }

    /// What was noted.
    pub fn names(&self) -> Names {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl<S: Sync> FromRequestParts<S> for Named {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Infallible> {
        Ok(parts.extensions.get().cloned().unwrap_or_default())
    }
}
