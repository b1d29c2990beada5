//! What a client shows in `Authorization`: a fixed text, a file that may be replaced, or a function.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::future::BoxFuture;
use reqwest::header::HeaderValue;
use tokio::fs::File;
use tokio::io::AsyncReadExt as _;

use crate::error::{Details, Error};

/// The most bytes of a file with a credential: its path may lead to what has no end.
const FILE_BYTES_MAX: u64 = 16 * 1024;

type Ask = dyn Fn() -> BoxFuture<'static, Result<String, String>> + Send + Sync;

/// A bearer token, asked for before each request, and, unless it is always the same, once again after a 401 (CC1).
#[derive(Clone)]
pub struct Credential(Source);

#[derive(Clone)]
enum Source {
    Text(Arc<str>),
    File(Arc<PathBuf>),
    Asked(Arc<Ask>),
}

impl std::fmt::Debug for Credential {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Credential(..)")
    }
}

impl Credential {
    /// Always the same.
    pub fn text(token: impl Into<String>) -> Self {
        Self(Source::Text(token.into().into()))
    }

    /// The contents of a file, read before each request, and once more after a 401: whoever changes the credential
    /// only has to replace the file before the old one ends.
    pub fn file(path: impl Into<PathBuf>) -> Self {
        Self(Source::File(Arc::new(path.into())))
    }

    /// What a function gives; it should remember what is still good.
    pub fn from_fn<F, R>(ask: F) -> Self
    where
        F: Fn() -> R + Send + Sync + 'static,
        R: Future<Output = Result<String, String>> + Send + 'static,
    {
        Self(Source::Asked(Arc::new(move || Box::pin(ask()))))
    }

    /// Whether it may be another one when it is asked for again.
    pub(crate) fn may_change(&self) -> bool {
        !matches!(self.0, Source::Text(_))
    }

    /// The header.
    pub(crate) async fn header(&self) -> Result<HeaderValue, Error> {
        let denied = |text: String| Error::Denied(Details::local(text));
        let token = match &self.0 {
            Source::Text(token) => token.to_string(),
            Source::File(path) => match contents(path).await {
                // As of a file that is being replaced piece by piece: it says nothing yet.
                Ok(text) if text.trim().is_empty() => {
                    return Err(denied(format!("{} is empty", path.display())));
                }
                Ok(text) => text.trim().to_owned(),
                Err(error) => {
                    return Err(denied(format!("cannot read {}: {error}", path.display())));
                }
            },
            Source::Asked(ask) => {
                ask().await.map_err(|error| denied(format!("no credential: {error}")))?
            }
        };
        let mut value = HeaderValue::try_from(format!("Bearer {token}"))
            .map_err(|_| denied("the credential holds what a header cannot".to_owned()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// The text of a file.
async fn contents(path: &Path) -> io::Result<String> {
    let mut text = String::new();
    let file = File::open(path).await?;
    let length = file.take(FILE_BYTES_MAX + 1).read_to_string(&mut text).await?;
    match length as u64 <= FILE_BYTES_MAX {
        true => Ok(text),
        false => Err(io::Error::other(format!("it has more than {FILE_BYTES_MAX} bytes"))),
    }
}
