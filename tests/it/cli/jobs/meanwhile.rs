//! Slots that others begin between the moment that a call asks what is due and the moment that it has the lock.

use std::sync::Mutex;
use std::time::Duration;

use fencegate_client::jobs::{
    Begun, CatchUp, Due, JobEnd, OncePolicy, Overlap, Running, Slot, Trigger,
};
use fencegate_client::{Client, Error, Lock};

use super::*;

/// Failures of functions.
type Failure = Box<dyn std::error::Error>;

/// An interval so long that none ends while the test runs.
const LONG: Duration = Duration::from_secs(366 * 86_400);

/// The slots of so many intervals before this one.
async fn slots<const COUNT: usize>(client: &Client, before: [u32; COUNT]) -> [Slot; COUNT] {
    let now = client.gateway_time().await.unwrap();
    before.map(|number| Slot::at(now - LONG * number, LONG).unwrap())
}

/// Has the lock until somebody waits for it, and dies then in a run of this slot.
async fn begins_when_somebody_waits(client: &Client, job: &str, slot: &Slot, lock: Lock) {
    while client.waiters(&format!("job:{job}")).all().await.unwrap().is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let job = client.job(job).slot(slot.clone());
    let due = job.due().await.unwrap().remove(0);
    let begun = job.begin(&lock, &due, None).await.unwrap();
    assert!(matches!(begun, Begun::Run(_)), "{begun:?}");
    lock.release().await;
}

#[tokio::test]
async fn what_was_begun_while_the_lock_was_waited_for_comes_first() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let slots = slots(&client, [2, 1, 0]).await;
    // 1. A command.
    let lock = client.job("j").lock().unwrap().acquire().await.unwrap();
    let words_of = ["job", "run", "j", "--every", "366d", "--catch-up", "all", "--on-overlap"];
    let tells = ["wait", "-c", "echo $FENCE_SLOT $FENCE_ATTEMPT"];
    let waits = fence(gateway.url(), &[&words_of[..], &tells].concat()).spawn().unwrap();
    begins_when_somebody_waits(&client, "j", &slots[0], lock).await;
    let said = end(waits).await.with(0);
    assert_eq!(said.out(), format!("{} 2\n{} 1\n{} 1\n", slots[0], slots[1], slots[2]));
    let runs = runs_of(&gateway, "j").await;
    let kept = [(1, "abandoned"), (2, "succeeded"), (1, "succeeded"), (1, "succeeded")];
    assert_eq!(words(&runs), kept);
    // 2. A function, whose first run fails: what fails is not jumped over.
    let all = client.job("f").every(LONG).catch_up(CatchUp::All).overlap(Overlap::Wait);
    let lock = all.lock().unwrap().acquire().await.unwrap();
    let ran = Mutex::new(Vec::new());
    let body = |run: Running| {
        ran.lock().unwrap().push((run.slot().clone(), run.attempt()));
        async move {
            let is_second = run.attempt() == 2;
            if is_second { Err::<(), Failure>("it failed".into()) } else { Ok(()) }
        }
    };
    let others = begins_when_somebody_waits(&client, "f", &slots[0], lock);
    let (ended, ()) = tokio::join!(all.run(body), others);
    assert!(ended.is_err(), "{ended:?}");
    assert_eq!(*ran.lock().unwrap(), [(slots[0].clone(), 2)]);
    assert_eq!(state_of(&gateway, "f").await.last_slot.as_ref(), Some(&slots[0]));
    let ended = all.run(body).await.unwrap();
    assert!(matches!(&ended, JobEnd::Ran(run, ()) if run.slot == slots[2]), "{ended:?}");
    assert_eq!(ran.lock().unwrap().len(), 4);
}

/// A slot that lies before one that was begun meanwhile would never be called for again if its run failed.
#[tokio::test]
async fn what_others_have_passed_is_not_begun() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let [before, now, later] = slots(&client, [1, 0, 0]).await;
    let later = later.next(LONG).unwrap();
    let all = client.job("j").every(LONG).catch_up(CatchUp::All);
    let due = |slot: &Slot| Due {
        slot: Some(slot.clone()),
        trigger: Trigger::Schedule,
        is_too_late: false,
    };
    all.run(|_| async { Ok::<_, Error>(()) }).await.unwrap();
    let lock = all.lock().unwrap().acquire().await.unwrap();
    let begun = all.begin(&lock, &due(&before), None).await.unwrap();
    let Begun::Instead(first, others) = begun else { panic!("{begun:?}") };
    assert_eq!((&first, others.len()), (&due(&now), 0));
    assert!(matches!(all.begin(&lock, &first, None).await.unwrap(), Begun::Done(_)));
    lock.release().await;

    // The slot of now is run all the same if somebody has named a later one.
    let named = client.job("named").slot(later);
    named.run(|_| async { Ok::<_, Error>(()) }).await.unwrap();
    let all = client.job("named").every(LONG).catch_up(CatchUp::All);
    let ended = all.run(|_| async { Ok::<_, Error>(()) }).await.unwrap();
    assert!(matches!(&ended, JobEnd::Ran(run, ()) if run.slot == now), "{ended:?}");
    let ended = all.run(|_| async { Ok::<_, Error>(()) }).await.unwrap();
    assert!(matches!(ended, JobEnd::Done(_)), "{ended:?}");
}

/// A slot that was claimed is done, whatever became of its run.
#[tokio::test]
async fn what_was_claimed_meanwhile_is_done() {
    let gateway = Dev::start().await;
    let client = gateway.client();
    let [before, now] = slots(&client, [1, 0]).await;
    let claimed = client.job("j").once(OncePolicy::Claimed);
    let all = claimed.clone().every(LONG).catch_up(CatchUp::All);
    let due = all.due().await.unwrap();
    let fails = claimed.slot(before);
    let ended = fails.run(|_| async { Err::<(), Failure>("it failed".into()) }).await;
    assert!(ended.is_err(), "{ended:?}");
    let lock = all.lock().unwrap().acquire().await.unwrap();
    let begun = all.begin(&lock, &due[0], None).await.unwrap();
    assert!(matches!(&begun, Begun::Run(run) if *run.slot() == now), "{begun:?}");
    lock.release().await;
}
