//! A client as the environment describes it, and the name of one that was given none.

use std::fs::File;
use std::io::Read as _;

use fencegate_wire::trace::Place;

use super::ClientBuilder;
use crate::error::Error;
use crate::transport::credential::Credential;

/// The most bytes of a file of certificates or a key: its path may lead to what has no end.
const FILE_BYTES_MAX: u64 = 1 << 20;

fn variable(name: &str) -> Result<Option<String>, Error> {
    match std::env::var(name) {
        Ok(value) if value.is_empty() => Ok(None),
        Ok(value) => Ok(Some(value)),
        Err(std::env::VarError::NotPresent) => Ok(None),
        Err(std::env::VarError::NotUnicode(_)) => Err(Error::misuse(format!("{name} is no text"))),
    }
}

fn contents(name: &str, path: &str) -> Result<Vec<u8>, Error> {
    let unreadable = |why: String| Error::misuse(format!("{name}: cannot read {path}: {why}"));
    let mut bytes = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(error.to_string()))?;
    let length = file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes);
    match length.map_err(|error| unreadable(error.to_string()))? as u64 <= FILE_BYTES_MAX {
        true => Ok(bytes),
        false => Err(unreadable(format!("it has more than {FILE_BYTES_MAX} bytes"))),
    }
}

/// Reads the variables.
pub(super) fn builder() -> Result<ClientBuilder, Error> {
    let missing = || Error::misuse("FENCE_URL is not set: where is the gateway?");
    let mut builder = ClientBuilder::new(variable("FENCE_URL")?.ok_or_else(missing)?);
    if let Some(owner) = variable("FENCE_OWNER")? {
        builder = builder.owner(owner);
    }
    match (variable("FENCE_AUTH_TOKEN")?, variable("FENCE_AUTH_TOKEN_FILE")?) {
        (Some(_), Some(_)) => {
            return Err(Error::misuse("FENCE_AUTH_TOKEN and FENCE_AUTH_TOKEN_FILE: one of them"));
        }
        (Some(token), None) => builder = builder.credential(Credential::text(token)),
        (None, Some(path)) => builder = builder.credential(Credential::file(path)),
        (None, None) => {}
    }
    if let Some(path) = variable("FENCE_CA_FILE")? {
        builder = builder.root_certificates(&contents("FENCE_CA_FILE", &path)?)?;
    }
    match (variable("FENCE_CERT_FILE")?, variable("FENCE_KEY_FILE")?) {
        (Some(certificate), Some(key)) => {
            let mut pem = contents("FENCE_CERT_FILE", &certificate)?;
            pem.push(b'\n');
            pem.extend(contents("FENCE_KEY_FILE", &key)?);
            builder = builder.certificate(&pem)?;
        }
        (None, None) => {}
        _ => return Err(Error::misuse("FENCE_CERT_FILE and FENCE_KEY_FILE: both or none")),
    }
    if let Some(place) = trace() {
        let place = place.to_string();
        builder = builder.traceparent(move || Some(place.clone()));
    }
    Ok(builder)
}

/// The span that `TRACEPARENT` names (CC8). What cannot be read is none: no call fails for a trace.
fn trace() -> Option<Place> {
    Place::parse(std::env::var("TRACEPARENT").ok()?.as_bytes())
}

/// `<host>:<pid>:<8 hexadecimal digits>` (CC2), at most 256 bytes, without control characters.
pub(super) fn default_owner() -> String {
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut host: String = host.chars().filter(|c| !c.is_control()).collect();
    let tail = format!(":{}:{:08x}", std::process::id(), rand::random::<u32>());
    while host.len() + tail.len() > fencegate_wire::json::OWNER_BYTES_MAX {
        host.pop();
    }
    host + &tail
}
