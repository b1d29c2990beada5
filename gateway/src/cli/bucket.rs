//! `fencegate bucket`: buckets of S3.

use clap::Subcommand;
use fencegate_s3::bucket::{BucketName, Depth};

use super::access::{Making, Place, Where};
use super::{Failure, block_on, print, start};
use crate::config::Flags;

#[derive(Debug, Subcommand)]
pub(super) enum Bucket {
    /// Make a bucket; if it is there already, with the same depth, nothing changes
    ///
    /// On Postgres it works on the ledger itself. For a data directory it goes through the gateway that uses it, at its
    /// socket, or works on the directory while no gateway does. So do the other commands.
    Make {
        /// Its name: 3 to 63 of a-z, 0-9, `.` and `-`
        #[arg(value_parser = bucket_name)]
        name: BucketName,

        /// How many leading segments of a key name its resource, and so its lock: 0 to 3, fixed for ever
        ///
        /// With 1, `orders/a.txt` of bucket `lake` is the object `a.txt` of resource `lake:orders`.
        #[arg(long, default_value = "0", value_parser = depth)]
        depth: Depth,

        #[command(flatten)]
        making: Making,

        #[command(flatten)]
        at: Where,

        #[command(flatten)]
        flags: Flags,
    },
    /// List all buckets, each with its depth and when it was made
    Ls {
        #[command(flatten)]
        at: Where,

        #[command(flatten)]
        flags: Flags,
    },
    /// Delete a bucket that is empty
    ///
    /// Its name keeps its depth: it can only be made again with the same.
    Rm {
        /// Its name
        #[arg(value_parser = bucket_name)]
        name: BucketName,

        #[command(flatten)]
        at: Where,

        #[command(flatten)]
        flags: Flags,
    },
}

fn bucket_name(text: &str) -> Result<BucketName, String> {
    BucketName::new(text).map_err(|why| why.message.into_owned())
}

fn depth(text: &str) -> Result<Depth, String> {
    let depth = text.parse().ok().and_then(|depth| Depth::new(depth).ok());
    depth.ok_or_else(|| "it must be 0, 1, 2 or 3".to_owned())
}

/// Does what `fencegate bucket` is asked for.
pub(super) fn bucket(command: Bucket) -> Result<(), Failure> {
    match command {
        Bucket::Make { name, depth, making, at, flags } => {
            let place = making.place(at, start(&flags)?)?;
            block_on(place.make_bucket(&name, depth))?;
        }
        Bucket::Ls { at, flags } => {
            let place = Place::of(at, start(&flags)?)?;
            let buckets = block_on(place.buckets())?;
            let lines = buckets
                .iter()
                .map(|it| format!("{}\tdepth {}\tsince {}\n", it.name, it.depth, it.created_at));
            print(&lines.collect::<String>())?;
        }
        Bucket::Rm { name, at, flags } => {
            let place = Place::of(at, start(&flags)?)?;
            block_on(place.drop_bucket(&name))?;
        }
    }
    Ok(())
}
