//! Random schedules on a real Postgres: mutants of the rule, of the lock, of burials and of what a rerun finds are noticed,
//! most in the first rounds, by the checkers. That the acts as they are hold is what `tests/run.sh` runs for two minutes.

use std::process::{Command, Output};

use fence_tests::survey;

fn schedules(arguments: &[&str]) -> Output {
    let out = std::env::temp_dir().join(format!("fence-schedules-{}", std::process::id()));
    Command::new(env!("CARGO_BIN_EXE_fence-chaos"))
        .arg("schedules")
        .args(arguments)
        .arg("--out")
        .arg(&out)
        .output()
        .expect("the program starts")
}

fn text(output: &Output) -> String {
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    format!("{out}{err}")
}

/// Runs until a round notices, however slow the machine; what must be said then.
fn is_noticed(mutant: &str, by: &[&str]) {
    let plan = ["--minutes", "60", "--round-seconds", "8", "--seed", "1", "--mutant", mutant];
    let output = schedules(&plan);
    let said = text(&output);
    assert_eq!(output.status.code(), Some(1), "{mutant}:\n{said}");
    let found = by.iter().any(|checker| said.contains(&format!("{checker} violated")));
    assert!(found, "{mutant} is noticed, but not by {by:?}:\n{said}");
}

/// One after the other: two at a time leave each other too little of a small machine.
#[test]
fn each_mutant_is_noticed() {
    let all = [
        ("older-token-admitted", &["C2", "C4"][..]),
        ("released-admitted", &["C14"]),
        ("write-for-key-share", &["C4", "C2"]),
        ("skipped-is-locked", &["C4", "C2"]),
        ("refused-rerun-not-buried", &["C5"]),
        ("given-up-not-buried", &["C5"]),
        ("known-id-never", &["C5"]),
    ];
    // Forced schedules catch each of them, too: a mutant of the rule and one of burials show that the checkers see.
    let in_the_gate = ["older-token-admitted", "given-up-not-buried"];
    for (mutant, by) in all {
        if survey::is_long() || in_the_gate.contains(&mutant) {
            is_noticed(mutant, by);
        }
    }
}

#[test]
fn the_acts_as_they_are_hold_for_a_round() {
    let output = schedules(&["--minutes", "0.15", "--seed", "7"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
}

#[test]
fn a_plan_that_makes_no_sense_is_refused() {
    for plan in [
        &["--mutant", "nobody"][..],
        &["--minutes", "-1"],
        &["--sessions", "0"],
        &["--resources", "none"],
    ] {
        let output = schedules(plan);
        assert_eq!(output.status.code(), Some(2), "{plan:?}: {}", text(&output));
    }
}
