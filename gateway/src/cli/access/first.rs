//! Keys, and the first rules: one administrator, with a key that is shown once.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context as _;
use fencegate_access::{Action, ApiKey};
use jiff::Timestamp;

use crate::wiring;

/// How long a key is good, at least and at most.
const KEY_LIMITS: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(366 * 24 * 3600));

/// How long a key is to be good.
pub(super) fn key_life(text: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text);
    let life = life.map_err(|_| "it must be a duration such as 90d or 12h".to_owned())?;
    let allowed = KEY_LIMITS.0..=KEY_LIMITS.1;
    allowed.contains(&life).then_some(life).ok_or_else(|| "it must be from 1m to 366d".to_owned())
}

/// A key that was just made.
pub(super) struct NewKey {
    pub(super) key: ApiKey,
    pub(super) expires: Timestamp,
}

impl NewKey {
    pub(super) fn good_for(life: Duration) -> anyhow::Result<Self> {
        let key = ApiKey::generate().context("the system has no random bytes")?;
        let expires = wiring::now().checked_add(life).context("no such time")?;
        Ok(Self { key, expires: Timestamp::from_second(expires.as_second())? })
    }

    /// What rules keep of it.
    pub(super) fn line(&self) -> String {
        let (kid, digest) = (self.key.kid(), self.key.digest().to_hex());
        format!("{{ id = \"{kid}\", sha256 = \"{digest}\", expires = {} }}", self.expires)
    }
}

/// One administrator, who may do everything: by its key, and at a Unix socket as the user who runs this.
pub(super) fn first_rules(key: &NewKey) -> String {
    let actions: Vec<String> = Action::ALL.iter().map(|action| format!("\"{action}\"")).collect();
    let (actions, line) = (actions.join(", "), key.line());
    let uid = rustix::process::getuid().as_raw();
    format!(
        "# Rules of access. Put in force by: fencegate access apply FILE --reason TEXT\n\n\
         [[roles]]\nname = \"admin\"\nallow = [{actions}]\nresources = [\"*\"]\nupstreams = [\"*\"]\n\n\
         [[principals]]\nname = \"admin\"\nroles = [\"admin\"]\nkeys = [{line}]\nmatch = {{ unix_uid = {uid} }}\n"
    )
}

/// Writes a file that is not there yet, for this user alone.
pub(super) fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("cannot write {shown}"))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::access::checked;

    #[test]
    fn the_first_rules_are_good() {
        let key = NewKey::good_for(Duration::from_secs(3600)).unwrap();
        let now = key.expires - jiff::SignedDuration::from_secs(60);
        checked(&first_rules(&key), now).unwrap();
        assert!(checked(&first_rules(&key).replace(", \"admin\"]", "]"), now).is_err());
    }

    #[test]
    fn a_key_is_good_for_some_time() {
        assert!(key_life("90d").is_ok() && key_life("1m").is_ok() && key_life("366d").is_ok());
        assert!(key_life("59s").is_err() && key_life("367d").is_err() && key_life("x").is_err());
    }
}
