//! One connection: requests are read and handed to the scenario one after the other, and what the scenario says
//! is done.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::io::AsyncWriteExt as _;
use tokio::sync::{mpsc, oneshot};

use super::exchange::{Exchange, Order, Step};
use super::reader::Reader;
use super::request::Request;
use super::{Shared, locked};

/// Where a connection belongs.
#[derive(Clone)]
pub struct Place {
    pub(super) gateway: usize,
    pub(super) shared: Arc<Shared>,
    pub(super) heads_only: Arc<AtomicBool>,
}

/// A request that waits for the scenario to send the head of its answer.
struct Waiting {
    shared: Arc<Shared>,
    id: Option<String>,
}

impl Waiting {
    fn new(shared: &Arc<Shared>, id: String) -> Self {
        locked(&shared.waiting).push(id.clone());
        Self { shared: Arc::clone(shared), id: Some(id) }
    }

    fn over(&mut self) {
        let Some(id) = self.id.take() else { return };
        let mut waiting = locked(&self.shared.waiting);
        if let Some(place) = waiting.iter().position(|waits| *waits == id) {
            waiting.remove(place);
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        self.over();
    }
}

/// Serves a connection to its end.
pub(super) async fn serve(stream: tokio::net::TcpStream, number: u64, place: Place) {
    let mut reader = Reader::new(stream);
    while let Ok(Some(head)) = reader.head().await {
        let mut request = Request { gateway: place.gateway, connection: number, ..head };
        request.order = place.shared.orders.fetch_add(1, Ordering::SeqCst);
        let unread = place.heads_only.load(Ordering::SeqCst) && !reader.no_body();
        if !unread {
            match reader.body().await {
                Ok(body) => request.body = body,
                Err(_) => return,
            }
        }
        locked(&place.shared.seen).push(request.clone());
        place.shared.note(format!("-> g{} {}", place.gateway, told(&request)));
        let goes_on = match place.shared.auto.answer(&request) {
            Some(reply) => answered(&mut reader, &request, &reply, &place).await,
            None => asked(&mut reader, request, unread, &place).await,
        };
        if !goes_on {
            return;
        }
    }
}

fn told(request: &Request) -> String {
    let skipped = ["host", "accept", "user-agent", "content-type", "content-length"];
    let headers = request.headers.iter().filter(|(name, _)| !skipped.contains(&name.as_str()));
    let headers: Vec<_> = headers.map(|(name, value)| format!("{name}: {value}")).collect();
    let body: String = request.text().chars().take(300).collect();
    format!("#{} {} [{}] {body}", request.order, request.line(), headers.join("; "))
}

async fn answered(
    reader: &mut Reader,
    request: &Request,
    reply: &super::Reply,
    place: &Place,
) -> bool {
    let (head, body) = reply.bytes(request);
    place.shared.note(format!("<- #{} {} (by itself)", request.order, reply.status()));
    let sent = reader.stream.write_all(&[head, body].concat()).await.is_ok();
    if reply.closes() {
        // A stream of events, which says nothing.
        reader.drain().await;
        return false;
    }
    sent
}

async fn asked(reader: &mut Reader, request: Request, unread: bool, place: &Place) -> bool {
    let shared = Arc::clone(&place.shared);
    let id = request.header("x-request-id").unwrap_or_default().to_owned();
    let (orders, received) = mpsc::unbounded_channel();
    if place.shared.exchanges.send(Exchange::new(request, orders, shared)).is_err() {
        return false;
    }
    // Only now: a scenario that finds client and gateways of one mind has the request.
    let mut waiting = Waiting::new(&place.shared, id);
    // Dropped before that: a scenario that finds them of one mind also finds that the client has gone.
    let mut received = received;
    let mut unread = unread;
    loop {
        let order = match next(reader, &mut received, unread).await {
            Next::Order(order) => order,
            Next::Gone => return false,
            Next::Dropped => return silent(reader, unread).await,
        };
        match follow(reader, order, &mut unread, &mut waiting).await {
            After::More => {}
            After::NextRequest if unread => {
                reader.drain().await;
                return false;
            }
            After::NextRequest => return true,
            After::Closed => return false,
        }
    }
}

/// The scenario has let go of a request without an answer: nothing is said until the client closes.
async fn silent(reader: &mut Reader, unread: bool) -> bool {
    if unread {
        std::future::pending::<()>().await;
    }
    while matches!(reader.more().await, Ok(true)) {}
    false
}

enum Next {
    Order(Order),
    Dropped,
    Gone,
}

/// The next order. Meanwhile it is noticed when the client closes, unless a body must stay unread.
async fn next(
    reader: &mut Reader,
    received: &mut mpsc::UnboundedReceiver<Order>,
    unread: bool,
) -> Next {
    loop {
        tokio::select! {
            biased;
            order = received.recv() => return order.map_or(Next::Dropped, Next::Order),
            more = reader.more(), if !unread => match more {
                Ok(true) => {}
                Ok(false) | Err(_) => return Next::Gone,
            },
        }
    }
}

enum After {
    More,
    NextRequest,
    Closed,
}

async fn follow(
    reader: &mut Reader,
    order: Order,
    unread: &mut bool,
    waiting: &mut Waiting,
) -> After {
    let Order { step, done } = order;
    let mut body = Vec::new();
    let after = match step {
        Step::Send { bytes, head_done } => {
            let sent = reader.stream.write_all(&bytes).await;
            let _ = reader.stream.flush().await;
            if head_done {
                waiting.over();
            }
            if sent.is_ok() { After::More } else { After::Closed }
        }
        Step::Body => match reader.body().await {
            Ok(read) => {
                body = read;
                *unread = false;
                After::More
            }
            Err(_) => After::Closed,
        },
        Step::Some(bytes) => match reader.some(bytes).await {
            Ok(()) => After::More,
            Err(_) => After::Closed,
        },
        Step::Finish => After::NextRequest,
        Step::Close => {
            let _ = reader.stream.shutdown().await;
            After::Closed
        }
        Step::Reset => {
            let _ = reader.stream.set_zero_linger();
            After::Closed
        }
    };
    if matches!(after, After::Closed | After::NextRequest) {
        waiting.over();
    }
    acknowledge(done, body);
    after
}

fn acknowledge(done: oneshot::Sender<Vec<u8>>, body: Vec<u8>) {
    // Whoever asked may have gone.
    let _ = done.send(body);
}
