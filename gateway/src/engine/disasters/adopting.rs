//! The adoption: takes a ledger over to a new timeline that is proven to have lost nothing, and voids no token.
//!
//! Only where the operators have declared that a failover of Postgres loses no commit (`failover = lossless`):
//! commits wait for a synchronous standby, and only such a standby is promoted, or the same disk is started again.
//! This module proves that nothing known speaks against the declaration; see `docs/safety.md`.

use std::sync::Arc;

use fence_core::ports::{Adopted, Adoption, Head, Ledger, Mint, Place};

use crate::engine::agreement::{FAILOVER, LOSSLESS};
use crate::engine::{EngineError, metrics};

/// Whether an adoption is what is to be tried for a ledger that stands here, before a re-fence.
pub(super) fn may_be_adopted(place: &Place) -> bool {
    place.called_for.is_some()
        && place.timeline != place.known_timeline
        && place.agreed.get(FAILOVER).is_some_and(|value| value == LOSSLESS)
}

/// Adopts the ledger's new timeline, if it is proven that it lost nothing.
///
/// 1. Where the ledger stands, and then the mint's head: a witness that was read before could be of an earlier line,
///    should somebody else adopt or re-fence meanwhile. Without the mint nothing is decided: it is asked again.
/// 2. What speaks against it already, of what the mint says ([`proof`]).
/// 3. One act on the ledger, if it still stands there: it compares where the timeline before ended with the witness
///    and with what this gateway has seen. Of several gateways that come at once, one adopts; if somebody re-fences
///    first, there is nothing to adopt.
///
/// `Done`: every token is as good as before. `Moved`: look again. `Unproven`: nothing has changed, and what is left is a
/// re-fence.
pub(super) async fn adopt(
    ledger: &Arc<dyn Ledger>,
    mint: &Arc<dyn Mint>,
) -> Result<Adopted, EngineError> {
    let place = ledger.place(None).await?;
    if !may_be_adopted(&place) {
        return Ok(Adopted::Moved);
    }
    let head = mint.head().await?;
    head.check_owner(place.epoch.ledger)?;
    let adoption = match proof(&head, &place) {
        Ok(adoption) => adoption,
        Err(why) => return Ok(Adopted::Unproven(why)),
    };
    let adopted = ledger.adopt(&adoption).await?;
    if adopted == Adopted::Done {
        ::metrics::counter!(metrics::ADOPTIONS).increment(1);
        tracing::warn!(
            former = adoption.former,
            timeline = adoption.timeline,
            witnessed = adoption.witnessed,
            "the ledger is on a new timeline that has lost nothing known: it was adopted, no token is void"
        );
    }
    Ok(adopted)
}

/// What the mint says for an adoption.
///
/// # Errors
/// Why it says too little: its witness is of something else, or may be old.
fn proof(head: &Head, place: &Place) -> Result<Adoption, String> {
    if head.ledger != Some(place.epoch.ledger)
        || head.incarnation != Some(place.epoch.nonce)
        || !place.epoch.open
        || place.epoch.base.saturating_add(head.number) < place.highest
    {
        return Err(
            "the mint has lost its place, and may have forgotten how far the ledger was".into()
        );
    }
    let Some(witness) = &head.witness else {
        return Err("the mint does not know how far the ledger was".into());
    };
    if witness.line() != place.line()
        || witness.system_id != place.system_id
        || witness.timeline != place.known_timeline
    {
        return Err(format!(
            "the mint has seen the ledger in {} on system {} and timeline {}, not in {} on system {} and timeline {}",
            witness.line(),
            witness.system_id,
            witness.timeline,
            place.line(),
            place.system_id,
            place.known_timeline
        ));
    }
    let Some(milestone) = witness.milestone else {
        return Err("the mint knows no milestone of the ledger".into());
    };
    Ok(Adoption {
        milestone,
        line: place.line(),
        system_id: place.system_id,
        former: place.known_timeline.clone(),
        timeline: place.timeline.clone(),
        witnessed: witness.flushed,
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use fence_core::ports::{Epoch, Milestone, Witness};
    use uuid::Uuid;

    use super::*;

    fn place() -> Place {
        let (nonce, ledger) = (Uuid::from_u128(1), Uuid::from_u128(2));
        Place {
            epoch: Epoch { number: 1, nonce, base: 0, open: true, ledger },
            generation: 3,
            adoptions: 1,
            adopted_at: 50,
            floor: 0,
            highest: 900,
            system_id: 7,
            timeline: "00000003".into(),
            known_timeline: "00000002".into(),
            inserted: 5000,
            flushed: 5000,
            started_us: 1,
            restarted: true,
            has_milestone: None,
            called_for: Some("it was promoted".into()),
            agreed: BTreeMap::from([("failover".to_owned(), "lossless".to_owned())]),
        }
    }

    fn head() -> Head {
        let witness = Witness {
            generation: 3,
            adoptions: 1,
            base: 0,
            system_id: 7,
            timeline: "00000002".into(),
            flushed: 4000,
            format: Witness::FORMAT,
            ledger: Uuid::from_u128(2),
            milestone: Some(Milestone { number: 7, id: Uuid::from_u128(3) }),
        };
        Head {
            number: 900,
            incarnation: Some(Uuid::from_u128(1)),
            ledger: Some(Uuid::from_u128(2)),
            witness: Some(witness),
            witness_revision: 1,
        }
    }

    #[test]
    fn a_witness_of_anything_else_is_no_proof() {
        assert_eq!(proof(&head(), &place()).map(|proof| proof.witnessed), Ok(4000));
        type Change = fn(&mut Head, &mut Place);
        let changes: [(&str, Change); 10] = [
            ("no witness", |head, _| head.witness = None),
            ("no milestone", |head, _| head.witness.as_mut().unwrap().milestone = None),
            ("numbers gone back", |head, _| head.number = 899),
            ("another mint", |head, _| head.incarnation = None),
            ("not this ledger's", |head, _| head.ledger = None),
            ("an epoch that is not open", |_, place| place.epoch.open = false),
            ("another generation", |_, place| place.generation = 2),
            ("another adoption", |_, place| place.adoptions = 0),
            ("another system", |_, place| place.system_id = 8),
            ("another timeline", |_, place| place.known_timeline = "00000001".into()),
        ];
        for (what, change) in changes {
            let (mut head, mut place) = (head(), place());
            change(&mut head, &mut place);
            assert!(proof(&head, &place).is_err(), "{what}");
        }
    }
}
