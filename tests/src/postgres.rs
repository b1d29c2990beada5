//! A real Postgres, from the installed binaries, with its default safety: `fsync` and
//! `synchronous_commit` on.

use std::env;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fencegate::ledger::postgres::acts::named;
use sqlx::{Connection, Executor, PgConnection};
use tokio::sync::OnceCell;
use uuid::Uuid;

use crate::disk::{Disk, is_root};
use crate::process::{Home, eventually, eventually_or, find_program, free_port, is_alive, tail_of};

/// How a server is stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stop {
    /// Ends the sessions, writes a checkpoint.
    Fast,
    /// Ends at once; the next start recovers from the log.
    Immediate,
}

/// A Postgres server. It ends when this is dropped, or with the test process.
#[derive(Debug)]
pub struct Postgres {
    /// None if it belongs to another process.
    home: Option<Mutex<Home>>,
    binaries: PathBuf,
    data: PathBuf,
    log: PathBuf,
    port: u16,
    /// Where its files are, if not on the disk of the machine. After the home: what runs there ends first.
    disk: Option<Disk>,
    /// What is in its environment besides.
    env: Vec<(&'static str, String)>,
}

/// What keeps a server small whose disk is.
const SMALL: [&str; 6] =
    ["-c", "max_wal_size=128MB", "-c", "min_wal_size=32MB", "-c", "checkpoint_timeout=30s"];

/// The role with which gateways serve: it owns nothing.
const SERVING: &str = "serving";

/// What gives it its rights in a database.
const ROLES: &str = include_str!("../../schema/postgres/roles.sql");

/// The variable with the port of a Postgres that all tests share.
pub const SHARED_PORT: &str = "FENCE_TEST_POSTGRES_PORT";

/// The database with a ledger that a shared server has, to be copied.
const TEMPLATE: &str = "ledger";

/// Has the acts take a session for one of a gateway's.
const PREPARE: &str = "SELECT pg_catalog.set_config(
    'fencegate.session', pg_catalog.current_setting('synchronous_commit'), false)";

static SHARED: OnceCell<Postgres> = OnceCell::const_new();

impl Postgres {
    /// The server that all tests share, for tests that leave it running: that of the variable [`SHARED_PORT`], else one of
    /// this process.
    pub async fn shared() -> &'static Self {
        let start = async || match env::var(SHARED_PORT) {
            Ok(port) => Self::elsewhere(port.parse().expect("a port")),
            Err(_) => Self::in_memory().await,
        };
        SHARED.get_or_init(start).await
    }

    /// A server of its own with its files in memory and with a ledger to copy, for tests that do not mean the disk.
    pub async fn in_memory() -> Self {
        let server = Self::of(Home::in_memory("postgres"), None).created().await;
        let made = server.made_ledger().await;
        server.execute("postgres", &format!("ALTER DATABASE {made} RENAME TO {TEMPLATE}")).await;
        server
    }

    /// The same, if any test has asked for it.
    pub fn shared_already() -> Option<&'static Self> {
        SHARED.get()
    }

    /// A server of its own, for a test that stops, kills or pauses it.
    pub async fn dedicated() -> Self {
        Self::on(None).await
    }

    /// A server of its own with this in its environment.
    pub async fn with_env(env: Vec<(&'static str, String)>) -> Self {
        Self::on_with(None, env).await
    }

    /// A server of its own whose files are on a disk of their own, with this in its environment.
    pub async fn on_with(disk: Option<Disk>, env: Vec<(&'static str, String)>) -> Self {
        Self { env, ..Self::without_files(disk) }.created().await
    }

    /// A server of its own whose files are on a disk of their own.
    pub async fn on(disk: Option<Disk>) -> Self {
        Self::without_files(disk).created().await
    }

    async fn created(self) -> Self {
        let server = self;
        run(server
            .as_owner("initdb")
            .args(["--auth=trust", "--username=postgres", "--encoding=UTF8", "--no-locale"])
            .arg("--pgdata")
            .arg(&server.data));
        server.start().await;
        // Gateways serve with a role that owns nothing.
        let roles = format!(
            "CREATE ROLE fencegate_gateway NOLOGIN; GRANT pg_monitor TO fencegate_gateway;
             CREATE ROLE {SERVING} LOGIN IN ROLE fencegate_gateway"
        );
        server.execute("postgres", &roles).await;
        server
    }

    /// An asynchronous standby of this server, which follows it.
    pub async fn standby(&self) -> Self {
        self.standby_through(self.port, None).await
    }

    /// A standby that follows this server through another port: that of a proxy.
    pub async fn standby_through(&self, port: u16, disk: Option<Disk>) -> Self {
        let standby = Self { env: self.env.clone(), ..Self::without_files(disk) };
        run(standby
            .as_owner("pg_basebackup")
            .args(["-h", "127.0.0.1", "-p", &port.to_string(), "-U", "postgres"])
            .args(["--write-recovery-conf", "--checkpoint=fast", "--pgdata"])
            .arg(&standby.data));
        standby.start().await;
        standby
    }

    fn without_files(disk: Option<Disk>) -> Self {
        Self::of(Home::new("postgres"), disk)
    }

    /// A server that another process started and ends.
    fn elsewhere(port: u16) -> Self {
        let (data, log) = (PathBuf::new(), PathBuf::new());
        Self { home: None, binaries: binaries(), data, log, port, disk: None, env: Vec::new() }
    }

    fn of(home: Home, disk: Option<Disk>) -> Self {
        if is_root() {
            // Postgres refuses to run as root.
            run(Command::new("chown").arg("postgres:postgres").arg(home.path()));
        }
        let data = disk.as_ref().map_or_else(|| home.path().to_owned(), Disk::path).join("data");
        let log = home.path().join("log");
        let (binaries, port) = (binaries(), free_port());
        let home = Some(Mutex::new(home));
        Self { home, binaries, data, log, port, disk, env: Vec::new() }
    }

    /// The disk that its files are on, if it is one of their own.
    pub fn disk(&self) -> Option<&Disk> {
        self.disk.as_ref()
    }

    /// A program of Postgres, as a user that it accepts, where the files are seen.
    fn as_owner(&self, program: &str) -> Command {
        self.as_owner_in(&[], program)
    }

    /// The same with this in its environment, in which nobody else runs: a library that is loaded by another user first
    /// may share what this user cannot open.
    fn as_owner_in(&self, env: &[(&'static str, String)], program: &str) -> Command {
        let program = self.binaries.join(program);
        let command = |program: &Path| match &self.disk {
            Some(disk) => disk.command(program),
            None => Command::new(program),
        };
        let mut command = match is_root() {
            true => {
                let setpriv = find_program("setpriv", &[])
                    .expect("setpriv is not installed: install the package util-linux");
                let mut command = command(&setpriv);
                command.args([
                    "--reuid=postgres",
                    "--regid=postgres",
                    "--clear-groups",
                    "--",
                    "env",
                ]);
                command
            }
            false => command(Path::new("env")),
        };
        command.args(env.iter().map(|(name, value)| format!("{name}={value}"))).arg(program);
        command
    }

    /// Waits until this standby has all that its primary has written so far.
    pub async fn caught_up(&self, primary: &Self) {
        let mut source = primary.connect("postgres").await;
        let mut copy = self.connect("postgres").await;
        let position = "SELECT (pg_current_wal_flush_lsn() - '0/0')::bigint";
        let position: i64 =
            sqlx::query_scalar(position).fetch_one(&mut source).await.expect("a position");
        eventually("the standby has caught up", async || {
            let replayed = "SELECT (pg_last_wal_replay_lsn() - '0/0')::bigint";
            let replayed: i64 =
                sqlx::query_scalar(replayed).fetch_one(&mut copy).await.expect("a position");
            (replayed >= position).then_some(())
        })
        .await;
    }

    /// Stops following the primary: what is committed there from now on is not here.
    pub async fn stop_following(&self) {
        self.execute("postgres", "ALTER SYSTEM SET primary_conninfo = ''").await;
        self.execute("postgres", "SELECT pg_reload_conf()").await;
        let mut connection = self.connect("postgres").await;
        eventually("the standby follows no more", async || {
            let following = "SELECT count(*) FROM pg_stat_wal_receiver";
            let count: i64 =
                sqlx::query_scalar(following).fetch_one(&mut connection).await.expect("a count");
            (count == 0).then_some(())
        })
        .await;
    }

    /// Makes this standby a primary.
    pub async fn promote(&self) {
        self.execute("postgres", "SELECT pg_promote()").await;
    }

    /// Starts the server again, on the same port, and waits until it takes connections.
    pub async fn start(&self) {
        self.spawn();
        let url = self.owner_url("postgres");
        eventually_or(self.refuses(), async || {
            if !self.home().running() {
                let log = tail_of(&self.log);
                // A process of the server that was killed is not gone yet.
                let is_early = log.contains("pre-existing shared memory block");
                assert!(is_early, "Postgres does not start:\n{log}");
                self.spawn();
                return None;
            }
            PgConnection::connect(&url).await.ok()?.close().await.ok()
        })
        .await;
    }

    /// Has the server take connections, however often it has to be started for that.
    pub async fn revive(&self) {
        let url = self.owner_url("postgres");
        eventually_or(self.refuses(), async || {
            if !self.is_running() {
                self.spawn();
            }
            PgConnection::connect(&url).await.ok()?.close().await.ok()
        })
        .await;
    }

    /// What to say of a server that takes no connections for too long.
    fn refuses(&self) -> impl Fn() -> String {
        || format!("Postgres takes connections. Its log ends:\n{}", tail_of(&self.log))
    }

    /// Starts the server again and does not wait.
    pub fn spawn(&self) {
        let log = File::options().create(true).append(true).open(&self.log).expect("a log file");
        let owned = self.as_owner_in(&self.env, "postgres");
        self.home().spawn(Path::new(owned.get_program()), |command| {
            command
                .args(owned.get_args())
                .arg("-D")
                .arg(&self.data)
                .args(["-p", &self.port.to_string()])
                .args(["-c", "listen_addresses=127.0.0.1"])
                .args(["-c", "unix_socket_directories="])
                .args(["-c", "max_connections=400"])
                // A standby that was cut off for a while finds what it needs.
                .args(["-c", "wal_keep_size=256MB"])
                .args(SMALL.iter().filter(|_| self.disk.is_some()))
                .stdout(log.try_clone().expect("a file can be shared"))
                .stderr(log);
        });
    }

    /// Stops the server and waits until it has ended.
    pub async fn stop(&self, how: Stop) {
        self.home().signal_all("CONT");
        self.home().signal(match how {
            Stop::Fast => "INT",
            Stop::Immediate => "QUIT",
        });
        eventually("Postgres ends", async || self.home().exit_status()).await;
    }

    /// A copy of all files of the server, which must be stopped.
    pub fn copy(&self) -> PathBuf {
        let copy = self.data.with_extension("copy");
        run(Command::new("cp").arg("-a").arg(&self.data).arg(&copy));
        copy
    }

    /// A base backup of the running server, made with these options more.
    pub fn base_backup(&self, options: &[&str]) -> PathBuf {
        let copy = self.data.with_extension("copy");
        run(self
            .as_owner("pg_basebackup")
            .args(["-h", "127.0.0.1", "-p", &self.port.to_string(), "-U", "postgres"])
            .args(["--checkpoint=fast", "--wal-method=stream", "--pgdata"])
            .arg(&copy)
            .args(options));
        copy
    }

    /// Throws the log of a server that was killed away, with all that only the log had.
    pub fn reset_log(&self) {
        std::fs::remove_file(self.data.join("postmaster.pid")).expect("it was killed");
        run(self.as_owner("pg_resetwal").arg("-f").arg("-D").arg(&self.data));
    }

    /// Puts a copy in the place of all files, for good; the server must be stopped.
    pub fn replace_by(&self, copy: &Path) {
        let there = |program: &str| match &self.disk {
            Some(disk) => disk.command(Path::new(program)),
            None => Command::new(program),
        };
        run(there("rm").arg("-rf").arg(&self.data));
        run(there("mv").arg(copy).arg(&self.data));
    }

    /// Puts a copy back in place of all files; the server must be stopped.
    pub fn restore(&self, copy: &Path) {
        std::fs::remove_dir_all(&self.data).expect("the files can be removed");
        run(Command::new("cp").arg("-a").arg(copy).arg(&self.data));
    }

    /// Kills the server and all its sessions at once, as a power cut would end them, and waits until all are gone.
    pub async fn kill9(&self) {
        let all = self.home().kill9_all();
        eventually("Postgres ends", async || (!all.iter().any(|pid| is_alive(*pid))).then_some(()))
            .await;
    }

    /// Freezes the server and all its sessions; connections stay open and nothing answers.
    pub fn pause(&self) {
        self.home().signal_all("STOP");
    }

    /// Lets a frozen server go on.
    pub fn resume(&self) {
        self.home().signal_all("CONT");
    }

    /// The port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The URL of a database, for whoever owns what is in it.
    pub fn owner_url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port)
    }

    /// The URL of a database, for gateways.
    pub fn url(&self, database: &str) -> String {
        self.url_through(self.port, database)
    }

    /// The URL of a database through another port: that of a proxy.
    pub fn url_through(&self, port: u16, database: &str) -> String {
        format!("postgres://{SERVING}@127.0.0.1:{port}/{database}")
    }

    /// Creates a fresh database; returns its URL.
    pub async fn database(&self) -> String {
        let name = self.database_name().await;
        self.url(&name)
    }

    /// Creates a fresh database with a ledger in it that gateways may use, but not change; returns its name.
    pub async fn database_name(&self) -> String {
        if !SHARED.get().is_some_and(|shared| std::ptr::eq(shared, self)) {
            return self.made_ledger().await;
        }
        // Hundreds of tests want one.
        let name = new_name();
        self.execute("postgres", &format!("CREATE DATABASE {name} TEMPLATE {TEMPLATE}")).await;
        // Two ledgers have nothing in common, and this one is not a copy that was put in another's place, nor as old.
        let own =
            "UPDATE fencegate.seal_guard SET ledger = gen_random_uuid(), nonce = gen_random_uuid(),
                                                   tables = fencegate.current_tables();
                   UPDATE fencegate.write_guard SET tables = fencegate.current_tables();
                   UPDATE fencegate.own_time SET at = clock_timestamp()";
        self.execute(&name, own).await;
        name
    }

    /// The same, without a copy.
    async fn made_ledger(&self) -> String {
        let name = self.empty_database_name().await;
        let options = self.owner_url(&name).parse().expect("options");
        fencegate::ledger::postgres::migrate(&options).await.expect("the ledger is made");
        self.execute(&name, ROLES).await;
        name
    }

    /// Creates a fresh database with nothing in it; returns its name.
    pub async fn empty_database_name(&self) -> String {
        let name = new_name();
        self.execute("postgres", &format!("CREATE DATABASE {name}")).await;
        name
    }

    /// Removes the databases of processes that have ended, which would fill the memory of a server that hundreds of them share.
    pub async fn remove_what_is_left(&self) {
        let mut connection = self.connect_bare("postgres").await;
        let names: Vec<String> = sqlx::query_scalar("SELECT datname::text FROM pg_database")
            .fetch_all(&mut connection)
            .await
            .expect("the names");
        let left = names.iter().filter(|name| maker_of(name).is_some_and(|pid| !is_alive(pid)));
        for name in left {
            let sql = format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)");
            connection
                .execute(sqlx::AssertSqlSafe(sql))
                .await
                .expect("the database can be dropped");
        }
        connection.close().await.expect("the connection closes");
    }

    /// A connection of its own to a database. The acts take it for one of a gateway's.
    pub async fn connect(&self, database: &str) -> PgConnection {
        let mut connection = self.connect_bare(database).await;
        connection.execute(PREPARE).await.expect("a setting");
        connection
    }

    /// The same without that.
    pub async fn connect_bare(&self, database: &str) -> PgConnection {
        PgConnection::connect(&self.owner_url(database)).await.expect("Postgres takes a connection")
    }

    /// Runs statements in a database.
    pub async fn execute(&self, database: &str, sql: &str) {
        let done = self.try_execute(database, sql).await;
        done.unwrap_or_else(|error| panic!("{sql}: {error}"));
    }

    /// Runs statements in a database that may refuse them.
    pub async fn try_execute(&self, database: &str, sql: &str) -> Result<(), sqlx::Error> {
        let mut connection = PgConnection::connect(&self.owner_url(database)).await?;
        connection.execute(PREPARE).await?;
        connection.execute(sqlx::AssertSqlSafe(named(sql))).await?;
        connection.close().await
    }

    /// Ends all sessions of a database; returns how many there were.
    pub async fn terminate_backends(&self, database: &str) -> i64 {
        let mut connection = self.connect("postgres").await;
        let ended: i64 = sqlx::query_scalar(
            "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE datname = $1",
        )
        .bind(database)
        .fetch_one(&mut connection)
        .await
        .expect("the sessions can be ended");
        connection.close().await.expect("the connection closes");
        ended
    }

    /// A program that was installed with it.
    pub fn program(&self, name: &str) -> PathBuf {
        self.binaries.join(name)
    }

    /// The id of its first process.
    pub fn pid(&self) -> u32 {
        self.home().pid()
    }

    /// Whether its process runs.
    pub fn is_running(&self) -> bool {
        self.home().running()
    }

    fn home(&self) -> MutexGuard<'_, Home> {
        let home = self.home.as_ref().expect("a server of its own");
        home.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The name of a new database: `t_`, the process that makes it, and a random part.
fn new_name() -> String {
    format!("t_{}_{}", std::process::id(), Uuid::new_v4().simple())
}

/// The process that made the database of this name.
fn maker_of(name: &str) -> Option<u32> {
    name.strip_prefix("t_")?.split('_').next()?.parse().ok()
}

/// The name of the database in a URL.
pub fn database_in(url: &str) -> &str {
    url.rsplit('/').next().unwrap_or_default()
}

/// The directory of `initdb` and `postgres`: that of the `PATH`, or the newest that Debian put
/// under `/usr/lib/postgresql`.
pub fn binaries() -> PathBuf {
    find_binaries().expect("initdb and postgres are not installed: install the package postgresql")
}

/// Finds that directory, if there is one.
pub fn find_binaries() -> Option<PathBuf> {
    let mut installed: Vec<(u32, PathBuf)> = std::fs::read_dir("/usr/lib/postgresql")
        .into_iter()
        .flatten()
        .filter_map(|entry| {
            let dir = entry.ok()?.path();
            Some((dir.file_name()?.to_str()?.parse().ok()?, dir.join("bin")))
        })
        .collect();
    installed.sort_by_key(|(version, _)| std::cmp::Reverse(*version));
    let installed: Vec<_> = installed.into_iter().map(|(_, dir)| dir).collect();
    find_program("initdb", &installed)
        .and_then(|file| file.canonicalize().ok())
        .and_then(|file| Some(file.parent()?.to_owned()))
        .into_iter()
        .chain(installed)
        .find(|dir| dir.join("initdb").is_file() && dir.join("postgres").is_file())
}

fn run(command: &mut Command) {
    let output = command.stdin(Stdio::null()).current_dir("/").output();
    let output = output.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}\n{text}", output.status);
}
