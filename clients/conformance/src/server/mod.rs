//! Gateways that do what a scenario says: any number of them, each on a loopback port of its own.

pub mod answers;
mod auto;
mod connection;
mod exchange;
mod reader;
mod reply;
mod request;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::task::{JoinHandle, JoinSet};

pub use auto::Auto;
pub use exchange::Exchange;
pub use reply::Reply;
pub use request::Request;

/// What all gateways of a scenario share.
pub struct Shared {
    /// What they answer without asking the scenario.
    pub auto: Auto,
    exchanges: mpsc::UnboundedSender<Exchange>,
    seen: Mutex<Vec<Request>>,
    trace: Mutex<Vec<String>>,
    waiting: Mutex<Vec<String>>,
    orders: AtomicU64,
    connections: AtomicU64,
}

impl Shared {
    /// The ids of the requests for which no head of an answer was sent yet, sorted.
    pub fn waiting(&self) -> Vec<String> {
        let mut waiting = locked(&self.waiting).clone();
        waiting.sort_unstable();
        waiting
    }

    /// All requests so far, in order, also those that were answered without asking the scenario.
    pub fn seen(&self) -> Vec<Request> {
        locked(&self.seen).clone()
    }

    /// Notes a line for whoever reads how a scenario failed.
    pub fn note(&self, line: String) {
        locked(&self.trace).push(line);
    }

    /// What was noted.
    pub fn trace(&self) -> Vec<String> {
        locked(&self.trace).clone()
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// One gateway.
pub struct Gateway {
    number: usize,
    address: SocketAddr,
    shared: Arc<Shared>,
    heads_only: Arc<AtomicBool>,
    listening: Option<JoinHandle<()>>,
}

/// Starts so many gateways; their requests come out of the channel, in order.
pub async fn start(
    count: usize,
) -> Result<(Arc<Shared>, Vec<Gateway>, mpsc::UnboundedReceiver<Exchange>)> {
    let (exchanges, received) = mpsc::unbounded_channel();
    let shared = Arc::new(Shared {
        auto: Auto::default(),
        exchanges,
        seen: Mutex::default(),
        trace: Mutex::default(),
        waiting: Mutex::default(),
        orders: AtomicU64::new(0),
        connections: AtomicU64::new(0),
    });
    let mut gateways = Vec::new();
    for number in 0..count {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let listener = TcpListener::bind(any).await.context("cannot listen on loopback")?;
        let address = listener.local_addr()?;
        let shared = Arc::clone(&shared);
        let mut gateway =
            Gateway { number, address, shared, heads_only: Arc::default(), listening: None };
        gateway.listen(listener);
        gateways.push(gateway);
    }
    Ok((shared, gateways, received))
}

impl Gateway {
    /// Its base URL.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Stops listening and breaks all connections: nothing can connect.
    pub async fn down(&mut self) {
        if let Some(listening) = self.listening.take() {
            listening.abort();
            let _ = listening.await;
        }
    }

    /// Listens again, on the same port.
    pub async fn up(&mut self) -> Result<()> {
        let listener = TcpListener::bind(self.address).await.context("the port is taken")?;
        self.listen(listener);
        Ok(())
    }

    /// Whether scenarios get requests as soon as their heads are there, with bodies unread.
    pub fn heads_only(&self, only: bool) {
        self.heads_only.store(only, Ordering::SeqCst);
    }

    fn listen(&mut self, listener: TcpListener) {
        let place = connection::Place {
            gateway: self.number,
            shared: Arc::clone(&self.shared),
            heads_only: Arc::clone(&self.heads_only),
        };
        self.listening = Some(tokio::spawn(accept(listener, place)));
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        if let Some(listening) = &self.listening {
            listening.abort();
        }
    }
}

/// Connections end with the listener: the set aborts them when it is dropped.
async fn accept(listener: TcpListener, place: connection::Place) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { continue };
                connections.spawn(serve(stream, place.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

async fn serve(stream: TcpStream, place: connection::Place) {
    let _ = stream.set_nodelay(true);
    let number = place.shared.connections.fetch_add(1, Ordering::SeqCst);
    connection::serve(stream, number, place).await;
}
