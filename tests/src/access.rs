//! Rules of access, and the keys that they name, as an operator makes them and puts them in force.

use std::path::{Path, PathBuf};

use fencegate_access::ApiKey;
use jiff::{SignedDuration, Timestamp};
use tempfile::TempDir;

use crate::client::Call;
use crate::gateway::{Gateway, binary};
use crate::secrets;

/// An API key, and what rules have of it.
#[derive(Debug)]
pub struct Key {
    /// The credential itself.
    pub text: String,
    /// An entry of `keys` of a principal.
    pub line: String,
}

impl Key {
    /// A new one, good for a day: longer than any clock here is set wrong.
    pub async fn new() -> Self {
        let key = ApiKey::generate().expect("the system has random bytes");
        let expires = Timestamp::now() + SignedDuration::from_hours(24);
        let (id, digest) = (key.kid(), key.digest().to_hex());
        let line = format!("{{ id = \"{id}\", sha256 = \"{digest}\", expires = {expires:.0} }}");
        secrets::made(key.reveal());
        Self { text: key.reveal().to_owned(), line }
    }

    /// The same, as `fencegate keys new` makes it.
    async fn by_command() -> Self {
        let mut command = tokio::process::Command::new(binary());
        let made = command.args(["keys", "new", "--expires", "1h"]).output().await;
        let made = made.expect("the command starts");
        assert!(made.status.success(), "{made:?}");
        let out = String::from_utf8(made.stdout).expect("it prints text");
        let mut lines = out.lines().map(str::to_owned);
        let mut line = || lines.next().expect("it prints a key and its line");
        let (text, line) = (line(), line());
        secrets::made(&text);
        Self { text, line }
    }

    /// One that the rules have already.
    pub fn known(text: String) -> Self {
        secrets::made(&text);
        Self { text, line: String::new() }
    }

    /// The same call, by whoever has this key.
    pub fn by(&self, call: Call) -> Call {
        call.header("authorization", format!("Bearer {}", self.text))
    }

    /// Puts the credential into a file, in place of what is there, whole or not at all.
    pub fn store(&self, path: &Path) {
        let beside = path.with_extension("new");
        std::fs::write(&beside, format!("{}\n", self.text)).expect("the file can be written");
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        std::fs::set_permissions(&beside, own).expect("it can be made private");
        std::fs::rename(&beside, path).expect("the file can be replaced");
    }
}

/// A file of rules, and the administrator who is in all of them.
#[derive(Debug)]
pub struct Rules {
    /// Where the file is.
    pub home: TempDir,
    /// What the administrator shows.
    pub admin: Key,
}

impl Rules {
    /// Without a file yet.
    pub async fn new() -> Self {
        let home = TempDir::new().expect("there is room for a folder");
        Self { home, admin: Key::by_command().await }
    }

    fn file(&self) -> PathBuf {
        self.home.path().join("access.toml")
    }

    /// An administrator who may do nothing else, the role `worker`, and principals who have it.
    pub fn text(&self, worker: &str, principals: &[(&str, &Key)]) -> String {
        let people = principals.iter().map(|(name, key)| principal(name, "worker", &[key]));
        self.admin() + &role("worker", worker) + &people.collect::<String>()
    }

    /// An administrator who may do nothing else.
    pub fn admin(&self) -> String {
        let may = "allow = [\"admin\"]\nresources = [\"*\"]";
        role("admin", may) + &principal("boss", "admin", &[&self.admin])
    }

    /// Puts a text in force: the exit code, and what the command said.
    pub async fn apply(&self, gateway: &Gateway, text: &str) -> (Option<i32>, String) {
        let file = self.file();
        std::fs::write(&file, text).expect("the file can be written");
        let file = file.to_str().expect("a path that is text");
        let args = ["access", "apply", file, "--reason", "the test says so"];
        let (code, out, log) = gateway.run(&args).await;
        (code, out + &log)
    }

    /// Puts a text in force, which must be good.
    pub async fn put_in_force(&self, gateway: &Gateway, text: &str) {
        let (code, told) = self.apply(gateway, text).await;
        assert_eq!(code, Some(0), "{told}");
    }
}

/// A role that may do this, in lines of TOML.
pub fn role(name: &str, may: &str) -> String {
    format!("[[roles]]\nname = \"{name}\"\n{may}\n")
}

/// A principal of one role, with these keys.
pub fn principal(name: &str, role: &str, keys: &[&Key]) -> String {
    let lines: Vec<_> = keys.iter().map(|key| key.line.as_str()).collect();
    let lines = lines.join(", ");
    format!("[[principals]]\nname = \"{name}\"\nroles = [\"{role}\"]\nkeys = [{lines}]\n")
}
