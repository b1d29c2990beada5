//! A driver as a process: commands go in, answers and events come out.

use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, Command};
use tokio::sync::mpsc;

/// How long a driver may take to start, or to answer what takes no virtual time. Only a driver that hangs needs it.
const PATIENCE: Duration = Duration::from_secs(300);

/// What a driver says of itself.
#[derive(Debug, Clone)]
pub struct About {
    /// Its name.
    pub name: String,
    /// What it can do beyond what all have to.
    pub features: Vec<String>,
}

/// A driver that runs.
pub struct Driver {
    /// What it says of itself.
    pub about: About,
    process: Child,
    input: ChildStdin,
    lines: mpsc::UnboundedReceiver<String>,
    errors: Arc<Mutex<String>>,
}

impl Driver {
    /// Starts one from its command line, which a shell reads.
    pub async fn start(command: &str, environment: &[(String, String)]) -> Result<Self> {
        let mut process = Command::new("sh")
            .args(["-c", &format!("exec {command}")])
            .envs(environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("cannot start the driver: {command}"))?;
        let input = process.stdin.take().context("the driver has no standard input")?;
        let output = process.stdout.take().context("the driver has no standard output")?;
        let errors = process.stderr.take().context("the driver has no standard error")?;
        let (sender, lines) = mpsc::unbounded_channel();
        tokio::spawn(async move {
            let mut lines = BufReader::new(output).lines();
            while let Ok(Some(line)) = lines.next_line().await {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let said = Arc::new(Mutex::new(String::new()));
        tokio::spawn(collect(errors, Arc::clone(&said)));
        let about = About { name: String::new(), features: Vec::new() };
        let mut driver = Self { about, process, input, lines, errors: said };
        let first = driver.line().await.context("the driver does not say what it is")?;
        driver.about = about_of(&first)?;
        Ok(driver)
    }

    /// Whether it has this feature.
    pub fn has(&self, feature: &str) -> bool {
        self.about.features.iter().any(|have| have == feature)
    }

    /// Writes a command.
    pub async fn tell(&mut self, command: &Value) -> Result<()> {
        let line = format!("{command}\n");
        self.input.write_all(line.as_bytes()).await.context("the driver has ended")?;
        self.input.flush().await.context("the driver has ended")
    }

    /// The next line that it says.
    pub async fn line(&mut self) -> Result<Value> {
        let line = tokio::time::timeout(PATIENCE, self.lines.recv()).await;
        match line {
            Ok(Some(line)) => parse(&line),
            Ok(None) => {
                let status = self.process.wait().await?;
                bail!("the driver has ended with {status}")
            }
            Err(_) => bail!("the driver hangs: it has said nothing for {PATIENCE:?}"),
        }
    }

    /// A line that it has said already.
    pub fn said(&mut self) -> Result<Option<Value>> {
        self.lines.try_recv().ok().map(|line| parse(&line)).transpose()
    }

    /// What it wrote to its standard error.
    pub fn errors(&self) -> String {
        self.errors.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

async fn collect(mut errors: tokio::process::ChildStderr, said: Arc<Mutex<String>>) {
    let mut buffer = [0; 4096];
    while let Ok(read) = errors.read(&mut buffer).await {
        if read == 0 {
            return;
        }
        let text = String::from_utf8_lossy(buffer.get(..read).unwrap_or_default()).into_owned();
        said.lock().unwrap_or_else(PoisonError::into_inner).push_str(&text);
    }
}

fn parse(line: &str) -> Result<Value> {
    let value: Value = serde_json::from_str(line)
        .with_context(|| format!("the driver says what is no JSON: {line}"))?;
    ensure!(value.is_object(), "the driver says what is no JSON object: {line}");
    Ok(value)
}

fn about_of(line: &Value) -> Result<About> {
    let name = line["driver"].as_str().context("the first line of a driver has its name")?;
    ensure!(line["virtual_time"] == true, "{name} has no clock of its own, which scenarios need");
    let features = line["features"].as_array().cloned().unwrap_or_default();
    Ok(About {
        name: name.to_owned(),
        features: features.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
    })
}
