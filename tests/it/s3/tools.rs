//! The tools: how each is driven, what it can do, and what it makes of a refusal.

use std::path::{Path, PathBuf};

use fence_tests::stores::tool;
use serde_json::{Value, json};

/// A client of S3.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Who runs its driver.
    pub by: Runtime,
    /// The driver, in `tests/s3/drivers`, and its word.
    pub driver: (&'static str, &'static str),
    /// How it can write.
    pub writes: &'static [Write],
    /// What it says of a stale token.
    pub says: &'static str,
    /// How often it asks before it believes a refusal.
    pub asks: usize,
}

/// What runs a driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Runtime {
    Python,
    Node,
    /// Python with what `make long` installs.
    #[cfg(feature = "long")]
    LongPython,
}

/// A way to write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Write {
    /// One object.
    Put,
    /// One object that the tool itself sends in parts.
    Large,
    /// A part of an upload that began before.
    Part,
    /// The end of an upload that began before.
    Complete,
    Delete,
    /// Several objects in one call.
    DeleteMany,
    Copy,
}

impl Write {
    /// The call of a driver, on the object `key` of the resource, or on another in its place.
    pub fn call(self, key: &str) -> Value {
        match self {
            Self::Put => json!({ "do": "put", "key": key, "text": "from a late writer" }),
            Self::Large => json!({ "do": "large", "key": key }),
            Self::Part => json!({ "do": "part" }),
            Self::Complete => json!({ "do": "complete" }),
            Self::Delete => json!({ "do": "delete", "key": key }),
            Self::DeleteMany => json!({ "do": "delete_many", "keys": [key] }),
            Self::Copy => json!({ "do": "copy", "source": key, "key": format!("{key}.copy") }),
        }
    }
}

pub const BOTO3: Tool = Tool {
    by: Runtime::Python,
    driver: ("sdk_for_python.py", ""),
    writes: &[
        Write::Put,
        Write::Large,
        Write::Part,
        Write::Complete,
        Write::Delete,
        Write::DeleteMany,
        Write::Copy,
    ],
    says: "FenceTokenStale",
    asks: 1,
};

/// The same, made to ask for its key again and again.
pub const REFRESHING: Tool = Tool { driver: ("refreshing.py", ""), ..BOTO3 };

pub const AWS_CLI: Tool = Tool {
    driver: ("command_lines.py", "aws"),
    writes: &[Write::Put, Write::Large, Write::Part, Write::Complete, Write::Delete, Write::Copy],
    ..BOTO3
};

pub const JAVASCRIPT: Tool =
    Tool { by: Runtime::Node, driver: ("sdk_for_javascript.mjs", ""), ..BOTO3 };

pub const OBJECT_STORE: Tool = Tool {
    driver: ("object_store.py", ""),
    writes: &[Write::Put, Write::Large, Write::Complete, Write::Delete, Write::Copy],
    ..BOTO3
};

pub const S5CMD: Tool = Tool {
    driver: ("command_lines.py", "s5cmd"),
    writes: &[Write::Put, Write::Large, Write::Delete, Write::Copy],
    says: "a newer token was granted",
    ..BOTO3
};

impl Tool {
    /// The program to run, and its words.
    pub fn command(&self) -> Vec<PathBuf> {
        let (driver, word) = self.driver;
        let program = match self.by {
            Runtime::Python => python(),
            Runtime::Node => PathBuf::from("node"),
            #[cfg(feature = "long")]
            Runtime::LongPython => tool("s3/long/python/bin/python"),
        };
        let mut words = vec![program, scripts().join("drivers").join(driver)];
        words.extend((!word.is_empty()).then(|| PathBuf::from(word)));
        words
    }
}

/// Where the drivers are.
pub fn scripts() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("s3")
}

/// The interpreter beside which the tools are installed.
pub fn python() -> PathBuf {
    tool("s3/python/bin/python")
}

/// The packages for Node.
pub fn node_modules() -> PathBuf {
    tool("s3/node_modules")
}
