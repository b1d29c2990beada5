//! `fencegate access` and `fencegate keys`: rules of access, and the keys that they name.

mod first;
mod place;
mod remote;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context as _;
use clap::Subcommand;
use fence_core::shown::escaped;
use fence_core::{PrincipalName, wire};
use fencegate_access::Action;
use fencegate_access::rules::{RULES_BYTES_MAX, Rules};
use similar::TextDiff;

use super::{Failure, block_on, print, print_seen, start};
use crate::config::Flags;
use crate::files;
use first::{NewKey, first_rules, key_life, write_new};
pub(super) use place::{Making, Place, Where};

/// Lines around each change that are shown with it.
const CONTEXT: usize = 3;

#[derive(Debug, Subcommand)]
pub(super) enum Access {
    /// Begin with rules: one administrator, with a key that is shown once
    ///
    /// Writes them to FILE, which only this user can read, and puts them in force. Whoever runs this command is that
    /// administrator at a Unix socket of `admin_listen`, without the key. Refused if rules are in force already.
    Init(Init),
    /// Show the rules that are in force, and their generation
    Show(Show),
    /// Put the rules of a file in force, on all gateways
    ///
    /// Shows what changes. When it has ended with 0, nothing takes effect any more that was allowed under older rules,
    /// through whichever gateway. Tells the locks whose holders may not have them any more. Ends with 1, and changes
    /// nothing, if the rules are not good.
    ///
    /// On Postgres it works on the ledger itself. For a data directory it goes through the gateway that uses it, at its
    /// socket, or works on the directory while no gateway does.
    Apply(Apply),
    /// Say whether the rules let somebody do something, and by which line
    ///
    /// Ends with 0 if they do, and with 1 if they do not.
    Explain(Explain),
}

#[derive(Debug, clap::Args)]
pub(super) struct Init {
    /// The file to write; it must not be there yet
    #[arg(value_name = "FILE", default_value = "access.toml")]
    file: PathBuf,

    #[command(flatten)]
    making: Making,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Show {
    #[command(flatten)]
    at: Where,

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

    /// Only if the rules of this generation are in force, as `show` tells it [default: those that are, as it begins]
    #[arg(long, value_name = "GENERATION")]
    follows: Option<i64>,

    /// Break the locks whose holders may not lock or write their resources any more
    #[arg(long = "break")]
    breaks: bool,

    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Explain {
    /// Who would ask
    #[arg(long, value_name = "NAME", value_parser = |name: &str| PrincipalName::new(name))]
    principal: PrincipalName,

    /// For what
    #[arg(long, value_parser = clap::builder::PossibleValuesParser::new(Action::ALL.iter().map(|it| it.as_str())))]
    action: String,

    /// To what: a resource; with `*` at its end, all whose names begin so; for `forward-read`, UPSTREAM/PATH
    #[arg(long, value_name = "NAME")]
    resource: String,

    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, Subcommand)]
pub(super) enum Keys {
    /// Make a key, and the line of it for the rules
    ///
    /// The key is for whoever is to use it, and is shown nowhere else. The rules have only its digest: put the line into
    /// `keys = [...]` of a principal, and the rules in force. A principal may have two, so that one can follow the other.
    ///
    /// With --s3 it is a key for S3 tools, which reads, and makes buckets if its principal is an administrator; to write they
    /// need the key of a lock. Its secret follows from its id and the gateways' root. So this goes through the gateway of
    /// the data directory or that of --url; on Postgres it works on the ledger, with the `s3_root` of the settings, which is
    /// that of the gateways. Such a key does not expire: to revoke it, take its line out of the rules, or put `key:` and its id
    /// into `revoked`.
    New(NewGiven),
}

#[derive(Debug, clap::Args)]
pub(super) struct NewGiven {
    /// How long it is good
    #[arg(long, value_name = "DURATION", default_value = "90d", value_parser = key_life)]
    expires: Duration,

    /// A key for S3 tools: of --principal; or, where no rules of access are in force, of whoever has it, to `read`
    /// everything, or as `admin` also to make and delete buckets
    #[arg(long, value_name = "RIGHTS", num_args = 0..=1, conflicts_with = "expires")]
    s3: Option<Option<Rights>>,

    /// Whose key it is to be
    #[arg(long, value_name = "NAME", requires = "s3", value_parser = |name: &str| PrincipalName::new(name))]
    principal: Option<PrincipalName>,

    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    flags: Flags,
}

/// What whoever has a key of S3 may do, where no rules of access are in force.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Rights {
    Read,
    Admin,
}

impl From<Rights> for wire::S3Rights {
    fn from(rights: Rights) -> Self {
        match rights {
            Rights::Read => Self::Read,
            Rights::Admin => Self::Admin,
        }
    }
}

/// Does what `fencegate access` is asked for.
pub(super) fn access(command: Access) -> Result<(), Failure> {
    match command {
        Access::Init(init) => begin(init),
        Access::Show(Show { at, flags }) => {
            let place = Place::of(at, start(&flags)?)?;
            let rules = block_on(place.rules())?;
            Ok(print(&match rules.rules {
                Some(text) => {
                    let known = Rules::parse(&text).context("the rules cannot be read")?;
                    let lapses = known.lapses(crate::wiring::now());
                    let lapses: String = lapses.iter().map(|key| format!("# {key}\n")).collect();
                    format!("# generation {}\n{lapses}{text}", rules.generation)
                }
                None => {
                    "# no rules are in force: whoever reaches a gateway may do all\n".to_owned()
                }
            })?)
        }
        Access::Apply(given) => apply(given),
        Access::Explain(Explain { principal, action, resource, at, flags }) => {
            let place = Place::of(at, start(&flags)?)?;
            let asked = wire::ExplainRequest { principal, action, resource };
            let told = block_on(place.explain(asked))?;
            print(&format!("{}\n", told.why))?;
            match told.allowed {
                true => Ok(()),
                false => Err(anyhow::anyhow!("it is not allowed").into()),
            }
        }
    }
}

fn begin(Init { file, making, flags }: Init) -> Result<(), Failure> {
    let place = making.place(Where::default(), start(&flags)?)?;
    let key = NewKey::good_for(Duration::from_secs(90 * 24 * 3600))?;
    let text = first_rules(&key);
    write_new(&file, &text)?;
    // Before it is good for anything: nobody is to be left with rules, and without the key that nobody has seen.
    let shown = format!(
        "Rules are put in force, and in {}. The key of `admin`, good from the end of this command until {}, is shown \
         this once:\n{}\n",
        file.display(),
        key.expires,
        key.key.reveal()
    );
    if let Err(error) = print_seen(&shown) {
        let _ = fs::remove_file(&file);
        return Err(error.into());
    }
    let reason = "fencegate access init".to_owned();
    let (follows, breaks, dry_run) = (Some(0), false, false);
    let first = wire::ApplyRequest { rules: text, reason, follows, breaks, dry_run };
    if let Err(error) = block_on(place.apply(first)) {
        let _ = fs::remove_file(&file);
        return Err(error.into());
    }
    Ok(())
}

/// 1. The file, and what is in force: what differs is shown, and which locks are to be broken.
/// 2. It is put in force in place of what was shown, and of nothing else.
/// 3. What holders lose by it.
fn apply(Apply { file, reason, follows, breaks, at, flags }: Apply) -> Result<(), Failure> {
    if reason.trim().is_empty() {
        return Err(anyhow::anyhow!("--reason must say why").into());
    }
    let place = Place::of(at, start(&flags)?)?;
    let rules = read(&file)?;
    // Step 1.
    let known = block_on(place.rules())?;
    print(&difference(&known, &rules, &file))?;
    // Step 2.
    let follows = follows.or(Some(known.generation));
    let request = wire::ApplyRequest { rules, reason, follows, breaks, dry_run: false };
    let tried = block_on(place.apply(wire::ApplyRequest { dry_run: true, ..request.clone() }))?;
    if tried.lost.is_none() {
        let why = "the ledger did not tell which locks these rules would break; nothing changed";
        return Err(anyhow::anyhow!(why).into());
    }
    print(&to_be_broken(&tried, breaks))?;
    let applied = block_on(place.apply(request))?;
    print(&format!(
        "In force as generation {}. Nothing takes effect any more that older rules allowed.\n",
        applied.generation
    ))?;
    // Step 3.
    if applied.lost.is_none() {
        let why = "the ledger did not tell which holders have lost their locks; the same again asks once more";
        return Err(anyhow::anyhow!(why).into());
    }
    print(&told(&applied, breaks))?;
    // Not by what is named: there may be more.
    match applied.unbroken_count {
        0 => Ok(()),
        left => {
            let why = format!(
                "not every lock could be broken, {left} of {} could not; the same again tries once more",
                applied.broken_count + left
            );
            Err(anyhow::anyhow!(why).into())
        }
    }
}

/// What changes, as `diff -u` has it.
fn difference(known: &wire::AccessRules, rules: &str, file: &Path) -> String {
    let before = known.rules.as_deref().unwrap_or_default();
    let names = (format!("in force (generation {})", known.generation), file.display().to_string());
    let diff = TextDiff::from_lines(before, rules);
    let shown = diff.unified_diff().context_radius(CONTEXT).header(&names.0, &names.1).to_string();
    if shown.is_empty() { "Nothing differs from what is in force.\n".to_owned() } else { shown }
}

/// The locks that these rules are to break, for people.
fn to_be_broken(tried: &wire::AccessApplied, breaks: bool) -> String {
    let doomed = tried.lost.iter().flatten().filter(|lock| breaks || lock.revoked);
    let lines: Vec<String> = doomed.map(line).collect();
    if lines.is_empty() {
        return String::new();
    }
    let rest = more(tried.unbroken_count, lines.len());
    format!("Locks that these rules break:\n{}{rest}", lines.concat())
}

/// A line for those that are not named.
fn more(count: u64, named: usize) -> String {
    match count.saturating_sub(named as u64) {
        0 => String::new(),
        more => format!("  and {more} more\n"),
    }
}

/// A lock that was lost or is to be.
fn line(lock: &wire::LostLock) -> String {
    let who = lock.principal.as_ref().map_or("nobody", PrincipalName::as_str);
    let why = if lock.revoked { ", its credential is revoked or gone" } else { "" };
    let state = if lock.broken { ", broken" } else { "" };
    format!("  {} of {} ({who}){why}{state}\n", lock.resource, escaped(&lock.owner))
}

/// The locks that were lost, for people.
fn told(applied: &wire::AccessApplied, breaks: bool) -> String {
    let lost = applied.lost.as_deref().unwrap_or_default();
    if lost.is_empty() {
        return String::new();
    }
    let rest = more(applied.lost_count, lost.len());
    let is_kept = applied.lost_count > applied.broken_count + applied.unbroken_count;
    let hint = if !breaks && is_kept { "; --break breaks them" } else { "" };
    let head = format!("Locks whose holders may not have them any more{hint}:\n");
    head + &lost.iter().map(line).collect::<String>() + &rest
}

/// Does what `fencegate keys` is asked for.
pub(super) fn keys(command: Keys) -> Result<(), Failure> {
    let Keys::New(NewGiven { expires, s3, principal, at, flags }) = command;
    let Some(rights) = s3 else {
        let key = NewKey::good_for(expires)?;
        return Ok(print(&format!("{}\n{}\n", key.key.reveal(), key.line()))?);
    };
    let whose = match (rights, principal) {
        (None, Some(principal)) => Whose::Principal(principal),
        (Some(rights), None) => Whose::Anyone(rights),
        _ => {
            let why = "--s3 goes with --principal NAME, or with `read` or `admin`";
            return Err(Failure::misused(anyhow::anyhow!(why)));
        }
    };
    let place = Place::of(at, start(&flags)?)?;
    let rights = match &whose {
        Whose::Principal(_) => None,
        Whose::Anyone(rights) => Some((*rights).into()),
    };
    let key = block_on(place.new_s3_key(rights))?;
    let wire::S3Key { kid, access_key_id: id, secret_access_key: secret } = key;
    let line = match (whose, kid) {
        (Whose::Principal(name), Some(kid)) => format!(
            "# for the rules of access, in [[principals]] of \"{name}\":\ns3_keys = [\"{kid}\"]\n"
        ),
        _ => String::new(),
    };
    Ok(print(&format!("AWS_ACCESS_KEY_ID={id}\nAWS_SECRET_ACCESS_KEY={secret}\n{line}"))?)
}

/// Whose a key of S3 is to be.
enum Whose {
    Principal(PrincipalName),
    Anyone(Rights),
}

/// A file of rules. One with more bytes than any rules have is not read to its end.
pub(super) fn read(path: &Path) -> anyhow::Result<String> {
    files::read_given_text(path, RULES_BYTES_MAX as u64)
        .with_context(|| format!("cannot read {}", path.display()))
}
