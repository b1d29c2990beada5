//! What commands show of who they are to a gateway that they call, and whom they trust: as clients do.

use std::net::IpAddr;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use reqwest::Url;

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

/// Refuses to show a credential to everybody on the way: over http it goes to this machine alone, unless that was allowed.
///
/// # Errors
/// The URL is none, or leads to another machine in the clear.
pub(super) fn check_way(url: &str) -> anyhow::Result<()> {
    let url: Url = url.parse().context("the URL of the gateway")?;
    let host = url.host_str().unwrap_or_default();
    let address = host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    let is_here = host == "localhost"
        || host.ends_with(".localhost")
        || address.is_ok_and(|address| address.is_loopback());
    let is_allowed = variable("FENCE_ALLOW_HTTP").is_some_and(|it| it == "1" || it == "true");
    ensure!(
        url.scheme() == "https" || is_here || is_allowed,
        "{} is another machine and not encrypted: everybody on the way could read the credential. Use https://, or allow it \
         with FENCE_ALLOW_HTTP=1",
        url.origin().ascii_serialization()
    );
    Ok(())
}

/// The credential in a file, which, if it is this user's own, nobody else may read.
///
/// # Errors
/// It cannot be read, or others can.
pub(super) fn read(file: &Path) -> anyhow::Result<String> {
    if let Ok(found) = std::fs::metadata(file) {
        let is_open = found.is_file() && found.mode() & 0o077 != 0;
        let is_own = found.uid() == rustix::process::getuid().as_raw();
        let shown = file.display();
        ensure!(!(is_open && is_own), "others may read {shown}: chmod 600 it, or make a new one");
    }
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

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_credential_goes_in_the_clear_to_this_machine_alone() {
        for url in
            ["https://gate.example", "http://127.0.0.1:1", "http://[::1]:1", "http://localhost:1"]
        {
            check_way(url).unwrap();
        }
        for url in
            ["http://gate.example:1", "http://10.0.0.1", "http://localhost.example", "nonsense"]
        {
            assert!(check_way(url).is_err(), "{url}");
        }
    }

    #[test]
    fn a_credential_that_others_can_read_is_refused() {
        let file = std::env::temp_dir().join(format!("fencegate-key-{}", std::process::id()));
        std::fs::write(&file, "secret\n").unwrap();
        let set = |mode| std::fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
        set(0o644);
        assert!(read(&file).unwrap_err().to_string().contains("others may read"));
        set(0o600);
        assert_eq!(read(&file).unwrap(), "secret");
        std::fs::remove_file(&file).unwrap();
    }
}
