//! `fencegate audit`: whether anybody has changed what was recorded, and what others need to find that out.

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Subcommand;
use fence_core::shown::escaped;
use fence_core::wire;
use fencegate_audit::{
    Checkpoint, Finding, Line, NOTE_BYTES_MAX, Report, SignedNote, Verifier, VerifierKey,
};
use serde::{Deserialize, Serialize};

use super::access::{Place, Where};
use super::{Failure, block_on, print, start};
use crate::config::Flags;
use crate::files;
use crate::wiring::{self, KeptCheckpoint};

/// Findings that are shown; of further ones their number is told.
const SHOWN_MAX: usize = 20;

#[derive(Debug, Subcommand)]
pub(super) enum Audit {
    /// Show whether anybody has changed, removed or added what was recorded
    ///
    /// Reads the whole audit, holds each entry against its leaf in the tree, the tree against its checkpoint, and that
    /// against those that were kept elsewhere: in etcd and the blob store, as the settings name them, and in files
    /// (--checkpoint). Without one of these it cannot tell a ledger that was cut off or made anew, by somebody who has the
    /// key, from one that is whole. Where the ledger went back and was re-fenced, it says what was lost, and goes on.
    ///
    /// Ends with 0 if all is sound, 3 if something was altered, removed or added, 4 if there is less than a checkpoint has
    /// seen, 5 if it is another audit than a checkpoint has seen, 6 if a checkpoint is not signed by a trusted key, and 1
    /// if that cannot be found out.
    Verify(Verify),
    /// Write the audit with its leaves as JSON lines, for `verify --export` or a verifier of your own
    Export(Export),
    /// Print the checkpoint of the ledger, to keep where nobody who can change the ledger can change it
    Checkpoint(Export),
    /// Print the key that checkpoints are signed with, as `verify --key` takes it
    Key(Export),
    /// Make a key to sign checkpoints with, for `audit_key_file`, in a file that is not there yet
    NewKey {
        /// The file
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
}

#[derive(Debug, clap::Args)]
pub(super) struct Verify {
    /// A checkpoint that was kept, in a file; may be given several times
    #[arg(long = "checkpoint", value_name = "FILE")]
    checkpoints: Vec<PathBuf>,

    /// A key to trust; may be given several times [default: the one that this machine, or the gateway, signs with]
    #[arg(long = "key", value_name = "KEY")]
    keys: Vec<VerifierKey>,

    /// Read this file, which `export` wrote, in place of a ledger
    #[arg(long, value_name = "FILE", conflicts_with = "url")]
    export: Option<PathBuf>,

    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    flags: Flags,
}

#[derive(Debug, clap::Args)]
pub(super) struct Export {
    #[command(flatten)]
    at: Where,

    #[command(flatten)]
    flags: Flags,
}

/// The first line of an export.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Head {
    checkpoint: String,
    key: Option<String>,
    let_go: i64,
}

impl From<&wire::AuditExport> for Head {
    fn from(page: &wire::AuditExport) -> Self {
        let (checkpoint, key) = (page.checkpoint.clone(), page.key.clone());
        Self { checkpoint, key, let_go: page.let_go }
    }
}

impl Head {
    fn note(&self) -> anyhow::Result<(SignedNote, Checkpoint)> {
        read_note(&self.checkpoint).context("the checkpoint of the ledger")
    }
}

/// Does what `fencegate audit` is asked for.
pub(super) fn audit(command: Audit) -> Result<(), Failure> {
    match command {
        Audit::Verify(given) => verify(given),
        Audit::Export(Export { at, flags }) => {
            let place = Place::of(at, start(&flags)?)?;
            Ok(block_on(async move {
                let out = RefCell::new(BufWriter::new(io::stdout().lock()));
                let write = |text: String| Ok(writeln!(out.borrow_mut(), "{text}")?);
                let head = |head: &Head| write(serde_json::to_string(head)?);
                each(&place, head, |line| write(serde_json::to_string(line)?)).await?;
                Ok(out.borrow_mut().flush()?)
            })?)
        }
        Audit::Checkpoint(Export { at, flags }) => {
            let place = Place::of(at, start(&flags)?)?;
            Ok(print(&block_on(place.audit_page(0))?.checkpoint)?)
        }
        Audit::Key(Export { at, flags }) => {
            let place = Place::of(at, start(&flags)?)?;
            let key = block_on(place.audit_page(0))?.key;
            let none = "checkpoints are not signed: set audit_key_file";
            Ok(print(&format!("{}\n", key.context(none)?))?)
        }
        Audit::NewKey { file } => {
            wiring::new_key(&file)?;
            Ok(print(&format!("audit_key_file = {:?}\n", file.display().to_string()))?)
        }
    }
}

fn verify(given: Verify) -> Result<(), Failure> {
    let Verify { checkpoints, keys, export, at, flags } = given;
    let others = checkpoints.iter().map(|file| {
        let text = limited(file).with_context(|| file.display().to_string())?;
        read_note(&text).with_context(|| file.display().to_string())
    });
    let others = others.collect::<anyhow::Result<Vec<_>>>()?;
    let (report, kept) = match export {
        Some(file) => {
            let report = of_file(&file, others, keys)
                .with_context(|| format!("cannot read the export {}", file.display()))?;
            (report, Vec::new())
        }
        None => {
            let config = start(&flags)?;
            let is_here = at.url.is_none();
            if is_here {
                // Before it looks where checkpoints are kept, which may be in the directory.
                wiring::require_ledger(&config)?;
            }
            block_on(async move {
                let kept = match is_here {
                    true => wiring::kept_checkpoints(&config).await?,
                    false => Vec::new(),
                };
                let place = Place::of(at, config)?;
                let all = others.into_iter().chain(kept.iter().filter_map(read_kept)).collect();
                anyhow::Ok((of_place(place, all, keys).await?, kept))
            })?
        }
    };
    print(&kept.iter().map(told_of_place).collect::<String>())?;
    print(&told(&report))?;
    match report.exit_code() {
        0 => Ok(()),
        code => {
            let error = anyhow::anyhow!("the audit is not what it was, or not signed");
            Err(Failure { error, code })
        }
    }
}

fn read_kept(kept: &KeptCheckpoint) -> Option<(SignedNote, Checkpoint)> {
    read_note(kept.note.as_ref().ok()?.as_deref()?).ok()
}

/// What a place outside of the ledger has, for people.
fn told_of_place(kept: &KeptCheckpoint) -> String {
    let place = &kept.place;
    match (&kept.note, read_kept(kept)) {
        (Err(why), _) => format!("{place} cannot be asked: {why}\n"),
        (Ok(None), _) => {
            format!("{place} has no checkpoint: none was kept there yet, or it was wiped\n")
        }
        (Ok(Some(_)), None) => format!("{place} has something else than a checkpoint\n"),
        (Ok(Some(_)), Some((_, Checkpoint { size, generation, .. }))) => {
            format!("{place} has a checkpoint of {size} leaves, generation {generation}\n")
        }
    }
}

/// What is begun with the first page or line of an audit.
struct Verifying {
    verifier: Verifier,
    keys: Vec<VerifierKey>,
}

impl Verifying {
    fn begin(
        head: &Head,
        others: Vec<(SignedNote, Checkpoint)>,
        mut keys: Vec<VerifierKey>,
    ) -> anyhow::Result<Self> {
        if keys.is_empty() {
            keys.extend(head.key.as_deref().map(str::parse).transpose()?);
        }
        Ok(Self { verifier: Verifier::new(head.note()?, others, head.let_go), keys })
    }

    fn finish(self) -> Report {
        self.verifier.finish(&self.keys)
    }
}

async fn of_place(
    place: Place,
    others: Vec<(SignedNote, Checkpoint)>,
    keys: Vec<VerifierKey>,
) -> anyhow::Result<Report> {
    let verifying = RefCell::new(None);
    let mut begin = Some((others, keys));
    each(
        &place,
        |head| {
            if let Some((others, keys)) = begin.take() {
                verifying.replace(Some(Verifying::begin(head, others, keys)?));
            }
            Ok(())
        },
        |line| {
            if let Some(verifying) = &mut *verifying.borrow_mut() {
                verifying.verifier.take(line);
            }
            Ok(())
        },
    )
    .await?;
    Ok(verifying.into_inner().context("there is no checkpoint")?.finish())
}

fn of_file(
    file: &Path,
    others: Vec<(SignedNote, Checkpoint)>,
    keys: Vec<VerifierKey>,
) -> anyhow::Result<Report> {
    let mut lines = BufReader::new(File::open(file)?).lines();
    let head = lines.next().context("it is empty")??;
    let head = serde_json::from_str(&head).context("its first line")?;
    let mut verifying = Verifying::begin(&head, others, keys)?;
    for line in lines {
        verifying.verifier.take(&serde_json::from_str(&line?)?);
    }
    Ok(verifying.finish())
}

/// Goes through the audit page by page, as far as its first checkpoint goes: it may grow meanwhile.
async fn each(
    place: &Place,
    mut begin: impl FnMut(&Head) -> anyhow::Result<()>,
    mut take: impl FnMut(&Line) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let mut page = place.audit_page(0).await?;
    let head = Head::from(&page);
    let (_, checkpoint) = head.note()?;
    begin(&head)?;
    let mut leaves = 0;
    loop {
        for line in std::mem::take(&mut page.lines) {
            if leaves == checkpoint.size {
                return Ok(());
            }
            leaves += u64::from(line.digest.is_some());
            take(&read_line(line))?;
        }
        match page.next {
            Some(next) if leaves < checkpoint.size => page = place.audit_page(next).await?,
            _ => return Ok(()),
        }
    }
}

fn read_line(line: wire::AuditLine) -> Line {
    let wire::AuditLine { number, is_grant, digest, entry } = line;
    Line { number, is_grant, digest, entry: entry.map(Into::into) }
}

fn read_note(text: &str) -> anyhow::Result<(SignedNote, Checkpoint)> {
    let note: SignedNote = text.parse()?;
    let checkpoint = note.checkpoint()?;
    Ok((note, checkpoint))
}

fn limited(file: &Path) -> anyhow::Result<String> {
    Ok(files::read_given_text(file, NOTE_BYTES_MAX as u64)?)
}

/// What was found, for people.
fn told(report: &Report) -> String {
    let Report { size, entries, pruned, forks, findings } = report;
    let mut told = format!("leaves: {size}; entries as they were hashed: {entries}");
    if *pruned > 0 {
        told += &format!("; grants let go as history: {pruned}");
    }
    told.push('\n');
    for fork in forks {
        told += &match fork.lost() {
            Some(lost) => format!("forked: {fork}; {lost} entries are lost\n"),
            None => format!("forked: {fork}\n"),
        };
    }
    for finding in findings.iter().take(SHOWN_MAX) {
        told += &format!("{}\n", told_of(finding));
    }
    if findings.len() > SHOWN_MAX {
        told += &format!("and {} more\n", findings.len() - SHOWN_MAX);
    }
    told + if findings.is_empty() { "sound\n" } else { "" }
}

fn told_of(finding: &Finding) -> String {
    match finding {
        Finding::Altered { number } => format!("altered: entry {number} says something else now"),
        Finding::Removed { number } => format!("removed: entry {number} is gone"),
        Finding::Added { number } => {
            format!("added: entry {number} was not there when it was sealed")
        }
        Finding::Unreadable { number } => format!("altered: the leaf of entry {number} is none"),
        Finding::Rewritten { size } => {
            format!("altered: the {size} leaves are not those of the ledger's own checkpoint")
        }
        Finding::Truncated { size, seen } => {
            format!("truncated: there are {size} leaves, and a checkpoint has seen {seen}")
        }
        Finding::Forked { size, generation } => format!(
            "forked: a checkpoint of generation {generation} has seen other leaves among the first {size}"
        ),
        Finding::Foreign { origin } => {
            format!("forked: a checkpoint is of another audit, {}", escaped(origin))
        }
        Finding::Unsigned { size } => {
            format!("not signed: the checkpoint of {size} leaves, by none of the trusted keys")
        }
    }
}
