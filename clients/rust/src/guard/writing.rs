//! What can be written through a guard.

use fencegate_wire::{ObjectKey, ResourceName};

use super::Lock;
use crate::error::Error;
use crate::names;
use crate::transport::body::Body;
use crate::write::{DeleteBuilder, PutBuilder};

/// Where a write goes: the resource is named by the caller, or is the only one.
pub(crate) fn target(
    held: &super::held::Held,
    resource: Option<&str>,
) -> Result<ResourceName, Error> {
    match (resource, &held.resources[..]) {
        (None, [only]) => Ok(only.clone()),
        (None, _) => {
            Err(Error::misuse("the lock covers several resources: say which, with `on(..)`"))
        }
        (Some(name), covered) => {
            let name = names::resource(name)?;
            match covered.contains(&name) {
                true => Ok(name),
                false => Err(Error::misuse(format!("the lock does not cover {name}"))),
            }
        }
    }
}

/// One resource of a guard that covers several.
#[derive(Clone, Copy)]
pub struct On<'a> {
    pub(crate) held: &'a std::sync::Arc<super::held::Held>,
    pub(crate) resource: Option<&'a str>,
}

impl On<'_> {
    pub(crate) fn object(&self, key: &str) -> Result<(ResourceName, ObjectKey), Error> {
        Ok((target(self.held, self.resource)?, names::object(key)?))
    }

    /// As [`Lock::put`].
    pub fn put(&self, key: &str, body: impl Into<Body>) -> PutBuilder {
        PutBuilder::new(self.held.clone(), self.object(key), body.into())
    }

    /// As [`Lock::delete`].
    pub fn delete(&self, key: &str) -> DeleteBuilder {
        let target = self.object(key).map(|(resource, key)| (resource, Some(key)));
        DeleteBuilder::new(self.held.clone(), target)
    }

    /// As [`Lock::delete_all`].
    pub fn delete_all(&self) -> DeleteBuilder {
        let resource = target(self.held, self.resource);
        DeleteBuilder::new(self.held.clone(), resource.map(|resource| (resource, None)))
    }
}

/// The writes of a guard, for each kind of guard.
macro_rules! writes {
    ($guard:ty) => {
        impl $guard {
            /// One of the resources that it covers, to write there.
            pub fn on<'a>(&'a self, resource: &'a str) -> $crate::guard::writing::On<'a> {
                $crate::guard::writing::On { held: &self.held, resource: Some(resource) }
            }

            fn here(&self) -> $crate::guard::writing::On<'_> {
                $crate::guard::writing::On { held: &self.held, resource: None }
            }

            /// Stores an object. It takes effect once or not at all, and only while nobody has a newer token.
            ///
            /// # Errors
            /// (of the await) [`Error::LockLost`]: stop. [`Error::Changed`]: a condition failed.
            /// [`Error::OutcomeUnknown`]: nobody knows; resolve it. [`Error::Unavailable`]: it certainly
            /// took no effect. [`Error::Misuse`]: the gateway would refuse a name or an option.
            pub fn put(
                &self,
                key: &str,
                body: impl Into<$crate::Body>,
            ) -> $crate::write::PutBuilder {
                self.here().put(key, body)
            }

            /// Removes an object, if it is there.
            ///
            /// # Errors
            /// As a put.
            pub fn delete(&self, key: &str) -> $crate::write::DeleteBuilder {
                self.here().delete(key)
            }

            /// Removes all objects of the resource, as one write.
            ///
            /// # Errors
            /// As a put.
            pub fn delete_all(&self) -> $crate::write::DeleteBuilder {
                self.here().delete_all()
            }

            /// Many puts and deletes at once: all or nothing.
            pub fn commit(&self) -> $crate::write::CommitBuilder {
                $crate::write::CommitBuilder::new(self.held.clone())
            }

            /// A request that changes something at an upstream, at this path of it. It is sent once.
            pub fn upstream(
                &self,
                upstream: &str,
                method: reqwest::Method,
                path: &str,
            ) -> $crate::write::UpstreamBuilder {
                $crate::write::UpstreamBuilder::new(self.held.clone(), upstream, method, path)
            }
        }
    };
}
pub(crate) use writes;
writes!(Lock);
