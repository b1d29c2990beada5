//! The conformance suite of the mint.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use etcd_client::GetOptions;
use fence_core::ResourceName;
use fence_core::ports::{Carry, Ended, Head, Milestone, Mint, MintError, MintItem, Witness};
use fencegate::mint::{EmbeddedMint, EtcdMint, EtcdSettings};
use futures::future::join_all;
use uuid::Uuid;

use super::clock;
use crate::etcd::Etcd;

const NONCE: Uuid = Uuid::from_u128(7);
const OTHER: Uuid = Uuid::from_u128(8);
const LEDGER: Uuid = Uuid::from_u128(9);

/// A mint on this etcd, under this prefix.
pub fn etcd_mint(etcd: &Etcd, prefix: &str) -> EtcdMint {
    let settings = EtcdSettings {
        endpoints: vec![etcd.endpoint()],
        prefix: prefix.to_owned(),
        user: None,
        password: None,
        ca_file: None,
        cert_file: None,
        key_file: None,
        timeout: Duration::from_secs(5),
    };
    EtcdMint::connect(&settings, clock()).expect("the settings are good")
}

/// The mint in a directory.
pub fn embedded_mint(directory: &Path) -> EmbeddedMint {
    EmbeddedMint::open(directory).expect("the mint opens")
}

fn items(count: usize) -> Vec<MintItem> {
    (0..count).map(|i| item(&format!("r{i}"))).collect()
}

fn resource(name: &str) -> ResourceName {
    ResourceName::new(name).expect("tests use good names")
}

fn item(name: &str) -> MintItem {
    MintItem { resources: vec![resource(name)], owner: "ann".into() }
}

async fn number(mint: &dyn Mint) -> i64 {
    number_of(mint, "r", &[]).await
}

/// A number for a grant on one resource.
async fn number_of(mint: &dyn Mint, name: &str, ended: &[Ended]) -> i64 {
    mint.mint(NONCE, &[item(name)], ended).await.expect("a number")[0]
}

/// From the first call on.
pub async fn numbers_rise(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let mut last = 0;
    for _ in 0..200 {
        let next = number(mint).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// Of one call, too, and a lock on several resources has one.
pub async fn each_grant_has_a_number_of_its_own(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let mut last = 0;
    for count in [1, 2, 33, 100] {
        let numbers = mint.mint(NONCE, &items(count), &[]).await.expect("numbers");
        assert_eq!(numbers.len(), count);
        for number in numbers {
            assert!(number > last, "{number} after {last}");
            last = number;
        }
    }
    let several = MintItem { resources: ["a", "b", "c"].map(resource).to_vec(), ..item("a") };
    let numbers = mint.mint(NONCE, &[several, item("d")], &[]).await.expect("numbers");
    assert!(numbers.len() == 2 && last < numbers[0] && numbers[0] < numbers[1], "{numbers:?}");
}

/// However they overlap: each is above all that ended before it began.
pub async fn concurrent_calls_get_distinct_rising_numbers(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let highest = std::sync::atomic::AtomicI64::new(0);
    let order = std::sync::atomic::Ordering::SeqCst;
    let caller = async |_| {
        let mut numbers = Vec::new();
        for _ in 0..25 {
            let before = highest.load(order);
            let next = number(mint).await;
            assert!(next > before, "{next} after {before}");
            highest.fetch_max(next, order);
            numbers.push(next);
        }
        numbers
    };
    let all = join_all((0..16).map(caller)).await.concat();
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 16 * 25);
}

/// No number comes from a mint that the ledger does not know.
pub async fn another_nonce_mints_nothing(mint: &dyn Mint) {
    let other = |found| Err(MintError::OtherIncarnation { found });
    assert_eq!(mint.mint(NONCE, &items(1), &[]).await, other(None));
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let before = number(mint).await;
    assert_eq!(mint.mint(OTHER, &items(2), &[]).await, other(Some(NONCE)));
    assert!(number(mint).await > before);
}

/// The first nonce stays.
pub async fn adopting_twice_keeps_the_first(mint: &dyn Mint) {
    assert_eq!(mint.adopt(NONCE, LEDGER).await, Ok(NONCE));
    assert_eq!(mint.adopt(NONCE, LEDGER).await, Ok(NONCE));
    assert_eq!(mint.adopt(OTHER, LEDGER).await, Ok(NONCE));
    assert_eq!(mint.incarnation().await, Ok(Some(NONCE)));
}

/// Of several gateways that start at once.
pub async fn concurrent_adoptions_agree(mint: &dyn Mint) {
    let nonces = (1..=8).map(Uuid::from_u128);
    let carried = join_all(nonces.map(|nonce| mint.adopt(nonce, LEDGER))).await;
    let first = carried[0].clone();
    assert!(first.is_ok() && carried.iter().all(|one| *one == first), "{carried:?}");
    assert_eq!(mint.incarnation().await.map(Option::unwrap_or_default), first);
}

/// None at first.
pub async fn a_fresh_mint_has_no_incarnation(mint: &dyn Mint) {
    assert_eq!(mint.incarnation().await, Ok(None));
}

/// As many as a call may carry, together with traces to remove.
pub async fn a_hundred_items_are_minted_at_once(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let first = mint.mint(NONCE, &items(100), &[]).await.expect("numbers");
    let trace = |i: usize| Ended { resource: resource(&format!("r{i}")), number: first[i] };
    let ended: Vec<Ended> = (0..100).map(trace).collect();
    let second = mint.mint(NONCE, &items(100), &ended).await.expect("numbers");
    assert!(second[0] > first[99]);
    let fresh: Vec<MintItem> = (0..100).map(|i| item(&format!("s{i}"))).collect();
    assert!(mint.mint(NONCE, &fresh, &ended).await.expect("numbers")[0] > second[99]);
}

/// A trace may be named twice, or may never have been there.
pub async fn odd_traces_do_no_harm(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let first = number(mint).await;
    let trace = |name: &str, number| Ended { resource: resource(name), number };
    let ended = [trace("x", 3), trace("x", 4), trace("x", 3), trace("r", first), trace("y", -1)];
    assert!(number_of(mint, "r", &ended).await > first);
}

fn witness(base: i64, flushed: i64) -> Witness {
    Witness {
        generation: 1,
        adoptions: 2,
        base,
        system_id: 2,
        timeline: "00000003".into(),
        flushed,
        format: Witness::FORMAT,
        ledger: LEDGER,
        milestone: Some(Milestone { number: 4, id: OTHER }),
    }
}

fn carry(nonce: Uuid) -> Carry {
    Carry { nonce, ledger: LEDGER, witness: witness(5, 0) }
}

/// Whoever saw an older one changes nothing.
pub async fn a_nonce_is_replaced_by_who_saw_it_last(mint: &dyn Mint) {
    let empty = mint.head().await.expect("a head");
    assert_eq!((empty.incarnation, empty.ledger), (None, None));
    assert_eq!(mint.replace(&empty, &carry(NONCE)).await, Ok(true));
    assert_eq!(mint.replace(&empty, &carry(OTHER)).await, Ok(false));
    assert_eq!(mint.incarnation().await, Ok(Some(NONCE)));
    let first = number(mint).await;
    let seen = mint.head().await.expect("a head");
    assert_eq!(mint.replace(&seen, &carry(OTHER)).await, Ok(true));
    assert_eq!(mint.replace(&seen, &carry(NONCE)).await, Ok(false));
    assert_eq!(mint.adopt(NONCE, LEDGER).await, Ok(OTHER));
    let past = mint.mint(NONCE, &[item("r")], &[]).await;
    assert_eq!(past, Err(MintError::OtherIncarnation { found: Some(OTHER) }));
    assert!(mint.mint(OTHER, &[item("r")], &[]).await.expect("a number")[0] > first);
}

/// Of gateways that notice at once.
pub async fn of_many_replacements_one_happens(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let seen = mint.head().await.expect("a head");
    let carries: Vec<Carry> = (100..108).map(|n| carry(Uuid::from_u128(n))).collect();
    let replaced = join_all(carries.iter().map(|carry| mint.replace(&seen, carry))).await;
    let winners: Vec<usize> = (0..8).filter(|&i| replaced[i] == Ok(true)).collect();
    assert_eq!(winners.len(), 1, "{replaced:?}");
    assert!(replaced.iter().all(Result::is_ok), "{replaced:?}");
    assert_eq!(mint.incarnation().await, Ok(Some(carries[winners[0]].nonce)));
}

/// So that a re-fence goes beyond all of them.
pub async fn the_head_is_not_below_any_number(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    for _ in 0..20 {
        let last = number(mint).await;
        let head = mint.head().await.expect("a head");
        assert!(head.number >= last && head.incarnation == Some(NONCE), "{head:?}, {last}");
    }
}

/// Another one that was pointed at it by mistake changes nothing.
pub async fn a_mint_serves_one_ledger(mint: &dyn Mint) {
    let intruder = Uuid::from_u128(77);
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let head = mint.head().await.expect("a head");
    assert_eq!(head.ledger, Some(LEDGER));
    let refused = MintError::OtherLedger { found: LEDGER, expected: intruder };
    assert_eq!(mint.adopt(OTHER, intruder).await, Err(refused.clone()));
    let theirs = Carry { ledger: intruder, ..carry(OTHER) };
    assert_eq!(mint.replace(&head, &theirs).await, Err(refused));
    // Not even by one that takes it for free.
    let free = Head { ledger: None, incarnation: None, ..head.clone() };
    assert_eq!(mint.replace(&free, &theirs).await, Ok(false));
    assert_eq!(mint.raise(&head, intruder, &witness(1, 1)).await, Ok(false));
    let after = mint.head().await.expect("a head");
    // Others may use the same etcd, under prefixes of their own.
    assert_eq!(Head { number: head.number, ..after }, head);
}

/// So it never falls within a generation: each is put in place of the one that was compared with.
pub async fn a_witness_is_raised_by_who_saw_it_last(mint: &dyn Mint) {
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let empty = mint.head().await.expect("a head");
    assert_eq!((&empty.witness, empty.witness_revision), (&None, 0));
    assert_eq!(mint.raise(&empty, LEDGER, &witness(0, 10)).await, Ok(true));
    assert_eq!(mint.raise(&empty, LEDGER, &witness(0, 5)).await, Ok(false));
    let seen = mint.head().await.expect("a head");
    assert_eq!(seen.witness, Some(witness(0, 10)));
    assert_eq!(mint.raise(&seen, LEDGER, &witness(0, 20)).await, Ok(true));
    // Nor does a nonce go in with a witness that others have raised meanwhile.
    assert_eq!(mint.replace(&seen, &carry(OTHER)).await, Ok(false));
    let seen = mint.head().await.expect("a head");
    assert_eq!(mint.replace(&seen, &carry(OTHER)).await, Ok(true));
    assert_eq!(mint.head().await.expect("a head").witness, Some(witness(5, 0)));
}

/// Each gateway's numbers go on from the other's.
pub async fn two_gateways_share_the_numbers_of_etcd(one: &dyn Mint, other: &dyn Mint) {
    one.adopt(NONCE, LEDGER).await.expect("adopted");
    assert_eq!(other.incarnation().await, Ok(Some(NONCE)));
    assert_eq!(other.adopt(OTHER, LEDGER).await, Ok(NONCE));
    let mut last = 0;
    for mint in [one, other, one, other, other, one] {
        let next = number(mint).await;
        assert!(next > last, "{next} after {last}");
        last = next;
    }
}

/// A process that ended left a gap and no number twice.
pub async fn the_embedded_mint_skips_ahead_when_opened_again(directory: &Path) {
    let mint = embedded_mint(directory);
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let mut last = 0;
    for _ in 0..3 {
        last = number(&mint).await;
    }
    let reserved = mint.reserved_until();
    drop(mint);
    let mint = embedded_mint(directory);
    assert!(reserved > last && mint.reserved_until() == reserved);
    assert_eq!(number(&mint).await, reserved + 1);
}

/// The names under the prefix of the locks.
async fn traces(etcd: &Etcd, prefix: &str) -> Vec<String> {
    let options = Some(GetOptions::new().with_prefix());
    let locks = format!("{prefix}/locks/");
    let found = etcd.client().await.get(locks.as_str(), options).await.expect("the keys are read");
    let key =
        |pair: &etcd_client::KeyValue| pair.key_str().expect("text")[locks.len()..].to_owned();
    found.kvs().iter().map(key).collect()
}

/// People see the live locks, with owners and no ids; no code decides on them.
pub async fn etcd_shows_the_live_locks(etcd: &Etcd) {
    let prefix = etcd.prefix();
    let mint = etcd_mint(etcd, &prefix);
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let several = MintItem { resources: ["a", "b"].map(resource).to_vec(), ..item("a") };
    let first = mint.mint(NONCE, &[item("c"), several], &[]).await.expect("numbers");
    assert_eq!(traces(etcd, &prefix).await, ["a", "b", "c"]);
    let key = format!("{prefix}/locks/a");
    let found = etcd.client().await.get(key, None).await.expect("the key is read");
    let value = found.kvs()[0].value_str().expect("text");
    assert!(value.contains("ann"), "{value}");
    let revision = found.kvs()[0].mod_revision();
    assert_eq!(first, [revision * 128, revision * 128 + 1]);
    // A trace of a later number stays, as does that of a resource that is minted again.
    let second = number_of(&mint, "b", &[]).await;
    let trace = |name: &str, number| Ended { resource: resource(name), number };
    let ended = [("a", first[1]), ("b", first[1]), ("c", first[0]), ("d", first[0])];
    number_of(&mint, "c", &ended.map(|(name, number)| trace(name, number))).await;
    assert_eq!(traces(etcd, &prefix).await, ["b", "c"]);
    number_of(&mint, "e", &[trace("b", second)]).await;
    assert_eq!(traces(etcd, &prefix).await, ["c", "e"]);
}

/// A mint that is not the one that the ledger knows is left as it was.
pub async fn etcd_of_another_incarnation_is_not_written_to(etcd: &Etcd) {
    let prefix = etcd.prefix();
    let mint = etcd_mint(etcd, &prefix);
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let number = number_of(&mint, "a", &[]).await;
    let ended = [Ended { resource: resource("a"), number }];
    mint.mint(OTHER, &[item("b")], &ended).await.expect_err("another incarnation");
    assert_eq!(traces(etcd, &prefix).await, ["a"]);
}

/// The same mint after the server was killed: it carries its nonce and its numbers go on.
pub async fn etcd_goes_on_after_it_was_killed(etcd: &Etcd) {
    let prefix = etcd.prefix();
    let mint = Arc::new(etcd_mint(etcd, &prefix));
    mint.adopt(NONCE, LEDGER).await.expect("adopted");
    let last = number(&*mint).await;
    etcd.kill9();
    let down = mint.mint(NONCE, &[item("r")], &[]).await;
    assert!(matches!(down, Err(MintError::Unavailable(_))), "{down:?}");
    etcd.start().await;
    assert!(number(&*mint).await > last);
    assert_eq!(mint.incarnation().await, Ok(Some(NONCE)));
}
