//! A reader of the feed of committed writes as server-sent events. The head of each stream and the data
//! of each event are checked against `openapi.yaml`.

use fence_core::wire::WriteEvent;
use tokio::time::timeout;

use crate::client::Call;
use crate::process::DEADLINE;
use crate::spec::Spec;

/// An open stream.
#[derive(Debug)]
pub struct Feed {
    response: reqwest::Response,
    buffer: String,
    /// The cursor that came last.
    pub at: String,
    comments: usize,
}

impl Feed {
    /// Opens the stream that this call of `/events` asks for, which must be given.
    pub async fn open(call: Call) -> Self {
        Self::try_open(call).await.expect("the stream opens")
    }

    /// The same; `None` if the gateway does not answer, or no more.
    pub async fn try_open(call: Call) -> Option<Self> {
        let call = call.header("accept", "text/event-stream");
        let response = call.open().await.ok()?;
        let (status, headers) = (response.status(), response.headers().clone());
        assert_eq!(status, 200, "{:?}", response.text().await);
        Spec::get().check("GET", "/events", status.as_u16(), &headers, b"");
        for (name, value) in [
            ("content-type", "text/event-stream"),
            ("cache-control", "no-store"),
            ("x-accel-buffering", "no"),
        ] {
            assert_eq!(headers.get(name).and_then(|found| found.to_str().ok()), Some(value));
        }
        let mut feed = Self { response, buffer: String::new(), at: String::new(), comments: 0 };
        // Where it begins comes first.
        while feed.at.is_empty() {
            let more = timeout(DEADLINE, feed.fill()).await.expect("the place in time");
            if !more.unwrap_or(false) {
                return None;
            }
            if let Some(end) = feed.buffer.find("\n\n") {
                let block: String = feed.buffer.drain(..end + 2).collect();
                let id = block.trim().strip_prefix("id:").expect("an id alone").trim();
                id.clone_into(&mut feed.at);
            }
        }
        Some(feed)
    }

    /// The next event; `None` at the end of the stream, or when the connection is lost.
    pub async fn next(&mut self) -> Option<WriteEvent> {
        timeout(DEADLINE, self.read()).await.expect("an event or the end in time")
    }

    /// Waits until a comment has come. No event may come before it.
    pub async fn comment(&mut self) {
        while self.comments == 0 {
            let read = timeout(DEADLINE, self.fill()).await.expect("a comment in time");
            assert!(read.expect("the connection lasts"), "the stream ends");
            assert!(self.block().is_none(), "an event came");
        }
    }

    async fn read(&mut self) -> Option<WriteEvent> {
        loop {
            if let Some(event) = self.block() {
                return Some(event);
            }
            if !self.fill().await.unwrap_or(false) {
                return None;
            }
        }
    }

    async fn fill(&mut self) -> reqwest::Result<bool> {
        let bytes = self.response.chunk().await?;
        if let Some(bytes) = &bytes {
            self.buffer.push_str(std::str::from_utf8(bytes).expect("events are UTF-8"));
        }
        Ok(bytes.is_some())
    }

    /// The next whole event in the buffer; comments before it are counted.
    fn block(&mut self) -> Option<WriteEvent> {
        while let Some(end) = self.buffer.find("\n\n") {
            let block: String = self.buffer.drain(..end + 2).collect();
            let (mut name, mut id, mut data) = (None, None, None);
            for line in block.lines().filter(|line| !line.is_empty()) {
                let (field, value) = line.split_once(':').expect("a line has a field");
                let value = value.trim().to_owned();
                match field {
                    "" => self.comments += 1,
                    "event" => name = Some(value),
                    "id" => id = Some(value),
                    "data" => data = Some(value),
                    other => panic!("an unknown field: {other:?}"),
                }
            }
            let Some(data) = data else { continue };
            assert_eq!(name.as_deref(), Some("write"));
            let value = serde_json::from_str(&data).expect("data is JSON");
            Spec::get().check_schema("WriteEvent", &value);
            let event: WriteEvent = serde_json::from_value(value).expect("checked");
            assert_eq!(id.as_ref(), Some(&event.event));
            self.at.clone_from(&event.event);
            return Some(event);
        }
        None
    }
}
