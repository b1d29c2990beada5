//! The page of operators at `/ui/`: its files as they are in `gateway/ui`, part of the program. It has no data of its own:
//! it calls the API as anybody does.

use std::collections::HashMap;
use std::sync::LazyLock;

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse as _, Redirect, Response};
use axum::routing::get;
use fence_core::ErrorCode;
use sha2::{Digest as _, Sha256};

use super::problem::Problem;
use super::state::App;

/// Which page is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Page {
    /// All of it.
    Full,
    /// Without the buttons that do something. What may be done the rules of access say, not the page.
    Readonly,
}

/// Nothing comes from elsewhere, nothing is inline, and no other site may show the page in a frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
    connect-src 'self'; form-action 'none'; frame-ancestors 'none'; base-uri 'none'";
/// The document that all views are in.
const INDEX: &str = "index.html";
/// How it says that it has no buttons.
const MODE: [&str; 2] = ["data-mode=\"full\"", "data-mode=\"readonly\""];

/// A file as it is sent.
struct File {
    kind: &'static str,
    bytes: Bytes,
    etag: HeaderValue,
}

impl File {
    fn new(name: &str, bytes: Bytes) -> Self {
        let kind = match name.rsplit_once('.') {
            Some((_, "html")) => "text/html; charset=utf-8",
            Some((_, "js")) => "text/javascript; charset=utf-8",
            Some((_, "css")) => "text/css; charset=utf-8",
            Some((_, "svg")) => "image/svg+xml",
            _ => "text/plain; charset=utf-8",
        };
        let etag = format!("\"{}\"", &hex::encode(Sha256::digest(&bytes))[..32]);
        // INVARIANT: quotes and hexadecimal digits are a header's value.
        let etag = HeaderValue::try_from(etag).expect("a tag is a value");
        Self { kind, bytes, etag }
    }
}

macro_rules! files {
    ($($name:literal)+) => {
        /// All files, by their names.
        const FILES: &[(&str, &[u8])] = &[
            $(($name, include_bytes!(concat!("../../ui/", $name)))),+
        ];
    };
}

files! {
    "index.html"
    "style.css"
    "icon.svg"
    "app.js"
    "api.js"
    "live.js"
    "words.js"
    "jobs/inbox.js"
    "jobs/load.js"
    "jobs/record.js"
    "jobs/verdict.js"
    "parts/actions.js"
    "parts/common.js"
    "parts/jobactions.js"
    "parts/jobs.js"
    "parts/lateness.js"
    "parts/preview.js"
    "parts/signin.js"
    "vendor/htm.js"
    "vendor/preact.js"
    "vendor/hooks.js"
    "vendor/LICENSES.txt"
    "views/access.js"
    "views/audit.js"
    "views/events.js"
    "views/intents.js"
    "views/job.js"
    "views/jobs.js"
    "views/locks.js"
    "views/rejections.js"
    "views/resource.js"
    "views/resources.js"
    "views/run.js"
    "views/search.js"
    "views/status.js"
}

/// What is sent, by name.
static SENT: LazyLock<HashMap<&str, File>> = LazyLock::new(|| {
    let file = |(name, bytes): &(&'static str, &'static [u8])| {
        (*name, File::new(name, Bytes::from_static(bytes)))
    };
    FILES.iter().map(file).collect()
});

/// The document of a page without buttons.
static READONLY: LazyLock<File> = LazyLock::new(|| {
    let text = String::from_utf8_lossy(&SENT[INDEX].bytes).replace(MODE[0], MODE[1]);
    File::new(INDEX, text.into())
});

/// The routes of the page, where there is one.
pub(super) fn routes(app: &App) -> Router<App> {
    if app.page.is_none() {
        return Router::new();
    }
    Router::new()
        .route("/", get(home))
        .route("/ui", get(async || Redirect::permanent("/ui/")))
        .route("/ui/", get(index))
        .route("/ui/{*file}", get(file))
}

/// Leads people to the page, and nobody else: callers of the API hear what they heard without it.
async fn home(headers: HeaderMap) -> Response {
    let accepts = headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    match accepts.is_some_and(|accept| accept.contains("text/html")) {
        true => Redirect::temporary("/ui/").into_response(),
        false => super::not_found().await.into_response(),
    }
}

async fn index(State(app): State<App>, headers: HeaderMap) -> Response {
    answer(found(app.page, INDEX), &headers)
}

async fn file(State(app): State<App>, Path(name): Path<String>, headers: HeaderMap) -> Response {
    answer(found(app.page, &name), &headers)
}

fn found(page: Option<Page>, name: &str) -> Option<&'static File> {
    match (page, name) {
        (Some(Page::Readonly), INDEX) => Some(&READONLY),
        _ => SENT.get(name),
    }
}

fn answer(file: Option<&File>, asked: &HeaderMap) -> Response {
    let Some(file) = file else {
        let why = "the page has no such file; it begins at /ui/";
        return Problem::new(ErrorCode::RouteNotFound, why).into_response();
    };
    let is_known = asked
        .get_all(header::IF_NONE_MATCH)
        .iter()
        .filter_map(|tags| tags.to_str().ok())
        .any(|tags| tags.split(',').any(|tag| tag.trim().as_bytes() == file.etag.as_bytes()));
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => ([(header::CONTENT_TYPE, file.kind)], file.bytes.clone()).into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(header::ETAG, file.etag.clone());
    for (name, value) in [
        (header::CACHE_CONTROL, "no-cache"),
        (header::CONTENT_SECURITY_POLICY, POLICY),
        (header::REFERRER_POLICY, "no-referrer"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::{Path, PathBuf};

    use fence_core::Refusal;
    use fencegate_access::Action;

    use super::*;

    fn folder() -> PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("ui")
    }

    fn all_in(folder: &Path, found: &mut BTreeSet<PathBuf>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                all_in(&path, found);
            } else {
                found.insert(path);
            }
        }
    }

    #[test]
    fn every_file_is_served() {
        let mut found = BTreeSet::new();
        all_in(&folder(), &mut found);
        // What is here for those who work on it.
        found.retain(|path| !path.to_string_lossy().ends_with(".d.ts"));
        assert!(found.remove(&folder().join("vendor/vendor.sh")));
        assert!(found.remove(&folder().join("vendor/SHA256SUMS")));
        let named: BTreeSet<_> = FILES.iter().map(|(name, _)| folder().join(name)).collect();
        assert_eq!(found, named);
    }

    #[test]
    fn what_others_wrote_is_as_it_was_fetched() {
        let sums = std::fs::read_to_string(folder().join("vendor/SHA256SUMS")).unwrap();
        let vendored = FILES.iter().filter(|(name, _)| name.starts_with("vendor/"));
        let found: BTreeSet<String> = vendored
            .map(|(name, bytes)| {
                format!("{}  {}", hex::encode(Sha256::digest(bytes)), &name["vendor/".len()..])
            })
            .collect();
        assert_eq!(found, sums.lines().map(str::to_owned).collect());
    }

    #[test]
    fn the_document_says_whether_it_has_buttons() {
        let text =
            |page| String::from_utf8(found(Some(page), INDEX).unwrap().bytes.to_vec()).unwrap();
        assert!(text(Page::Full).contains(MODE[0]));
        assert!(text(Page::Readonly).contains(MODE[1]));
    }

    #[test]
    fn it_knows_all_actions() {
        let text = |name: &str| String::from_utf8(SENT[name].bytes.to_vec()).unwrap();
        let access = text("views/access.js");
        for action in Action::ALL {
            assert!(access.contains(&format!("\"{}\"", action.as_str())), "{action:?}");
        }
        let audit = text("views/audit.js");
        let schema = serde_json::to_value(crate::http::openapi()).unwrap();
        let known = schema["components"]["schemas"]["AuditAction"]["enum"].as_array().unwrap();
        for action in known {
            assert!(audit.contains(&action.to_string()), "{action}");
        }
    }

    /// Each reason has a sentence of its own, and each code is a reason once.
    #[test]
    fn it_knows_all_refusals() {
        let text = String::from_utf8(SENT["parts/lateness.js"].bytes.to_vec()).unwrap();
        let stale = Refusal::Stale { by: None, at: None, grants_behind: None, owner: None };
        let all = [
            stale,
            Refusal::Void,
            Refusal::Unknown,
            Refusal::Foreign,
            Refusal::Released,
            Refusal::Broken,
            Refusal::LockIdMismatch,
            Refusal::Frozen,
            Refusal::Draining,
            Refusal::Protected,
            Refusal::TooManyObjects,
            Refusal::SequenceOutOfOrder,
            Refusal::VersionMismatch,
        ];
        let known = text.lines().filter(|line| line.trim_start().starts_with('"')).count();
        assert_eq!(known, all.len());
        for refusal in all {
            let reason = refusal.reason();
            assert_eq!(text.matches(&format!("\"{reason}\": [")).count(), 1, "{reason}");
        }
    }

    /// The policy forbids it, and a browser would leave it out without a word on the page.
    #[test]
    fn nothing_is_inline() {
        for (name, bytes) in FILES.iter().filter(|(name, _)| name.ends_with(".html")) {
            let text = String::from_utf8_lossy(bytes);
            assert!(!text.contains("style=") && !text.contains("<style"), "{name}");
            assert!(!text.contains("onclick") && !text.contains("<script>"), "{name}");
        }
    }
}
