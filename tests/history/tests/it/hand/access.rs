//! C15, C17: principals, and rules of access.

use fence_history::{Answer, Asked, Checker};

use super::{begun, clean, only};
use crate::build::*;

fn write_of(story: &mut Story, client: u32, version: i64) {
    let (operation, value) = (u128::from(version.unsigned_abs()), format!("v{version}"));
    let call = story.begin(client, put(10, &value));
    story.end(call, written(operation, version));
    story.committed(operation, 10, version, &value);
}

fn renewal_of(story: &mut Story, client: u32) {
    let call = story.begin(client, Asked::Renew { lock: id(1) });
    story.end(call, Answer::Done);
}

#[test]
fn c17_finds_a_write_under_the_token_of_another() {
    let mut story = begun();
    story.rules(&[], 1);
    write_of(&mut story, 1 + PRINCIPALS, 2);
    clean(&story);
    write_of(&mut story, 2, 3);
    only(&story, Checker::C17);
    let mut open = begun();
    write_of(&mut open, 2, 2);
    clean(&open);
}

#[test]
fn c17_lets_writers_write_and_not_renew() {
    let mut story = begun();
    story.rules(&[], 1);
    story.writer(1, 2);
    write_of(&mut story, 2, 2);
    renewal_of(&mut story, 1);
    clean(&story);
    let mut by_another = story.clone();
    write_of(&mut by_another, 3, 3);
    only(&by_another, Checker::C17);
    renewal_of(&mut story, 2);
    only(&story, Checker::C17);
}

#[test]
fn c17_finds_what_rules_denied() {
    let mut story = begun();
    story.rules(&[1], 1);
    story.rules(&[], 1);
    write_of(&mut story, 1, 2);
    clean(&story);
    story.rules(&[1], 2);
    write_of(&mut story, 1, 3);
    only(&story, Checker::C17);
    story.rules(&[], 2);
    clean(&story);
}

#[test]
fn c15_lets_a_token_be_unknown_to_others_alone() {
    let mut story = begun();
    story.rules(&[], 1);
    let call = story.begin(2, put(10, "v2"));
    story.end(call, refused("fence-token-unknown"));
    clean(&story);
    story.call(put(10, "v3"), refused("fence-token-unknown"));
    only(&story, Checker::C15);
}
