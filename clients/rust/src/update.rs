//! Read, change, write: again from the reading, if somebody else changed it in between (CC41).

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::acquire::LockBuilder;
use crate::client::Client;
use crate::clock::{draw, now_ms, sleep_until_ms};
use crate::error::Error;
use crate::guard::writing::On;
use crate::machine::backoff::Backoff;
use crate::transport::body::Body;
use crate::write::Written;

/// How often a round is made again.
const ROUNDS_MAX: u32 = 16;

/// What a change makes of an object.
#[derive(Debug)]
pub enum Change {
    /// These bytes take its place.
    Put(Body),
    /// It is removed.
    Delete,
    /// It stays as it is.
    Keep,
}

impl<T: Into<Body>> From<T> for Change {
    fn from(body: T) -> Self {
        Self::Put(body.into())
    }
}

impl On<'_> {
    /// Reads the object, lets `change` make a new one of it (`None`: there is none), and stores that, if
    /// nobody changed the object meanwhile; else again, at most 16 times. `change` may run several times.
    ///
    /// Gives what was written; `None` if it was kept or deleted.
    ///
    /// # Errors
    /// As reads and writes; [`Error::Changed`] after 16 rounds.
    pub async fn update<C: Into<Change>>(
        &self,
        key: &str,
        mut change: impl FnMut(Option<Bytes>) -> C,
    ) -> Result<Option<Written>, Error> {
        self.update_with(key, move |old| Ok(change(old).into())).await
    }

    /// The same for a value as JSON.
    ///
    /// # Errors
    /// As [`On::update`]; [`Error::Misuse`]: what is stored, or the new value, is not JSON of that type.
    pub async fn update_json<T: DeserializeOwned, U: Serialize>(
        &self,
        key: &str,
        mut change: impl FnMut(Option<T>) -> Option<U>,
    ) -> Result<Option<U>, Error> {
        let mut made = None;
        self.update_with(key, |old| {
            let old = old.map(|bytes| serde_json::from_slice(&bytes)).transpose();
            let old =
                old.map_err(|error| Error::misuse(format!("not the JSON wanted: {error}")))?;
            made = change(old);
            match &made {
                Some(new) => Ok(Change::Put(Body::json(new)?)),
                None => Ok(Change::Delete),
            }
        })
        .await?;
        Ok(made)
    }

    async fn update_with(
        &self,
        key: &str,
        mut change: impl FnMut(Option<Bytes>) -> Result<Change, Error>,
    ) -> Result<Option<Written>, Error> {
        let (resource, object) = self.object(key)?;
        let client = Client { inner: self.held.inner.clone() };
        let (mut backoff, mut round) = (Backoff::default(), 0);
        loop {
            round += 1;
            self.held.check()?;
            let old = client.get(resource.as_str(), object.as_str()).optional().await?;
            let (bytes, tag) = match old {
                Some(old) => (Some(old.bytes), Some(old.etag)),
                None => (None, None),
            };
            let done = match (change(bytes)?, tag) {
                (Change::Keep, _) | (Change::Delete, None) => return Ok(None),
                (Change::Put(body), Some(tag)) => self.put(key, body).if_match(tag).await.map(Some),
                (Change::Put(body), None) => self.put(key, body).if_absent().await.map(Some),
                (Change::Delete, Some(tag)) => self.delete(key).if_match(tag).await.map(|_| None),
            };
            match done {
                Err(Error::Changed(_)) if round < ROUNDS_MAX => {
                    let pause_ms = backoff.next(draw(), None, 2_000).unwrap_or(0);
                    sleep_until_ms(now_ms() + pause_ms).await;
                }
                done => return done,
            }
        }
    }
}

impl LockBuilder {
    /// Takes the lock, changes one object as [`On::update`] does, and gives the lock back. The lock is on one
    /// resource.
    ///
    /// # Errors
    /// As [`LockBuilder::run`] and [`On::update`].
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let count = |old: Option<bytes::Bytes>| format!("{} visitors", old.map_or(0, |old| old.len()));
    /// client.lock("visitors").update("count.txt", count).await?;
    /// # Ok(()) }
    /// ```
    pub async fn update<C: Into<Change>>(
        self,
        key: &str,
        change: impl FnMut(Option<Bytes>) -> C,
    ) -> Result<Option<Written>, Error> {
        self.run(async |lock| lock.update(key, change).await).await
    }
}

/// The same on a guard of one resource.
macro_rules! updates {
    ($guard:ty) => {
        impl $guard {
            /// Reads the object, lets `change` make a new one of it (`None`: there is none), and stores that, if
            /// nobody changed the object meanwhile; else again, at most 16 times. `change` may run several
            /// times.
            ///
            /// # Errors
            /// As reads and writes; [`Error::Changed`] after 16 rounds.
            pub async fn update<C: Into<Change>>(
                &self,
                key: &str,
                change: impl FnMut(Option<Bytes>) -> C,
            ) -> Result<Option<Written>, Error> {
                On { held: &self.held, resource: None }.update(key, change).await
            }

            /// The same for a value as JSON; `None` deletes it. Gives the new value.
            ///
            /// # Errors
            /// As [`Self::update`]; [`Error::Misuse`]: what is stored, or the new value, is not JSON of that
            /// type.
            pub async fn update_json<T: DeserializeOwned, U: Serialize>(
                &self,
                key: &str,
                change: impl FnMut(Option<T>) -> Option<U>,
            ) -> Result<Option<U>, Error> {
                On { held: &self.held, resource: None }.update_json(key, change).await
            }
        }
    };
}
updates!(crate::Lock);
updates!(crate::Fence);
