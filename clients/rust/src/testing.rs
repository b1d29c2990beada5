//! A real gateway for tests, with everything in memory: `fencegate dev`.

use std::ffi::OsString;
use std::process::Stdio;
use std::time::{Duration, Instant};

use fencegate_wire::LockId;
use fencegate_wire::json::{AcquireRequest, Lock};
use reqwest::Method;
use rustix::process::{Pid, Signal, kill_process};
use serde::Deserialize;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use uuid::Uuid;

use crate::client::Client;
use crate::error::{Busy, BusyKind, Details, Error};
use crate::names;
use crate::transport::request::Request;

/// Names the program that is started, if it is not `fencegate` on the path.
const PROGRAM: &str = "FENCE_TEST_GATEWAY";
/// How long it may take to start.
const STARTS_WITHIN: Duration = Duration::from_secs(30);
/// The longest wait for the threads of a gateway to stop.
const STANDS_WITHIN: Duration = Duration::from_secs(1);
/// How often a lock is broken for a rival, before somebody else is always faster.
const TAKE_OVERS: usize = 5;

/// A gateway of one's own, which ends when this is dropped, and forgets everything.
///
/// It is the program `fencegate`, found on the path unless `FENCE_TEST_GATEWAY` names it.
///
/// # Examples
/// ```
/// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use fencegate_client::{Error, testing::Gateway};
///
/// let gateway = Gateway::start().await?;
/// let lock = gateway.client().lock("invoices:2026").acquire().await?;
/// gateway.take_over("invoices:2026").await?;
/// assert!(matches!(lock.put("total.txt", "999").await, Err(Error::LockLost(_))));
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Gateway {
    url: String,
    client: Client,
    pid: Pid,
    process: Child,
    /// It ends when this is closed.
    _stdin: Option<ChildStdin>,
}

/// The line that it prints.
#[derive(Deserialize)]
struct Started {
    url: String,
    pid: i32,
}

impl Gateway {
    /// Starts one, and waits until it listens.
    ///
    /// # Errors
    /// [`Error::Misuse`] if the program cannot be started, or ends without saying where it listens.
    pub async fn start() -> Result<Self, Error> {
        let program = std::env::var_os(PROGRAM).filter(|program| !program.is_empty());
        let program = program.unwrap_or_else(|| OsString::from("fencegate"));
        let wrong = |why: String| {
            let program = program.display();
            Error::misuse(format!(
                "no gateway for tests: `{program} dev` {why}; put `fencegate` on the path, or its path into \
                 {PROGRAM}"
            ))
        };
        let mut command = Command::new(&program);
        command.arg("dev").stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        let mut process =
            command.spawn().map_err(|error| wrong(format!("did not start: {error}")))?;
        let mut line = String::new();
        if let Some(stdout) = process.stdout.take() {
            let mut stdout = BufReader::new(stdout);
            let read = tokio::time::timeout(STARTS_WITHIN, stdout.read_line(&mut line)).await;
            let read = read.map_err(|_| wrong("said nothing for half a minute".to_owned()))?;
            read.map_err(|error| wrong(format!("could not be heard: {error}")))?;
        }
        let started = serde_json::from_str::<Started>(&line).ok();
        let started = started.and_then(|started| Some((Pid::from_raw(started.pid)?, started.url)));
        let (pid, url) =
            started.ok_or_else(|| wrong(format!("did not say where it listens: {line:?}")))?;
        let client = Client::builder(&url).build()?;
        let stdin = process.stdin.take();
        Ok(Self { url, client, pid, process, _stdin: stdin })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// A client of it; always the same, so that what one test needs is best a client of its own, made of
    /// [`Gateway::url`].
    pub fn client(&self) -> Client {
        self.client.clone()
    }

    /// Stops it in its tracks, as a machine that hangs: it answers nothing, and closes nothing. Waits until it stands.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is not running any more.
    pub async fn pause(&self) -> Result<(), Error> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + STANDS_WITHIN;
        while !self.is_standing() && Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        Ok(())
    }

    /// Tells whether all threads of the gateway are stopped; never where there is no `/proc`.
    fn is_standing(&self) -> bool {
        let threads = std::fs::read_dir(format!("/proc/{}/task", self.pid.as_raw_nonzero()));
        threads.is_ok_and(|threads| {
            threads.flatten().all(|thread| {
                let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
                // Its state comes behind the name of the program.
                stat.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('T'))
            })
        })
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it is not running any more.
    pub fn resume(&self) -> Result<(), Error> {
        self.signal(Signal::CONT)
    }

    /// Ends it at once, as `kill -9`, and waits until it is gone. What it knew is lost.
    ///
    /// # Errors
    /// [`Error::Misuse`]: it could not be killed.
    pub async fn kill(&mut self) -> Result<(), Error> {
        if self.is_running() {
            self.signal(Signal::KILL)?;
        }
        let gone = self.process.wait().await;
        gone.map(drop).map_err(|error| Error::misuse(format!("it could not be killed: {error}")))
    }

    fn is_running(&self) -> bool {
        self.process.id().is_some()
    }

    fn signal(&self, signal: Signal) -> Result<(), Error> {
        // The process that was started may be a script, which waits for the gateway.
        let gone = |why: &dyn std::fmt::Display| {
            Error::misuse(format!("the gateway is not running: {why}"))
        };
        if !self.is_running() {
            return Err(gone(&"it was killed"));
        }
        kill_process(self.pid, signal).map_err(|error| gone(&error))
    }

    /// Takes the lock on a resource from whoever holds it: breaks it, and locks it for a rival, for 30 s without
    /// renewal. What the first holder writes then bounces.
    ///
    /// # Errors
    /// [`Error::Misuse`] for a name that is not allowed; [`Error::Busy`] if others are always faster;
    /// [`Error::Unavailable`].
    pub async fn take_over(&self, resource: &str) -> Result<Lock, Error> {
        let name = names::resource(resource)?;
        for _ in 0..TAKE_OVERS {
            match self.client.break_lock(resource, "taken over in a test").await {
                Ok(_) | Err(Error::NotFound(_)) => {}
                Err(error) => return Err(error),
            }
            let request = Request::new(Method::POST, "/locks").json(&AcquireRequest {
                resource: Some(name.clone()),
                resources: None,
                ttl: None,
                max_hold: None,
                metadata: None,
                only_if_exists: false,
                owner: "rival".to_owned(),
                id: Some(LockId(Uuid::now_v7())),
                wait: None,
                writers: Vec::new(),
            });
            let inner = &self.client.inner;
            match inner.json("acquire", &request, inner.call_until_ms()).await {
                Err(Error::Busy(Busy { kind: BusyKind::LockHeld, .. })) => {}
                taken => return taken,
            }
        }
        let details = Details::local("somebody else always takes the lock first");
        Err(Error::Unavailable(details))
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // What was started is killed, too; this is for a gateway behind a script.
        let _gone = self.signal(Signal::KILL);
    }
}

/// Something that answers as it is told to, over real connections, for the tests of this crate.
#[cfg(test)]
pub(crate) mod scripted {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    use crate::client::Client;

    /// What is done with a request.
    #[derive(Clone)]
    pub(crate) enum Act {
        /// An answer of a gateway: status line and headers, then the beginning of a body.
        Say(String, Vec<u8>),
        /// The same of something else.
        Interfere(String),
        /// Nothing for so long.
        Pause(Duration),
    }

    /// An answer of a gateway, whole.
    pub(crate) fn say(status: &str, headers: &str, body: &str) -> Act {
        let len = body.len();
        Act::Say(format!("{status}\r\n{headers}content-length: {len}"), body.as_bytes().to_vec())
    }

    /// A client of a server that does this with the nth request, from 0; the connection is closed after each. And
    /// the requests that came.
    pub(crate) async fn play<F>(script: F) -> (Client, Arc<Mutex<Vec<String>>>)
    where
        F: Fn(usize, &str) -> Vec<Act> + Send + Sync + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let came = Arc::new(Mutex::new(Vec::new()));
        let (script, seen) = (Arc::new(script), came.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, script.clone(), seen.clone()));
            }
        });
        (Client::builder(url).call_timeout(Duration::from_secs(5)).build().unwrap(), came)
    }

    async fn answer<F: Fn(usize, &str) -> Vec<Act>>(
        mut stream: TcpStream,
        script: Arc<F>,
        came: Arc<Mutex<Vec<String>>>,
    ) {
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            let Ok(byte) = stream.read_u8().await else { return };
            head.push(byte);
        }
        let head = String::from_utf8(head).unwrap();
        let id =
            head.lines().find_map(|line| line.strip_prefix("x-request-id: ")).unwrap_or_default();
        let nth = {
            let mut came = came.lock().unwrap();
            came.push(head.clone());
            came.len() - 1
        };
        for act in script(nth, &head) {
            let bytes = match act {
                Act::Say(top, body) => {
                    let top = format!(
                        "HTTP/1.1 {top}\r\nx-request-id: {id}\r\nconnection: close\r\n\r\n"
                    );
                    [top.into_bytes(), body].concat()
                }
                Act::Interfere(top) => {
                    format!("HTTP/1.1 {top}\r\ncontent-length: 0\r\n\r\n").into_bytes()
                }
                Act::Pause(time) => {
                    tokio::time::sleep(time).await;
                    continue;
                }
            };
            if stream.write_all(&bytes).await.is_err() {
                return;
            }
        }
    }

    /// A problem document.
    pub(crate) fn problem(status: u16, code: &str, more: &str) -> Act {
        let body = format!(
            r#"{{"type":"t","title":"t","status":{status},"detail":"d","code":"{code}","retryable":false,
                "request_id":"r"{more}}}"#
        );
        say(&format!("{status} x"), "content-type: application/problem+json\r\n", &body)
    }
}
