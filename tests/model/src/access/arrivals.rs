//! What arrives at the ledger, what the ledger says, and what gateways make of it.

use fence_core::acts::{self, Rows};
use fence_core::ports::{
    By, Effect as Change, Payload, ReleaseItem, ReleaseVerdict, RenewItem, RenewVerdict, SealItem,
    SealKind, SealVerdict, WriteItem, WriteVerdict,
};
use fence_core::{ErrorCode, LockEnd, PrincipalName, Token, WriterName};

use super::steps::send;
use super::{Access, Act, Effect, Event, Fate, Lock, Message, Request, Rules, State, Writers};
use crate::ledger::{self, lock_id, now, operation_id, owner, resource, seal_item};
use crate::locks::Sending;
use crate::mutants::Mutant;

/// The role by which writers are named.
const ROLE: &str = "r";

/// What the ledger says to a request.
enum Answer {
    /// It took effect now.
    Done,
    /// It took effect earlier.
    Found,
    /// It changes nothing, and may be asked for again.
    NotNow,
    /// It never will have an effect.
    Never,
    /// Refused.
    No(ErrorCode),
    /// Nothing was decided: the rules have moved.
    Moved,
}

fn principal(number: u8) -> PrincipalName {
    PrincipalName::new(&owner(number)).unwrap_or_else(|error| unreachable!("{error}"))
}

fn writers(lock: &Lock) -> Vec<WriterName> {
    let name = match lock.writers {
        Writers::None => return Vec::new(),
        Writers::Named(writer) => owner(writer),
        Writers::InRole => format!("role:{ROLE}"),
    };
    vec![WriterName::new(&name).unwrap_or_else(|error| unreachable!("{error}"))]
}

impl Access {
    /// A request arrives at the ledger.
    pub(super) fn arrive(&self, state: &mut State, message: Message) -> Option<()> {
        let (number, allowed, sending) = message;
        let in_force = state.in_force;
        if allowed.number > in_force.number {
            state.last = Some(Event::CameFromTheFuture);
        }
        let was_held = state.ledger.is_held(0);
        let answer = match self.request(number).act {
            Act::Seal(lock) | Act::Reenter(lock) => self.seal(state, message, lock),
            Act::Write(lock) => self.write(state, message, lock)?,
            Act::Renew(lock) => self.renew(state, message, lock),
            Act::Release(lock) => self.release(state, message, lock),
        };
        let revived = !was_held && state.ledger.is_held(0);
        if matches!(answer, Answer::Done) || revived {
            state.effect = Some(Effect { request: number, allowed, in_force });
            state.done |= 1 << number;
        }
        if state.fates[usize::from(number)] == Fate::Asked(allowed, sending) {
            self.answered(state, message, &answer);
        }
        Some(())
    }

    /// The gateway gets its answer.
    fn answered(&self, state: &mut State, message: Message, answer: &Answer) {
        let (number, allowed, sending) = message;
        let lost = sending != Sending::First;
        let fate = match answer {
            Answer::Done | Answer::Found => {
                if let Act::Seal(lock) = self.request(number).act {
                    let row = state.ledger.rows().locks.get(&lock_id(lock));
                    state.tokens[usize::from(lock)] = row.map(|row| row.token.get());
                }
                if lost && allowed.generation != state.in_force.generation {
                    state.last = Some(Event::FoundSinceMoved);
                }
                Fate::Applied
            }
            Answer::NotNow if !lost => Fate::Unsent,
            Answer::NotNow | Answer::Never => Fate::Buried,
            Answer::No(code) => Fate::Refused(*code),
            // What was sent before may have had its effect.
            Answer::Moved if lost && !self.is(Mutant::LostIsDenied) => {
                send(state, number, allowed, Sending::Bury);
                return;
            }
            Answer::Moved => Fate::Moved(allowed),
        };
        state.fates[usize::from(number)] = fate;
    }

    /// Who asks, and under which rules that was allowed.
    fn by(&self, number: u8, rules: &Rules) -> By {
        let by = self.request(number).by;
        let roles = match rules.says.in_role == Some(by) {
            true => vec![ROLE.into()],
            false => Vec::new(),
        };
        let rules = (!self.is(Mutant::StaleRulesAdmitted)).then_some(rules.generation);
        By::of(principal(by), roles).under(rules)
    }

    /// A lock is asked for, for the first time or once more under its id.
    fn seal(&self, state: &mut State, message: Message, lock: u8) -> Answer {
        let (number, rules, sending) = message;
        let Request { by, act, .. } = *self.request(number);
        let Lock { principal: whose, from, .. } = *self.lock(lock);
        let again = matches!(act, Act::Reenter(_));
        let rises = state.ledger.fence(0).max(state.ledger.rows().guard.floor) + 1;
        let mint = rises - state.ledger.rows().guard.base;
        let base = seal_item(lock_id(lock), whose, &[0], (!again).then_some(mint));
        let item = SealItem {
            attempt: sending.attempt(),
            kind: match from {
                Some(from) => SealKind::Transfer { from: lock_id(from) },
                None => SealKind::Lock,
            },
            // A re-entry asks for a lock of one's own; only a transfer is on behalf of somebody else.
            principal: Some(principal(if again { by } else { whose })),
            writers: writers(self.lock(lock)),
            by: self.by(number, &rules),
            ..base
        };
        match state.ledger.act(|rows| acts::seal(rows, &item, now(0))) {
            SealVerdict::Sealed(..) => Answer::Done,
            SealVerdict::Again(_) if again => Answer::Done,
            SealVerdict::Again(_) => Answer::Found,
            SealVerdict::RulesMoved => Answer::Moved,
            SealVerdict::Conflict => Answer::No(ErrorCode::LockIdConflict),
            SealVerdict::NotFound => Answer::No(ErrorCode::LockNotFound),
            // Sealed earlier, and over since.
            SealVerdict::Ended(_) if state.done >> number & 1 == 1 => Answer::Found,
            SealVerdict::Ended(how) if again || from.is_some() => Answer::No(ended(how)),
            SealVerdict::Ended(_) => Answer::Never,
            _ => Answer::NotNow,
        }
    }

    fn write(&self, state: &mut State, message: Message, lock: u8) -> Option<Answer> {
        let (number, rules, sending) = message;
        let mut by = self.by(number, &rules);
        if self.is(Mutant::NoPrincipal) {
            by = By::of(principal(self.lock(lock).principal), []).under(by.rules);
        }
        let item = WriteItem {
            operation: operation_id(number),
            resource: resource(0),
            token: Token::new(state.tokens[usize::from(lock)]?)?,
            lock: Some(lock_id(lock)),
            sequence: None,
            idempotency: None,
            object_condition: None,
            resource_version: None,
            effect: Change::Put {
                key: ledger::object(),
                content_type: String::new(),
                payload: Payload::NONE,
                size: 0,
                sha256: [0; 32],
                about: None,
                parts: None,
            },
            attempt: sending.attempt(),
            taken_at: jiff::Timestamp::UNIX_EPOCH,
            by,
        };
        let before = state.ledger.version(0);
        Some(match state.ledger.act(|rows| acts::commit(rows, &item, now(0))) {
            WriteVerdict::Applied { .. } if state.ledger.version(0) > before => Answer::Done,
            WriteVerdict::Applied { .. } => Answer::Found,
            WriteVerdict::Refused(refusal) => Answer::No(refusal.code()),
            WriteVerdict::RulesMoved => Answer::Moved,
            _ => Answer::Never,
        })
    }

    fn renew(&self, state: &mut State, message: Message, lock: u8) -> Answer {
        let (number, rules, _) = message;
        let mut by = self.by(number, &rules);
        let verdict = state.ledger.act(|rows: &mut Rows| {
            if let Some(row) = rows.locks.get(&lock_id(lock))
                && self.is(Mutant::WritersMayRenew)
                && by.is_it_or_writer(row.principal.as_ref(), &row.writers)
            {
                by = By::gateway_for(row.principal.clone()).under(by.rules);
            }
            acts::renew(rows, &RenewItem { lock: lock_id(lock), ttl: None, by }, now(0))
        });
        match verdict {
            RenewVerdict::Renewed { .. } => Answer::Done,
            RenewVerdict::RulesMoved => Answer::Moved,
            RenewVerdict::Ended(how) => Answer::No(ended(how)),
            _ => Answer::No(ErrorCode::LockNotFound),
        }
    }

    fn release(&self, state: &mut State, message: Message, lock: u8) -> Answer {
        let (number, rules, _) = message;
        let by = self.by(number, &rules);
        let item = ReleaseItem { by, ..ReleaseItem::from(lock_id(lock)) };
        match state.ledger.act(|rows| acts::release(rows, &item, now(0))) {
            ReleaseVerdict::Released { .. } => Answer::Done,
            ReleaseVerdict::RulesMoved => Answer::Moved,
            ReleaseVerdict::NotFound => Answer::No(ErrorCode::LockNotFound),
            _ => Answer::No(ErrorCode::LockReleased),
        }
    }
}

/// How the end of a lock is told.
fn ended(how: LockEnd) -> ErrorCode {
    match how {
        LockEnd::Released => ErrorCode::LockReleased,
        _ => ErrorCode::LockNotFound,
    }
}
