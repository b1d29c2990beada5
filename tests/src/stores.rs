//! Real object stores as processes: an S3 server on files, and Azurite. Both are emulators, which is as
//! near as a machine without the clouds comes; the folder is the real thing.

use std::fs::File;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use sha2::Sha256;
use tokio::net::TcpStream;

use crate::gateway::Settings;
use crate::process::{Home, eventually, free_port, loopback, tail_of};

/// Which kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A folder.
    Folder,
    /// S3.
    S3,
    /// Azure.
    Azure,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Folder, Self::S3, Self::Azure];
}

/// A store of its own, empty. It ends when this is dropped, or with the test process.
#[derive(Debug)]
pub struct Store {
    home: Home,
    kind: Kind,
    address: Option<SocketAddr>,
}

/// What is added to a gateway so that it keeps its blobs there.
pub fn on_store(settings: Settings, store: &Store) -> Settings {
    store
        .env(None)
        .iter()
        .fold(settings.flag("--blobs", &store.url()), |settings, (name, value)| {
            settings.env(name, value)
        })
}

/// Where `tests/run.sh` installs what comes neither from apt nor with this workspace.
///
/// # Panics
/// It is not there.
pub fn tool(path: &str) -> PathBuf {
    find_tool(path).unwrap_or_else(|| panic!("{path} is missing: tests/run.sh installs it"))
}

/// Finds such a tool, if it is installed.
pub fn find_tool(path: &str) -> Option<PathBuf> {
    let asks = std::env::current_exe().expect("a process knows its executable");
    asks.ancestors()
        .skip(2)
        .take(2)
        .map(|target| target.join("tools").join(path))
        .find(|tool| tool.exists())
}

/// What Azurite is born with, known to everybody.
const AZURITE_ACCOUNT: &str = "devstoreaccount1";
const AZURITE_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const S3_KEY: &str = "fencegate";
const S3_SECRET: &str = "not-a-secret";
const BUCKET: &str = "blobs";

impl Store {
    /// Starts one.
    pub async fn start(kind: Kind) -> Self {
        let mut store = Self { home: Home::new("store"), kind, address: None };
        if kind == Kind::Folder {
            return store;
        }
        store.address = Some(loopback(free_port()));
        store.restart().await;
        if kind == Kind::Azure {
            store.make_container().await;
        }
        store
    }

    /// Starts its process, again on what it had if it was killed.
    pub async fn restart(&mut self) {
        let Some(address) = self.address else { return };
        let (ip, port) = (address.ip().to_string(), address.port().to_string());
        let dir = self.home.path().join("data");
        std::fs::create_dir_all(dir.join(BUCKET)).expect("a directory");
        let log = self.home.path().join("log");
        let output = File::create(&log).expect("a log file");
        let configure = |command: &mut Command| {
            command
                .stdout(output.try_clone().expect("a file can be shared"))
                .stderr(output.try_clone().expect("a file can be shared"));
        };
        match self.kind {
            Kind::Folder => {}
            Kind::S3 => {
                self.home.spawn(&tool("bin/s3s-fs"), |command| {
                    command
                        .args(["--host", &ip, "--port", &port])
                        .args(["--access-key", S3_KEY, "--secret-key", S3_SECRET])
                        .arg(dir);
                    configure(command);
                });
            }
            Kind::Azure => {
                self.home.spawn(&tool("node_modules/.bin/azurite-blob"), |command| {
                    command
                        .args(["--blobHost", &ip, "--blobPort", &port, "--location"])
                        .arg(dir)
                        .args(["--disableTelemetry", "--silent", "--skipApiVersionCheck"]);
                    configure(command);
                });
            }
        }
        eventually("the store takes connections", async || {
            assert!(self.home.running(), "the store does not start:\n{}", tail_of(&log));
            TcpStream::connect(address).await.ok()
        })
        .await;
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.home.pid()
    }

    /// Kills its process at once.
    pub fn kill9(&mut self) {
        self.home.kill9();
    }

    /// Freezes its process; connections stay open and nothing answers.
    pub fn pause(&self) {
        self.home.signal("STOP");
    }

    /// Lets a frozen process go on.
    pub fn resume(&self) {
        self.home.signal("CONT");
    }

    /// Where it listens, if it does.
    pub fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// Its URL, as a gateway is told.
    pub fn url(&self) -> String {
        match self.kind {
            Kind::Folder => format!("file://{}", self.home.path().join("data").display()),
            Kind::S3 => format!("s3://{BUCKET}/some/prefix"),
            Kind::Azure => format!("az://{BUCKET}/some/prefix"),
        }
    }

    /// What a gateway needs in its environment to reach the store, perhaps by another address.
    pub fn env(&self, by: Option<SocketAddr>) -> Vec<(&'static str, String)> {
        let at = || format!("http://{}", by.or(self.address).expect("a store that listens"));
        match self.kind {
            Kind::Folder => Vec::new(),
            Kind::S3 => vec![
                ("AWS_ENDPOINT_URL", at()),
                ("AWS_ACCESS_KEY_ID", S3_KEY.into()),
                ("AWS_SECRET_ACCESS_KEY", S3_SECRET.into()),
                ("AWS_REGION", "us-east-1".into()),
                ("AWS_ALLOW_HTTP", "true".into()),
            ],
            Kind::Azure => vec![
                ("AZURE_STORAGE_ACCOUNT_NAME", AZURITE_ACCOUNT.into()),
                ("AZURE_STORAGE_ACCOUNT_KEY", AZURITE_KEY.into()),
                ("AZURE_STORAGE_ENDPOINT", format!("{}/{AZURITE_ACCOUNT}", at())),
                ("AZURE_ALLOW_HTTP", "true".into()),
            ],
        }
    }

    /// Files of the store on disk that hold what was uploaded, finished or not; of a folder and of S3,
    /// which keep one file for each.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut open = vec![self.home.path().join("data")];
        while let Some(dir) = open.pop() {
            let Ok(entries) = std::fs::read_dir(&dir) else { continue };
            for entry in entries.flatten() {
                let path = entry.path();
                match path.is_dir() {
                    // Those of the audit stay for ever.
                    true if path.ends_with("audit/checkpoint") => {}
                    true => open.push(path),
                    false => found.push(path),
                }
            }
        }
        found
    }

    /// Makes the container, which users make by other means: signed with the account's key.
    async fn make_container(&self) {
        let date = jiff::Timestamp::now().strftime("%a, %d %b %Y %H:%M:%S GMT").to_string();
        let version = "2021-08-06";
        let signed = format!(
            "PUT\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:{date}\nx-ms-version:{version}\n\
             /{AZURITE_ACCOUNT}/{AZURITE_ACCOUNT}/{BUCKET}\nrestype:container"
        );
        let key = STANDARD.decode(AZURITE_KEY).expect("the key is base64");
        let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("any length will do");
        mac.update(signed.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let address = self.address.expect("Azurite listens");
        let http = reqwest::Client::builder().no_proxy().build().expect("a client can be built");
        let answer = http
            .put(format!("http://{address}/{AZURITE_ACCOUNT}/{BUCKET}?restype=container"))
            .header("x-ms-date", date)
            .header("x-ms-version", version)
            .header("authorization", format!("SharedKey {AZURITE_ACCOUNT}:{signature}"))
            .header("content-length", "0")
            .send()
            .await
            .expect("Azurite answers");
        let (status, body) = (answer.status(), answer.text().await.unwrap_or_default());
        assert_eq!(status, 201, "{body}");
    }
}
