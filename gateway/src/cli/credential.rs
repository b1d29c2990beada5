//! What commands show of who they are to a gateway that they call, and whom they trust: as clients do.

use std::path::Path;

use anyhow::Context as _;

use crate::files::{self, CREDENTIAL_BYTES_MAX, FILE_BYTES_MAX};

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The key or token to show: that of the file, or what the environment has.
///
/// # Errors
/// The file cannot be read.
pub(super) fn credential(file: Option<&Path>) -> anyhow::Result<Option<String>> {
    let named = file.map(Path::to_owned);
    match named.or_else(|| variable("FENCE_AUTH_TOKEN_FILE").map(Into::into)) {
        Some(file) => read(&file).map(Some),
        None => Ok(variable("FENCE_AUTH_TOKEN")),
    }
}

/// The credential in a file.
///
/// # Errors
/// It cannot be read.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    let text = files::read_given_text(file, CREDENTIAL_BYTES_MAX);
    let text = text.with_context(|| format!("cannot read {}", file.display()))?;
    Ok(text.trim().to_owned())
}

/// Whom to trust beside the authorities of this machine, in PEM.
///
/// # Errors
/// The file cannot be read.
pub(super) fn authorities() -> anyhow::Result<Option<Vec<u8>>> {
    let Some(file) = variable("FENCE_CA_FILE") else { return Ok(None) };
    let pem = files::read_given(Path::new(&file), FILE_BYTES_MAX);
    pem.map(Some).with_context(|| format!("cannot read {file}"))
}
