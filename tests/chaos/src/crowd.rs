//! Crowds: more callers than a gateway can serve at once, more who wait than may, and uploads that come next to not
//! at all.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;

use crate::book::Book;
use crate::client::Client;
use crate::faults::Fault;
use crate::rules::{Doors, OTHERS};

/// Numbers of crowds among the processes of clients.
const NUMBERS: u32 = 41_100;
/// How many call as fast as they are answered, how many wait, and how many dawdle.
const CALLERS: usize = 600;
const WAITERS: usize = 500;
const DAWDLERS: usize = 40;
/// On how many resources callers are.
const RESOURCES: usize = 40;
/// How long somebody waits who was turned away.
const PAUSE: Duration = Duration::from_millis(100);
/// The length that dawdlers announce.
const ANNOUNCED: usize = 1 << 20;

/// Those who make a crowd, until they are told to leave.
#[derive(Debug)]
pub struct Crowd(Vec<AbortHandle>);

impl Crowd {
    /// The one that a fault consists of.
    pub fn of(fault: Fault, book: &Book, doors: &Doors, gateway: usize) -> Self {
        match fault {
            Fault::FullLine => Self::of_waiters(book, doors, gateway),
            Fault::Dawdlers => Self::of_dawdlers(book, doors, gateway),
            _ => Self::of_callers(book, doors, gateway),
        }
    }

    /// Callers who take a lock, write under it and give it back, again and again.
    fn of_callers(book: &Book, doors: &Doors, gateway: usize) -> Self {
        let callers = some(book, doors, gateway, CALLERS, Duration::from_secs(5));
        Self::from(callers.into_iter().enumerate().map(|(number, mut caller)| async move {
            let on = format!("crowd-{}", number % RESOURCES);
            loop {
                if !caller.prove(&on).await {
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }))
    }

    /// Callers who wait in one line; whoever has its turn does nothing with it.
    fn of_waiters(book: &Book, doors: &Doors, gateway: usize) -> Self {
        let callers = some(book, doors, gateway, WAITERS, Duration::from_secs(30));
        Self::from(callers.into_iter().map(|mut caller| async move {
            loop {
                caller.wait_in_line("crowd-line", Duration::from_secs(20)).await;
                tokio::time::sleep(PAUSE).await;
            }
        }))
    }

    /// Holders of a lock who announce large payloads and send a byte now and then.
    fn of_dawdlers(book: &Book, doors: &Doors, gateway: usize) -> Self {
        let callers = some(book, doors, gateway, DAWDLERS, Duration::from_secs(5));
        let (front, key) = (doors.addresses[gateway], doors.keys.of(OTHERS).map(str::to_owned));
        Self::from(callers.into_iter().enumerate().map(move |(number, mut caller)| {
            let key = key.clone();
            async move {
                let on = format!("crowd-slow-{number}");
                loop {
                    if let Some(token) = caller.token_of(&on).await {
                        // The gateway ends it, as it should.
                        let _ = dawdle(front, key.as_deref(), &on, token).await;
                    }
                    tokio::time::sleep(PAUSE).await;
                }
            }
        }))
    }

    fn from<F: Future<Output = ()> + Send + 'static>(each: impl Iterator<Item = F>) -> Self {
        Self(each.map(|one| tokio::spawn(one).abort_handle()).collect())
    }

    /// All of them hang up.
    pub fn leave(&self) {
        self.0.iter().for_each(AbortHandle::abort);
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.leave();
    }
}

/// Callers of one gateway, who write down what they are told.
fn some(
    book: &Book,
    doors: &Doors,
    gateway: usize,
    count: usize,
    patience: Duration,
) -> Vec<Client> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let number = NUMBERS + COUNT.fetch_add(1, Ordering::Relaxed) % 1_700;
    let book = book.clone();
    let first = Client::of(number, doors, Some(gateway), move |line| book.write(line));
    first.and_others(count, patience)
}

/// Announces a payload, and sends next to nothing of it until the connection is closed.
async fn dawdle(front: SocketAddr, key: Option<&str>, on: &str, token: i64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(front).await?;
    let shown = key.map(|key| format!("authorization: Bearer {key}\r\n")).unwrap_or_default();
    let head = format!(
        "PUT /resources/{on}/objects/slow HTTP/1.1\r\nhost: localhost\r\nx-fence-token: {token}\r\n\
         content-length: {ANNOUNCED}\r\n{shown}\r\n"
    );
    stream.write_all(head.as_bytes()).await?;
    loop {
        stream.write_all(b"x").await?;
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}
