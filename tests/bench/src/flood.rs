//! A load that goes on at its own pace, whatever is answered; and a socket that discards it, so that what the load itself
//! costs can be measured.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Result;
use fence_core::wire::Lock;
use fence_tests::access::Key;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{interval, sleep};

use crate::http::request;

/// Requests a second: ten times what a principal may send if no role says it.
const MANY_REQUESTS: usize = 20_000;
/// Connections on which they come one behind the other, how often so many come, and how many then on each.
pub const BUSY: usize = 20;
pub const EVERY: Duration = Duration::from_millis(10);
pub const AT_ONCE: usize = MANY_REQUESTS / BUSY * EVERY.as_millis() as usize / 1000;
/// Pause of somebody whose connection was closed.
pub const PAUSE: Duration = Duration::from_millis(500);

/// The bytes that a connection sends next.
pub type Again = Arc<dyn Fn() -> Vec<u8> + Send + Sync>;

/// A load.
pub struct Flood {
    /// Connections that it has at a time.
    pub connections: usize,
    /// Bytes that a connection begins with.
    pub first: Vec<u8>,
    /// Bytes that it goes on with, and how often.
    pub again: Option<(Again, Duration)>,
    /// Pace at which answers are taken, in bytes a second; none as fast as they come.
    pub reads_per_second: Option<u64>,
}

impl Flood {
    /// Sends it to an address until the tasks are ended.
    pub fn begin(self: &Arc<Self>, to: SocketAddr) -> JoinSet<()> {
        let mut tasks = JoinSet::new();
        for _ in 0..self.connections {
            tasks.spawn(Arc::clone(self).go_on(to));
        }
        tasks
    }

    /// One connection of it, and the next when that is closed.
    async fn go_on(self: Arc<Self>, to: SocketAddr) {
        loop {
            if let Ok(stream) = TcpStream::connect(to).await {
                self.once(stream).await;
            }
            sleep(PAUSE).await;
        }
    }

    async fn once(&self, stream: TcpStream) {
        let (mut reads, mut writes) = stream.into_split();
        let reading = async {
            let mut buffer = vec![0; 16 * 1024];
            loop {
                let room = match self.reads_per_second {
                    None => buffer.len(),
                    Some(bytes) => {
                        sleep(Duration::from_secs(1)).await;
                        buffer.len().min(usize::try_from(bytes).unwrap_or(usize::MAX))
                    }
                };
                match reads.read(&mut buffer[..room]).await {
                    Ok(read) if read > 0 => {}
                    _ => return,
                }
            }
        };
        let writing = async {
            if writes.write_all(&self.first).await.is_err() {
                return;
            }
            match &self.again {
                None => std::future::pending().await,
                Some((again, every)) => {
                    let mut times = interval(*every);
                    loop {
                        times.tick().await;
                        if writes.write_all(&again()).await.is_err() {
                            return;
                        }
                    }
                }
            }
        };
        tokio::select! {
            () = reading => {}
            () = writing => {}
        }
    }
}

/// Sends so many of these requests, one behind the other, and the next ones each time; all connections take from one row.
pub fn in_turn(requests: Vec<Vec<u8>>, at_once: usize) -> Again {
    let next = AtomicUsize::new(0);
    Arc::new(move || {
        let first = next.fetch_add(at_once, Ordering::Relaxed);
        let some = (first..first + at_once).map(|at| requests[at % requests.len()].as_slice());
        some.collect::<Vec<_>>().concat()
    })
}

/// A socket that takes connections, and whatever comes on them, and answers nothing.
pub struct Sink {
    /// Its address.
    pub address: SocketAddr,
    task: JoinHandle<()>,
}

impl Sink {
    /// Opens one.
    ///
    /// # Errors
    /// The system has no port for it.
    pub async fn open() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let task = tokio::spawn(async move {
            let mut taken = JoinSet::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                taken.spawn(async move {
                    let mut buffer = vec![0; 64 * 1024];
                    while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {}
                });
                while taken.try_join_next().is_some() {}
            }
        });
        Ok(Self { address, task })
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A request by whoever has this key, under a lock.
pub fn under(key: &Key, method: &str, path: &str, lock: Option<&Lock>, body: &[u8]) -> Vec<u8> {
    let bearer = format!("Bearer {}", key.text);
    let mut headers = vec![("authorization", bearer.as_str())];
    let (token, id) = match lock {
        Some(lock) => (lock.token.to_string(), lock.id.to_string()),
        None => Default::default(),
    };
    match lock {
        Some(_) => headers.extend([("x-fence-token", token.as_str()), ("x-lock-id", id.as_str())]),
        None if method == "POST" => headers.push(("content-type", "application/json")),
        None => {}
    }
    request(method, path, &headers, body)
}
