//! A TCP proxy on the loopback that cuts, refuses, swallows and delays, for use between a gateway
//! and its Postgres or etcd.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::task::JoinHandle;

use crate::process::{free_port, loopback};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the target: requests.
    ToTarget,
    /// From the target to the client: answers.
    FromTarget,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Mode {
    Forward,
    Refuse,
    Blackhole,
    /// Nothing passes this way.
    OneWay(Direction),
}

/// No cut is armed.
const UNARMED: i64 = i64::MAX;

#[derive(Debug)]
struct Shared {
    target: AtomicU16,
    mode: watch::Sender<Mode>,
    /// Raised to cut all connections that are open.
    cuts: watch::Sender<u64>,
    delay_ms: AtomicU64,
    /// Bytes that still pass before everything is cut, by direction.
    budget: [AtomicI64; 2],
    accepted: AtomicUsize,
    open: AtomicUsize,
}

/// A TCP proxy to a port on the loopback. It forwards until told otherwise, and ends on drop.
#[derive(Debug)]
pub struct ChaosProxy {
    port: u16,
    shared: Arc<Shared>,
    listener: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl ChaosProxy {
    /// Starts a proxy to `127.0.0.1:target`.
    pub async fn start(target: u16) -> Self {
        let shared = Arc::new(Shared {
            target: AtomicU16::new(target),
            mode: watch::Sender::new(Mode::Forward),
            cuts: watch::Sender::new(0),
            delay_ms: AtomicU64::new(0),
            budget: [AtomicI64::new(UNARMED), AtomicI64::new(UNARMED)],
            accepted: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
        });
        let proxy = Self { port: free_port(), shared, listener: std::sync::Mutex::new(None) };
        proxy.listen().await;
        proxy
    }

    /// The port on the loopback.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// `HOST:PORT`.
    pub fn endpoint(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Forwards new connections to another port, and resets those that are open: a failover.
    pub fn retarget(&self, target: u16) {
        self.shared.target.store(target, Ordering::SeqCst);
        self.shared.cut();
    }

    /// Resets all connections that are open; new ones are forwarded as before.
    pub fn cut(&self) {
        self.shared.cut();
    }

    /// Resets all connections after `bytes` more have passed in this direction, once. With 0 and
    /// [`Direction::FromTarget`] the next request arrives and its answer is lost.
    pub fn cut_after_bytes(&self, direction: Direction, bytes: u32) {
        self.shared.budget(direction).store(i64::from(bytes), Ordering::SeqCst);
    }

    /// Takes back a cut that was armed and has not come yet.
    pub fn disarm(&self) {
        self.shared.budget.iter().for_each(|budget| budget.store(UNARMED, Ordering::SeqCst));
    }

    /// Whether a cut that was armed is still to come.
    pub fn armed(&self) -> bool {
        self.shared.budget.iter().any(|budget| budget.load(Ordering::SeqCst) != UNARMED)
    }

    /// Resets all connections and closes the port: new ones are refused.
    pub async fn refuse(&self) {
        self.shared.mode.send_replace(Mode::Refuse);
        let listener = self.listener().take();
        if let Some(listener) = listener {
            listener.abort();
            // It ends by the abort; only then is the port closed.
            let _aborted = listener.await;
        }
        self.shared.cut();
    }

    /// Takes connections and keeps those that are open, but forwards nothing.
    pub async fn blackhole(&self) {
        self.shared.mode.send_replace(Mode::Blackhole);
        self.listen().await;
    }

    /// Holds back what goes this way; the other way all passes.
    pub async fn block(&self, direction: Direction) {
        self.shared.mode.send_replace(Mode::OneWay(direction));
        self.listen().await;
    }

    /// Forwards again, including what a blackhole held back.
    pub async fn resume(&self) {
        self.shared.mode.send_replace(Mode::Forward);
        self.listen().await;
    }

    /// Holds every piece of data back for this long, in both directions.
    pub fn delay(&self, delay: Duration) {
        let ms = u64::try_from(delay.as_millis()).expect("a delay fits");
        self.shared.delay_ms.store(ms, Ordering::SeqCst);
    }

    /// How many connections were taken so far.
    pub fn connections(&self) -> usize {
        self.shared.accepted.load(Ordering::SeqCst)
    }

    /// How many connections are open.
    pub fn open(&self) -> usize {
        self.shared.open.load(Ordering::SeqCst)
    }

    async fn listen(&self) {
        if self.listener().is_some() {
            return;
        }
        let (ready, bound) = oneshot::channel();
        let shared = Arc::clone(&self.shared);
        let address = loopback(self.port);
        let task = tokio::spawn(async move {
            let listener = TcpListener::bind(address).await.expect("the proxy's port is free");
            // The receiver waits below.
            let _sent = ready.send(());
            loop {
                match listener.accept().await {
                    Ok((client, _)) => {
                        shared.accepted.fetch_add(1, Ordering::SeqCst);
                        tokio::spawn(Arc::clone(&shared).serve(client));
                    }
                    // Too many open files, say: that passes.
                    Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
                }
            }
        });
        bound.await.expect("the proxy listens");
        *self.listener() = Some(task);
    }

    fn listener(&self) -> std::sync::MutexGuard<'_, Option<JoinHandle<()>>> {
        self.listener.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for ChaosProxy {
    fn drop(&mut self) {
        if let Some(listener) = self.listener().take() {
            listener.abort();
        }
        self.shared.cut();
    }
}

impl Shared {
    fn cut(&self) {
        self.cuts.send_modify(|cuts| *cuts += 1);
    }

    fn budget(&self, direction: Direction) -> &AtomicI64 {
        &self.budget[direction as usize]
    }

    /// Serves one connection until both ends have closed or it is cut.
    async fn serve(self: Arc<Self>, client: TcpStream) {
        self.open.fetch_add(1, Ordering::SeqCst);
        let mut cuts = self.cuts.subscribe();
        tokio::select! {
            () = self.forward(client) => {}
            _ = cuts.changed() => {}
        }
        self.open.fetch_sub(1, Ordering::SeqCst);
    }

    /// Copies both ways. Both connections are reset if it is dropped before its end.
    async fn forward(&self, client: TcpStream) {
        let mut client = ResetOnDrop::new(client);
        self.wait_to_forward(Direction::ToTarget).await;
        let target = loopback(self.target.load(Ordering::SeqCst));
        let Ok(target) = TcpStream::connect(target).await else { return };
        let mut target = ResetOnDrop::new(target);
        let (client_read, client_write) = client.stream.split();
        let (target_read, target_write) = target.stream.split();
        tokio::join!(
            self.copy(Direction::ToTarget, client_read, target_write),
            self.copy(Direction::FromTarget, target_read, client_write),
        );
        client.ended = true;
        target.ended = true;
    }

    async fn copy(&self, direction: Direction, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) {
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let read = match from.read(&mut buffer).await {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let delay = self.delay_ms.load(Ordering::SeqCst);
            if delay > 0 {
                tokio::time::sleep(Duration::from_millis(delay)).await;
            }
            self.wait_to_forward(direction).await;
            let (allowed, cut) = self.spend(direction, read);
            if to.write_all(&buffer[..allowed]).await.is_err() {
                break;
            }
            if cut {
                self.cut();
                // The cut ends this task at its next await.
                std::future::pending::<()>().await;
            }
        }
        self.wait_to_forward(direction).await;
        // Passes the end on; an error means that the other end has gone too.
        let _closed = to.shutdown().await;
    }

    /// How many of `bytes` may pass, and whether the armed cut is reached with them.
    fn spend(&self, direction: Direction, bytes: usize) -> (usize, bool) {
        let bytes = i64::try_from(bytes).expect("a buffer's length fits");
        let before =
            self.budget(direction).fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                match left {
                    UNARMED => None,
                    left if left <= bytes => Some(UNARMED),
                    left => Some(left - bytes),
                }
            });
        match before {
            Ok(left) if left <= bytes => (usize::try_from(left).expect("not negative"), true),
            _ => (usize::try_from(bytes).expect("not negative"), false),
        }
    }

    async fn wait_to_forward(&self, direction: Direction) {
        let passes = |mode: &Mode| match *mode {
            Mode::Forward => true,
            Mode::Refuse | Mode::Blackhole => false,
            Mode::OneWay(blocked) => blocked != direction,
        };
        let mut mode = self.mode.subscribe();
        // The sender lives in `self`.
        let _mode = mode.wait_for(passes).await;
    }
}

/// A connection that is reset when it is dropped before its regular end.
struct ResetOnDrop {
    stream: TcpStream,
    ended: bool,
}

impl ResetOnDrop {
    fn new(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket can send at once");
        Self { stream, ended: false }
    }
}

impl Drop for ResetOnDrop {
    fn drop(&mut self) {
        if !self.ended {
            // An error means that it is closed already.
            let _reset = self.stream.set_zero_linger();
        }
    }
}
