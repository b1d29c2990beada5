//! Finds out where requests begin and end in a stream of bytes.
//!
//! It decides nothing that hyper decides: it only remembers what hyper forgets. Where it cannot
//! follow, it stops watching and says that it is lost; then no further request of the stream is taken.

/// Enough of a line to tell its name, a length or the size of a chunk.
const LINE_KEPT: usize = 64;

/// What comes next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    RequestLine,
    Headers,
    Body(u64),
    ChunkSize,
    Chunk(u64),
    Trailers,
    Unknown,
}

/// The state of a stream of requests.
#[derive(Debug)]
pub(super) struct Watcher {
    next: Next,
    line: Vec<u8>,
    heads: u64,
    length: Option<Option<u64>>,
    coded: bool,
    unclear_length: u64,
    fragment: u64,
    bare_newline: u64,
    /// The length was said twice, or in a way that others may read in another.
    unclear: bool,
    /// The last byte of the line so far.
    last: u8,
    /// The line was longer than what was kept of it.
    cut: bool,
}

impl Default for Watcher {
    fn default() -> Self {
        Self {
            next: Next::RequestLine,
            line: Vec::with_capacity(LINE_KEPT),
            heads: 0,
            length: None,
            coded: false,
            unclear_length: 0,
            fragment: 0,
            bare_newline: 0,
            unclear: false,
            last: 0,
            cut: false,
        }
    }
}

impl Watcher {
    /// The number of the first request whose length is not said exactly once, by one `Content-Length` or one
    /// `Transfer-Encoding: chunked`, counted from 1; 0 for none. There is no second: the connection closes
    /// after the first.
    pub(super) fn unclear_length(&self) -> u64 {
        self.unclear_length
    }

    /// The number of the first request with a `#` in its request line; 0 for none. There is no
    /// second, for the same reason.
    pub(super) fn fragment(&self) -> u64 {
        self.fragment
    }

    /// The number of the first request with a line of its head that ends without a carriage return; 0 for
    /// none. There is no second, for the same reason.
    pub(super) fn bare_newline(&self) -> u64 {
        self.bare_newline
    }

    /// It cannot tell any more where requests begin.
    pub(super) fn lost(&self) -> bool {
        self.next == Next::Unknown
    }

    /// How many heads have ended.
    pub(super) fn heads(&self) -> u64 {
        self.heads
    }

    /// A request line or its headers have begun and not ended.
    pub(super) fn in_head(&self) -> bool {
        self.next == Next::Headers || self.in_line()
    }

    /// A request line has begun and not ended.
    pub(super) fn in_line(&self) -> bool {
        self.next == Next::RequestLine && !self.line.is_empty()
    }

    /// A body has begun and not ended.
    pub(super) fn in_body(&self) -> bool {
        !matches!(self.next, Next::RequestLine | Next::Headers)
    }

    /// Reads on.
    pub(super) fn feed(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            match self.next {
                Next::Unknown => return,
                Next::Body(left) => bytes = self.skip(bytes, left, Next::Body, Next::RequestLine),
                Next::Chunk(left) => bytes = self.skip(bytes, left, Next::Chunk, Next::ChunkSize),
                _ => bytes = self.read_line(bytes),
            }
        }
    }

    fn skip<'b>(
        &mut self,
        bytes: &'b [u8],
        left: u64,
        more: fn(u64) -> Next,
        done: Next,
    ) -> &'b [u8] {
        let take = usize::try_from(left).map_or(bytes.len(), |left| left.min(bytes.len()));
        let left = left - take as u64;
        self.next = if left == 0 { done } else { more(left) };
        &bytes[take..]
    }

    fn read_line<'b>(&mut self, bytes: &'b [u8]) -> &'b [u8] {
        let end = memchr::memchr(b'\n', bytes);
        let part = &bytes[..end.unwrap_or(bytes.len())];
        if self.next == Next::RequestLine && self.fragment == 0 && part.contains(&b'#') {
            self.fragment = self.heads + 1;
        }
        self.keep(part);
        self.last = part.last().copied().unwrap_or(self.last);
        let Some(end) = end else {
            return &[];
        };
        let head = matches!(self.next, Next::RequestLine | Next::Headers);
        if head && self.last != b'\r' && self.bare_newline == 0 {
            self.bare_newline = self.heads + 1;
        }
        self.last = 0;
        let mut line = std::mem::take(&mut self.line);
        // Unlike heads, trailers end only at a whole CRLF.
        let ended = self.next != Next::Trailers || line == b"\r";
        if ended {
            self.next = self.after(line.strip_suffix(b"\r").unwrap_or(&line));
        }
        line.clear();
        (self.line, self.cut) = (line, false);
        &bytes[end + 1..]
    }

    /// Keeps the beginning of a line. White space says nothing where lengths are, and zeros before a
    /// number do not either: neither may push a number out of what is kept.
    fn keep(&mut self, mut part: &[u8]) {
        match self.next {
            // Of these it matters whether they are empty, and of no other header what it says.
            Next::RequestLine => part = &part[..part.len().min(2)],
            Next::Headers if self.line.first().or(part.first()).is_some_and(says_no_length) => {
                part = &part[..usize::from(self.line.is_empty())];
            }
            _ => {}
        }
        let numbers = matches!(self.next, Next::Headers | Next::ChunkSize);
        for &byte in part {
            if numbers && (matches!(byte, b' ' | b'\t') || self.is_leading_zero(byte)) {
                continue;
            }
            if self.line.len() < LINE_KEPT {
                self.line.push(byte);
            } else {
                self.cut = byte != b'\r' || self.cut;
            }
        }
    }

    /// Another zero at the beginning of a number.
    fn is_leading_zero(&self, byte: u8) -> bool {
        let mut before = self.line.iter().rev().skip_while(|kept| **kept == b'0');
        byte == b'0'
            && self.line.last() == Some(&b'0')
            && !before.next().is_some_and(u8::is_ascii_alphanumeric)
    }

    fn after(&mut self, line: &[u8]) -> Next {
        match self.next {
            Next::RequestLine if line.is_empty() => Next::RequestLine,
            Next::RequestLine => {
                (self.length, self.coded, self.unclear) = (None, false, false);
                Next::Headers
            }
            Next::Headers if line.is_empty() => self.after_head(),
            Next::Headers => {
                self.header(line);
                Next::Headers
            }
            Next::ChunkSize if self.cut && !line.contains(&b';') => Next::Unknown,
            Next::ChunkSize => after_chunk_size(line),
            Next::Trailers if line.is_empty() => Next::RequestLine,
            other => other,
        }
    }

    fn header(&mut self, line: &[u8]) {
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default();
        let value = parts.next().unwrap_or_default();
        if name.eq_ignore_ascii_case(b"content-length") {
            self.unclear |= self.length.is_some();
            let digits = std::str::from_utf8(value.trim_ascii()).ok().filter(|_| !self.cut);
            self.length = Some(digits.and_then(|digits| digits.parse().ok()));
        } else if name.eq_ignore_ascii_case(b"transfer-encoding") {
            let chunked = value.trim_ascii().eq_ignore_ascii_case(b"chunked") && !self.cut;
            self.unclear |= self.coded || !chunked;
            self.coded = true;
        }
    }

    fn after_head(&mut self) -> Next {
        self.heads += 1;
        self.unclear |= self.coded && self.length.is_some();
        if self.unclear && self.unclear_length == 0 {
            self.unclear_length = self.heads;
        }
        match (self.coded, self.length) {
            (true, _) => Next::ChunkSize,
            (false, None | Some(Some(0))) => Next::RequestLine,
            (false, Some(Some(length))) => Next::Body(length),
            (false, Some(None)) => Next::Unknown,
        }
    }
}

/// Each chunk is followed by an end of line, each last chunk by trailers.
fn after_chunk_size(line: &[u8]) -> Next {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let size = std::str::from_utf8(&line[..digits]).ok();
    match size.and_then(|size| u64::from_str_radix(size, 16).ok()) {
        Some(0) => Next::Trailers,
        Some(size) => size.checked_add(2).map_or(Next::Unknown, Next::Chunk),
        None => Next::Unknown,
    }
}

/// Whether no header whose name begins so says how long a body is.
fn says_no_length(first: &u8) -> bool {
    first.is_ascii_alphabetic() && !matches!(first.to_ascii_lowercase(), b'c' | b't')
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BOTH: &str = "PUT / HTTP/1.1\r\nContent-Length: 3\r\ntransfer-encoding: chunked\r\n\r\n";
    const LENGTH: &str = "PUT / HTTP/1.1\r\ncontent-length: 5\r\n\r\nab\r\nc";
    const CHUNKED: &str =
        "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\na\nb\r\n0\r\nT: 1\r\n\r\n";
    const PLAIN: &str = "GET / HTTP/1.1\r\nhost: a\r\n\r\n";

    fn fed(parts: &[&str]) -> Watcher {
        let mut watcher = Watcher::default();
        parts.iter().for_each(|part| watcher.feed(part.as_bytes()));
        watcher
    }

    #[test]
    fn unclear_length_are_seen_in_either_order() {
        assert_eq!(fed(&[BOTH]).unclear_length(), 1);
        let turned = "PUT / HTTP/1.1\nTransfer-Encoding: chunked\nContent-Length: 3\n\n";
        assert_eq!(fed(&[turned]).unclear_length(), 1);
        assert_eq!(fed(&[PLAIN, LENGTH, CHUNKED]).unclear_length(), 0);
    }

    #[test]
    fn lengths_that_are_said_twice_or_oddly_are_seen() {
        for lines in [
            "content-length: 3\r\ncontent-length: 3",
            "transfer-encoding: chunked\r\nTransfer-Encoding: chunked",
            "transfer-encoding: identity, chunked",
            "transfer-encoding: gzip, chunked",
            "transfer-encoding: chunked, chunked",
            "transfer-encoding: chunked;q=1",
            "transfer-encoding: identity",
            "transfer-encoding: ",
        ] {
            let odd = format!("PUT / HTTP/1.1\r\n{lines}\r\n\r\n");
            assert_eq!(fed(&[PLAIN, LENGTH, CHUNKED, &odd]).unclear_length(), 4, "{lines}");
        }
        let plain = "PUT / HTTP/1.1\r\ntransfer-encoding:  CHUNKED \r\n\r\n0\r\n\r\n";
        assert_eq!(fed(&[plain, LENGTH, plain]).unclear_length(), 0);
    }

    #[test]
    fn lines_of_a_head_end_with_a_whole_crlf() {
        let long = "x".repeat(200);
        for bare in [
            "GET / HTTP/1.1\nhost: a\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nhost: a\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nhost: a\r\n\n".to_owned(),
            format!("GET / HTTP/1.1\r\nx: {long}\n\r\n"),
            format!("\nGET / HTTP/1.1\r\nx: {long}\r\n\r\n"),
        ] {
            assert_eq!(fed(&[PLAIN, LENGTH, CHUNKED, &bare]).bare_newline(), 4, "{bare:?}");
        }
        let long = format!("\r\nGET /{long} HTTP/1.1\r\nx: {long}\r\n\r\n");
        assert_eq!(fed(&[&long, PLAIN, LENGTH, CHUNKED]).bare_newline(), 0);
        assert_eq!(fed(&[&long[..40], &long[40..long.len() - 3], "\r", "\n"]).bare_newline(), 0);
    }

    #[test]
    fn bodies_are_not_taken_for_heads() {
        let around = format!("PUT / HTTP/1.1\r\nContent-Length: {}\r\n\r\n", BOTH.len());
        assert_eq!(fed(&[&around, BOTH, PLAIN]).unclear_length(), 0);
        assert_eq!(fed(&[PLAIN, LENGTH, CHUNKED, BOTH]).unclear_length(), 4);
    }

    #[test]
    fn a_fragment_is_seen_in_the_request_line_alone() {
        let hash = "PUT /a#b HTTP/1.1\r\nhost: a\r\n\r\n";
        let harmless = "PUT / HTTP/1.1\r\nx: #\r\nContent-Length: 2\r\n\r\n##";
        assert_eq!(fed(&[PLAIN, harmless, hash]).fragment(), 3);
        assert_eq!(fed(&[harmless, PLAIN]).fragment(), 0);
    }

    #[test]
    fn padding_does_not_hide_a_length() {
        let padded = format!("PUT / HTTP/1.1\r\ncontent-length:{}2\r\n\r\nab", " ".repeat(90));
        assert_eq!(fed(&[&padded, BOTH]).unclear_length(), 2);
        let zeros = format!("PUT / HTTP/1.1\r\ncontent-length: {}2\r\n\r\nab", "0".repeat(90));
        assert_eq!(fed(&[&zeros, BOTH]).unclear_length(), 2);
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        let size = format!("{}3\r\nabc\r\n0\r\n\r\n", "0".repeat(90));
        assert_eq!(fed(&[chunked, &size, BOTH]).unclear_length(), 2);
        let trailer = "0\r\nT: a\n\nFOO: 1\r\n\r\n";
        assert_eq!(fed(&[chunked, trailer, BOTH]).unclear_length(), 2);
    }

    #[test]
    fn where_it_cannot_follow_it_is_lost() {
        let digits = "1".repeat(90);
        assert!(fed(&[&format!("PUT / HTTP/1.1\r\ncontent-length: {digits}\r\n\r\n")]).lost());
        let chunked = "PUT / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(fed(&[chunked, &digits, "\r\n"]).lost());
        assert!(!fed(&[PLAIN, LENGTH, CHUNKED, BOTH]).lost());
    }

    #[test]
    fn it_knows_where_it_is() {
        assert!(!fed(&[]).in_head());
        assert!(fed(&["PU"]).in_line());
        assert!(fed(&["PUT / HTTP/1.1\r\nho"]).in_head());
        assert!(!fed(&["PUT / HTTP/1.1\r\nho"]).in_line());
        assert!(fed(&[&LENGTH[..LENGTH.len() - 1]]).in_body());
        assert!(!fed(&[LENGTH]).in_body());
        assert!(!fed(&[CHUNKED]).in_body());
    }

    proptest! {
        #[test]
        fn where_reads_are_cut_makes_no_difference(cuts in proptest::collection::vec(1..9usize, 0..60)) {
            let stream = [PLAIN, CHUNKED, LENGTH, PLAIN, BOTH].concat();
            let mut watcher = Watcher::default();
            let mut rest = stream.as_bytes();
            for cut in cuts {
                let (part, more) = rest.split_at(cut.min(rest.len()));
                watcher.feed(part);
                rest = more;
            }
            watcher.feed(rest);
            prop_assert_eq!(watcher.unclear_length(), 5);
        }

        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
            Watcher::default().feed(&bytes);
        }
    }
}
