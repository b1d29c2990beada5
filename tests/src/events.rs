//! A reader of server-sent events. The head of each stream and the data of each event are checked
//! against `openapi.yaml`.

use fence_core::LockId;
use fence_core::wire::LockEvent;
use tokio::time::timeout;

use crate::client::{Call, Client};
use crate::process::DEADLINE;
use crate::spec::Spec;

/// One event.
#[derive(Debug, Clone)]
pub struct Event {
    /// Its name.
    pub name: String,
    /// Its data.
    pub data: LockEvent,
}

/// An open stream.
#[derive(Debug)]
pub struct Events {
    response: reqwest::Response,
    buffer: String,
    comments: usize,
}

impl Events {
    /// Opens the stream of a lock, which must be there.
    pub async fn of(client: &Client, lock: LockId) -> Self {
        let path = format!("/locks/{lock}/events");
        Self::opened(client.get(path.clone()), &path).await
    }

    /// Opens the stream that this call of a path asks for, which must be given.
    pub async fn opened(call: Call, path: &str) -> Self {
        let response = call.open().await.expect("the stream opens");
        let (status, headers) = (response.status(), response.headers().clone());
        assert_eq!(status, 200, "{:?}", response.text().await);
        Spec::get().check("GET", path, status.as_u16(), &headers, b"");
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-store"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(headers.get(name).and_then(|found| found.to_str().ok()), Some(value));
        }
        Self { response, buffer: String::new(), comments: 0 }
    }

    /// The next event; `None` at the end of the stream.
    pub async fn next(&mut self) -> Option<Event> {
        timeout(DEADLINE, self.read()).await.expect("an event or the end comes within the deadline")
    }

    /// The next event, which must have this name.
    pub async fn expect(&mut self, name: &str) -> LockEvent {
        let event = self.next().await.unwrap_or_else(|| panic!("the stream ends before {name}"));
        assert_eq!(event.name, name, "{event:?}");
        event.data
    }

    /// Waits until a comment has come. No event may come before it.
    pub async fn comment(&mut self) {
        while self.comments == 0 {
            let read = timeout(DEADLINE, self.fill()).await.expect("a comment in time");
            assert!(read, "the stream ends");
            assert!(self.block().is_none(), "an event came");
        }
    }

    async fn read(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.block() {
                return Some(event);
            }
            if !self.fill().await {
                return None;
            }
        }
    }

    async fn fill(&mut self) -> bool {
        match self.response.chunk().await.expect("the stream is whole") {
            Some(bytes) => {
                self.buffer.push_str(std::str::from_utf8(&bytes).expect("events are UTF-8"));
                true
            }
            None => {
                assert!(self.buffer.is_empty(), "it ends amid an event: {:?}", self.buffer);
                false
            }
        }
    }

    /// The next whole event in the buffer; comments before it are counted.
    fn block(&mut self) -> Option<Event> {
        while let Some(end) = self.buffer.find("\n\n") {
            let block: String = self.buffer.drain(..end + 2).collect();
            let (mut name, mut data) = (None, None);
            for line in block.lines().filter(|line| !line.is_empty()) {
                match line.split_once(':').expect("a line has a field") {
                    ("", _) => self.comments += 1,
                    ("event", value) => name = Some(value.trim().to_owned()),
                    ("data", value) => data = Some(value.trim().to_owned()),
                    other => panic!("an unknown field: {other:?}"),
                }
            }
            let Some((name, data)) = name.zip(data) else { continue };
            let value = serde_json::from_str(&data).expect("data is JSON");
            Spec::get().check_schema("LockEvent", &value);
            return Some(Event { name, data: serde_json::from_value(value).expect("checked") });
        }
        None
    }
}
