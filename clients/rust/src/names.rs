//! Names and durations that callers give, checked by the gateway's rules before anything is sent, and
//! refused in its words.

use std::time::Duration;

use fencegate_wire::json::LOCK_WRITERS_MAX;
use fencegate_wire::{ErrorCode, ObjectKey, PrincipalName, ResourceName, WriterName};

use crate::error::Error;

/// The resources of a lock: one name, or several.
#[derive(Debug, Clone)]
pub struct Resources(Vec<String>);

impl Resources {
    /// All checked, in byte order, each once.
    pub(crate) fn checked(self) -> Result<Vec<ResourceName>, String> {
        let mut names = Vec::with_capacity(self.0.len());
        for name in self.0 {
            names.push(checked_resource(&name)?);
        }
        names.sort();
        if names.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err("each resource may be named only once".to_owned());
        }
        Ok(names)
    }
}

impl From<&str> for Resources {
    fn from(name: &str) -> Self {
        Self(vec![name.to_owned()])
    }
}

impl From<String> for Resources {
    fn from(name: String) -> Self {
        Self(vec![name])
    }
}

impl From<&String> for Resources {
    fn from(name: &String) -> Self {
        Self(vec![name.clone()])
    }
}

impl From<&ResourceName> for Resources {
    fn from(name: &ResourceName) -> Self {
        Self(vec![name.to_string()])
    }
}

impl<T: AsRef<str>, const N: usize> From<[T; N]> for Resources {
    fn from(names: [T; N]) -> Self {
        Self(names.iter().map(|name| name.as_ref().to_owned()).collect())
    }
}

impl<T: AsRef<str>> From<&[T]> for Resources {
    fn from(names: &[T]) -> Self {
        Self(names.iter().map(|name| name.as_ref().to_owned()).collect())
    }
}

impl<T: AsRef<str>> From<Vec<T>> for Resources {
    fn from(names: Vec<T>) -> Self {
        Self(names.iter().map(|name| name.as_ref().to_owned()).collect())
    }
}

fn checked_resource(name: &str) -> Result<ResourceName, String> {
    let title = ErrorCode::ResourceNameInvalid.title();
    ResourceName::new(name).map_err(|error| format!("{title}: {name:?}: {error}"))
}

/// The name of a resource.
pub(crate) fn resource(name: &str) -> Result<ResourceName, Error> {
    checked_resource(name).map_err(Error::misuse)
}

/// The key of an object.
pub(crate) fn object(key: &str) -> Result<ObjectKey, Error> {
    let title = ErrorCode::ObjectKeyInvalid.title();
    let checked = ObjectKey::new(key);
    checked.map_err(|error| Error::misuse(format!("{title}: {key:?}: {error}")))
}

/// The name of a principal.
pub(crate) fn principal(name: &str) -> Result<PrincipalName, Error> {
    PrincipalName::new(name).map_err(|error| Error::misuse(format!("{name:?}: {error}")))
}

/// Who else may write under a lock: principals, and roles as `role:NAME`.
pub(crate) fn writers(names: &[String]) -> Result<Vec<WriterName>, Error> {
    if names.len() > LOCK_WRITERS_MAX {
        return Err(Error::misuse(format!("a lock has at most {LOCK_WRITERS_MAX} writers")));
    }
    let checked = |name: &String| {
        WriterName::new(name).map_err(|error| Error::misuse(format!("{name:?}: {error}")))
    };
    names.iter().map(checked).collect()
}

/// A duration that goes over the wire: in whole milliseconds.
pub(crate) fn whole_ms(duration: Duration) -> Result<Duration, Error> {
    if !duration.subsec_nanos().is_multiple_of(1_000_000) {
        return Err(Error::misuse("a duration has whole milliseconds"));
    }
    Ok(duration)
}
