//! Server-sent events, as the HTML standard has them (CC48): bytes in, events out, however they are cut.

/// The longest line, and the most data of one event, in bytes. What is longer is no event of a gateway.
const BYTES_MAX: usize = 1 << 20;
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// An event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SseEvent {
    /// Its name; `message` if the stream gave none.
    pub event: String,
    /// Its data; several lines are joined by line feeds.
    pub data: String,
    /// The id of the last event when this one came; empty if there was none.
    pub id: String,
}

/// What a stream says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SseItem {
    /// An event.
    Event(SseEvent),
    /// An id alone, without data: where the stream stands.
    Id(String),
    /// How long to wait before the next connection, in milliseconds.
    Retry(u64),
    /// A line or an event beyond all measure. Nothing comes after this.
    TooLong,
}

/// Reads a stream of events, piece by piece.
#[derive(Debug)]
pub struct SseParser {
    line: Vec<u8>,
    /// The last byte was CR: a LF right behind it belongs to it.
    after_cr: bool,
    is_first_line: bool,
    event: String,
    data: String,
    has_data: bool,
    has_id: bool,
    last_id: String,
    is_over: bool,
    bytes_max: usize,
}

impl Default for SseParser {
    fn default() -> Self {
        Self::with_limit(BYTES_MAX)
    }
}

impl SseParser {
    /// A parser that takes lines and data up to so many bytes.
    pub fn with_limit(bytes_max: usize) -> Self {
        Self {
            line: Vec::new(),
            after_cr: false,
            is_first_line: true,
            event: String::new(),
            data: String::new(),
            has_data: false,
            has_id: false,
            last_id: String::new(),
            is_over: false,
            bytes_max,
        }
    }

    /// Takes the next bytes, and gives what they complete. What is not complete at the end of the stream
    /// is none.
    pub fn push(&mut self, mut bytes: &[u8]) -> Vec<SseItem> {
        let mut items = Vec::new();
        while !bytes.is_empty() && !self.is_over {
            if std::mem::take(&mut self.after_cr) && bytes[0] == b'\n' {
                bytes = &bytes[1..];
                continue;
            }
            let end = bytes.iter().position(|byte| matches!(byte, b'\r' | b'\n'));
            let (part, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            if self.line.len() + part.len() > self.bytes_max {
                self.give_up(&mut items);
                break;
            }
            self.line.extend_from_slice(part);
            bytes = rest;
            if let [end, rest @ ..] = rest {
                self.after_cr = *end == b'\r';
                bytes = rest;
                let line = std::mem::take(&mut self.line);
                self.take_line(&line, &mut items);
            }
        }
        items
    }

    fn give_up(&mut self, items: &mut Vec<SseItem>) {
        self.is_over = true;
        items.push(SseItem::TooLong);
    }

    fn take_line(&mut self, line: &[u8], items: &mut Vec<SseItem>) {
        let line = match std::mem::take(&mut self.is_first_line) {
            true => line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line),
            false => line,
        };
        if line.is_empty() {
            items.extend(self.end_event());
            return;
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => value.clone_into(&mut self.event),
            "data" if self.data.len() + value.len() >= self.bytes_max => self.give_up(items),
            "data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.data.push('\n');
                }
                self.data.push_str(value);
            }
            "id" if !value.contains('\0') => {
                value.clone_into(&mut self.last_id);
                self.has_id = true;
            }
            "retry" if value.bytes().all(|byte| byte.is_ascii_digit()) => {
                items.extend(value.parse().ok().map(SseItem::Retry));
            }
            // A comment, whose field is empty, or a field that is not known.
            _ => {}
        }
    }

    fn end_event(&mut self) -> Option<SseItem> {
        let (event, data) = (std::mem::take(&mut self.event), std::mem::take(&mut self.data));
        let (has_data, has_id) =
            (std::mem::take(&mut self.has_data), std::mem::take(&mut self.has_id));
        let id = || self.last_id.clone();
        if !has_data {
            return has_id.then(|| SseItem::Id(id()));
        }
        let event = if event.is_empty() { "message".to_owned() } else { event };
        Some(SseItem::Event(SseEvent { event, data, id: id() }))
    }
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;
    use serde_json::Value;

    use super::*;

    const VECTORS: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../vectors/sse.json"));

    fn bytes_of(chunk: &Value) -> Vec<u8> {
        let decoded = |text| base64::engine::general_purpose::STANDARD.decode(text).unwrap();
        match chunk.as_str() {
            Some(text) => text.as_bytes().to_vec(),
            None => decoded(chunk["base64"].as_str().unwrap()),
        }
    }

    /// The events of these chunks, and the last time to wait.
    fn read(chunks: &[Vec<u8>]) -> (Vec<SseEvent>, Option<u64>) {
        let mut parser = SseParser::default();
        let (mut events, mut retry) = (Vec::new(), None);
        for item in chunks.iter().flat_map(|chunk| parser.push(chunk)) {
            match item {
                SseItem::Event(event) => events.push(event),
                SseItem::Retry(ms) => retry = Some(ms),
                SseItem::Id(_) => {}
                SseItem::TooLong => panic!("too long"),
            }
        }
        (events, retry)
    }

    #[test]
    fn the_vectors_come_out_as_they_say_however_they_are_cut() {
        let vectors: Value = serde_json::from_str(VECTORS).unwrap();
        for case in vectors["cases"].as_array().unwrap() {
            let text = |value: &Value| value.as_str().unwrap().to_owned();
            let event = |value: &Value| SseEvent {
                event: text(&value["event"]),
                data: text(&value["data"]),
                id: text(&value["id"]),
            };
            let expected: Vec<SseEvent> =
                case["events"].as_array().unwrap().iter().map(event).collect();
            let expected = (expected, case["retry"].as_u64());
            let chunks: Vec<_> = case["chunks"].as_array().unwrap().iter().map(bytes_of).collect();
            let single: Vec<_> = chunks.concat().into_iter().map(|byte| vec![byte]).collect();
            assert_eq!(read(&chunks), expected, "{}", case["id"]);
            assert_eq!(read(&[chunks.concat()]), expected, "{} in one", case["id"]);
            assert_eq!(read(&single), expected, "{} byte by byte", case["id"]);
        }
    }

    #[test]
    fn an_id_alone_is_told_at_the_end_of_its_block() {
        let mut parser = SseParser::default();
        assert_eq!(parser.push(b"id: g0-7\n"), []);
        assert_eq!(parser.push(b"\n: alive\n\n"), [SseItem::Id("g0-7".into())]);
    }

    #[test]
    fn what_is_too_long_ends_it() {
        for stream in ["data: 0123456789012345", "data: 012345678\ndata: 012345678\n\n"] {
            let mut parser = SseParser::with_limit(16);
            assert_eq!(parser.push(stream.as_bytes()), [SseItem::TooLong], "{stream}");
            assert_eq!(parser.push(b"\n\ndata: a\n\n"), []);
        }
        let mut parser = SseParser::with_limit(16);
        assert_eq!(parser.push(b": 01234567890\n: 01234567890\n: 01234567890\n"), []);
    }
}
