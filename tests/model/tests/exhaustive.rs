//! Every model holds in all its states, and every mutant is caught.

use std::collections::BTreeSet;

use fence_model::catalogue::models;
use fence_model::hunts::HUNTS;
use fence_model::{access, blobs, disasters, drained, locks, parts};

#[test]
fn every_invariant_holds_in_every_state_and_every_situation_is_reached() {
    let mut unique = 0;
    for model in models() {
        let (name, situations) = (model.name, model.situations().len());
        let report = model.check(None, &mut |_| {});
        println!("{name}: {:?}", report.progress);
        assert!(report.broken.is_empty(), "{name}: {:#?}", report.broken);
        assert!(report.missed.is_empty(), "{name} never reached {:#?}", report.missed);
        assert_eq!(report.reached, situations, "{name} names a situation that there is not");
        unique += report.progress.unique;
    }
    println!("all: {unique} unique states");
    assert!(unique >= 400_000, "the models have shrunk to {unique} states");
}

#[test]
fn every_mutant_is_caught_by_the_invariant_that_it_breaks() {
    for hunt in HUNTS {
        let report = hunt.prey().unwrap().check(Some(hunt.breaks), &mut |_| {});
        let steps = report.broken.get(hunt.breaks);
        println!("{:?}: {} states, {steps:?}", hunt.mutant, report.progress.unique);
        assert!(steps.is_some(), "{:?} is not caught by {}", hunt.mutant, hunt.model);
    }
}

#[test]
fn every_invariant_is_broken_by_some_mutant() {
    let all = models().into_iter().flat_map(|model| {
        let (kind, invariants) = model.invariants();
        invariants.into_iter().map(move |invariant| (kind, invariant))
    });
    let all: BTreeSet<_> = all.collect();
    let broken = HUNTS.iter().map(|hunt| (hunt.prey().unwrap().invariants().0, hunt.breaks));
    assert_eq!(all, broken.collect());
}

#[test]
fn every_situation_is_asked_of_some_model() {
    let asked: BTreeSet<_> =
        models().iter().flat_map(|model| model.situations().to_vec()).collect();
    let named = locks::SITUATIONS.iter().map(|(name, _)| *name);
    let named = named.chain(disasters::SITUATIONS.iter().map(|(name, _)| *name));
    let named = named.chain(blobs::SITUATIONS.iter().map(|(name, _)| *name));
    let named = named.chain(parts::SITUATIONS.iter().map(|(name, _)| *name));
    let named = named.chain(drained::SITUATIONS.iter().map(|(name, _)| *name));
    let named = named.chain(access::SITUATIONS.iter().map(|(name, _)| *name));
    assert_eq!(asked, named.collect());
}
