//! Where the output of a command goes: past `fence`, or through it for a copy or for later.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::options::RunOptions;
use crate::terminal::say;

/// How much is taken at a time.
const PIECE: usize = 64 << 10;
/// How long is waited for the last bytes of a command that has ended.
const LAST_BYTES: Duration = Duration::from_secs(1);

/// What becomes of the output.
pub struct Streams {
    copy: Option<Arc<Mutex<File>>>,
    /// Standard output and error, for later.
    kept: Option<[File; 2]>,
    copying: Vec<oneshot::Receiver<()>>,
    /// Whether no command has run yet.
    is_fresh: bool,
}

impl Streams {
    /// Opens the files that are needed, before anybody stands in line.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn open(options: &RunOptions) -> anyhow::Result<Self> {
        let copy = options.tee.as_ref().map(|path| {
            // Whoever only waits must not empty the file of the one that runs.
            let file = File::options().append(true).create(true).open(path);
            file.with_context(|| format!("cannot write {}", path.display()))
        });
        let copy = copy.transpose()?.map(|file| Arc::new(Mutex::new(file)));
        let kept = options.quiet_unless_failed;
        let kept = kept.then(|| anyhow::Ok([tempfile::tempfile()?, tempfile::tempfile()?]));
        Ok(Self { copy, kept: kept.transpose()?, copying: Vec::new(), is_fresh: true })
    }

    fn is_between(&self) -> bool {
        self.copy.is_some() || self.kept.is_some()
    }

    /// Connects a command that is about to run, under its lock.
    ///
    /// # Errors
    /// The copy of an earlier run cannot be emptied.
    pub fn connect(&mut self, command: &mut Command) -> std::io::Result<()> {
        if let Some(file) = self.copy.as_ref().filter(|_| self.is_fresh) {
            let file = file.lock().unwrap_or_else(PoisonError::into_inner);
            // What is no file, such as a pipe, has nothing to empty.
            if file.metadata()?.is_file() {
                file.set_len(0)?;
            }
            self.is_fresh = false;
        }
        if self.is_between() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
        Ok(())
    }

    /// Takes what a command writes, on threads of its own: a reader that does not read must not keep `fence` from
    /// renewing the lock.
    ///
    /// # Errors
    /// A file cannot be opened a second time.
    pub fn begin(&mut self, child: &mut Child) -> std::io::Result<()> {
        let kept = |at: usize, kept: &Option<[File; 2]>| {
            kept.as_ref().and_then(|kept| kept.get(at)).map(File::try_clone).transpose()
        };
        if let Some(from) = child.stdout.take() {
            let to: Box<dyn Write + Send> = match kept(0, &self.kept)? {
                Some(file) => Box::new(file),
                None => Box::new(std::io::stdout()),
            };
            self.copy_from(from.into_owned_fd()?, to);
        }
        if let Some(from) = child.stderr.take() {
            let to: Box<dyn Write + Send> = match kept(1, &self.kept)? {
                Some(file) => Box::new(file),
                None => Box::new(std::io::stderr()),
            };
            self.copy_from(from.into_owned_fd()?, to);
        }
        Ok(())
    }

    fn copy_from(&mut self, from: OwnedFd, to: Box<dyn Write + Send>) {
        let (copy, (ended, end)) = (self.copy.clone(), oneshot::channel());
        std::thread::spawn(move || {
            if let Err(error) = copied(from.into(), to, copy.as_deref()) {
                say(&format!("output of the command was lost: {error}"));
            }
            let _gone = ended.send(());
        });
        self.copying.push(end);
    }

    /// The command has ended: waits a while for what is left in the pipes, which a process that outlives it may keep
    /// open for ever, and shows what was kept of a command that failed.
    pub async fn end(&mut self, failed: bool) -> std::io::Result<()> {
        for copying in self.copying.drain(..) {
            let _late = tokio::time::timeout(LAST_BYTES, copying).await;
        }
        let Some([output, errors]) = &mut self.kept else { return Ok(()) };
        if failed {
            show(output, &mut std::io::stdout())?;
            show(errors, &mut std::io::stderr())?;
        }
        output.set_len(0)?;
        errors.set_len(0)?;
        output.seek(SeekFrom::Start(0))?;
        errors.seek(SeekFrom::Start(0)).map(drop)
    }
}

/// Copies all there is. Goes on if nobody reads it any more: the command is not to feel it.
fn copied(
    mut from: File,
    mut to: Box<dyn Write + Send>,
    copy: Option<&Mutex<File>>,
) -> std::io::Result<()> {
    let (mut piece, mut first) = (vec![0; PIECE], Ok(()));
    loop {
        let bytes = match from.read(&mut piece)? {
            0 => return first,
            read => piece.get(..read).unwrap_or_default(),
        };
        let written = to.write_all(bytes).and_then(|()| to.flush());
        first = first.and(written.or_else(unread));
        if let Some(file) = copy {
            let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
            first = first.and(file.write_all(bytes));
        }
    }
}

/// That nobody reads is no loss.
fn unread(error: std::io::Error) -> std::io::Result<()> {
    if error.kind() == std::io::ErrorKind::BrokenPipe { Ok(()) } else { Err(error) }
}

fn show(from: &mut File, to: &mut impl Write) -> std::io::Result<()> {
    from.seek(SeekFrom::Start(0))?;
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece)?;
        if read == 0 {
            return to.flush();
        }
        to.write_all(piece.get(..read).unwrap_or_default())?;
    }
}
