//! Deliberately wrong clients. Each is a hunk in the patches of `../wrong`, which `wrong-driver` has in it, and is on
//! if that driver was started with `FENCE_TEST_CLIENT_MUTANT` set to its name. A scenario that catches none proves nothing, and a
//! wrong client that none catches is a hole.

mod client;
mod locks;
mod others;
mod writes;

/// A deliberately wrong client.
#[derive(Debug, Clone, Copy)]
pub struct Mutant {
    /// Its name.
    pub name: &'static str,
    /// What it does wrong.
    pub does: &'static str,
    /// Scenarios that catch it, of those that may be more.
    pub caught_by: &'static [&'static str],
}

const fn mutant(
    name: &'static str,
    does: &'static str,
    caught_by: &'static [&'static str],
) -> Mutant {
    Mutant { name, does, caught_by }
}

/// All of them, by the rules that they break.
pub fn all() -> Vec<Mutant> {
    [client::ALL, locks::ALL, writes::ALL, others::ALL].concat()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    #[test]
    fn names_are_distinct_and_scenarios_exist() {
        let all = super::all();
        let names: HashSet<_> = all.iter().map(|mutant| mutant.name).collect();
        assert_eq!(names.len(), all.len());
        assert!(all.iter().all(|mutant| !mutant.caught_by.is_empty()));
        let scenarios = crate::scenarios::all();
        let scenarios: HashSet<_> = scenarios.iter().map(|scenario| scenario.id).collect();
        let named: HashSet<_> = all.iter().flat_map(|mutant| mutant.caught_by).copied().collect();
        assert_eq!(named, scenarios, "each scenario catches one, and nothing else is named");
    }
}
