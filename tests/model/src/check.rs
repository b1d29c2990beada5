//! Runs a model to its end, or a mutant until it is caught, and says what came of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::hash::Hash;
use std::time::Duration;

use stateright::report::{ReportData, ReportDiscovery, Reporter};
use stateright::{Checker as _, Expectation, HasDiscoveries, Model, Property};

/// The checker's threads.
const THREADS: usize = 2;

/// How far a run has come.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// Steps that were taken.
    pub states: usize,
    /// Different states that they led to.
    pub unique: usize,
    /// The longest run looked at, in steps.
    pub depth: usize,
    /// For how long.
    pub took: Duration,
}

/// What came of a run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Report {
    /// How far it went.
    pub progress: Progress,
    /// Invariants that do not hold, each with the steps that lead there.
    pub broken: BTreeMap<&'static str, Vec<String>>,
    /// Situations that were not reached.
    pub missed: BTreeSet<&'static str>,
    /// How many situations were.
    pub reached: usize,
}

struct Watcher<'a> {
    report: Report,
    tell: &'a mut (dyn FnMut(Progress) + Send),
}

impl<M: Model> Reporter<M> for Watcher<'_> {
    fn report_checking(&mut self, data: ReportData) {
        let ReportData { total_states, unique_states, max_depth, duration, .. } = data;
        self.report.progress = Progress {
            states: total_states,
            unique: unique_states,
            depth: max_depth,
            took: duration,
        };
        (self.tell)(self.report.progress);
    }

    fn report_discoveries(
        &mut self,
        model: &M,
        mut found: BTreeMap<&'static str, ReportDiscovery<M>>,
    ) where
        M::Action: Debug + PartialEq,
        M::State: Debug + Hash + PartialEq,
    {
        for property in model.properties() {
            let path = found.remove(property.name).map(|found| found.path);
            match (property.expectation, path) {
                (Expectation::Always, Some(path)) => {
                    let steps = path.into_actions();
                    let steps = steps.iter().map(|action| model.format_action(action)).collect();
                    self.report.broken.insert(property.name, steps);
                }
                (Expectation::Sometimes, Some(_)) => self.report.reached += 1,
                (Expectation::Sometimes, None) => {
                    self.report.missed.insert(property.name);
                }
                _ => {}
            }
        }
    }

    fn delay(&self) -> Duration {
        Duration::from_millis(100)
    }
}

/// A situation that is worth reaching: its name, and whether a state is one.
pub type Situation<M> = (&'static str, fn(&M, &<M as Model>::State) -> bool);

/// Invariants, and those of all situations that are wanted.
pub fn properties<M: Model>(
    mut invariants: Vec<Property<M>>,
    situations: &[Situation<M>],
    wanted: &[&'static str],
) -> Vec<Property<M>> {
    let wanted = situations.iter().filter(|(name, _)| wanted.contains(name));
    invariants.extend(wanted.map(|(name, reached)| Property::sometimes(name, *reached)));
    invariants
}

/// What must hold in every state of a model.
pub fn invariants<M: Model>(model: &M) -> Vec<&'static str> {
    let properties = model.properties().into_iter();
    let always = properties.filter(|property| property.expectation == Expectation::Always);
    always.map(|property| property.name).collect()
}

/// Looks at every state of a model, or, with `until`, goes on only until that invariant is broken.
pub fn check<M>(
    model: M,
    until: Option<&'static str>,
    tell: &mut (dyn FnMut(Progress) + Send),
) -> Report
where
    M: Model + Send + Sync + 'static,
    M::State: Clone + Debug + Hash + PartialEq + Send + Sync,
    M::Action: Clone + Debug + PartialEq + Send + Sync,
{
    let mut watcher = Watcher { report: Report::default(), tell };
    let checker = model.checker().threads(THREADS);
    let checker = match until {
        Some(invariant) => checker.finish_when(HasDiscoveries::AnyOf(BTreeSet::from([invariant]))),
        None => checker,
    };
    checker.spawn_bfs().join_and_report(&mut watcher);
    watcher.report
}
