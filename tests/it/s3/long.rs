//! The tools that are too large, or too slow, for every change: `tests/s3/long.sh` installs them and runs these tests.

use super::bouncing::bounces;
use super::tools::{BOTO3, Runtime, S5CMD, Tool, Write};

/// A tool with all of the files.
const FILES: &[Write] = &[Write::Put, Write::Large, Write::Delete, Write::Copy];

#[tokio::test]
async fn pyarrow() {
    let writes = &[Write::Put, Write::Large, Write::Complete, Write::Delete, Write::Copy];
    bounces(&Tool { writes, says: "FenceTokenStale", ..library("arrow.py", "") }).await;
}

#[tokio::test]
async fn minio() {
    let writes = &[Write::Put, Write::Large, Write::Delete, Write::DeleteMany, Write::Copy];
    bounces(&Tool { writes, ..library("minio_client.py", "") }).await;
}

#[tokio::test]
async fn delta() {
    bounces(&Tool { writes: &[Write::Put, Write::Delete], ..library("tables.py", "delta") }).await;
}

#[tokio::test]
async fn lance() {
    bounces(&Tool { writes: &[Write::Put, Write::Delete], ..library("tables.py", "lance") }).await;
}

#[tokio::test]
async fn polars() {
    // It makes a new client when it is refused, and asks once more.
    bounces(&Tool { writes: &[Write::Put], asks: 2, ..library("tables.py", "polars") }).await;
}

#[tokio::test]
async fn duckdb() {
    let says = "Forbidden";
    bounces(&Tool { writes: &[Write::Put], says, asks: 2, ..library("tables.py", "duckdb") }).await;
}

#[tokio::test]
async fn rclone() {
    bounces(&Tool { writes: FILES, asks: 3, ..command("rclone") }).await;
}

#[tokio::test]
async fn s3cmd() {
    bounces(&Tool { writes: FILES, ..command("s3cmd") }).await;
}

#[tokio::test]
async fn restic() {
    // It tries everything that fails ten times more, within about a minute.
    bounces(&Tool { writes: &[Write::Put, Write::Delete], asks: 11, ..command("restic") }).await;
}

fn library(driver: &'static str, word: &'static str) -> Tool {
    Tool { by: Runtime::LongPython, driver: (driver, word), ..BOTO3 }
}

fn command(name: &'static str) -> Tool {
    Tool { driver: ("command_lines.py", name), ..S5CMD }
}
