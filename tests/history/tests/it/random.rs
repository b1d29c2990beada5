//! Properties: correct random histories pass, whatever met them.

use fence_history::{Checker, History, Record, check};
use proptest::prelude::*;

use crate::tiny::{Shape, history};

fn shapes() -> impl Strategy<Value = Shape> {
    (2..7_u32, 20..250_u64, 1..4_u32, 0..40_u64, 0..4_u32).prop_map(
        |(clients, calls, resources, accidents, rollbacks)| {
            let plain = false;
            Shape { clients, calls, resources, accidents, rollbacks, plain }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn correct_histories_pass(seed in any::<u64>(), shape in shapes()) {
        let history = history(seed, shape);
        let report = check(&history);
        prop_assert!(report.is_clean(), "{}\n{:#?}", report, history);
    }

    #[test]
    fn a_history_survives_its_file(seed in any::<u64>()) {
        let history = history(seed, Shape { calls: 40, rollbacks: 1, ..Shape::FULL });
        let mut file = Vec::new();
        history.write(&mut file).unwrap();
        prop_assert_eq!(History::read(file.as_slice()).unwrap(), history);
    }
}

#[test]
fn random_histories_touch_every_checker_and_go_back() {
    let mut looked_at = std::collections::BTreeMap::new();
    let (mut rollbacks, mut calls) = (0, 0);
    for seed in 0..50 {
        let history = history(seed, Shape { rollbacks: 2, ..Shape::FULL });
        for record in &history.records {
            rollbacks += u32::from(matches!(record, Record::Rollback(_)));
            calls += u32::from(matches!(record, Record::Call(_)));
        }
        for (checker, count) in check(&history).looked_at {
            *looked_at.entry(checker).or_insert(0) += count;
        }
    }
    println!("{calls} calls, {rollbacks} rollbacks, {looked_at:?}");
    assert!(rollbacks > 30);
    // Principals are in histories of the simulation, and in those made by hand.
    let apart = [Checker::C11, Checker::C17];
    for checker in Checker::ALL.into_iter().filter(|checker| !apart.contains(checker)) {
        assert!(looked_at[&checker] > 100, "{checker}: {looked_at:?}");
    }
    assert!(looked_at[&Checker::C11] > 0);
}
