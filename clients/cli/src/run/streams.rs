//! Where the output of a command goes: past `fence`, or through it for a copy or for later.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::os::fd::OwnedFd;
use std::process::Stdio;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::options::RunOptions;
use super::tail::Tail;
use crate::terminal::say;

/// How much is taken at a time.
const PIECE: usize = 64 << 10;
/// How often is looked whether the last bytes have come.
const GLANCE: Duration = Duration::from_millis(50);
/// How long is waited for the last bytes of a command that has ended.
pub const LAST_BYTES: Duration = Duration::from_secs(1);

/// What becomes of the output.
pub struct Streams {
    copy: Option<Arc<Mutex<File>>>,
    /// Standard output and error, for later.
    kept: Option<[File; 2]>,
    /// The last of it, for a record.
    tail: Option<Tail>,
    copying: Vec<Copying>,
    /// Whether no command has run yet.
    is_fresh: bool,
}

/// A thread that copies one of the streams.
struct Copying {
    end: oneshot::Receiver<()>,
    /// Whether it waits for whoever reads what it has, and not for more.
    is_writing: Arc<AtomicBool>,
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
        Ok(Self { copy, kept: kept.transpose()?, tail: None, copying: Vec::new(), is_fresh: true })
    }

    /// From the next command on, what it writes also comes by here.
    pub fn watch(&mut self, tail: Tail) {
        self.tail = Some(tail);
    }

    fn is_between(&self) -> bool {
        self.copy.is_some() || self.kept.is_some() || self.tail.is_some()
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
        let (copy, tail, (ended, end)) = (self.copy.clone(), self.tail.clone(), oneshot::channel());
        let is_writing = Arc::new(AtomicBool::new(false));
        let writes = is_writing.clone();
        std::thread::spawn(move || {
            let to = Sinks { to, copy, tail, writes };
            if let Err(error) = to.copied(from.into()) {
                say(&format!("output of the command was lost: {error}"));
            }
            let _gone = ended.send(());
        });
        self.copying.push(Copying { end, is_writing });
    }

    /// The command has ended: waits until all that it wrote has been read by whoever reads it, unless that is given up;
    /// and only a while for a process that outlives it, which may keep the pipes open for ever. Shows what was kept of a
    /// command that failed.
    ///
    /// # Errors
    /// What was kept cannot be shown.
    pub async fn end(
        &mut self,
        failed: bool,
        given_up: impl Future<Output = ()>,
    ) -> std::io::Result<()> {
        let mut given_up = std::pin::pin!(given_up);
        let mut is_given_up = false;
        for copying in self.copying.drain(..) {
            let all_came = tokio::select! {
                biased;
                all_came = copying.ended(is_given_up) => all_came,
                () = &mut given_up, if !is_given_up => {
                    is_given_up = true;
                    false
                }
            };
            if let Some(tail) = self.tail.as_ref().filter(|_| !all_came) {
                tail.cut();
            }
        }
        let Some([output, errors]) = &mut self.kept else { return Ok(()) };
        if failed {
            show(output, &mut std::io::stdout()).or_else(unread)?;
            show(errors, &mut std::io::stderr()).or_else(unread)?;
        }
        output.set_len(0)?;
        errors.set_len(0)?;
        output.seek(SeekFrom::Start(0))?;
        errors.seek(SeekFrom::Start(0)).map(drop)
    }
}

impl Copying {
    /// Waits for its end. Says whether it came.
    async fn ended(self, at_once: bool) -> bool {
        let Self { mut end, is_writing } = self;
        let mut idle = Duration::ZERO;
        while idle < LAST_BYTES && !at_once {
            match tokio::time::timeout(GLANCE, &mut end).await {
                Ok(_) => return true,
                Err(_) if is_writing.load(Ordering::SeqCst) => idle = Duration::ZERO,
                Err(_) => idle += GLANCE,
            }
        }
        end.try_recv().is_ok()
    }
}

/// Where the bytes of a stream go.
struct Sinks {
    to: Box<dyn Write + Send>,
    copy: Option<Arc<Mutex<File>>>,
    tail: Option<Tail>,
    writes: Arc<AtomicBool>,
}

impl Sinks {
    /// Copies all there is. Goes on if nobody reads it any more: the command is not to feel it.
    fn copied(mut self, mut from: File) -> std::io::Result<()> {
        let (mut piece, mut first) = (vec![0; PIECE], Ok(()));
        loop {
            let bytes = match from.read(&mut piece)? {
                0 => return first,
                read => piece.get(..read).unwrap_or_default(),
            };
            // What is kept does not wait for whoever reads.
            if let Some(tail) = &self.tail {
                tail.add(bytes);
            }
            if let Some(file) = &self.copy {
                let mut file = file.lock().unwrap_or_else(PoisonError::into_inner);
                first = first.and(file.write_all(bytes));
            }
            self.writes.store(true, Ordering::SeqCst);
            let written = self.to.write_all(bytes).and_then(|()| self.to.flush());
            self.writes.store(false, Ordering::SeqCst);
            first = first.and(written.or_else(unread));
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
