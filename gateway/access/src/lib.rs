//! Who may do what: principals, what identifies them, and the rules that say what each of them may do. Decided from
//! what it is given; nothing here does I/O, and no decision about a fence reads a clock (I14).
//!
//! A request has one identity ([`Identity`]). The rules that are in force ([`Rules`]) make of it a [`Caller`], once for
//! each connection or credential; and each call is then one question to that caller ([`Caller::may`]).

pub mod action;
pub mod caller;
pub mod identity;
pub mod jwt;
pub mod key;
mod mutants;
pub mod pattern;
pub mod quotas;
pub mod rules;

pub use action::{Action, Actions};
pub use caller::{Allowed, Caller, Denied, LockTerms};
pub use fencegate_wire::PrincipalName;
pub use identity::{Identity, Unauthenticated};
pub use key::{ApiKey, KeyDigest};
pub use pattern::Pattern;
pub use quotas::{Quota, Quotas};
pub use rules::{Issuer, Limits, Rules, RulesError};
