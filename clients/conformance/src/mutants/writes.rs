//! Writes, and what becomes of them: CC20 to CC29.

use super::{Mutant, mutant};

pub(super) const ALL: &[Mutant] = &[
    mutant("sends-no-lock-id", "sends no lock id", &["write-headers"]),
    mutant("sends-no-number", "sends no number", &["number-rises"]),
    mutant("has-one-key", "has one key for all writes", &["write-keys-differ", "answered-twice"]),
    mutant(
        "makes-all-keys",
        "has keys of its own although the caller gave one",
        &["write-own-key"],
    ),
    mutant("keeps-keys-of-others", "says how long the caller's key is kept", &["write-own-key"]),
    mutant(
        "changes-its-key",
        "has a new key in each attempt",
        &["write-same-again", "open-then-applied", "commit-same-again"],
    ),
    mutant(
        "drops-conditions",
        "drops `If-Match` and `If-None-Match`",
        &["write-conditions", "update-absent"],
    ),
    mutant("rides-out-nothing", "does not wait for what is frozen", &["write-ride-out"]),
    mutant(
        "rides-out-everything",
        "waits for what is frozen although nobody asked for it",
        &["write-at-once"],
    ),
    mutant(
        "writes-anywhere",
        "writes on any resource of the lock if none is named",
        &["write-which"],
    ),
    mutant("mixes-up-created", "mixes up new and old objects", &["write-told"]),
    mutant("wants-a-digest", "wants a SHA-256 in each answer", &["write-newer-answer"]),
    mutant(
        "fails-what-it-cannot-read",
        "fails a write whose answer it cannot read",
        &["write-unreadable-answer"],
    ),
    mutant(
        "unknown-is-not-applied",
        "says that a write took no effect when nobody knows",
        &["unknown-empty"],
    ),
    mutant("hides-replays", "does not tell what was replayed", &["write-replayed", "commit-told"]),
    mutant("deletes-without-a-key", "sends no key with a delete", &["write-delete"]),
    mutant(
        "uploads-unconfirmed",
        "does not renew before an upload",
        &["upload-renews-first", "upload-lost-before"],
    ),
    mutant(
        "renews-before-all-uploads",
        "renews before an upload although it was confirmed just now",
        &["upload-fresh"],
    ),
    mutant(
        "sends-streams-twice",
        "sends what can be read once a second time",
        &["upload-read-once-refused"],
    ),
    mutant("gives-up-unsent", "gives up when it cannot connect", &["open-then-no-connection"]),
    mutant(
        "gives-up-in-progress",
        "gives up while its key is in progress",
        &["write-in-progress", "open-by-in-progress"],
    ),
    mutant(
        "doubts-losses",
        "tries again although its token is dead",
        &["open-then-lost", "upload-refused-early"],
    ),
    mutant("doubts-numbers", "tries again although its number is used up", &["open-then-number"]),
    mutant(
        "doubts-conditions",
        "tries again although its condition has failed for good",
        &["open-then-tag", "open-then-absent"],
    ),
    mutant(
        "believes-conditions",
        "believes that a condition failed which may come true again",
        &["open-then-absent-unnumbered"],
    ),
    mutant(
        "doubts-keys",
        "tries again although its key was used for other bytes",
        &["open-then-key-reused"],
    ),
    mutant(
        "opens-the-unavailable",
        "takes what was unavailable for unknown",
        &["write-unavailable"],
    ),
    mutant(
        "believes-the-last",
        "believes a refusal that says nothing of an earlier attempt",
        &["open-then-others", "open-by-half-answer"],
    ),
    mutant(
        "forgets-what-is-open",
        "forgets that an attempt was not answered",
        &["open-then-others-end"],
    ),
    mutant(
        "ignores-unknown-outcomes",
        "goes by the code although the outcome is unknown",
        &["open-by-unknown", "class-of-unknown-outcome"],
    ),
    mutant(
        "never-asks",
        "never asks what became of a write",
        &["unknown-asks-by-key", "commit-unknown"],
    ),
    mutant(
        "asks-by-key-alone",
        "asks by key although it knows the operation",
        &["unknown-asks-by-id"],
    ),
    mutant(
        "takes-nothing-for-a-no",
        "takes an empty list for `not applied`",
        &["unknown-empty", "unknown-not-found"],
    ),
    mutant(
        "believes-a-no",
        "takes `not applied` of one attempt for the whole truth",
        &["unknown-not-applied"],
    ),
    mutant(
        "gives-up-its-own-key",
        "takes its own key for somebody else's",
        &["open-by-own-key-used"],
    ),
    mutant("sends-for-ever", "sends again when the key may be forgotten", &["key-half-time"]),
    mutant(
        "trusts-its-own-hour",
        "does not ask how long the gateway keeps keys",
        &["key-half-time-short"],
    ),
    mutant(
        "resolves-by-asking-alone",
        "does not send again to resolve",
        &["resolve-applied", "resolve-lost"],
    ),
    mutant(
        "abandons-without-release",
        "abandons a write without releasing the lock",
        &["abandon-not-applied"],
    ),
    mutant(
        "abandons-at-once",
        "does not wait for the release that it abandons with",
        &["abandon-order"],
    ),
    mutant("abandons-blindly", "does not ask after it has released", &["abandon-applied"]),
    mutant(
        "doubts-the-buried",
        "does not believe that nothing comes after the release",
        &["abandon-not-applied"],
    ),
    mutant("counts-from-zero", "counts its writes from 0", &["number-rises"]),
    mutant("shares-numbers", "has one count of writes for all guards", &["number-per-guard"]),
    mutant("never-renumbers", "never gives a new number", &["number-overlap"]),
    mutant("always-renumbers", "gives new numbers without an overlap", &["number-alone"]),
    mutant("renumbers-eight-times", "gives eight new numbers at most", &["number-overlap-long"]),
    mutant(
        "renumbers-while-open",
        "gives a new number while the old one is open",
        &["number-while-open"],
    ),
    mutant(
        "renumbers-after-unknown",
        "gives a new number to what was told unknown",
        &["number-after-unknown"],
    ),
    mutant(
        "ignores-the-order",
        "sends several writes at a time although they are ordered",
        &["number-ordered"],
    ),
    mutant(
        "numbers-everything",
        "numbers writes of a token that is shared",
        &["number-adopted", "number-none"],
    ),
    mutant("commits-file-names", "gives names of files to parts", &["commit-body"]),
    mutant(
        "commits-unconditionally",
        "drops the versions that a commit expects",
        &["commit-conditions"],
    ),
    mutant(
        "says-little",
        "does not tell what the gateway said",
        &["error-carries", "write-changed", "commit-refused"],
    ),
];
