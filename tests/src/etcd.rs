//! A real etcd, from the installed binary, that syncs its log as in production.

use std::env;
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use etcd_client::{Client, ConnectOptions};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::process::{Home, eventually, find_program, free_port, tail_of};

/// The variable with the port of an etcd that all tests share.
pub const SHARED_PORT: &str = "FENCE_TEST_ETCD_PORT";

/// An etcd server of one member. It ends when this is dropped, or with the test process.
#[derive(Debug)]
pub struct Etcd {
    /// None if it belongs to another process.
    home: Option<Mutex<Home>>,
    program: PathBuf,
    client_port: u16,
    peer_port: u16,
    /// The port by which the other members reach it.
    peer_port_advertised: u16,
    /// Its name among the members.
    name: String,
    /// All members, as `--initial-cluster` takes them.
    members: String,
    /// Where its certificates are, if it takes only clients that have one.
    certificates: Option<PathBuf>,
    /// How much of its history it keeps, as its flag takes it; all by default.
    history_kept: Option<&'static str>,
    /// The most that it takes in; the default of etcd without.
    quota_bytes: Option<u64>,
}

impl Etcd {
    /// The server that all tests share, for tests that leave it running: that of the variable [`SHARED_PORT`], else one of
    /// this process.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Etcd> = OnceCell::const_new();
        let start = async || match env::var(SHARED_PORT) {
            Ok(port) => Self::elsewhere(port.parse().expect("a port")),
            Err(_) => Self::in_memory().await,
        };
        SHARED.get_or_init(start).await
    }

    /// A server of its own with its files in memory, for tests that do not mean the disk.
    pub async fn in_memory() -> Self {
        let home = Some(Mutex::new(Home::in_memory("etcd")));
        let server = Self { home, ..Self::alone(None) };
        server.start().await;
        server
    }

    /// A server of its own, for a test that stops, kills or pauses it.
    pub async fn dedicated() -> Self {
        let server = Self::alone(None);
        server.start().await;
        server
    }

    /// A server of its own that forgets what is older than this, such as `5m`.
    pub async fn compacted(history_kept: &'static str) -> Self {
        let server = Self { history_kept: Some(history_kept), ..Self::alone(None) };
        server.start().await;
        server
    }

    /// A server of its own that takes in so many bytes at most.
    pub async fn small(quota_bytes: u64) -> Self {
        let server = Self { quota_bytes: Some(quota_bytes), ..Self::alone(None) };
        server.start().await;
        server
    }

    /// Ends the alarms of a server that has room again.
    pub fn disarm(&self) {
        self.etcdctl(&["alarm", "disarm"]);
    }

    /// A server that another process started and ends.
    fn elsewhere(client_port: u16) -> Self {
        Self {
            home: None,
            program: PathBuf::new(),
            client_port,
            peer_port: 0,
            peer_port_advertised: 0,
            name: String::new(),
            members: String::new(),
            certificates: None,
            history_kept: None,
            quota_bytes: None,
        }
    }

    /// The only member of its cluster, not started yet.
    fn alone(certificates: Option<PathBuf>) -> Self {
        let (name, peer_port) = ("test".to_owned(), free_port());
        let members = member(&name, peer_port);
        Self { certificates, ..Self::of(name, members, (peer_port, peer_port)) }
    }

    /// A member with this name, which listens to the others on the first of these ports and is reached by
    /// them by the second; not started yet.
    fn of(name: String, members: String, (peer_port, peer_port_advertised): (u16, u16)) -> Self {
        let program = find_program("etcd", &[])
            .expect("etcd is not installed: install the package etcd-server");
        Self {
            home: Some(Mutex::new(Home::new("etcd"))),
            program,
            client_port: free_port(),
            peer_port,
            peer_port_advertised,
            name,
            members,
            certificates: None,
            history_kept: None,
            quota_bytes: None,
        }
    }

    /// The members of a cluster of this many, each a server of its own.
    pub async fn cluster(count: usize) -> Vec<Self> {
        let peers: Vec<_> = (0..count).map(|_| free_port()).map(|port| (port, port)).collect();
        Self::cluster_of(&peers).await
    }

    /// A cluster of members that listen to each other on the first of these ports and reach each other
    /// by the second: that of a proxy.
    pub async fn cluster_of(peers: &[(u16, u16)]) -> Vec<Self> {
        let name = |i: usize| format!("m{i}");
        let members: Vec<String> =
            peers.iter().enumerate().map(|(i, (_, port))| member(&name(i), *port)).collect();
        let members = members.join(",");
        let servers = peers.iter().enumerate();
        let servers: Vec<Self> =
            servers.map(|(i, ports)| Self::of(name(i), members.clone(), *ports)).collect();
        // None of them answers before most have started.
        servers.iter().for_each(Self::spawn);
        for server in &servers {
            server.client().await;
        }
        servers
    }

    /// Whether this member leads its cluster.
    pub async fn leads(&self) -> bool {
        let Some(mut client) = self.try_client().await else { return false };
        let Ok(status) = client.status().await else { return false };
        status.header().is_some_and(|header| header.member_id() == status.leader())
    }

    /// Saves a snapshot of the running server to a file.
    pub fn snapshot(&self) -> PathBuf {
        let file = self.home().path().join("snapshot");
        self.etcdctl(&["snapshot", "save", &file.to_string_lossy()]);
        file
    }

    /// Puts a snapshot in place of all data of the stopped server, under the same flags.
    pub fn restore(&self, snapshot: &Path) {
        self.wipe();
        let data = self.home().path().join("data");
        let peer = format!("http://127.0.0.1:{}", self.peer_port_advertised);
        self.etcdctl(&[
            "snapshot",
            "restore",
            &snapshot.to_string_lossy(),
            "--data-dir",
            &data.to_string_lossy(),
            "--name",
            &self.name,
            "--initial-cluster",
            &self.members,
            "--initial-advertise-peer-urls",
            &peer,
        ]);
    }

    fn etcdctl(&self, args: &[&str]) {
        let program = find_program("etcdctl", &[])
            .expect("etcdctl is not installed: install the package etcd-client");
        let output = Command::new(program)
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &self.endpoint()])
            .args(args)
            .output()
            .expect("etcdctl runs");
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{args:?}: {}\n{text}", output.status);
    }

    /// A server that speaks only TLS and wants a certificate of each client, with `server.pem`,
    /// `server.key` and `ca.pem` from a directory. It may not answer yet.
    pub fn with_tls(certificates: PathBuf) -> Self {
        let server = Self::alone(Some(certificates));
        server.spawn();
        server
    }

    /// Starts the server again, on the same ports and data, and waits until it answers.
    pub async fn start(&self) {
        self.spawn();
        let log = self.home().path().join("log");
        let what = format!("etcd answers; its log is {}", log.display());
        eventually(&what, async || {
            assert!(self.home().running(), "etcd does not start:\n{}", tail_of(&log));
            self.try_client().await
        })
        .await;
    }

    /// Starts the server again and does not wait: it answers only once most members run.
    pub fn spawn(&self) {
        let mut home = self.home();
        let log = home.path().join("log");
        let log = File::options().create(true).append(true).open(log).expect("a log file");
        let data = home.path().join("data");
        let scheme = if self.certificates.is_some() { "https" } else { "http" };
        let client = format!("{scheme}://{}", self.endpoint());
        let peer = format!("http://127.0.0.1:{}", self.peer_port);
        let advertised = format!("http://127.0.0.1:{}", self.peer_port_advertised);
        home.spawn(&self.program, |command| {
            command
                .args(["--name", &self.name])
                .arg("--data-dir")
                .arg(data)
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &advertised])
                .args(["--initial-cluster", &self.members])
                .args(self.certificates.iter().flat_map(|directory| {
                    [
                        OsString::from("--client-cert-auth"),
                        "--cert-file".into(),
                        directory.join("server.pem").into(),
                        "--key-file".into(),
                        directory.join("server.key").into(),
                        "--trusted-ca-file".into(),
                        directory.join("ca.pem").into(),
                    ]
                }))
                .args(self.history_kept.iter().flat_map(|kept| {
                    ["--auto-compaction-mode=periodic", "--auto-compaction-retention", kept]
                }))
                .args(self.quota_bytes.map(|bytes| format!("--quota-backend-bytes={bytes}")))
                .args(["--logger", "zap", "--log-level", "warn"])
                .stdout(log.try_clone().expect("a file can be shared"))
                .stderr(log);
        });
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(&self) {
        self.home().signal("CONT");
        self.home().signal("TERM");
        eventually("etcd ends", async || self.home().exit_status()).await;
    }

    /// Kills the server at once.
    pub fn kill9(&self) {
        self.home().kill9();
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.home().pid()
    }

    /// Freezes the server; connections stay open and nothing answers.
    pub fn pause(&self) {
        self.home().signal("STOP");
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        self.home().signal("CONT");
    }

    /// Removes all data of the stopped server: the next start is a new cluster.
    pub fn wipe(&self) {
        let mut home = self.home();
        assert!(!home.running(), "stop etcd before wiping it");
        std::fs::remove_dir_all(home.path().join("data")).expect("the data can be removed");
    }

    /// `HOST:PORT`, as `--etcd` takes it.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.client_port)
    }

    /// The port on the loopback.
    pub fn port(&self) -> u16 {
        self.client_port
    }

    /// A key prefix that no other test uses.
    pub fn prefix(&self) -> String {
        format!("/t-{}", Uuid::new_v4())
    }

    /// A client for looking at the keys.
    pub async fn client(&self) -> Client {
        eventually("etcd answers", async || self.try_client().await).await
    }

    async fn try_client(&self) -> Option<Client> {
        let limit = Duration::from_secs(2);
        let options = ConnectOptions::new().with_connect_timeout(limit).with_timeout(limit);
        let mut client = Client::connect([self.endpoint()], Some(options)).await.ok()?;
        client.get("/", None).await.ok()?;
        Some(client)
    }

    fn home(&self) -> MutexGuard<'_, Home> {
        let home = self.home.as_ref().expect("a server of its own");
        home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A member, as `--initial-cluster` takes it.
fn member(name: &str, peer_port: u16) -> String {
    format!("{name}=http://127.0.0.1:{peer_port}")
}
