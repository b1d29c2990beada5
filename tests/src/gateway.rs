//! The built `fencegate` binary as a child process on a free port.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::client::{Client, plain_http};
use crate::process::{DEADLINE, Home, eventually, free_port, loopback};
use crate::secrets;

/// The root of S3 keys of gateways on Postgres.
const S3_ROOT: &str = "5353535353535353535353535353535353535353535353535353535353535353";

/// How a gateway is started.
#[derive(Debug, Clone)]
pub struct Settings {
    args: Vec<String>,
    env: Vec<(String, String)>,
    binary: Option<PathBuf>,
}

impl Settings {
    /// Adds a flag and its value.
    pub fn flag(mut self, flag: &str, value: &str) -> Self {
        self.args.extend([flag.to_owned(), value.to_owned()]);
        self
    }

    /// The flags that were added, with their values.
    pub fn flags(&self) -> Vec<(String, String)> {
        let pairs = self.args.chunks_exact(2);
        pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect()
    }

    /// Sets an environment variable.
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.env.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Takes an environment variable away again.
    pub fn without_env(mut self, name: &str) -> Self {
        self.env.retain(|(known, _)| known != name);
        self
    }

    /// Starts this binary instead of the one that was built beside the tests.
    pub fn binary(mut self, binary: PathBuf) -> Self {
        self.binary = Some(binary);
        self
    }

    /// Starts the gateway and waits until it is ready.
    pub async fn start(self) -> Gateway {
        let mut gateway = Gateway::new(self);
        gateway.restart().await;
        gateway
    }

    /// Starts the gateway and does not wait: for one that will not be ready.
    pub fn begin(self) -> Gateway {
        let mut gateway = Gateway::new(self);
        gateway.spawn();
        gateway
    }

    /// Starts the gateway, which must end by itself: for settings that it refuses. Returns how it
    /// ended and what it printed on standard error.
    pub async fn start_refused(self) -> (ExitStatus, String) {
        let mut gateway = Gateway::new(self);
        gateway.spawn();
        let status = gateway.wait_for_exit().await;
        (status, gateway.log())
    }
}

/// A running gateway. It is killed when this is dropped, and with the test process.
#[derive(Debug)]
pub struct Gateway {
    home: Home,
    settings: Settings,
    address: SocketAddr,
    lines: Arc<Mutex<Vec<String>>>,
    /// Whether the reader of its log stands still.
    is_held: Arc<AtomicBool>,
    reader: Option<JoinHandle<()>>,
}

impl Drop for Gateway {
    /// What was sent to it must not be found in what it leaves behind.
    fn drop(&mut self) {
        if std::thread::panicking() {
            return;
        }
        let flags = self.settings.flags();
        let postgres = flags.iter().rev().find(|(flag, _)| flag == "--postgres");
        let postgres = postgres.map(|(_, url)| url.as_str());
        secrets::look(self.address, &self.log(), &self.data_dir(), postgres);
    }
}

impl Gateway {
    /// A gateway on the embedded default, with a data directory of its own.
    pub fn embedded() -> Settings {
        Settings { args: Vec::new(), env: Vec::new(), binary: None }
    }

    /// A gateway on a Postgres database and etcd, under a prefix of its own. Those of one ledger have a root of S3 keys alike,
    /// for tests that turn S3 on.
    pub fn clustered(postgres: &str, etcd: &str, prefix: &str) -> Settings {
        Settings { args: Vec::new(), env: Vec::new(), binary: None }
            .flag("--postgres", postgres)
            .flag("--etcd", etcd)
            .flag("--etcd-prefix", prefix)
            .env("FENCEGATE_S3_ROOT", S3_ROOT)
    }

    fn new(settings: Settings) -> Self {
        Self {
            home: Home::in_memory("gateway"),
            settings,
            address: loopback(free_port()),
            lines: Arc::default(),
            is_held: Arc::default(),
            reader: None,
        }
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// A client of it.
    pub fn client(&self) -> Client {
        let client = Client::new(self.url());
        // The tests also measure beside older binaries.
        if self.settings.binary.is_some() { client.of_another_version() } else { client }
    }

    /// Its data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.home.path().join("data")
    }

    /// The id of its process.
    pub fn pid(&self) -> u32 {
        self.home.pid()
    }

    /// Whether its process runs.
    pub fn is_running(&mut self) -> bool {
        self.home.running()
    }

    /// Tells it to read its files again.
    pub fn hangup(&self) {
        self.home.signal("HUP");
    }

    /// Asks it to finish what is in flight and end.
    pub fn term(&self) {
        self.home.signal("TERM");
    }

    /// Waits until it has ended.
    pub async fn wait_for_exit(&mut self) -> ExitStatus {
        let status = self.home.wait().await;
        self.is_held.store(false, Ordering::SeqCst);
        self.join_reader();
        status
    }

    /// Kills it at once, as a crash would.
    pub fn kill9(&mut self) {
        self.home.kill9();
        self.join_reader();
    }

    /// Freezes the process, as a long pause would.
    pub fn pause(&self) {
        self.home.signal("STOP");
    }

    /// Lets a frozen process go on.
    pub fn resume(&self) {
        self.home.signal("CONT");
    }

    /// Kills it if it runs, and starts it on the same data and port; waits until it is ready.
    pub async fn restart(&mut self) {
        self.spawn();
        self.wait_until_ready().await;
    }

    /// As [`Gateway::restart`], without waiting: for a start while a part is down.
    pub fn spawn(&mut self) {
        if self.home.running() {
            self.kill9();
        }
        let binary = self.binary();
        let (settings, address, data) = (&self.settings, self.address, self.data_dir());
        let dir = self.home.path().to_owned();
        // One pipe for both outputs, as `2>&1` makes it.
        let (log, writer) = std::io::pipe().expect("a pipe");
        let other = writer.try_clone().expect("its other end");
        self.home.spawn(&binary, |command| {
            command.arg("serve").args(["--listen", &address.to_string()]);
            command.arg("--data-dir").arg(data);
            for (name, _) in std::env::vars_os() {
                let is_read = |begin| name.to_string_lossy().starts_with(begin);
                if is_read("FENCEGATE_") || is_read("OTEL_") {
                    command.env_remove(name);
                }
            }
            command
                .args(&settings.args)
                .envs(settings.env.iter().map(|(name, value)| (name, value)))
                .current_dir(dir)
                .stdout(other)
                .stderr(writer);
        });
        let (lines, is_held) = (Arc::clone(&self.lines), Arc::clone(&self.is_held));
        self.reader = Some(std::thread::spawn(move || {
            for line in BufReader::new(log).lines().map_while(Result::ok) {
                lines.lock().unwrap_or_else(PoisonError::into_inner).push(line);
                while is_held.load(Ordering::SeqCst) {
                    std::thread::park_timeout(Duration::from_millis(10));
                }
            }
        }));
    }

    /// Waits until `/readyz` answers 200.
    pub async fn wait_until_ready(&mut self) {
        let http = plain_http().build().expect("a client can be built");
        let url = format!("{}/readyz", self.url());
        eventually("the gateway is ready", async || {
            if let Some(status) = self.home.exit_status() {
                self.join_reader();
                panic!("the gateway ended with {status}:\n{}", self.log());
            }
            let request = http.get(&url).timeout(Duration::from_secs(5));
            request.send().await.ok().filter(|answer| answer.status() == 200)
        })
        .await;
    }

    /// Reads nothing more of what it prints on standard error, until it has ended.
    pub fn hold_log(&self) {
        self.is_held.store(true, Ordering::SeqCst);
    }

    /// What it printed on standard error so far, over all its starts.
    pub fn log(&self) -> String {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner).join("\n")
    }

    /// Waits until it has printed a line with this text.
    pub async fn logged(&self, text: &str) -> String {
        eventually(&format!("the log says {text:?}"), async || {
            self.log().lines().find(|line| line.contains(text)).map(str::to_owned)
        })
        .await
    }

    /// Runs another command of the binary on what this gateway stands on: its exit code, and what it
    /// printed on standard output and standard error.
    pub async fn run(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = tokio::process::Command::new(self.binary());
        let settings = &self.settings;
        command.args(args).arg("--data-dir").arg(self.data_dir()).args(&settings.args);
        command.envs(settings.env.iter().map(|(name, value)| (name, value)));
        command.current_dir(self.home.path()).kill_on_drop(true);
        let output = tokio::time::timeout(DEADLINE, command.output()).await;
        let output = output.expect("the command ends").expect("the command starts");
        let text = |bytes| String::from_utf8(bytes).expect("it prints text");
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Agrees what its settings are for all gateways of its ledger.
    pub async fn agree(&self) {
        let (code, told, log) = self.run(&["agree", "--reason", "test"]).await;
        assert_eq!(code, Some(0), "{told}{log}");
    }

    /// Sets an environment variable for its next start.
    pub fn set_env(&mut self, name: &str, value: &str) {
        self.settings.env.push((name.to_owned(), value.to_owned()));
    }

    /// Its resident memory.
    pub fn rss_bytes(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid()))
            .expect("the gateway runs");
        let kib = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next()?.parse().ok());
        kib.map(|kib: u64| kib * 1024).expect("a process has a resident size")
    }

    /// What it runs.
    fn binary(&self) -> PathBuf {
        self.settings.binary.clone().unwrap_or_else(binary)
    }

    fn join_reader(&mut self) {
        if let Some(reader) = self.reader.take() {
            reader.join().expect("the reader of the log ends with it");
        }
    }
}

/// The built binary: beside the executable that asks, or above it, where tests lie.
pub fn binary() -> PathBuf {
    find_binary().expect("the gateway is missing: build it with cargo build -p fencegate")
}

/// Finds the built binary, if there is one.
pub fn find_binary() -> Option<PathBuf> {
    let asks = std::env::current_exe().expect("a process knows its executable");
    let mut near = asks.ancestors().skip(1).take(2).map(|directory| directory.join("fencegate"));
    near.find(|binary| binary.is_file())
}
