//! Child processes that never outlive the test process, however it ends, and what is needed to
//! start them: free ports, deadlines, programs on the `PATH`.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// How long anything may take before a test gives up. Generous: it only ends tests that hang.
pub const DEADLINE: Duration = Duration::from_secs(240);

/// The pauses between two looks at what is waited for: they grow with the time it has taken.
const POLLS_MIN: Duration = Duration::from_millis(5);
const POLLS_MAX: Duration = Duration::from_millis(100);

/// Where a file system in memory is on Linux.
const MEMORY: &str = "/dev/shm";
/// The room that servers may need there. A container has 64 MiB by default.
const MEMORY_BYTES_MIN: u64 = 4 << 30;

/// Waits for the end of its standard input, which comes when the test process ends by whatever
/// means, `kill -9` included. Then stops the process named in the file `pid`, with its children,
/// and removes the directory.
const KEEPER: &str = r#"
trap '' HUP INT TERM
cat >/dev/null
pid=$(cat "$0/pid" 2>/dev/null) && [ -n "$pid" ] && {
    all="$pid $(cat /proc/"$pid"/task/*/children 2>/dev/null)"
    kill -CONT $all 2>/dev/null
    kill -QUIT "$pid" 2>/dev/null
    i=0
    while [ -e /proc/"$pid"/exe ] && [ $i -lt 50 ]; do sleep 0.1; i=$((i + 1)); done
    kill -KILL $all 2>/dev/null
}
rm -rf "$0"
"#;

/// A temporary directory and the one process that lives in it. Both are gone after a drop, and
/// also after the test process was killed.
#[derive(Debug)]
pub struct Home {
    dir: TempDir,
    keeper: Child,
    child: Option<Child>,
}

impl Home {
    /// A new directory, watched by a keeper process.
    pub fn new(prefix: &str) -> Self {
        Self::below(&std::env::temp_dir(), prefix)
    }

    /// A new directory in memory where the machine has enough of it: for servers that sync, in tests that do not mean the disk.
    pub fn in_memory(prefix: &str) -> Self {
        let free =
            rustix::fs::statvfs(MEMORY).map_or(0, |system| system.f_bavail * system.f_frsize);
        if free >= MEMORY_BYTES_MIN {
            Self::below(Path::new(MEMORY), prefix)
        } else {
            Self::new(prefix)
        }
    }

    fn below(parent: &Path, prefix: &str) -> Self {
        let dir = tempfile::Builder::new()
            .prefix(&format!("fence-{prefix}-"))
            .tempdir_in(parent)
            .expect("a temporary directory");
        let keeper = Command::new("sh")
            .args(["-c", KEEPER])
            .arg(dir.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("sh starts");
        Self { dir, keeper, child: None }
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        self.dir.path()
    }

    /// Starts the process. Its id stands in the file `pid` before its program runs.
    pub fn spawn(&mut self, program: &Path, configure: impl FnOnce(&mut Command)) -> &mut Child {
        assert!(!self.running(), "{} runs already", program.display());
        let mut command = Command::new("sh");
        command
            .args(["-c", r#"echo $$ >"$0/pid"; exec "$@""#])
            .arg(self.path())
            .arg(program)
            .stdin(Stdio::null())
            .process_group(0);
        configure(&mut command);
        self.child.insert(command.spawn().expect("sh starts"))
    }

    /// The id of the process.
    pub fn pid(&self) -> u32 {
        self.child.as_ref().expect("the process was started").id()
    }

    /// Whether the process runs.
    pub fn running(&mut self) -> bool {
        self.exit_status().is_none() && self.child.is_some()
    }

    /// How the process ended, if it did.
    pub fn exit_status(&mut self) -> Option<ExitStatus> {
        self.child.as_mut()?.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal (`TERM`, `STOP`, ...) to the process.
    pub fn signal(&self, name: &str) {
        signal(name, &[self.pid()]);
    }

    /// Sends a signal to the process and its children. Not for `KILL`: see [`Home::kill9_all`].
    pub fn signal_all(&self, name: &str) {
        // Whoever is stopped starts no more children that the list would lack.
        signal(name, &[self.pid()]);
        signal(name, &children_of(self.pid()));
    }

    /// Waits until the process has ended.
    pub async fn wait(&mut self) -> ExitStatus {
        let deadline = Instant::now() + DEADLINE;
        loop {
            if let Some(status) = self.exit_status() {
                return status;
            }
            assert!(Instant::now() < deadline, "process {} does not end", self.pid());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    /// Kills the process at once, as a crash would.
    pub fn kill9(&mut self) {
        if let Some(child) = &mut self.child {
            // An error only means that it has ended already.
            let _ended = child.kill();
            child.wait().expect("a child can be waited for");
        }
    }

    /// Kills the process and all its children at once, as a power cut would; returns their ids. None may be left
    /// over: it could wait for ever for what those held that are gone.
    pub fn kill9_all(&mut self) -> Vec<u32> {
        if !self.running() {
            return Vec::new();
        }
        // Stopped, it starts no more children. They are looked up while it lives: later they have another parent.
        signal("STOP", &[self.pid()]);
        let mut all = children_of(self.pid());
        signal("KILL", &all);
        all.push(self.pid());
        self.kill9();
        all
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.kill9_all();
        // The process is gone: an empty file keeps the keeper from stopping a namesake.
        let _gone = std::fs::write(self.path().join("pid"), "");
        drop(self.keeper.stdin.take());
        let _ended = self.keeper.wait();
    }
}

/// Sends a signal to processes; those that have ended are passed over. `STOP` returns once they stand still: before that, threads
/// may still run, on a busy machine for milliseconds.
///
/// # Panics
/// If a process does not stop within [`DEADLINE`].
pub fn signal(name: &str, pids: &[u32]) {
    if pids.is_empty() {
        return;
    }
    // The shell's own `kill`, because a separate one is not always installed.
    Command::new("sh")
        .args(["-c", r#"name=$0; for pid in "$@"; do kill -"$name" "$pid"; done"#, name])
        .args(pids.iter().map(u32::to_string))
        .stderr(Stdio::null())
        .status()
        .expect("sh runs");
    if name == "STOP" {
        let deadline = Instant::now() + DEADLINE;
        while pids.iter().any(|pid| !is_standing(*pid)) {
            assert!(Instant::now() < deadline, "{pids:?} do not stop");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Tells whether every thread of a process is stopped or has ended.
fn is_standing(pid: u32) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        // `pid (name) state`, and the name may hold spaces and brackets. An empty file belongs to a thread that has ended.
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['T', 't', 'Z', 'X']))
    })
}

/// The ids of the children of a process.
pub fn children_of(pid: u32) -> Vec<u32> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|child: &u32| {
            let stat = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
            // `pid (name) state ppid`, and the name may hold spaces and brackets.
            stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(1)?.parse::<u32>().ok())
                == Some(pid)
        })
        .collect()
}

/// Whether a process runs still: one that has ended, and that nobody has asked for its status, does not.
pub fn is_alive(pid: u32) -> bool {
    std::fs::read_link(format!("/proc/{pid}/exe")).is_ok()
}

/// The folder of port reservations, which the tests in other languages keep, too: whoever holds the lock of the file `N` there
/// has port `N`.
const PORTS: &str = "/tmp/fence-ports";

/// A free port on the loopback, reserved until this process ends. It lies outside the range from which the system picks the
/// ports of outgoing connections, so that a server that was stopped finds its port free again.
pub fn free_port() -> u16 {
    static RESERVED: Mutex<Vec<File>> = Mutex::new(Vec::new());
    // Another user may have made it, and lets everybody in.
    if std::fs::create_dir(PORTS).is_ok() {
        let all = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(PORTS, all).expect("a folder of ours can be opened to others");
    }
    for _ in 0..1000 {
        let port = rand::random_range(10_000..30_000);
        let Ok(file) = File::create(format!("{PORTS}/{port}")) else { continue };
        // The lock comes first: between a look at the port and the lock somebody else could take both.
        if file.try_lock().is_ok() && TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            RESERVED.lock().expect("no panic while the lock is held").push(file);
            return port;
        }
    }
    panic!("no free port between 10000 and 30000");
}

/// A loopback address with this port.
pub fn loopback(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

/// Finds a program on the `PATH` or in one of `more` directories.
pub fn find_program(name: &str, more: &[PathBuf]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(more.iter().cloned())
        .chain(["/usr/sbin", "/usr/local/sbin"].map(PathBuf::from))
        .map(|dir| dir.join(name))
        .find(|file| file.is_file())
}

/// Polls `check` until it gives a value; panics with `what` after the deadline.
pub async fn eventually<T>(what: &str, check: impl AsyncFnMut() -> Option<T>) -> T {
    eventually_or(|| what.to_owned(), check).await
}

/// As [`eventually`], with words that are put together when the deadline has passed: with the end of a log, say.
pub async fn eventually_or<T>(
    what: impl Fn() -> String,
    mut check: impl AsyncFnMut() -> Option<T>,
) -> T {
    let began = Instant::now();
    loop {
        if let Some(value) = check().await {
            return value;
        }
        let waited = began.elapsed();
        assert!(waited < DEADLINE, "not within {DEADLINE:?}: {}", what());
        // Asking all the time takes the processor from what is waited for; what takes long is seen an eighth later.
        tokio::time::sleep((waited / 8).clamp(POLLS_MIN, POLLS_MAX)).await;
    }
}

/// The end of a log file, for messages.
pub fn tail_of(file: &Path) -> String {
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
