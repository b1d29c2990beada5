//! What shells and man(1) are told.

use std::process::Stdio;

use tokio::process::Command;

use super::{call, end};

/// No gateway is asked.
const NONE: &str = "http://127.0.0.1:1";

#[tokio::test]
async fn completions_load() {
    for shell in ["bash", "zsh", "fish"] {
        let script = call(NONE, &["completions", shell]).await.with(0).out();
        assert!(script.contains("fence") && script.contains("on-loss"), "{shell}");
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("fence");
        std::fs::write(&file, &script).unwrap();
        // The shell reads it without a complaint, and running it defines what completes.
        let load = match shell {
            "bash" => "source \"$0\" && complete -p fence",
            "zsh" => {
                "autoload -U compinit && compinit -D -u && source \"$0\" && print $_comps[fence]"
            }
            _ => "source $argv[1]; complete -C 'fence unf'",
        };
        let mut command = Command::new(shell);
        command.args(["-c", load]).arg(&file).stdin(Stdio::null()).env("HOME", folder.path());
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let said = end(command.spawn().unwrap()).await.with(0);
        assert!(
            said.out().contains(if shell == "fish" { "unfreeze" } else { "_fence" }),
            "{said:?}"
        );
        assert_eq!(said.err(), "", "{shell}");
    }
}

#[tokio::test]
async fn each_command_has_a_page() {
    let folder = tempfile::tempdir().unwrap();
    call(NONE, &["man", folder.path().to_str().unwrap()]).await.with(0);
    let pages = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> =
        pages.map(|page| page.unwrap().file_name().into_string().unwrap()).collect();
    for name in ["fence.1", "fence-run.1", "fence-put.1", "fence-break.1", "fence-s3-key.1"] {
        assert!(names.iter().any(|it| it == name), "{name} is not in {names:?}");
    }
    assert!(!names.iter().any(|name| name.contains("__")), "{names:?}");
    let pages = names.iter().map(|name| folder.path().join(name));
    let mut command = Command::new("mandoc");
    command.args(["-T", "lint", "-W", "warning"]).args(pages).stdin(Stdio::null());
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let said = end(command.spawn().unwrap()).await;
    assert_eq!((said.code(), said.out().as_str()), (Some(0), ""), "{}", said.err());
}

#[tokio::test]
async fn the_version_is_told() {
    let said = call(NONE, &["version"]).await.with(0);
    assert_eq!(said.out(), format!("fence {}\n", env!("CARGO_PKG_VERSION")));
}
