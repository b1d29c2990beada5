//! Parts of a job, for as many workers as there are (CC54).

use std::collections::VecDeque;

use rand::seq::SliceRandom as _;

use crate::client::Client;
use crate::error::Error;
use crate::guard::Lock;

/// The most shards of one name.
const SHARDS_MAX: u32 = 10_000;

/// Locks on the shards of a name, in random order: those that can be had without waiting.
#[derive(Debug)]
pub struct Shards {
    client: Client,
    name: String,
    count: u32,
    left: VecDeque<u32>,
}

/// One shard of a name, and its lock.
#[derive(Debug)]
pub struct Shard {
    /// Which one, from 0.
    pub index: u32,
    /// Its lock.
    pub lock: Lock,
}

impl Client {
    /// The shards of a name: `count` resources `name@00.16`, `name@01.16` and so on.
    ///
    /// # Errors
    /// [`Error::Misuse`]: the name is none, or the count is not from 1 to 10,000.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let gateway = fencegate_client::testing::Gateway::start().await?; let client = gateway.client();
    /// let mut shards = client.shards("reindex", 4)?;
    /// while let Some(shard) = shards.next().await? {
    ///     shard.lock.put("done.txt", format!("part {}", shard.index)).await?;
    /// }
    /// # Ok(()) }
    /// ```
    pub fn shards(&self, name: &str, count: u32) -> Result<Shards, Error> {
        if !(1..=SHARDS_MAX).contains(&count) {
            return Err(Error::misuse(format!("there are 1 to {SHARDS_MAX} shards")));
        }
        crate::names::resource(&shard_name(name, 0, count))?;
        let mut left: Vec<u32> = (0..count).collect();
        left.shuffle(&mut rand::rng());
        Ok(Shards { client: self.clone(), name: name.to_owned(), count, left: left.into() })
    }
}

/// `name@07.16`: as many digits as the count has, so that names sort as numbers do.
pub(crate) fn shard_name(name: &str, index: u32, count: u32) -> String {
    let width = count.to_string().len();
    format!("{name}@{index:0width$}.{count}")
}

impl Shards {
    /// The next shard that is free; `None` once all have been tried.
    ///
    /// # Errors
    /// As [`LockBuilder::acquire`](crate::LockBuilder::acquire), but for shards that others hold.
    pub async fn next(&mut self) -> Result<Option<Shard>, Error> {
        while let Some(index) = self.left.pop_front() {
            let name = shard_name(&self.name, index, self.count);
            if let Some(lock) = self.client.lock(name).try_acquire().await? {
                return Ok(Some(Shard { index, lock }));
            }
        }
        Ok(None)
    }
}
