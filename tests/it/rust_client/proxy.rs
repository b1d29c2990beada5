//! Something between the client and a gateway that loses, cuts, delays, doubles, keeps and answers itself.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

/// What is done with a request.
#[derive(Debug, Clone)]
pub enum Act {
    /// It goes on to the gateway, and the answer comes back.
    Pass,
    /// It never reaches the gateway.
    LoseRequest,
    /// The gateway acts on it, and nobody hears of that.
    LoseAnswer,
    /// The gateway gets so many bytes of its body, and then the connection is cut.
    CutRequest(usize),
    /// So many bytes of the answer come back, and then the connection is cut.
    CutAnswer(usize),
    /// The gateway acts on it, and this answers in the place of it, as a proxy.
    Interfere,
    /// The gateway gets it twice, and the answer to the second comes back.
    Twice,
    /// It goes on after a while.
    Late(Duration),
    /// The answer comes back after a while.
    LateAnswer(Duration),
    /// It does not go on before [`Proxy::deliver`], and is not answered.
    Keep,
    /// It is swallowed, and the connection stays open.
    Silence,
    /// Something in the answer is another, of the same length.
    Edit(String, String),
    /// This byte of the answer's body is another.
    Flip(usize),
}

/// A request as it came.
#[derive(Debug, Clone)]
pub struct Seen {
    pub method: String,
    pub target: String,
    /// Its head, and its body behind it.
    bytes: Vec<u8>,
    body_at: usize,
}

impl Seen {
    pub fn header(&self, name: &str) -> Option<&str> {
        let head = std::str::from_utf8(&self.bytes[..self.body_at]).unwrap();
        head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.bytes[self.body_at..]).unwrap_or_default()
    }

    /// The bytes that ask the gateway to close the connection behind its answer.
    fn closing(&self) -> Vec<u8> {
        let (head, body) = self.bytes.split_at(self.body_at);
        [&head[..head.len() - 2], b"connection: close\r\n\r\n", body].concat()
    }
}

struct Rule {
    method: &'static str,
    part: String,
    left: usize,
    act: Act,
}

struct Shared {
    target: SocketAddr,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Seen>>,
    kept: Mutex<Vec<Seen>>,
    under_way: AtomicUsize,
}

/// A proxy in front of one gateway. It ends with this.
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    listener: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.listener.abort();
    }
}

impl Proxy {
    pub async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (rules, seen, kept, under_way) = Default::default();
        let shared = Arc::new(Shared { target, rules, seen, kept, under_way });
        let serving = shared.clone();
        let listener = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = serving.clone();
                tokio::spawn(async move { serve(stream, &shared).await });
            }
        });
        Self { address, shared, listener }
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Does this with the next request of this method.
    pub fn next(&self, method: &'static str, act: Act) {
        self.rule(method, "", 1, act);
    }

    /// Does this with all requests of this method.
    pub fn all(&self, method: &'static str, act: Act) {
        self.rule(method, "", usize::MAX, act);
    }

    /// Does this with so many requests of this method whose path and query have this in them.
    pub fn rule(&self, method: &'static str, part: &str, times: usize, act: Act) {
        let part = part.to_owned();
        self.shared.rules.lock().unwrap().push(Rule { method, part, left: times, act });
    }

    /// Passes everything on again.
    pub fn clear(&self) {
        self.shared.rules.lock().unwrap().clear();
    }

    /// The requests of this method, whose path and query have this in them, that have come so far.
    pub fn seen(&self, method: &str, part: &str) -> Vec<Seen> {
        let seen = self.shared.seen.lock().unwrap();
        let is = |seen: &&Seen| {
            (method.is_empty() || seen.method == method) && seen.target.contains(part)
        };
        seen.iter().filter(is).cloned().collect()
    }

    pub fn count(&self, method: &str, part: &str) -> usize {
        self.seen(method, part).len()
    }

    /// How many requests the gateway has got and not yet answered.
    pub fn under_way(&self) -> usize {
        self.shared.under_way.load(Ordering::SeqCst)
    }

    /// Sends what was kept to the gateway, in order; the answers.
    pub async fn deliver(&self) -> Vec<String> {
        let kept = std::mem::take(&mut *self.shared.kept.lock().unwrap());
        let mut answers = Vec::new();
        for request in kept {
            let answer = self.shared.ask(&request).await.unwrap();
            answers.push(String::from_utf8_lossy(&answer).into_owned());
        }
        answers
    }
}

impl Shared {
    fn act(&self, request: &Seen) -> Act {
        let mut rules = self.rules.lock().unwrap();
        let rule = rules.iter_mut().find(|rule| {
            rule.left > 0
                && (rule.method.is_empty() || rule.method == request.method)
                && request.target.contains(&rule.part)
        });
        let Some(rule) = rule else { return Act::Pass };
        rule.left -= 1;
        rule.act.clone()
    }

    async fn begin(&self, request: &[u8]) -> io::Result<TcpStream> {
        let mut gateway = TcpStream::connect(self.target).await?;
        gateway.write_all(request).await?;
        Ok(gateway)
    }

    /// The whole answer to a request.
    async fn ask(&self, request: &Seen) -> io::Result<Vec<u8>> {
        let mut gateway = self.begin(&request.closing()).await?;
        let mut answer = Vec::new();
        gateway.read_to_end(&mut answer).await?;
        Ok(answer)
    }
}

/// One request of a connection. The answer closes it.
async fn serve(mut client: TcpStream, shared: &Shared) -> io::Result<()> {
    let Some(request) = read(&mut client).await? else { return Ok(()) };
    let act = shared.act(&request);
    shared.seen.lock().unwrap().push(request.clone());
    match act {
        Act::Pass => relay(client, shared, &request).await,
        Act::LoseRequest => Ok(()),
        Act::LoseAnswer => shared.ask(&request).await.map(drop),
        Act::CutRequest(length) => {
            let head = request.closing().len() + request.body_at - request.bytes.len();
            let gateway = shared.begin(&request.closing()[..head + length]).await?;
            gateway.set_zero_linger()
        }
        Act::CutAnswer(length) => {
            let answer = shared.ask(&request).await?;
            client.write_all(&answer[..length.min(answer.len())]).await?;
            client.shutdown().await
        }
        Act::Interfere => {
            shared.ask(&request).await?;
            let page = "<html><body>Bad Gateway</body></html>";
            let length = page.len();
            let answer = format!(
                "HTTP/1.1 502 Bad Gateway\r\ncontent-type: text/html\r\nconnection: close\r\n\
                 content-length: {length}\r\n\r\n{page}"
            );
            client.write_all(answer.as_bytes()).await
        }
        Act::Twice => {
            shared.ask(&request).await?;
            relay(client, shared, &request).await
        }
        Act::Late(delay) => {
            tokio::time::sleep(delay).await;
            relay(client, shared, &request).await
        }
        Act::LateAnswer(delay) => {
            let answer = shared.ask(&request).await?;
            tokio::time::sleep(delay).await;
            client.write_all(&answer).await
        }
        Act::Keep => {
            shared.kept.lock().unwrap().push(request);
            Ok(())
        }
        Act::Silence => client.read_u8().await.map(drop),
        Act::Edit(from, to) => {
            assert_eq!(from.len(), to.len());
            let answer = String::from_utf8(shared.ask(&request).await?).unwrap();
            assert!(answer.contains(&from), "{answer}");
            client.write_all(answer.replace(&from, &to).as_bytes()).await
        }
        Act::Flip(at) => {
            let mut answer = shared.ask(&request).await?;
            let body = answer.windows(4).position(|four| four == b"\r\n\r\n").unwrap() + 4;
            answer[body + at] ^= 1;
            client.write_all(&answer).await
        }
    }
}

/// Passes a request on, and the answer back as it comes, until either side ends it.
async fn relay(client: TcpStream, shared: &Shared, request: &Seen) -> io::Result<()> {
    let gateway = shared.begin(&request.closing()).await?;
    let ((mut from_client, mut to_client), (mut answer, _open)) =
        (client.into_split(), gateway.into_split());
    let mut nothing = [0; 1];
    shared.under_way.fetch_add(1, Ordering::SeqCst);
    let copied = tokio::select! {
        copied = tokio::io::copy(&mut answer, &mut to_client) => Some(copied),
        _gone = from_client.read(&mut nothing) => None,
    };
    shared.under_way.fetch_sub(1, Ordering::SeqCst);
    match copied {
        Some(copied) => copied.map(drop)?,
        None => return Ok(()),
    }
    to_client.shutdown().await
}

/// A whole request; `None` if the client closed without one.
async fn read(client: &mut TcpStream) -> io::Result<Option<Seen>> {
    let mut bytes = Vec::new();
    let body_at = loop {
        if let Some(end) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            break end + 4;
        }
        if client.read_buf(&mut bytes).await? == 0 {
            return Ok(None);
        }
    };
    let head = String::from_utf8(bytes[..body_at].to_vec()).unwrap();
    let mut words = head.split(' ').map(str::to_owned);
    let (method, target) = (words.next().unwrap(), words.next().unwrap());
    let mut request = Seen { method, target, bytes, body_at };
    let length = request.header("content-length").map(|length| length.parse::<usize>().unwrap());
    let is_chunked = request.header("transfer-encoding").is_some();
    let is_whole = |bytes: &[u8]| match length {
        Some(length) => bytes.len() >= body_at + length,
        None => !is_chunked || bytes.ends_with(b"0\r\n\r\n"),
    };
    while !is_whole(&request.bytes) {
        if client.read_buf(&mut request.bytes).await? == 0 {
            return Ok(None);
        }
    }
    Ok(Some(request))
}
