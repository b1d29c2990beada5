//! What a terminal is good for: colour, progress, and questions.

use std::io::{IsTerminal as _, Write as _};

use fencegate_client::wire::shown::escaped;

use crate::failure::{Failure, usage};

/// Writes to standard error; if nobody reads it, that is no failure.
pub fn write(text: &str) {
    let mut errors = std::io::stderr().lock();
    let _unread = errors.write_all(text.as_bytes()).and_then(|()| errors.flush());
}

/// Says something, a line whose hidden characters are escaped, on standard error.
pub fn say(text: &str) {
    write(&format!("fence: {}\n", escaped(text)));
}

/// Whether somebody reads standard error who likes lines that change.
pub fn is_lively() -> bool {
    let plain = |name: &str, value: Option<&str>| match std::env::var(name) {
        Ok(found) => value.is_none_or(|value| found == value) && !found.is_empty(),
        Err(_) => false,
    };
    std::io::stderr().is_terminal() && !plain("NO_COLOR", None) && !plain("TERM", Some("dumb"))
}

/// Asks whether to go on.
///
/// # Errors
/// The answer is no, or nobody can be asked and `yes` was not given.
pub fn confirm(question: &str, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !std::io::stdin().is_terminal() || !std::io::stderr().is_terminal() {
        return Err(usage(format!("{question} Say so with --yes.")));
    }
    write(&format!("{} [y/N] ", escaped(question)));
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).map_err(anyhow::Error::from)?;
    match answer.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(usage("nothing was done")),
    }
}
