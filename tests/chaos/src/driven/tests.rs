//! Deliberately wrong drivers, on histories made by hand: whatever is told wrongly is seen.

use std::collections::HashMap;

use fence_history::{Asked, Call, Change, Checker, Committed, FencedWrite, Report, check};
use serde_json::{Value, json};
use uuid::Uuid;

use super::translate;
use crate::book::Book;
use crate::ledger::Held;
use crate::line::Line;

const TOKEN: i64 = 7;

fn put(value: &str) -> Change {
    Change::Put { key: "a".into(), value: value.into(), adds: None }
}

/// The ledger's line of a write, under a key and a number.
fn line(operation: u128, version: i64, value: &str) -> Committed {
    Committed {
        operation: Uuid::from_u128(operation),
        resource: "r".into(),
        version: Some(version),
        generation: 0,
        token: TOKEN,
        sequence: Some(version),
        idempotency_key: Some(format!("k{operation}")),
        changes: vec![put(value)],
    }
}

/// What the checkers say of puts with these answers of a driver (`None`: it was killed), if the ledger holds this.
fn judge(puts: &[(&str, Option<Result<Value, Value>>)], writes: Vec<Committed>) -> Report {
    let book = Book::default();
    for ((value, result), number) in puts.iter().zip(1..) {
        let asked = Asked::Write(FencedWrite {
            resource: "r".into(),
            token: TOKEN,
            forged: false,
            sequence: None,
            idempotency_key: None,
            if_version: None,
            change: put(value),
        });
        let (client, begun_at) = (u32::try_from(number).unwrap(), 10 * number);
        let call =
            Call { number, client, principal: 0, gateway: 0, begun_at, asked, answered: None };
        book.write(Line::Begun(call));
        book.leave_open(number);
        let Some(result) = result else { continue };
        let told = translate::write(result, "r", false);
        book.learn(number, told.key, told.number);
        let answered = fence_history::Answered { at: begun_at + 5, answer: told.answer };
        book.write(Line::Answered { number, answered });
    }
    let grants = vec![("r".to_owned(), TOKEN, Uuid::from_u128(99))];
    let (history, _) = book.close(Held { grants, writes, objects: Vec::new() });
    check(&history)
}

fn applied(operation: u128, version: i64) -> Option<Result<Value, Value>> {
    let operation = Uuid::from_u128(operation);
    Some(Ok(
        json!({ "version": version, "etag": format!("\"g0-v{version}\""), "operation": operation,
                    "key": format!("k{}", operation.as_u128()), "number": version, "attempts": 1,
                    "created": true, "replayed": false }),
    ))
}

fn error(class: &str) -> Option<Result<Value, Value>> {
    Some(Err(json!({ "class": class, "attempts": 2 })))
}

fn violated(report: &Report) -> Vec<Checker> {
    assert_eq!(report.malformed, Vec::<String>::new());
    let by: HashMap<_, _> = report.violations.iter().map(|one| (one.checker, ())).collect();
    by.into_keys().collect()
}

#[test]
fn what_is_told_as_it_is_passes() {
    let unknown = error("OutcomeUnknown");
    let puts = [("v1", applied(1, 1)), ("v2", error("Unavailable")), ("v3", unknown), ("v4", None)];
    let held = || vec![line(1, 1, "v1"), line(3, 2, "v3"), line(4, 3, "v4")];
    assert_eq!(violated(&judge(&puts, held())), []);
    // Of what is unknown, and of what a killed driver was at, nothing needs to be there.
    assert_eq!(violated(&judge(&puts, held()[..1].to_vec())), []);
}

#[test]
fn an_unknown_outcome_told_as_not_applied_is_seen_once_it_was() {
    for class in ["Unavailable", "Busy", "LockLost", "Changed", "GatewayFault", "Misuse"] {
        let report = judge(&[("v1", error(class))], vec![line(1, 1, "v1")]);
        assert_eq!(violated(&report), [Checker::C5], "{class}");
    }
}

#[test]
fn what_is_told_as_applied_and_is_not_there_is_seen() {
    let report = judge(&[("v1", applied(1, 1)), ("v2", applied(2, 2))], vec![line(1, 1, "v1")]);
    assert_eq!(violated(&report), [Checker::C5]);
}

#[test]
fn another_key_or_number_or_version_than_it_was_is_seen() {
    for (name, wrong) in [("key", json!("k9")), ("number", json!(9)), ("version", json!(9))] {
        let mut told = applied(1, 1);
        if let Some(Ok(told)) = &mut told {
            told[name] = wrong;
        }
        let report = judge(&[("v1", told)], vec![line(1, 1, "v1")]);
        assert!(violated(&report).contains(&Checker::C5), "{name}");
    }
}

#[test]
fn a_write_that_took_effect_twice_is_seen() {
    let twice = vec![line(1, 1, "v1"), line(2, 2, "v1")];
    assert!(violated(&judge(&[("v1", applied(1, 1))], twice.clone())).contains(&Checker::C8));
    assert!(violated(&judge(&[("v1", None)], twice)).contains(&Checker::C8));
}
