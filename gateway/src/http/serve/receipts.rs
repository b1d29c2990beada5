//! When an answer counts as delivered: tested on real sockets.

use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;
use crate::http::receipt::Receipt;
use axum::body::Bytes;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures::stream;
use tokio::net::{TcpListener, TcpSocket, TcpStream};

use crate::http::middleware::Doors;

/// What was told of each answer, by its number.
#[derive(Default)]
struct Told {
    answered: AtomicUsize,
    told: Mutex<Vec<(usize, bool)>>,
}

impl Told {
    /// An answer whose receipt is kept.
    fn answer(self: &Arc<Self>, body: Body) -> Response {
        let (this, number) = (Arc::clone(self), self.answered.fetch_add(1, Ordering::SeqCst));
        let mut response = body.into_response();
        let receipt = Receipt::new(move |delivered| {
            this.told.lock().unwrap().push((number, delivered));
        });
        response.extensions_mut().insert(receipt);
        response
    }

    fn told(&self) -> Vec<(usize, bool)> {
        self.told.lock().unwrap().clone()
    }

    async fn until(&self, what: impl Fn(&[(usize, bool)]) -> bool) -> Vec<(usize, bool)> {
        for _ in 0..2000 {
            let told = self.told();
            if what(&told) {
                return told;
            }
            sleep(Duration::from_millis(5)).await;
        }
        panic!("told {:?} of {}", self.told(), self.answered.load(Ordering::SeqCst));
    }
}

async fn start() -> (std::net::SocketAddr, Arc<Told>) {
    let told = Arc::<Told>::default();
    let (small, broken, streamed) = (Arc::clone(&told), Arc::clone(&told), Arc::clone(&told));
    let (empty, slow, large) = (Arc::clone(&told), Arc::clone(&told), Arc::clone(&told));
    let app = Router::new()
        .route("/large", get(move || async move { large.answer(Body::from("x".repeat(50_000))) }))
        .route("/small", get(move || async move { small.answer(Body::from("lock")) }))
        .route("/empty", get(move || async move { empty.answer(Body::empty()) }))
        .route(
            "/streamed",
            get(move || async move {
                let parts = ["a", "b"].map(|part| Ok::<_, io::Error>(Bytes::from(part)));
                streamed.answer(Body::from_stream(stream::iter(parts)))
            }),
        )
        .route(
            "/broken",
            get(move || async move {
                let parts = [Ok(Bytes::from("a")), Err(io::Error::other("on purpose"))];
                broken.answer(Body::from_stream(stream::iter(parts)))
            }),
        )
        .route(
            "/slow",
            get(move || async move {
                let answer = slow.answer(Body::from("lock"));
                sleep(Duration::from_secs(3600)).await;
                answer
            }),
        )
        .layer(from_fn_with_state(Arc::<Doors>::default(), crate::http::middleware::answer));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let never = CancellationToken::new;
    let door = Door::new(app, Limits::default(), Proxies::default(), false);
    tokio::spawn(serve(listener, door, never(), never()));
    (address, told)
}

fn request(path: &str) -> String {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")
}

#[tokio::test]
async fn an_answer_that_was_written_out_is_delivered() {
    let (address, told) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    for (number, path) in ["/small", "/streamed", "/empty", "/small"].into_iter().enumerate() {
        stream.write_all(request(path).as_bytes()).await.unwrap();
        let told = told.until(|told| told.len() > number).await;
        assert_eq!(told[number], (number, true), "{path}");
    }
}

#[tokio::test]
async fn an_answer_that_breaks_off_is_not_delivered() {
    let (address, told) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request("/broken").as_bytes()).await.unwrap();
    assert_eq!(told.until(|told| !told.is_empty()).await, [(0, false)]);
}

#[tokio::test]
async fn an_answer_whose_caller_hung_up_before_it_is_not_delivered() {
    let (address, told) = start().await;
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request("/slow").as_bytes()).await.unwrap();
    told.until(|_| told.answered.load(Ordering::SeqCst) == 1).await;
    assert_eq!(told.told(), []);
    drop(stream);
    assert_eq!(told.until(|told| !told.is_empty()).await, [(0, false)]);
}

/// The socket is full: hyper has polled the body to its end and dropped it, and yet a part of it has not
/// left the process. hyper reads no further request before that, so it is the last of those answered.
#[tokio::test]
async fn an_answer_that_does_not_fit_is_delivered_only_once_it_is_written() {
    const ANSWERS: usize = 400;
    for read_on in [true, false] {
        let (address, told) = start().await;
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_recv_buffer_size(4096).unwrap();
        let mut stream = socket.connect(address).await.unwrap();
        stream.write_all(request("/large").repeat(ANSWERS).as_bytes()).await.unwrap();
        let mut last = (0, Instant::now());
        while last.0 == 0 || last.1.elapsed() < Duration::from_millis(500) {
            let now = told.answered.load(Ordering::SeqCst);
            if now != last.0 {
                last = (now, Instant::now());
            }
            sleep(Duration::from_millis(10)).await;
        }
        let answered = last.0;
        assert!(answered < ANSWERS, "the socket was never full");
        let written: Vec<_> = (0..answered - 1).map(|number| (number, true)).collect();
        assert_eq!(told.told(), written);
        if read_on {
            let reading = tokio::spawn(async move {
                let mut bytes = vec![0; 1 << 20];
                while stream.read(&mut bytes).await.unwrap() > 0 {}
            });
            let told = told.until(|told| told.len() == ANSWERS).await;
            assert!(told.iter().all(|(_, delivered)| *delivered), "{told:?}");
            reading.abort();
        } else {
            drop(stream);
            let told = told.until(|told| told.len() == answered).await;
            assert_eq!(told.last(), Some(&(answered - 1, false)), "{told:?}");
        }
    }
}
