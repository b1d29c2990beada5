//! C6, C7, C9: reads, sets and blobs.

use fence_history::{Answer, Change, Checker};

use super::{adds, begun, clean, only};
use crate::build::*;

#[test]
fn c6_finds_a_read_of_the_past() {
    let mut story = begun();
    story.write(2, 10, 2);
    story.read(1, Some((1, "v1")));
    only(&story, Checker::C6);
    // It is not the past while the write is under way.
    let mut story = begun();
    let late = story.begin(2, put(10, "v2"));
    story.committed(2, 10, 2, "v2");
    story.read(1, Some((1, "v1")));
    story.end(late, written(2, 2));
    clean(&story);
}

#[test]
fn c6_finds_reads_that_contradict_each_other() {
    let mut story = begun();
    story.begin(2, put(10, "v2"));
    story.committed(2, 10, 2, "v2");
    story.read(2, Some((2, "v2")));
    story.read(1, Some((1, "v1")));
    only(&story, Checker::C6);
}

#[test]
fn c6_finds_a_read_of_the_future() {
    let mut story = begun();
    story.read(2, Some((2, "v2")));
    story.write(2, 10, 2);
    only(&story, Checker::C6);
}

#[test]
fn c6_finds_values_that_are_not_those_of_the_version() {
    for found in [Some((1, "v1")), Some((2, "v1")), Some((2, "v9")), Some((3, "v2")), None] {
        let mut story = begun();
        story.write(2, 10, 2);
        story.read(2, found);
        only(&story, Checker::C6);
    }
}

#[test]
fn c6_finds_an_object_that_was_removed() {
    for change in [delete(), Change::DeleteAll] {
        let mut story = begun();
        story.call(changing(10, change.clone()), written(2, 2));
        story.line(2, 10, Some(2), change);
        story.read(2, Some((1, "v1")));
        only(&story, Checker::C6);
    }
}

#[test]
fn c6_finds_what_was_lost_read_after_the_loss() {
    let mut story = begun();
    story.call(put(10, "lost"), written(2, 2));
    story.rollback(0, 1);
    story.read(2, Some((2, "lost")));
    only(&story, Checker::C6);
}

#[test]
fn c7_finds_a_lost_update() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    adds(&mut story, 1, "1", 1);
    adds(&mut story, 2, "1 2", 2);
    clean(&story);
    adds(&mut story, 3, "1 3", 3);
    only(&story, Checker::C7);
}

#[test]
fn c7_finds_a_number_that_nobody_added() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    adds(&mut story, 1, "1 7", 1);
    only(&story, Checker::C7);
}

#[test]
fn c9_finds_a_missing_blob() {
    let mut story = begun();
    story.call(ask_value(), Answer::Failed { code: "blobs-unavailable".into() });
    clean(&story);
    story.call(ask_value(), Answer::Failed { code: "blob-missing".into() });
    only(&story, Checker::C9);
}

#[test]
fn c6_finds_a_grant_at_a_version_that_never_was() {
    let mut story = begun();
    story.call(acquire(1), again(1, 10, 7));
    only(&story, Checker::C6);
}

#[test]
fn c6_finds_a_grant_that_knows_less_than_the_one_before() {
    let mut story = begun();
    story.grant(2, 20, 1);
    story.write(2, 20, 2);
    story.grant(3, 30, 2);
    clean(&story);
    story.grant(4, 40, 1);
    // What it does not know of was written under an older token.
    let (violated, report) = story.violated();
    assert_eq!(violated, [Checker::C4, Checker::C6], "{report}");
}

#[test]
fn c7_finds_an_acknowledged_add_that_is_nowhere() {
    let mut story = Story::default();
    story.grant(1, 10, 0);
    adds(&mut story, 1, "1", 1);
    story.call(changing(10, add("1 2", 2)), written(2, 2));
    let (violated, report) = story.violated();
    assert_eq!(violated, [Checker::C5, Checker::C7], "{report}");
    story.rollback(0, 1);
    clean(&story);
}
