//! The script of one act: what each of its calls comes to.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};

use fence_core::ports::{LedgerError, Patience};
use futures::future::{BoxFuture, FutureExt as _};

use super::Answer;

/// What one call of an act comes to.
pub struct Step<V> {
    before: BoxFuture<'static, ()>,
    deed: Deed<V>,
    between: BoxFuture<'static, ()>,
}

enum Deed<V> {
    Act,
    ActBut(LedgerError),
    Fail(LedgerError),
    Each(Vec<Option<V>>),
}

impl<V> Step<V> {
    fn new(deed: Deed<V>) -> Self {
        let nothing = || futures::future::ready(()).boxed();
        Self { before: nothing(), deed, between: nothing() }
    }

    /// The ledger acts and answers.
    pub fn act() -> Self {
        Self::new(Deed::Act)
    }

    /// The ledger acts, but this is what comes back.
    pub fn act_but(error: LedgerError) -> Self {
        Self::new(Deed::ActBut(error))
    }

    /// The ledger does not act; this comes back.
    pub fn fail(error: LedgerError) -> Self {
        Self::new(Deed::Fail(error))
    }

    /// A verdict for each item; on those without one the ledger acts.
    pub fn each(verdicts: Vec<Option<V>>) -> Self {
        Self::new(Deed::Each(verdicts))
    }

    /// Only once this has happened.
    pub fn after(self, event: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { before: event.boxed(), ..self }
    }

    /// After the act, and before anything comes back, this happens.
    pub fn and_then(self, event: impl Future<Output = ()> + Send + 'static) -> Self {
        Self { between: event.boxed(), ..self }
    }
}

/// The answer to a call was lost.
pub fn lost() -> LedgerError {
    LedgerError::Unknown("the connection was cut".into())
}

/// A call was rolled back.
pub fn rolled_back() -> LedgerError {
    LedgerError::Unavailable("canceling statement due to statement timeout".into())
}

type Hook<I, V> = Box<dyn FnMut(&[I], Patience) -> Step<V> + Send>;

/// What a test says about one act.
pub(super) struct Script<I, V>(Mutex<Option<Hook<I, V>>>);

impl<I, V> Default for Script<I, V> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<I: Clone, V> Script<I, V> {
    pub(super) fn set(&self, hook: impl FnMut(&[I], Patience) -> Step<V> + Send + 'static) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(Box::new(hook));
    }

    fn step(&self, items: &[I], patience: Patience) -> Step<V> {
        let mut hook = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        hook.as_mut().map_or_else(Step::act, |hook| hook(items, patience))
    }

    pub(super) async fn run<F: Future<Output = Answer<V>>>(
        &self,
        items: Arc<[I]>,
        patience: Patience,
        act: impl FnOnce(Arc<[I]>) -> F,
    ) -> Answer<V> {
        let step = self.step(&items, patience);
        step.before.await;
        let answer = match step.deed {
            Deed::Act => act(items).await,
            Deed::ActBut(error) => act(items).await.and(Err(error)),
            Deed::Fail(error) => Err(error),
            Deed::Each(given) => {
                let undecided = items.iter().zip(&given).filter(|(_, given)| given.is_none());
                let own = act(undecided.map(|(item, _)| item.clone()).collect()).await?;
                let mut own = own.into_iter();
                Ok(given.into_iter().filter_map(|given| given.or_else(|| own.next())).collect())
            }
        };
        step.between.await;
        answer
    }
}
