//! The client and its attempts: CC1 to CC13, CC58.

use super::{Mutant, mutant};

pub(super) const ALL: &[Mutant] = &[
    mutant("follows-redirects", "follows redirects", &["redirect"]),
    mutant("uses-the-proxy", "uses the environment's proxy for loopback", &["no-proxy"]),
    mutant(
        "believes-anybody",
        "takes any answer for the gateway's",
        &["open-by-foreign", "lost-not-by-proxies", "unknown-question-foreign"],
    ),
    mutant(
        "stays-with-the-dead",
        "never asks another gateway",
        &["next-gateway", "next-gateway-waiting", "next-gateway-write"],
    ),
    mutant(
        "leaves-at-any-refusal",
        "goes to the next gateway after any refusal",
        &["next-gateway-told"],
    ),
    mutant("never-comes-back", "never asks the first gateway again", &["first-gateway-again"]),
    mutant("drops-headers", "drops the caller's headers", &["headers"]),
    mutant(
        "asks-for-one-credential",
        "does not ask for another credential after a 401",
        &["credential"],
    ),
    mutant(
        "forgets-its-wait",
        "waits for the head of a waiting call as for any other",
        &["head-time-wait"],
    ),
    mutant(
        "waits-too-briefly",
        "waits for a head for 5 s",
        &["head-time", "head-time-of-gateway", "interim"],
    ),
    mutant("has-no-name", "does not say what it is", &["user-agent"]),
    mutant(
        "ignores-retry-after",
        "ignores when the gateway wants to be asked again",
        &["write-retry-after"],
    ),
    mutant("ignores-retry-after-headers", "ignores `Retry-After`", &["write-retry-after-header"]),
    mutant("forgets-the-prefix", "drops the path in front of the gateway", &["prefix"]),
    mutant("has-one-request-id", "sends all attempts under one request id", &["request-ids"]),
    mutant(
        "thinks-nothing-was-sent",
        "takes what was cut for what was never sent",
        &["upload-cut", "garbage"],
    ),
    mutant(
        "thinks-all-was-sent",
        "takes what could not connect for what was sent",
        &["not-open-unsent"],
    ),
    mutant("times-uploads", "counts the time of an upload as that of its answer", &["upload-slow"]),
    mutant(
        "reads-the-first-piece",
        "takes the first piece of an answer for all of it",
        &["trickle", "chunked"],
    ),
    mutant(
        "tries-once",
        "never tries again",
        &["read-again", "fence-again", "transfer-again", "break"],
    ),
    mutant(
        "always-tries-again",
        "tries again although one attempt was asked for",
        &["write-once", "upload-read-once"],
    ),
    mutant("asks-the-absent-again", "tries again what is not there", &["read-absent"]),
    mutant("pauses-long", "pauses for up to 2 s from the first attempt on", &["write-backoff"]),
    mutant("encodes-half", "leaves some bytes of names as they are", &["write-names"]),
    mutant("repairs-names", "mends names instead of refusing them", &["write-names-refused"]),
    mutant(
        "checks-no-limits",
        "does not check how many there may be",
        &["acquire-checked", "commit-checked"],
    ),
    mutant("classes-by-status", "classes by the status alone", &["class-of-codes", "adopt-gone"]),
    mutant(
        "faults-newer-codes",
        "takes codes that it does not know for faults",
        &["class-of-newer-codes"],
    ),
    mutant("faults-all-proxies", "takes all answers of proxies for faults", &["class-of-foreign"]),
];
