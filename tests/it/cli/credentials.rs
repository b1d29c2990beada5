//! A credential stays with the gateway that it was stored for, and with whoever may read it.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use tempfile::TempDir;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::process::Command;

use super::{Dev, end, fence};

const SECRET: &str = "fgk_of_prod";

/// A home with a file of contexts, and a key in a file that nobody else can read.
struct Home {
    folder: TempDir,
    key: String,
}

impl Home {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let key = folder.path().join("key");
        std::fs::write(&key, SECRET).unwrap();
        let home = Self { folder, key: key.to_str().unwrap().to_owned() };
        home.let_read(0o600);
        home
    }

    fn let_read(&self, mode: u32) {
        let mode = std::fs::Permissions::from_mode(mode);
        std::fs::set_permissions(Path::new(&self.key), mode).unwrap();
    }

    /// A call that knows these contexts, and of no gateway by the environment.
    fn call(&self, words: &[&str]) -> Command {
        let mut command = fence("", words);
        command.env("XDG_CONFIG_HOME", self.folder.path()).env_remove("FENCE_URL");
        // Nobody stands between it and those that it calls.
        command.env("NO_PROXY", "*").env("no_proxy", "*");
        command
    }

    async fn says(&self, words: &[&str], code: i32) -> super::Said {
        end(self.call(words).spawn().unwrap()).await.with(code)
    }
}

/// The head of the first request that a call sends there.
async fn heard(listener: &TcpListener, mut call: Command) -> String {
    let child = call.spawn().unwrap();
    let hear = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = String::new();
        while !head.contains("\r\n\r\n") {
            let mut piece = [0; 4096];
            let length = stream.read(&mut piece).await.unwrap();
            assert_ne!(length, 0, "a whole head comes: {head:?}");
            head += std::str::from_utf8(&piece[..length]).unwrap();
        }
        head
    };
    let head = tokio::time::timeout(fence_tests::process::DEADLINE, hear).await.unwrap();
    drop(child);
    head.to_lowercase()
}

#[tokio::test]
async fn a_key_is_shown_to_the_gateway_that_it_was_stored_for_alone() {
    let home = Home::new();
    let [prod, other] = [
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
        TcpListener::bind("127.0.0.1:0").await.unwrap(),
    ];
    let url = |of: &TcpListener| format!("http://{}", of.local_addr().unwrap());
    let (at_prod, elsewhere) = (url(&prod), url(&other));
    let add = ["context", "add", "prod", "--url", &at_prod, "--auth-token-file", &home.key];
    home.says(&add, 0).await;
    home.says(&["context", "use", "prod"], 0).await;
    let shown = format!("authorization: bearer {SECRET}");
    assert!(heard(&prod, home.call(&["locks"])).await.contains(&shown));
    assert!(heard(&prod, home.call(&["locks", "--url", &at_prod])).await.contains(&shown));
    // Another port of the same host, by a flag, by a variable, and of a context that is named.
    let mut by_variable = home.call(&["locks"]);
    by_variable.env("FENCE_URL", &elsewhere);
    for call in [
        home.call(&["locks", "--url", &elsewhere]),
        home.call(&["locks", "--context", "prod", "--url", &elsewhere]),
        by_variable,
    ] {
        let head = heard(&other, call).await;
        assert!(head.starts_with("get /") && !head.contains("authorization"), "{head}");
    }
    // Who names the key together with the URL means it.
    let named = ["locks", "--url", &elsewhere, "--auth-token-file", &home.key];
    assert!(heard(&other, home.call(&named)).await.contains(&shown));
    // One of the environment is for the URL of the environment, where there is one.
    for (variable, is_shown) in [(None, true), (Some(&elsewhere), true), (Some(&at_prod), false)] {
        let mut call = home.call(&["locks", "--url", &elsewhere]);
        call.env("FENCE_AUTH_TOKEN", SECRET).envs(variable.map(|url| ("FENCE_URL", url)));
        assert_eq!(heard(&other, call).await.contains(&shown), is_shown, "{variable:?}");
    }
    // A context that moves does not take it along.
    let said = home.says(&["context", "add", "prod", "--url", &elsewhere], 2).await;
    assert!(said.err().contains(&at_prod), "{said:?}");
}

#[tokio::test]
async fn a_command_under_a_lock_has_no_key_of_another_gateway() {
    let gateway = Dev::start().await;
    let script = "env | grep ^FENCE_AUTH; echo $FENCE_URL";
    let words = ["run", "-r", "r", "--url", gateway.url(), "-c", script];
    let mut call = fence("http://127.0.0.1:1", &words);
    let said = end(call.env("FENCE_AUTH_TOKEN", SECRET).spawn().unwrap()).await.with(0);
    assert_eq!(said.out().trim(), gateway.url());
    let mut call = fence(gateway.url(), &words);
    let said = end(call.env("FENCE_AUTH_TOKEN", SECRET).spawn().unwrap()).await.with(0);
    assert!(said.out().contains(SECRET), "{said:?}");
}

#[tokio::test]
async fn a_key_that_others_can_read_is_refused() {
    let (home, gateway) = (Home::new(), Dev::start().await);
    let words = ["status", "--url", gateway.url(), "--auth-token-file", &home.key];
    for mode in [0o666, 0o644, 0o640] {
        home.let_read(mode);
        let said = home.says(&words, 2).await;
        assert!(
            said.err().contains("others may read") && said.err().contains("chmod 600"),
            "{said:?}"
        );
    }
    home.let_read(0o600);
    home.says(&words, 0).await;
}

#[tokio::test]
async fn a_key_goes_in_the_clear_to_this_machine_alone() {
    let home = Home::new();
    // An address of documentation: nobody has it.
    let words = ["status", "--timeout", "300ms", "--url", "http://192.0.2.1:9"];
    home.says(&words, 8).await;
    let with_key = [&words[..], &["--auth-token-file", &home.key]].concat();
    let said = home.says(&with_key, 2).await;
    assert!(
        said.err().contains("http://192.0.2.1:9") && said.err().contains("--allow-http"),
        "{said:?}"
    );
    home.says(&[&with_key[..], &["--allow-http"]].concat(), 8).await;
    let mut allowed = home.call(&with_key);
    end(allowed.env("FENCE_ALLOW_HTTP", "1").spawn().unwrap()).await.with(8);
}

#[tokio::test]
async fn no_context_is_in_use_that_nobody_has_chosen() {
    let (home, gateway) = (Home::new(), Dev::start().await);
    for words in
        [&["status", "--url", "nonsense"][..], &["context", "add", "odd", "--url", "nonsense"]]
    {
        let said = home.says(words, 2).await;
        assert!(said.err().contains("is no base URL"), "{said:?}");
    }
    let said = home.says(&["context", "add", "prod", "--url", gateway.url()], 0).await;
    assert!(said.err().contains("fence context use prod"), "{said:?}");
    let is_current = async || {
        let listed = home.says(&["context", "ls", "-o", "jsonl"], 0).await.json();
        assert_eq!(listed["name"], "prod");
        listed["current"].as_bool().unwrap()
    };
    assert!(!is_current().await);
    home.says(&["context", "use", "prod"], 0).await;
    assert!(is_current().await);
}
