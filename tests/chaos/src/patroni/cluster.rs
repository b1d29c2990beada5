//! A cluster of Patroni on the loopback: its nodes, which are a Patroni and a Postgres each, and what is done to them.

use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use fence_tests::disk::is_root;
use fence_tests::postgres::binaries;
use fence_tests::process::{Home, find_program, free_port, signal};
use serde_json::json;
use sqlx::{Connection as _, PgConnection};
use tokio::time::timeout;

/// What is installed, from the registry of Python.
const WANTED: &str = "patroni[etcd3]==4.1.5\npsycopg[binary]==3.3.9\n";
/// How long anything may take that the cluster does by itself; a dead leader keeps its key for 20 s.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long a commit may take that is to show that there are any.
const COMMITS_WITHIN: Duration = Duration::from_secs(2);

/// Installs Patroni below this directory, unless it is there; returns its program.
///
/// # Errors
/// What keeps it from being installed.
pub fn install(tools: &Path) -> Result<PathBuf> {
    fs::create_dir_all(tools)?;
    let home = tools.canonicalize()?.join("patroni");
    let stamp = home.join("requirements.txt");
    if !fs::read_to_string(&stamp).is_ok_and(|found| found == WANTED) {
        println!("installing Patroni in {}", home.display());
        // One that other users can run, too: Postgres refuses to be root.
        let system = Path::new("/usr/bin/python3");
        let python = if system.exists() { system } else { Path::new("python3") };
        run(Command::new(python).args(["-m", "venv", "--clear"]).arg(&home))?;
        let wanted = home.join("wanted.txt");
        fs::write(&wanted, WANTED)?;
        let quiet = ["install", "--quiet", "--disable-pip-version-check", "--requirement"];
        run(Command::new(home.join("bin/pip")).args(quiet).arg(&wanted))?;
        fs::rename(wanted, stamp)?;
    }
    Ok(home.join("bin/patroni"))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{command:?}: {said}");
    Ok(())
}

/// A node.
struct Node {
    home: Home,
    name: String,
    rest: u16,
    port: u16,
}

impl Node {
    fn data(&self) -> PathBuf {
        self.home.path().join("data")
    }

    fn postmaster(&self) -> Option<u32> {
        let file = fs::read_to_string(self.data().join("postmaster.pid")).ok()?;
        let pid: u32 = file.lines().next()?.parse().ok()?;
        Path::new(&format!("/proc/{pid}")).exists().then_some(pid)
    }

    /// Kills Patroni, Postgres and all sessions at once, as a power cut would end them.
    fn kill9(&mut self) {
        self.home.kill9();
        if let Some(pid) = self.postmaster() {
            // Stopped first, so that it starts no session after its sessions were looked up.
            signal("STOP", &[pid]);
            let children = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
            let children = children.unwrap_or_default();
            let children = children.split_whitespace().filter_map(|child| child.parse().ok());
            let all: Vec<u32> = children.chain([pid]).collect();
            signal("KILL", &all);
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill9();
    }
}

/// Where the primary is, and on which timeline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Primary {
    /// Which node.
    pub node: usize,
    /// The port of its Postgres.
    pub port: u16,
    /// Its timeline.
    pub timeline: i64,
}

impl Primary {
    /// Makes a database.
    ///
    /// # Errors
    /// Postgres refuses.
    pub async fn create(&self, database: &str) -> Result<()> {
        let url = format!("postgres://postgres@127.0.0.1:{}/postgres", self.port);
        let mut connection = PgConnection::connect(&url).await?;
        let create = sqlx::AssertSqlSafe(format!("CREATE DATABASE {database}"));
        sqlx::raw_sql(create).execute(&mut connection).await?;
        Ok(connection.close().await?)
    }
}

/// A cluster.
pub struct Cluster {
    program: PathBuf,
    /// What is in the environment of Patroni and Postgres besides.
    env: Vec<(&'static str, String)>,
    nodes: Vec<Node>,
    asked: Asked,
}

/// Whom one asks which node is the primary; cheap to clone.
#[derive(Clone)]
pub struct Asked {
    http: reqwest::Client,
    /// Of each node, the port of its Patroni and that of its Postgres.
    addresses: Vec<(u16, u16)>,
}

impl Asked {
    /// The node that says that it is the primary and has the key of the leader.
    pub async fn primary(&self) -> Option<Primary> {
        for (node, (rest, port)) in self.addresses.iter().copied().enumerate() {
            let url = format!("http://127.0.0.1:{rest}/primary");
            let Ok(answer) = self.http.get(url).send().await else { continue };
            if answer.status() == 200
                && let Ok(state) = answer.json::<serde_json::Value>().await
                && let Some(timeline) = state["timeline"].as_i64()
            {
                return Some(Primary { node, port, timeline });
            }
        }
        None
    }
}

impl Cluster {
    /// Starts so many nodes on this etcd, with this in their environment, one of which becomes the primary.
    ///
    /// # Errors
    /// It does not come up.
    pub async fn start(
        program: PathBuf,
        count: usize,
        etcd: &str,
        env: &[(&'static str, String)],
    ) -> Result<Self> {
        let http = reqwest::Client::builder().no_proxy().timeout(Duration::from_secs(2)).build()?;
        let node = |number| Node {
            home: Home::new("patroni"),
            name: format!("n{number}"),
            rest: free_port(),
            port: free_port(),
        };
        let nodes: Vec<Node> = (0..count).map(node).collect();
        let addresses = nodes.iter().map(|node| (node.rest, node.port)).collect();
        let asked = Asked { http, addresses };
        let mut cluster = Self { program, env: env.to_vec(), nodes, asked };
        for number in 0..count {
            cluster.configure(number, etcd)?;
            cluster.spawn(number)?;
            // The first one makes the database.
            cluster.settled(number + 1).await?;
        }
        Ok(cluster)
    }

    fn configure(&self, number: usize, etcd: &str) -> Result<()> {
        let node = &self.nodes[number];
        let home = node.home.path();
        let user = |name: &str| json!({ "username": name, "password": "none" });
        let trusted = [
            "local all all trust",
            "host all all 127.0.0.1/32 trust",
            "host replication all 127.0.0.1/32 trust",
        ];
        // JSON is YAML.
        let config = json!({
            "scope": "fence",
            "name": node.name,
            "restapi": { "listen": format!("127.0.0.1:{}", node.rest),
                         "connect_address": format!("127.0.0.1:{}", node.rest) },
            "etcd3": { "host": etcd },
            "bootstrap": {
                "dcs": {
                    "ttl": 20, "loop_wait": 1, "retry_timeout": 5,
                    "synchronous_mode": true, "synchronous_mode_strict": true,
                    "postgresql": {
                        "use_pg_rewind": true,
                        "parameters": { "wal_log_hints": "on", "max_connections": 400,
                                        "wal_keep_size": "256MB" },
                    },
                },
                "initdb": [{ "encoding": "UTF8" }, { "locale": "C" }],
            },
            "postgresql": {
                "listen": format!("127.0.0.1:{}", node.port),
                "connect_address": format!("127.0.0.1:{}", node.port),
                "data_dir": node.data(),
                "pgpass": home.join("pgpass"),
                "bin_dir": binaries(),
                "pg_hba": trusted,
                "authentication": { "superuser": user("postgres"), "replication": user("replicator"),
                                    "rewind": user("rewinder") },
                "parameters": { "unix_socket_directories": home },
            },
        });
        fs::write(home.join("patroni.yml"), serde_json::to_vec_pretty(&config)?)?;
        fs::set_permissions(home, fs::Permissions::from_mode(0o755))?;
        if is_root() {
            run(Command::new("chown").args(["-R", "postgres:postgres"]).arg(home))?;
        }
        Ok(())
    }

    fn spawn(&mut self, number: usize) -> Result<()> {
        let (program, env) = (self.program.clone(), self.env.clone());
        let node = &mut self.nodes[number];
        let config = node.home.path().join("patroni.yml");
        let log = File::options().create(true).append(true).open(node.home.path().join("log"))?;
        let errors = log.try_clone()?;
        let setpriv = find_program("setpriv", &[]).context("setpriv is not installed")?;
        let directory = node.home.path().to_owned();
        let configure = |command: &mut Command| {
            command.current_dir(directory).envs(env).stdout(log).stderr(errors);
        };
        if is_root() {
            node.home.spawn(&setpriv, |command| {
                command.args(["--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]);
                command.arg(&program).arg(&config);
                configure(command);
            });
        } else {
            node.home.spawn(&program, |command| {
                command.arg(&config);
                configure(command);
            });
        }
        Ok(())
    }

    /// Whom one asks which node is the primary.
    pub fn asked(&self) -> Asked {
        self.asked.clone()
    }

    /// The node that says that it is the primary and has the key of the leader.
    pub async fn primary(&self) -> Option<Primary> {
        self.asked.primary().await
    }

    /// Waits until there is a primary.
    ///
    /// # Errors
    /// Not in time.
    pub async fn led(&self) -> Result<Primary> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(primary) = self.primary().await {
                return Ok(primary);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the cluster has no primary:\n{}", self.tails())
    }

    /// Waits until there is a primary that commits. One that was just promoted waits for a standby that keeps what it
    /// commits, and that may have to be rewound first.
    ///
    /// # Errors
    /// Not in time.
    pub async fn commits(&self) -> Result<Primary> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(primary) = self.primary().await
                && timeout(COMMITS_WITHIN, commit(primary.port)).await == Ok(Some(()))
            {
                return Ok(primary);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        bail!("the cluster does not commit:\n{}", self.tails())
    }

    /// How many nodes a primary could be replaced by without a loss.
    async fn in_sync(&self) -> usize {
        let mut count = 0;
        for node in &self.nodes {
            let url = format!("http://127.0.0.1:{}/synchronous", node.rest);
            let answer = self.asked.http.get(url).send().await;
            count += usize::from(answer.is_ok_and(|answer| answer.status() == 200));
        }
        count
    }

    /// Waits until there is a primary, and with more than one node a standby that is in sync; until all of these nodes
    /// stream.
    ///
    /// # Errors
    /// Not in time.
    pub async fn settled(&self, nodes: usize) -> Result<Primary> {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if let Some(primary) = self.primary().await
                && (nodes == 1 || self.in_sync().await > 0)
                && streaming(primary.port).await.is_some_and(|count| count + 1 >= nodes)
            {
                return Ok(primary);
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        bail!("the cluster does not settle:\n{}", self.tails())
    }

    /// What its nodes have logged last.
    fn tails(&self) -> String {
        let logs = self.nodes.iter().map(|node| node.home.path().join("log"));
        let logs = logs.map(|log| fs::read_to_string(log).unwrap_or_default());
        let tails = logs.map(|log| log.lines().rev().take(15).collect::<Vec<_>>().join("\n"));
        tails.collect::<Vec<_>>().join("\n---\n")
    }

    /// How many nodes there are.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// Asks for another primary in good order.
    ///
    /// # Errors
    /// Patroni refuses.
    pub async fn switch_over(&self, from: Primary) -> Result<()> {
        let node = &self.nodes[from.node];
        self.post(node, "switchover", &json!({ "leader": node.name })).await
    }

    /// Has the primary's Postgres restarted.
    ///
    /// # Errors
    /// Patroni refuses.
    pub async fn restart(&self, primary: Primary) -> Result<()> {
        self.post(&self.nodes[primary.node], "restart", &json!({})).await
    }

    /// Kills the primary's node; [`Cluster::revive`] starts it again.
    pub fn kill9(&mut self, primary: Primary) {
        self.nodes[primary.node].kill9();
    }

    /// Starts a node again that was killed.
    ///
    /// # Errors
    /// Patroni does not start.
    pub fn revive(&mut self, primary: Primary) -> Result<()> {
        self.spawn(primary.node)
    }

    /// Keeps what the nodes have logged.
    ///
    /// # Errors
    /// A file that cannot be written.
    pub fn keep_logs(&self, into: &Path) -> Result<()> {
        for node in &self.nodes {
            fs::copy(
                node.home.path().join("log"),
                into.join(format!("patroni-{}.log", node.name)),
            )?;
        }
        Ok(())
    }

    async fn post(&self, node: &Node, what: &str, body: &serde_json::Value) -> Result<()> {
        let url = format!("http://127.0.0.1:{}/{what}", node.rest);
        // It answers when it is done.
        let request = self.asked.http.post(url).json(body).timeout(PATIENCE);
        let answer = request.send().await.with_context(|| format!("{what} on {}", node.name))?;
        let (status, said) = (answer.status(), answer.text().await.unwrap_or_default());
        ensure!(status.is_success(), "{what} on {}: {status} {said}", node.name);
        Ok(())
    }
}

/// The timeline on which a primary is, as itself says: what Patroni shows may be of a moment ago.
///
/// # Errors
/// It does not answer.
pub async fn timeline(port: u16) -> Result<i64> {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let mut connection = PgConnection::connect(&url).await?;
    let file = "SELECT pg_walfile_name(pg_current_wal_insert_lsn())";
    let file: String = sqlx::query_scalar(file).fetch_one(&mut connection).await?;
    connection.close().await?;
    Ok(i64::from_str_radix(&file[..8], 16)?)
}

/// Commits something that leaves nothing behind but a record in the log.
async fn commit(port: u16) -> Option<()> {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let mut connection = PgConnection::connect(&url).await.ok()?;
    let record = "SELECT pg_logical_emit_message(true, 'chaos', 'commits')";
    sqlx::query(record).execute(&mut connection).await.ok()?;
    connection.close().await.ok()
}

/// How many standbys stream from this primary.
async fn streaming(port: u16) -> Option<usize> {
    let url = format!("postgres://postgres@127.0.0.1:{port}/postgres");
    let mut connection = PgConnection::connect(&url).await.ok()?;
    let count = "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'";
    let count: i64 = sqlx::query_scalar(count).fetch_one(&mut connection).await.ok()?;
    connection.close().await.ok()?;
    usize::try_from(count).ok()
}
