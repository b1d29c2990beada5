//! What a command could not do: a line for people, what to do about it, and an exit code by class.

use std::process::ExitCode;

use fencegate_client::wire::ErrorCode;
use fencegate_client::wire::shown::{escaped, escaped_lines};
use fencegate_client::{BusyKind, Error, Unreached};
use serde_json::{Value, json};

use crate::settings::Shown;
use crate::terminal;

/// Why a command failed.
#[derive(Debug)]
pub enum Failure {
    /// The gateway, or the client, says so.
    Client(Box<Error>),
    /// The gateway does not let the caller in, or does not allow it; and what it was shown of the caller.
    Denied(Box<Error>, Shown),
    /// The command line is wrong.
    Usage(String),
    /// Absence of something that was named.
    Absent(String),
    /// Something on this machine is not as it should be.
    Here(anyhow::Error),
    /// Nobody reads what is printed.
    Unread,
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Client(Box::new(error))
    }
}

impl From<anyhow::Error> for Failure {
    fn from(error: anyhow::Error) -> Self {
        Self::Here(error)
    }
}

/// Something is wrong with the command line.
pub fn usage(text: impl Into<String>) -> Failure {
    Failure::Usage(text.into())
}

impl Failure {
    /// Standard output does not take more.
    pub fn of_output(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::BrokenPipe => Self::Unread,
            _ => Self::Here(anyhow::Error::from(error).context("cannot write to standard output")),
        }
    }

    /// The same of a caller who has shown this to the gateway.
    pub fn having_shown(self, shown: Shown) -> Self {
        match self {
            Self::Client(error) if matches!(*error, Error::Denied(_)) => Self::Denied(error, shown),
            other => other,
        }
    }

    /// The exit code: the class of the error (`fence --help` lists them).
    pub fn code(&self) -> u8 {
        match self {
            Self::Here(_) => 1,
            Self::Usage(_) => 2,
            Self::Absent(_) => 3,
            Self::Client(error) | Self::Denied(error, _) => code_of(error),
            // As if the signal had ended it that other programs get then.
            Self::Unread => 128 + 13,
        }
    }

    /// Says it on standard error.
    pub fn tell(&self, as_json: bool) -> ExitCode {
        let text = match self {
            Self::Client(error) | Self::Denied(error, _) if as_json => {
                format!("{}\n", document(error))
            }
            Self::Client(error) => lines(error, advice(error)),
            Self::Denied(error, shown) => lines(error, about_credential(error, shown)),
            Self::Usage(text) | Self::Absent(text) => format!("fence: {}\n", escaped(text)),
            // A file of settings that cannot be read is shown with the line that is wrong.
            Self::Here(error) => format!("fence: {}\n", escaped_lines(&format!("{error:#}"))),
            Self::Unread => String::new(),
        };
        terminal::write(&text);
        ExitCode::from(self.code())
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Misuse(_) => 2,
        Error::NotFound(_) => 3,
        Error::Busy(_) => 4,
        Error::LockLost(_) => 5,
        Error::Changed(_) => 6,
        Error::OutcomeUnknown(_) => 7,
        Error::Unavailable(_) => 8,
        Error::Denied(_) => 9,
        _ => 1,
    }
}

/// The error, what to do about it, and which request it was.
fn lines(error: &Error, advice: Option<String>) -> String {
    let id = error.details().and_then(|details| details.request_id.as_deref());
    let request = id.map(|id| format!("request {id}"));
    let more: String =
        advice.into_iter().chain(request).map(|line| format!("  {}\n", escaped(&line))).collect();
    format!("fence: {}\n{more}", escaped(&error.to_string()))
}

/// What to do about it.
fn advice(error: &Error) -> Option<String> {
    Some(match error {
        Error::Unavailable(details) => match details.unreached? {
            Unreached::Away => {
                "is it running? Another address is given with --url, FENCE_URL or a context; \
                --wait-for-gateway waits longer"
            }
            Unreached::Name => {
                "is it spelt right? The address is given with --url, FENCE_URL or a context; \
                --wait-for-gateway also waits for a name"
            }
            Unreached::Untrusted => {
                "name the certificates to trust with --ca-file or FENCE_CA_FILE"
            }
            Unreached::NoTls => "does its address begin with http://?",
            Unreached::Tls => "does its address begin with https://?",
            Unreached::Certificate => {
                "show a certificate that is good there with --cert-file and --key-file"
            }
            _ => return None,
        }
        .to_owned(),
        Error::LockLost(_) => "start over: take the lock again, and read again under it".to_owned(),
        Error::Busy(busy) if busy.kind == BusyKind::LockHeld => {
            "wait for it with --wait, or see who has it with `fence show`".to_owned()
        }
        Error::Changed(_) => "read again, and decide anew".to_owned(),
        Error::OutcomeUnknown(unknown) => match (unknown.operation(), unknown.key()) {
            (Some(operation), _) => format!("ask later: fence operation {operation}"),
            (None, Some(key)) => {
                let resource = unknown.resource();
                format!("ask later: fence operation --on {resource} --idempotency-key {key}")
            }
            (None, None) => return None,
        },
        _ => return None,
    })
}

/// What to do about a credential, or the lack of one.
fn about_credential(error: &Error, shown: &Shown) -> Option<String> {
    let code = error.code().and_then(ErrorCode::parse);
    let what = match shown {
        Shown::Nothing => None,
        Shown::Withheld(urls) => {
            return Some(format!(
                "no credential was sent: the one at hand is for {urls} alone; name one for this gateway with \
                 --auth-token-file, or a context of its own with --context"
            ));
        }
        Shown::Variable => Some("the credential in FENCE_AUTH_TOKEN".to_owned()),
        Shown::File(path) => Some(format!("the credential in {}", path.display())),
        Shown::Certificate(path) => Some(format!("the certificate in {}", path.display())),
    };
    Some(match (error.details()?.status?, code, what) {
        (401, _, None) => {
            "no credential was sent: give one with --auth-token-file, FENCE_AUTH_TOKEN_FILE or \
             FENCE_AUTH_TOKEN, or a certificate with --cert-file and --key-file"
                .to_owned()
        }
        (401, Some(ErrorCode::CredentialExpired), Some(what)) => {
            format!("{what} has expired: get a new one from whoever keeps the rules of access")
        }
        (401, _, Some(what)) => format!(
            "{what} is not accepted: it was never one, or was taken back. Get a new one from whoever keeps the \
             rules of access"
        ),
        (_, Some(ErrorCode::PermissionDenied), _) => {
            "whoever keeps the rules of access can allow it".to_owned()
        }
        _ => return None,
    })
}

/// The problem document of the gateway, or one like it.
fn document(error: &Error) -> Value {
    let details = error.details();
    let code = error.code().map(str::to_owned);
    json!({
        "title": error.to_string(),
        "class": error.class().as_str(),
        "code": code,
        "status": details.and_then(|details| details.status),
        "request_id": details.and_then(|details| details.request_id.clone()),
    })
}
