//! `fencegate access` and `fencegate keys`: rules of access, and the keys that they name.

use std::fs::{self, File, OpenOptions};
use std::io::{Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, ensure};
use clap::Subcommand;
use fencegate_access::rules::RULES_BYTES_MAX;
use fencegate_access::{Action, ApiKey};
use jiff::Timestamp;

use super::{Failure, block_on, print, start};
use crate::config::Flags;
use crate::wiring;

/// How long a key is good, at least and at most.
const KEY_LIMITS: (Duration, Duration) =
    (Duration::from_secs(60), Duration::from_secs(366 * 24 * 3600));

#[derive(Debug, Subcommand)]
pub(super) enum Access {
    /// Begin with rules: one administrator, with a key that is shown once
    ///
    /// Writes them to FILE, which only this user can read, and puts them in force. Whoever runs this command is that
    /// administrator at a Unix socket of `admin_listen`, without the key. Refused if rules are in force already.
    Init(Init),
    /// Show the rules that are in force, and their generation
    Show(Flags),
    /// Put the rules of a file in force, on all gateways
    ///
    /// When it has ended with 0, nothing takes effect any more that was allowed under older rules, through whichever
    /// gateway. Beside running gateways on Postgres; for a data directory, while no gateway uses it. Ends with 1, and
    /// changes nothing, if the rules are not good.
    Apply(Apply),
}

#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// The file to write; it must not be there yet
    #[arg(value_name = "FILE", default_value = "access.toml")]
    file: PathBuf,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Apply {
    /// The rules
    #[arg(value_name = "FILE")]
    file: PathBuf,

    /// Why, for the audit
    #[arg(long, value_name = "TEXT")]
    reason: String,

    /// Only if the rules of this generation are in force, as `show` tells it
    #[arg(long, value_name = "GENERATION")]
    follows: Option<i64>,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Make a key, and the line of it for the rules
    ///
    /// The key is for whoever is to use it, and is shown nowhere else. The rules have only its digest: put the line into
    /// `keys = [...]` of a principal, and the rules in force. A principal may have two, so that one can follow the other.
    New {
        /// How long it is good
        #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = key_life)]
        expires: Duration,
    },
}

fn key_life(text: &str) -> Result<Duration, String> {
    let life = humantime::parse_duration(text);
    let life = life.map_err(|_| "it must be a duration such as 90d or 12h".to_owned())?;
    let allowed = KEY_LIMITS.0..=KEY_LIMITS.1;
    allowed.contains(&life).then_some(life).ok_or_else(|| "it must be from 1m to 366d".to_owned())
}

/// Does what `fencegate access` is asked for.
pub(super) fn access(command: Access) -> Result<(), Failure> {
    match command {
        Access::Init(Init { file, flags }) => {
            let config = start(&flags)?;
            let key = NewKey::good_for(Duration::from_secs(90 * 24 * 3600))?;
            let text = first_rules(&key);
            write_new(&file, &text)?;
            let reason = "fencegate access init";
            let applied =
                block_on(async { wiring::apply_rules(&config, text, Some(0), reason).await });
            if let Err(error) = applied {
                let _ = fs::remove_file(&file);
                return Err(error.into());
            }
            print(&format!(
                "Rules are in force, and in {}. The key of `admin`, good until {}, is shown this once:\n{}\n",
                file.display(),
                key.expires,
                key.key.reveal()
            ))?;
        }
        Access::Show(flags) => {
            let config = start(&flags)?;
            let rules = block_on(async { wiring::rules_in_force(&config).await })?;
            print(&match rules.text {
                Some(text) => format!("# generation {}\n{text}", rules.generation),
                None => {
                    "# no rules are in force: whoever reaches a gateway may do all\n".to_owned()
                }
            })?;
        }
        Access::Apply(Apply { file, reason, follows, flags }) => {
            let config = start(&flags)?;
            ensure_reason(&reason)?;
            let text = read(&file)?;
            let generation =
                block_on(async { wiring::apply_rules(&config, text, follows, &reason).await })?;
            print(&format!(
                "In force as generation {generation}. Nothing takes effect any more that older rules allowed.\n"
            ))?;
        }
    }
    Ok(())
}

/// Does what `fencegate keys` is asked for.
pub(super) fn keys(command: Keys) -> Result<(), Failure> {
    let Keys::New { expires } = command;
    let key = NewKey::good_for(expires)?;
    Ok(print(&format!("{}\n{}\n", key.key.reveal(), key.line()))?)
}

fn ensure_reason(reason: &str) -> anyhow::Result<()> {
    ensure!(!reason.trim().is_empty(), "--reason must say why");
    Ok(())
}

/// A key that was just made.
struct NewKey {
    key: ApiKey,
    expires: Timestamp,
}

impl NewKey {
    fn good_for(life: Duration) -> anyhow::Result<Self> {
        let key = ApiKey::generate().context("the system has no random bytes")?;
        let expires = wiring::now().checked_add(life).context("no such time")?;
        Ok(Self { key, expires: Timestamp::from_second(expires.as_second())? })
    }

    /// What rules keep of it.
    fn line(&self) -> String {
        let (kid, digest) = (self.key.kid(), self.key.digest().to_hex());
        format!("{{ id = \"{kid}\", sha256 = \"{digest}\", expires = {} }}", self.expires)
    }
}

/// One administrator, who may do everything: by its key, and at a Unix socket as the user who runs this.
fn first_rules(key: &NewKey) -> String {
    let actions: Vec<String> = Action::ALL.iter().map(|action| format!("\"{action}\"")).collect();
    let (actions, line) = (actions.join(", "), key.line());
    let uid = rustix::process::getuid().as_raw();
    format!(
        "# Rules of access. Put in force by: fencegate access apply FILE --reason TEXT\n\n\
         [[roles]]\nname = \"admin\"\nallow = [{actions}]\nresources = [\"*\"]\nupstreams = [\"*\"]\n\n\
         [[principals]]\nname = \"admin\"\nroles = [\"admin\"]\nkeys = [{line}]\nmatch = {{ unix_uid = {uid} }}\n"
    )
}

fn write_new(path: &Path, text: &str) -> anyhow::Result<()> {
    let shown = path.display();
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path);
    let mut file = file.with_context(|| format!("cannot write {shown}"))?;
    file.write_all(text.as_bytes()).with_context(|| format!("cannot write {shown}"))
}

/// A file of rules. One with more bytes than any rules have is not read to its end.
fn read(path: &Path) -> anyhow::Result<String> {
    let cannot = || format!("cannot read {}", path.display());
    let file = File::open(path).with_context(cannot)?;
    let mut text = String::new();
    file.take(RULES_BYTES_MAX as u64 + 1).read_to_string(&mut text).with_context(cannot)?;
    Ok(text)
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
