//! The numbers of writes: they rise, and are given anew only where nobody had ordered anything.

use anyhow::{Context as _, Result, ensure};
use serde_json::json;

use super::writes::{marks, taken};
use super::{Scenario, scenario};
use crate::script::{Call, Script, rises, same};
use crate::server::{Exchange, Reply};

pub(super) const ALL: &[Scenario] = &[
    scenario!("number-rises", [23], "the writes of a guard are numbered from 1", rising),
    scenario!("number-per-guard", [23], "each guard has its own numbers", per_guard),
    scenario!(
        "number-overlap",
        [23],
        "an overlapped write gets a new number, under its key",
        overlap
    ),
    scenario!(
        "number-overlap-long",
        [10, 23],
        "and again and again, until the deadline",
        overlap_long
    ),
    scenario!(
        "number-alone",
        [23],
        "without an overlap the write is told to be out of order",
        alone
    ),
    scenario!(
        "number-while-open",
        [23, 24],
        "there is no new number while the old one is open",
        while_open
    ),
    scenario!(
        "number-after-unknown",
        [23, 25],
        "what was told unknown overlaps with nothing later",
        after_unknown
    ),
    scenario!("number-ordered", [23], "`ordered` sends one write at a time", ordered),
    scenario!("number-none", [23], "without numbers none is sent", none),
    scenario!("number-adopted", [40], "an adopted guard is not numbered, and not renewed", adopted),
];

async fn rising(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let mut numbers = Vec::new();
    for version in 1..12 {
        let call = s.put("a.txt").await?;
        let put = taken(s).await?;
        numbers.push(marks(&put.request)?.1.context("a write has a number")?);
        put.written(version).await?;
        s.ok_now(call).await?;
    }
    same("the first number", numbers.first().map_or("", String::as_str), "1")?;
    rises("the numbers", &numbers)
}

async fn per_guard(s: &mut Script) -> Result<()> {
    s.lock().await?;
    s.lock_as("M", "8", json!({"resources": ["q"]})).await?;
    for (lock, path) in [("L", "/resources/r/objects/a.txt"), ("M", "/resources/q/objects/a.txt")] {
        let call = s.put_with("a.txt", json!({"lock": lock})).await?;
        let put = s.take_now("PUT", path).await?;
        same("the number", &marks(&put.request)?.1, &Some("1".to_owned()))?;
        put.written(1).await?;
        s.ok_now(call).await?;
    }
    Ok(())
}

struct Pair {
    calls: (Call, Call),
    puts: (Exchange, Exchange),
}

/// Two puts under way at once, in the order of their numbers.
async fn pair(s: &mut Script) -> Result<Pair> {
    s.lock().await?;
    let one = s.put("one.txt").await?;
    let two = s.put("two.txt").await?;
    let first = s.take_now("PUT", "/resources/r/objects/*").await?;
    let second = s.take_now("PUT", "/resources/r/objects/*").await?;
    same("the first number", &marks(&first.request)?.1, &Some("1".to_owned()))?;
    same("the second number", &marks(&second.request)?.1, &Some("2".to_owned()))?;
    ensure!(
        first.request.path.ends_with("one.txt"),
        "the numbers are not in the order of the calls"
    );
    Ok(Pair { calls: (one, two), puts: (first, second) })
}

async fn overlap(s: &mut Script) -> Result<()> {
    let Pair { calls, puts } = pair(s).await?;
    puts.1.written(1).await?;
    s.ok_now(calls.1).await?;
    puts.0.problem("sequence-out-of-order").await?;
    let again = s.take("PUT", "/resources/r/objects/one.txt").await?;
    let key = marks(&puts.0.request)?.0;
    same("key and number", &marks(&again.request)?, &(key, Some("3".to_owned())))?;
    again.written(2).await?;
    same("the number that is told", &s.ok_now(calls.0).await?["number"].as_u64(), &Some(3))
}

async fn overlap_long(s: &mut Script) -> Result<()> {
    let Pair { calls, puts } = pair(s).await?;
    puts.1.written(1).await?;
    s.ok_now(calls.1).await?;
    puts.0.problem("sequence-out-of-order").await?;
    let mut numbers = vec!["1".to_owned(), "2".to_owned()];
    for _ in 0..12 {
        let again = s.take("PUT", "/resources/r/objects/one.txt").await?;
        numbers.push(marks(&again.request)?.1.context("a write has a number")?);
        again.problem("sequence-out-of-order").await?;
    }
    rises("the numbers", &numbers)?;
    s.take("PUT", "/resources/r/objects/one.txt").await?.written(2).await?;
    s.ok_now(calls.0).await.map(drop)
}

async fn alone(s: &mut Script) -> Result<()> {
    s.lock().await?;
    let call = s.put("a.txt").await?;
    taken(s).await?.written(1).await?;
    s.ok_now(call).await?;
    let call = s.put("a.txt").await?;
    taken(s).await?.problem("sequence-out-of-order").await?;
    let error = s.fails_now(call, "Changed").await?;
    same("the code", &error["code"], &json!("sequence-out-of-order"))?;
    s.quiet(5_000).await
}

async fn while_open(s: &mut Script) -> Result<()> {
    let Pair { calls, puts } = pair(s).await?;
    puts.1.written(1).await?;
    s.ok_now(calls.1).await?;
    let marked = marks(&puts.0.request)?;
    puts.0.cut().await?;
    let again = s.take("PUT", "/resources/r/objects/one.txt").await?;
    same("key and number", &marks(&again.request)?, &marked)?;
    again.problem("resource-frozen").await?;
    let again = s.take("PUT", "/resources/r/objects/one.txt").await?;
    same("key and number", &marks(&again.request)?, &marked)?;
    again.problem("sequence-out-of-order").await?;
    let anew = s.take("PUT", "/resources/r/objects/one.txt").await?;
    same("key and number", &marks(&anew.request)?, &(marked.0, Some("3".to_owned())))?;
    anew.written(2).await?;
    s.ok_now(calls.0).await.map(drop)
}

async fn after_unknown(s: &mut Script) -> Result<()> {
    s.client_with(json!({"write_deadline": "3s"})).await?;
    s.lock_as("L", "7", json!({})).await?;
    let call = s.put("a.txt").await?;
    taken(s).await?.cut().await?;
    while s.open(call).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        if exchange.request.method == "GET" {
            exchange.reply(Reply::json(200, &json!({"items": []}))).await?;
        } else {
            exchange.problem("resource-frozen").await?;
        }
    }
    let error = s.fails(call, "OutcomeUnknown").await?;
    let newer = s.put("a.txt").await?;
    let put = taken(s).await?;
    same("the number", &marks(&put.request)?.1, &Some("2".to_owned()))?;
    let resolve =
        s.start(json!({"do": "resolve", "handle": error["handle"], "within": "3s"})).await?;
    put.written(1).await?;
    s.ok(newer).await.ok();
    while s.open(resolve).await? {
        let Some(exchange) = s.any_within(1_000).await? else { continue };
        if exchange.request.method == "GET" {
            exchange.reply(Reply::json(200, &json!({"items": []}))).await?;
            continue;
        }
        let number = marks(&exchange.request)?.1;
        same("the number of the old write", &number, &Some("1".to_owned()))?;
        exchange.problem("sequence-out-of-order").await?;
    }
    let answer = s.answer(resolve).await?;
    let ended = answer["ok"]["outcome"] == "not_applied" || answer["error"]["class"] == "Changed";
    ensure!(ended, "the old write was not applied: {answer}");
    s.quiet(2_000).await
}

async fn ordered(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"ordered": true})).await?;
    let one = s.put("one.txt").await?;
    let two = s.put("two.txt").await?;
    let first = s.take_now("PUT", "/resources/r/objects/one.txt").await?;
    s.quiet(5_000).await?;
    first.written(1).await?;
    s.take("PUT", "/resources/r/objects/two.txt").await?.written(2).await?;
    s.ok_now(one).await?;
    s.ok_now(two).await.map(drop)
}

async fn none(s: &mut Script) -> Result<()> {
    s.client().await?;
    s.lock_as("L", "7", json!({"numbers": false})).await?;
    let call = s.put("a.txt").await?;
    let put = taken(s).await?;
    ensure!(!put.request.has("x-fence-seq"), "it has a number");
    put.written(1).await?;
    same("the number that is told", &s.ok_now(call).await?["number"], &json!(null))
}

async fn adopted(s: &mut Script) -> Result<()> {
    s.client().await?;
    let id = "01920000-0000-7000-8000-000000000001";
    let command =
        json!({"do": "adopt", "lock": "L", "lock_id": id, "token": "12", "resources": ["r"]});
    s.tell(command).await?;
    let call = s.put("a.txt").await?;
    let put = s.take_now("PUT", "/resources/r/objects/a.txt").await?;
    same("the token", put.request.must("x-fence-token")?, "12")?;
    same("the lock id", put.request.must("x-lock-id")?, id)?;
    ensure!(!put.request.has("x-fence-seq"), "it has a number");
    put.written(1).await?;
    s.ok_now(call).await?;
    s.shared.auto.renewals(false);
    s.quiet(60_000).await
}
