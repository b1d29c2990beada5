//! A gateway that speaks S3, and what is needed to run tools under its locks.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use fence_core::wire::{Lock, ObjectList, S3Access};
use fence_tests::client::{Client, resource_path};
use fence_tests::gateway::Gateway;
use fence_tests::process::{free_port, loopback};
use serde_json::json;
use tokio::process::Command;

use super::job::Job;
use super::tools::{Tool, node_modules, python};
use super::wire::Wire;
use crate::cli;
use crate::setup::SetUp;

/// The bucket of most tests: the first segment of a key names the resource.
const LAKE: &str = "lake";
/// What the tools write to.
pub const ORDERS: &str = "lake:orders";

/// A gateway, and what clients reach it through.
pub struct Site {
    pub gateway: Gateway,
    pub wire: Wire,
}

impl Site {
    pub async fn start() -> Self {
        Self::on(SetUp::Embedded).await
    }

    pub async fn on(setup: SetUp) -> Self {
        let port = free_port();
        let wire = Wire::start(port).await;
        let settings = setup.settings().await;
        let settings = settings.flag("--s3-listen", &loopback(port).to_string());
        let gateway = settings.flag("--s3-endpoint", &wire.url()).start().await;
        let site = Self { gateway, wire };
        site.make_bucket(LAKE, 1).await;
        site
    }

    pub fn client(&self) -> Client {
        self.gateway.client()
    }

    pub async fn make_bucket(&self, name: &str, depth: u8) {
        let call = self.client().call(reqwest::Method::PUT, format!("/buckets/{name}"));
        let call = call.header("content-type", "application/json");
        call.body(json!({ "depth": depth }).to_string()).send().await.expect(201);
    }

    /// A job that holds the lock of `lake:orders`, and has this tool. It stands in line for it, and keeps the lock as long as
    /// it runs and nobody takes it.
    pub async fn job(&self, tool: &Tool) -> Job {
        let url = self.gateway.url();
        // A job all of whose effects go through the gateway need not be ended when it loses its lock.
        let words = [
            "run",
            "-r",
            ORDERS,
            "--ttl",
            "1s",
            "--on-loss",
            "ignore",
            "--on-uncertain",
            "hold",
            "--",
        ];
        let mut command = cli::fence(&url, &words);
        command.args(tool.command());
        Job::start(command, &[])
    }

    /// Takes the lock of a resource.
    pub async fn lock(&self, resource: &str, ttl: &str) -> (Lock, S3Access) {
        let lock = self.client().acquire(resource, ttl).await;
        let key = lock.s3.clone().expect("its resource lies in a bucket");
        (lock, key)
    }

    /// What is stored in `lake:orders`, as anybody may read it.
    pub async fn stored(&self, key: &str) -> String {
        self.client().read(ORDERS, key).send().await.expect(200).text()
    }

    /// The keys of all objects of `lake:orders`, and which write each is of.
    pub async fn etags(&self) -> BTreeMap<String, String> {
        let path = format!("{}/objects", resource_path(ORDERS));
        let answer = self.client().get(path).send().await.expect(200);
        let objects = answer.parse::<ObjectList>().items.into_iter();
        objects.map(|object| (object.key, object.etag)).collect()
    }
}

/// What the environment of each tool has: none of the machine's settings of S3, and the programs of the tests.
pub fn equip(command: &mut Command, home: &Path) {
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if ["AWS_", "S3_", "RCLONE_"].iter().any(|tool| name.starts_with(tool)) {
            command.env_remove(name);
        }
    }
    let programs = python().parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let path: Vec<PathBuf> = [programs].into_iter().chain(std::env::split_paths(&path)).collect();
    command.env("PATH", std::env::join_paths(path).unwrap());
    command.env("HOME", home).env("AWS_EC2_METADATA_DISABLED", "true");
    command.env("FENCE_TEST_NODE_MODULES", node_modules().join("packages"));
    command.env("AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED", "true");
    command.env("PYTHONDONTWRITEBYTECODE", "1").env("no_proxy", "*");
}
