//! Renewals, in batches (CC31, CC32): whoever is due takes all others along that have not been confirmed
//! for a while.

use std::sync::Arc;
use std::time::Duration;

use fencegate_wire::json::{Lock, RENEW_IDS_MAX, RenewManyAnswer, RenewManyRequest};
use fencegate_wire::{ErrorCode, LockId, Ttl};
use reqwest::Method;
use tokio::sync::OwnedMutexGuard;

use super::held::Held;
use crate::class::LossReason;
use crate::client::Inner;
use crate::clock::{ms, now_ms, sleep_until_ms};
use crate::error::{Details, Error};
use crate::hooks::Event;
use crate::machine::lease::{Input, Lease, State};
use crate::transport::answer::Reply;
use crate::transport::nothing;
use crate::transport::request::{Request, RequestIds};

/// One guard of a batch. While it is there, nobody else renews the guard.
struct Member {
    held: Arc<Held>,
    _renewing: OwnedMutexGuard<()>,
}

/// Renews a guard that is due, and takes others along. Does not wait for the answer.
pub(crate) fn begin(first: &Arc<Held>) {
    let now = now_ms();
    let Some(member) = join(first.clone()) else {
        return first.change_lease(|lease| lease.renewal_began(now));
    };
    let lateness_ms = first.with_lease(|lease| now.saturating_sub(lease.due_ms().unwrap_or(now)));
    let patience_ms = first.with_lease(Lease::attempt_ms);
    let mut batch = vec![member];
    for other in first.inner.guards.all() {
        if batch.len() == RENEW_IDS_MAX {
            break;
        }
        // Not those that would have to wait longer than they may: the batch has the patience of the first.
        let joins = |lease: &Lease| lease.joins(now) && lease.attempt_ms() >= patience_ms;
        if !Arc::ptr_eq(&other, first) && other.with_lease(joins) {
            batch.extend(join(other));
        }
    }
    // Whatever becomes of this attempt, the next is not before it is over.
    for member in &batch {
        member.held.change_lease(|lease| lease.renewal_began(now));
    }
    tokio::spawn(renew(first.inner.clone(), batch, Duration::from_millis(lateness_ms)));
}

fn join(held: Arc<Held>) -> Option<Member> {
    let renewing = held.renewing.clone().try_lock_owned().ok()?;
    Some(Member { held, _renewing: renewing })
}

async fn renew(inner: Arc<Inner>, batch: Vec<Member>, lateness: Duration) {
    let sent_ms = now_ms();
    let within_ms = batch.iter().map(|member| member.held.with_lease(|l| l.attempt_ms())).min();
    let within = Duration::from_millis(within_ms.unwrap_or(1_000));
    let ids: Vec<LockId> = batch.iter().map(|member| member.held.id).collect();
    // The head and the body of the answer are bounded alike.
    let answers = match tokio::time::timeout(within, ask(&inner, &ids, None, within)).await {
        Ok(answers) => answers,
        Err(_) => {
            let detail = format!("no answer within {} ms", within.as_millis());
            Err(Reply::Nothing(nothing(true, true, detail)))
        }
    };
    match answers {
        Ok(answers) => {
            for member in batch {
                let answer = answers.iter().find(|(id, _)| *id == member.held.id);
                match answer {
                    Some((_, answer)) => learn(&member.held, sent_ms, answer, lateness),
                    None => failed(&member.held, "the gateway left it out of its answer"),
                }
            }
        }
        Err(reply) => {
            let detail = reply.summary();
            for member in batch {
                failed(&member.held, &detail);
            }
        }
    }
}

/// What a gateway says of one lock: how it stands, or why it was not renewed.
enum Told {
    Renewed(Box<Lock>),
    Refused(Refused),
}

enum Refused {
    /// A code, and the operator's words if one breaks it.
    Code(String, Option<String>),
    /// A whole problem.
    Problem(Box<fencegate_wire::json::Problem>),
}

async fn ask(
    inner: &Inner,
    ids: &[LockId],
    ttl: Option<Ttl>,
    within: Duration,
) -> Result<Vec<(LockId, Told)>, Reply> {
    let id = RequestIds::new().next();
    if let [lock] = ids {
        let request = Request::new(Method::POST, format!("/locks/{lock}/renew"));
        let request = request.json(&fencegate_wire::json::RenewRequest { ttl }).within(within);
        return match inner.transport.attempt(&request, &id).await {
            Reply::Done(answer) => {
                answer.json::<Lock>().await.map(|known| vec![(*lock, Told::Renewed(known.into()))])
            }
            Reply::Problem(problem) if is_about_lock(&problem.code) => {
                Ok(vec![(*lock, Told::Refused(Refused::Problem(problem)))])
            }
            reply => Err(reply),
        };
    }
    let request = Request::new(Method::POST, "/locks/renew");
    let request = request.json(&RenewManyRequest { ids: ids.to_vec(), ttl }).within(within);
    let answer = match inner.transport.attempt(&request, &id).await {
        Reply::Done(answer) => answer.json::<RenewManyAnswer>().await?,
        reply => return Err(reply),
    };
    let told = answer.items.into_iter().filter_map(|item| match (item.lock, item.code) {
        (Some(lock), _) => Some((item.id, Told::Renewed(lock.into()))),
        (None, Some(code)) => Some((item.id, Told::Refused(Refused::Code(code, item.reason)))),
        (None, None) => None,
    });
    Ok(told.collect())
}

fn is_about_lock(code: &str) -> bool {
    LossReason::of(code).is_some() || is_breaking(code)
}

fn is_breaking(code: &str) -> bool {
    ErrorCode::parse(code) == Some(ErrorCode::LockBreaking)
}

fn learn(held: &Arc<Held>, sent_ms: u64, told: &Told, lateness: Duration) {
    match told {
        Told::Renewed(lock) => {
            held.learn(renewed(sent_ms, lock));
            let deadline_ms = held.with_lease(|lease| lease.deadline_ms());
            let headroom_ms = deadline_ms.map_or(0, |at_ms| at_ms.saturating_sub(now_ms()));
            let headroom = Duration::from_millis(headroom_ms);
            held.inner.hooks.tell(&Event::Renewed { headroom, lateness });
        }
        Told::Refused(Refused::Problem(problem)) if is_breaking(&problem.code) => {
            held.heard_why(problem.reason.as_deref());
            breaking(held);
        }
        Told::Refused(Refused::Problem(problem)) => held.refused(problem),
        Told::Refused(Refused::Code(code, words)) => {
            held.heard_why(words.as_deref());
            match LossReason::of(code) {
                Some(reason) => held.learn(Input::Lost(reason)),
                None if is_breaking(code) => breaking(held),
                None => failed(held, code),
            }
        }
    }
}

/// What a lock that was renewed says about its time.
pub(crate) fn renewed(sent_ms: u64, lock: &Lock) -> Input {
    let (left_ms, ttl_ms) = times(lock);
    Input::Renewed { sent_ms, left_ms, ttl_ms }
}

/// What is left of a lock, and its ttl, in milliseconds; `None`: for ever.
pub(crate) fn times(lock: &Lock) -> (Option<u64>, Option<u64>) {
    let whole = |ms: i64| ms.max(0).unsigned_abs();
    let unconfirmed_ms = lock.confirm_within_ms.map(whole);
    (lock.expires_in_ms.map(whole).or(unconfirmed_ms), lock.ttl_ms.map(whole))
}

fn failed(held: &Held, detail: &str) {
    held.learn(Input::RenewFailed);
    let (resources, detail) = (held.resources.clone(), detail.to_owned());
    held.inner.hooks.tell(&Event::RenewFailed { resources, detail });
}

/// An operator is about to break it (CC34): renewals stop, and it is asked when, apart from the batch, which does
/// not wait for that. Until it is known, the deadline is the end.
pub(super) fn breaking(held: &Arc<Held>) {
    held.change_lease(Lease::stop_renewing);
    let guard = Arc::downgrade(held);
    tokio::spawn(async move {
        while let Some(held) = guard.upgrade() {
            if !matches!(held.state(), State::Held | State::Uncertain) {
                return;
            }
            let request = Request::get(format!("/locks/{}", held.id));
            let (id, sent_ms) = (RequestIds::new().next(), now_ms());
            let reply = held.inner.transport.attempt(&request, &id).await;
            if let Reply::Done(answer) = reply
                && let Ok(lock) = answer.json::<Lock>().await
            {
                held.heard_why(lock.reason.as_deref());
                let left_ms = lock.expires_in_ms.unwrap_or(0).max(0).unsigned_abs();
                return held.learn(Input::Breaking { sent_ms, left_ms });
            }
            drop(held);
            sleep_until_ms(now_ms() + 1_000).await;
        }
    });
}

/// Why a lock that was granted is not given out (CC19).
pub(crate) const TOO_LATE: &str =
    "the lock was granted, but too little of its ttl is left: answers take too long for it";

/// Renews a guard before it is given out, so that its time begins now, as long as the lock can be there; it may last
/// for `left_ms` from now on (CC19).
///
/// # Errors
/// It is over, nobody answers, or less is left than the holder needs: [`Error::Unavailable`].
pub(crate) async fn renew_first(
    held: &Arc<Held>,
    left_ms: Option<u64>,
    grace_ms: u64,
) -> Result<(), Error> {
    let ends_ms = now_ms().saturating_add(left_ms.unwrap_or(u64::MAX));
    renew_until(held, None, held.inner.call_until_ms().min(ends_ms)).await?;
    held.learn(Input::Beat);
    held.check()?;
    match held.with_lease(|lease| lease.can_begin(now_ms(), grace_ms)) {
        true => Ok(()),
        false => Err(Error::Unavailable(Details::local(TOO_LATE))),
    }
}

/// A renewal that the holder asked for: until it is answered or the deadline of the call has passed.
pub(crate) async fn renew_now(held: &Arc<Held>, ttl: Option<Ttl>) -> Result<(), Error> {
    held.learn(Input::Beat);
    renew_until(held, ttl, held.inner.call_until_ms()).await
}

async fn renew_until(held: &Arc<Held>, ttl: Option<Ttl>, until_ms: u64) -> Result<(), Error> {
    let inner = &held.inner;
    let _alone = held.renewing.clone().lock_owned().await;
    loop {
        held.check()?;
        let sent_ms = now_ms();
        if let Some(ttl) = ttl {
            // It may take effect although nobody hears of it: from now on the shorter of the two counts.
            held.change_lease(|lease| lease.ttl_asked(sent_ms, ttl_ms(ttl)));
        }
        let within_ms = ms(inner.call_within).min(held.with_lease(|lease| lease.attempt_ms()));
        let only = [held.id];
        let within = Duration::from_millis(within_ms);
        let asked = ask(inner, &only, ttl, within);
        let reply = match tokio::time::timeout(within, asked).await {
            Ok(Ok(told)) => {
                for (_, told) in &told {
                    if let (Told::Renewed(lock), Some(_)) = (told, ttl) {
                        held.change_lease(|lease| lease.ttl_known(times(lock).1));
                    }
                    learn(held, sent_ms, told, Duration::ZERO);
                }
                return match (held.state(), told.first()) {
                    (State::Held | State::Uncertain, Some((_, Told::Renewed(_)))) => Ok(()),
                    (State::Held | State::Uncertain, Some((_, Told::Refused(refused)))) => {
                        Err(refused.error())
                    }
                    _ => held.check(),
                };
            }
            Ok(Err(reply)) => reply,
            Err(_) => {
                let detail = format!("no answer within {within_ms} ms");
                Reply::Nothing(nothing(true, true, detail))
            }
        };
        let pause_ms = 100;
        if !reply.is_retried() || now_ms() + pause_ms >= until_ms {
            return Err(reply.error(1));
        }
        sleep_until_ms(now_ms() + pause_ms).await;
    }
}

fn ttl_ms(ttl: Ttl) -> Option<u64> {
    (!ttl.is_infinite()).then(|| ttl.as_ms().unsigned_abs())
}

impl Refused {
    fn error(&self) -> Error {
        match self {
            Self::Problem(problem) => Error::of_problem(problem, 1),
            Self::Code(code, _) => Error::misuse(format!("the lock was not renewed: {code}")),
        }
    }
}
