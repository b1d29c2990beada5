//! A request that must be refused: by which code, in a document that can be read, and without any effect.

use fence_tests::raw::{RawAnswer, RawConnection};
use fence_tests::s3::{Key, Signed};
use quick_xml::Reader;
use quick_xml::events::Event;
use reqwest::Method;

use super::rig::Site;

/// A request, and how it is to be refused.
pub struct Row {
    what: String,
    signed: Signed,
    /// How many bytes its head announces, where that is not what is sent.
    announced: Option<usize>,
    status: u16,
    code: &'static str,
}

/// A request that must be refused so.
pub fn row(what: impl Into<String>, signed: Signed, (status, code): (u16, &'static str)) -> Row {
    Row { what: what.into(), signed, announced: None, status, code }
}

impl Row {
    /// Its head announces a body of this length.
    pub fn announcing(mut self, length: usize) -> Self {
        self.announced = Some(length);
        self
    }

    async fn send(&self, site: &Site) -> RawAnswer {
        let mut connection = RawConnection::open(site.s3).await;
        let length = self.announced.unwrap_or(self.signed.body.len());
        connection.send(&self.signed.head(length)).await;
        connection.send(&self.signed.body).await;
        if length > self.signed.body.len() && self.announced.is_some() {
            connection.finish().await;
        }
        let answer = connection.answer().await;
        answer.unwrap_or_else(|| panic!("{}: no answer", self.what))
    }
}

/// Sends each of them, and looks at all that can be seen of the bucket before and afterwards.
pub async fn refuse_all(site: &Site, reader: &Key, rows: Vec<Row>) {
    let before = site.picture(reader).await;
    let mut wrong = Vec::new();
    for row in &rows {
        let answer = row.send(site).await;
        wrong.extend(look_at(row, &answer));
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(site.picture(reader).await, before, "nothing has changed");
    // Whoever broke something would also be seen to have done it once the gateway has started again.
    assert!(!site.gateway.log().contains("panicked"), "{}", site.gateway.log());
}

/// What is wrong about an answer.
fn look_at(row: &Row, answer: &RawAnswer) -> Option<String> {
    let text = answer.text();
    let wrong = |why: &str| Some(format!("{}: {why}: {} {text}", row.what, answer.status));
    let error = match Told::read(&answer.body) {
        Ok(error) => error,
        Err(why) => return wrong(&format!("it cannot be read: {why}")),
    };
    if (answer.status, error.code.as_str()) != (row.status, row.code) {
        return wrong(&format!("it is not {} {}", row.status, row.code));
    }
    if error.message.is_empty()
        || Some(error.request_id.as_str()) != answer.header("x-amz-request-id")
    {
        return wrong("it has no message, or another id than its header");
    }
    let writes = ![Method::GET, Method::HEAD].contains(&row.signed.method);
    let verdict = answer.header("x-fence-verdict");
    if verdict != writes.then_some("refused") {
        return wrong(&format!("its verdict is {verdict:?}"));
    }
    (answer.header("content-type") != Some("application/xml")).then(|| "no XML".to_owned())
}

/// What an error says.
#[derive(Default)]
struct Told {
    code: String,
    message: String,
    request_id: String,
}

impl Told {
    /// Reads a document, of which all must be well formed.
    fn read(document: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(document).map_err(|error| error.to_string())?;
        let mut reader = Reader::from_str(text);
        let (mut told, mut path) = (Self::default(), Vec::new());
        loop {
            match reader.read_event().map_err(|error| error.to_string())? {
                Event::Start(start) => {
                    path.push(String::from_utf8_lossy(start.name().as_ref()).into_owned());
                }
                Event::End(_) => drop(path.pop()),
                Event::Text(piece) => {
                    let piece = piece.decode().map_err(|error| error.to_string())?;
                    let names: Vec<&str> = path.iter().map(String::as_str).collect();
                    match names[..] {
                        ["Error", "Code"] => told.code.push_str(&piece),
                        ["Error", "Message"] => told.message.push_str(&piece),
                        ["Error", "RequestId"] => told.request_id.push_str(&piece),
                        _ => {}
                    }
                }
                Event::Eof if path.is_empty() => return Ok(told),
                Event::Eof => return Err(format!("it ends within {path:?}")),
                _ => {}
            }
        }
    }
}
