//! Where the output of a command goes: past `fence`, or through it for a copy or for later.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write};
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context as _;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::process::{Child, Command};
use tokio::task::JoinSet;

use super::options::RunOptions;

/// How much is taken at a time.
const PIECE: usize = 64 << 10;

/// What becomes of the output.
pub struct Streams {
    copy: Option<Arc<Mutex<File>>>,
    /// Standard output and error, for later.
    kept: Option<[File; 2]>,
    copying: JoinSet<()>,
}

impl Streams {
    /// Opens the files that are needed, before anybody stands in line.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn open(options: &RunOptions) -> anyhow::Result<Self> {
        let copy = options.tee.as_ref().map(|path| {
            let file = File::create(path);
            file.with_context(|| format!("cannot write {}", path.display()))
        });
        let copy = copy.transpose()?.map(|file| Arc::new(Mutex::new(file)));
        let kept = options.quiet_unless_failed;
        let kept = kept.then(|| anyhow::Ok([tempfile::tempfile()?, tempfile::tempfile()?]));
        Ok(Self { copy, kept: kept.transpose()?, copying: JoinSet::new() })
    }

    fn is_between(&self) -> bool {
        self.copy.is_some() || self.kept.is_some()
    }

    /// Connects a command that is about to run.
    pub fn connect(&self, command: &mut Command) {
        if self.is_between() {
            command.stdout(Stdio::piped()).stderr(Stdio::piped());
        }
    }

    /// Takes what a command writes.
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
            self.copying.spawn(copy(from, to, self.copy.clone()));
        }
        if let Some(from) = child.stderr.take() {
            let to: Box<dyn Write + Send> = match kept(1, &self.kept)? {
                Some(file) => Box::new(file),
                None => Box::new(std::io::stderr()),
            };
            self.copying.spawn(copy(from, to, self.copy.clone()));
        }
        Ok(())
    }

    /// The command and its group have ended: waits for what is left in the pipes, and shows what was kept of a
    /// command that failed.
    pub async fn end(&mut self, failed: bool) -> std::io::Result<()> {
        while self.copying.join_next().await.is_some() {}
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

async fn copy(
    mut from: impl AsyncRead + Unpin,
    mut to: Box<dyn Write + Send>,
    copy: Option<Arc<Mutex<File>>>,
) {
    let mut piece = vec![0; PIECE];
    while let Ok(read @ 1..) = from.read(&mut piece).await {
        let bytes = piece.get(..read).unwrap_or_default();
        // Whoever read it may be gone: the command is not to feel it, it has its own way to end.
        let _lost = to.write_all(bytes).and_then(|()| to.flush());
        if let Some(file) = &copy {
            let _lost = file.lock().unwrap_or_else(PoisonError::into_inner).write_all(bytes);
        }
    }
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
