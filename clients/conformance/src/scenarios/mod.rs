//! The scenarios, by chapters of the rules.

mod acquire;
mod attempts;
mod commits;
mod feed;
mod gateways;
mod giving_up;
mod handing_over;
mod holding;
mod leaving;
mod losing;
mod numbers;
mod open_attempts;
mod opening;
mod reading;
mod refusals;
mod renewing;
mod resolving;
mod s3;
mod together;
mod transport;
mod unknown;
mod updates;
mod uploads;
mod waiting;
mod waits;
mod watching;
mod writes;

use anyhow::Result;
use futures::future::BoxFuture;

use crate::script::Script;

/// How a scenario is played.
pub type Play = for<'a> fn(&'a mut Script) -> BoxFuture<'a, Result<()>>;

/// A scenario.
#[derive(Clone, Copy)]
pub struct Scenario {
    /// Its name.
    pub id: &'static str,
    /// The rules it is about: 14 is CC14.
    pub rules: &'static [u16],
    /// What must hold.
    pub why: &'static str,
    /// The features that a driver needs for it.
    pub needs: &'static [&'static str],
    /// How many gateways there are.
    pub gateways: usize,
    /// What is set in the driver's environment.
    pub environment: &'static [(&'static str, &'static str)],
    /// How it is played.
    pub play: Play,
}

impl Scenario {
    const fn new(id: &'static str, rules: &'static [u16], why: &'static str, play: Play) -> Self {
        Self { id, rules, why, needs: &[], gateways: 1, environment: &[], play }
    }

    const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn gateways(self, gateways: usize) -> Self {
        Self { gateways, ..self }
    }

    const fn environment(self, environment: &'static [(&'static str, &'static str)]) -> Self {
        Self { environment, ..self }
    }
}

/// All scenarios, in the order of the chapters.
pub fn all() -> Vec<Scenario> {
    [
        acquire::ALL,
        waiting::ALL,
        waits::ALL,
        giving_up::ALL,
        renewing::ALL,
        s3::ALL,
        together::ALL,
        losing::ALL,
        watching::ALL,
        writes::ALL,
        attempts::ALL,
        uploads::ALL,
        open_attempts::ALL,
        opening::ALL,
        unknown::ALL,
        resolving::ALL,
        numbers::ALL,
        commits::ALL,
        updates::ALL,
        leaving::ALL,
        reading::ALL,
        feed::ALL,
        holding::ALL,
        handing_over::ALL,
        refusals::ALL,
        transport::ALL,
        gateways::ALL,
    ]
    .concat()
}

/// A scenario from its name, its rules, what must hold, and the function that plays it.
macro_rules! scenario {
    ($id:literal, $rules:expr, $why:literal, $play:path) => {
        $crate::scenarios::Scenario::new($id, &$rules, $why, |script| Box::pin($play(script)))
    };
}
use scenario;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_rules_exist() {
        let all = super::all();
        let names: HashSet<_> = all.iter().map(|scenario| scenario.id).collect();
        assert_eq!(names.len(), all.len());
        for scenario in all {
            assert!(!scenario.rules.is_empty(), "{}", scenario.id);
            assert!(scenario.rules.iter().all(|rule| (1..=60).contains(rule)), "{}", scenario.id);
        }
    }
}
