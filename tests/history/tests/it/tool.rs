//! The tool: what it prints, and how it exits.

use std::process::{Command, Output, Stdio};

use fence_history::{History, Report};

use crate::build::*;

fn run(arguments: &[&str], input: &[u8]) -> Output {
    let mut tool = Command::new(env!("CARGO_BIN_EXE_fence-history"));
    tool.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut running = tool.spawn().expect("the tool starts");
    std::io::Write::write_all(&mut running.stdin.take().expect("a pipe"), input).expect("it reads");
    running.wait_with_output().expect("it ends")
}

fn file(history: &History) -> Vec<u8> {
    let mut file = Vec::new();
    history.write(&mut file).expect("a file");
    file
}

fn right() -> Story {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    story.write(1, 10, 1);
    story
}

#[test]
fn the_exit_code_tells_clean_from_violated_from_unreadable() {
    let mut story = right();
    let output = run(&["check", "-"], &file(&story.history()));
    let words = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(0), "{words}");
    assert!(words.contains("C1  holds        versions are 1, 2, 3"), "{words}");
    assert!(words.contains("C13 saw nothing"), "{words}");

    story.write(2, 11, 2);
    let output = run(&["check", "-"], &file(&story.history()));
    let words = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains("C12 violated: r: ") && words.contains("C12 VIOLATED"), "{words}");

    story.last_call().number = 1;
    let output = run(&["check", "-"], &file(&story.history()));
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8(output.stdout).unwrap().contains("two calls have number 1"));

    for (input, why) in [("{\"call\":{}}\n", "line 1"), ("", "no calls")] {
        let output = run(&["check", "-"], input.as_bytes());
        assert_eq!(output.status.code(), Some(2));
        let words = String::from_utf8(output.stderr).unwrap();
        assert!(words.contains(why), "{words}");
    }
    let output = run(&["check", "/no/such/file"], b"");
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn it_reads_files_and_prints_json() {
    let mut story = right();
    story.write(2, 11, 2);
    let path = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join("violated.jsonl");
    std::fs::write(&path, file(&story.history())).unwrap();
    let output = run(&["check", path.to_str().unwrap(), "--json"], b"");
    assert_eq!(output.status.code(), Some(1));
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(report["violations"][0]["checker"], "C12");
    assert_eq!(report["looked_at"]["C1"], 2);
    let expected: Report = fence_history::check(&story.history());
    assert_eq!(report, serde_json::to_value(&expected).unwrap());
}
