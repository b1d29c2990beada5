//! Ways to break the rules on purpose, so that the tests can show that they would notice. Outside of tests there are none:
//! [`is`] is constantly `false`, and leaves nothing in a binary.

/// A way to break the rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mutant {
    /// What allows wins over what denies.
    DenyLoses,
    /// `job*` is taken, and covers `jobs-secret` as well.
    PrefixWithoutSeparator,
    /// Whoever knows the id of a key is taken for its principal.
    KidOnly,
    /// A token for somebody else is taken.
    AudIgnored,
}

/// Whether this one is switched on.
#[cfg(not(test))]
pub(crate) const fn is(_: Mutant) -> bool {
    false
}

#[cfg(test)]
pub(crate) use on::is;

#[cfg(test)]
mod on {
    use std::cell::Cell;
    use std::panic::catch_unwind;

    use super::Mutant;
    use crate::{jwt, pattern, rules};

    thread_local! {
        static ON: Cell<Option<Mutant>> = const { Cell::new(None) };
    }

    pub(crate) fn is(mutant: Mutant) -> bool {
        ON.get() == Some(mutant)
    }

    /// What the test says with this mutant; none if it passes.
    fn failure(mutant: Mutant, test: fn()) -> Option<String> {
        ON.set(Some(mutant));
        let ended = catch_unwind(test);
        ON.set(None);
        let said = ended.err()?;
        let text = said.downcast_ref::<String>().cloned();
        Some(
            text.or_else(|| said.downcast_ref::<&str>().map(ToString::to_string))
                .unwrap_or_default(),
        )
    }

    #[test]
    fn each_mutant_is_caught() {
        let caught_by: [(Mutant, fn(), &str); 4] = [
            (
                Mutant::DenyLoses,
                rules::tests::nothing_is_allowed_but_what_a_line_allows_and_what_denies_wins,
                "Ok(\"billing\")",
            ),
            (
                Mutant::PrefixWithoutSeparator,
                pattern::tests::what_covers_more_than_it_seems_to_is_refused,
                "job*",
            ),
            (
                Mutant::KidOnly,
                rules::tests::a_key_is_its_principals_until_it_expires_or_is_revoked,
                "WrongSecret",
            ),
            (
                Mutant::AudIgnored,
                jwt::tests::whose_it_is_and_until_when_must_be_said_and_once,
                "Issuer",
            ),
        ];
        for (mutant, test, says) in caught_by {
            let told = failure(mutant, test).unwrap_or_else(|| panic!("{mutant:?} is not caught"));
            assert!(told.contains(says), "{mutant:?}: {told}");
            test();
        }
    }
}
