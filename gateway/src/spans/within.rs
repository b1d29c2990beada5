//! Which span a piece of code runs under. Each future knows its own, and says so for as long as it is polled.

use std::cell::Cell;
use std::pin::Pin;
use std::task::{Context, Poll};

use pin_project_lite::pin_project;

use super::{Place, with};

thread_local! {
    static CURRENT: Cell<Option<Place>> = const { Cell::new(None) };
}

/// The span that this runs under.
pub fn current() -> Option<Place> {
    if with::is_on() { CURRENT.get() } else { None }
}

/// A future that runs under a span.
pub fn within<F: Future>(place: Option<Place>, future: F) -> Within<F> {
    Within { place, future }
}

pin_project! {
    /// A future that runs under a span, or under the one of whoever waits for it.
    pub struct Within<F> {
        place: Option<Place>,
        #[pin]
        future: F,
    }
}

impl<F: Future> Future for Within<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let _back = this.place.map(|place| Back(CURRENT.replace(Some(place))));
        this.future.poll(context)
    }
}

/// Puts the place back that was there before, also after a panic.
struct Back(Option<Place>);

impl Drop for Back {
    fn drop(&mut self) {
        CURRENT.set(self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::panic::AssertUnwindSafe;

    use futures::FutureExt as _;

    use super::*;

    fn place(span: u8) -> Option<Place> {
        Some(Place::new([1; 16], [span; 8], true))
    }

    async fn seen() -> Option<Place> {
        CURRENT.get()
    }

    #[tokio::test]
    async fn each_future_runs_under_its_own() {
        let inner = async {
            let before = seen().await;
            let within = within(place(2), seen()).await;
            tokio::task::yield_now().await;
            (before, within, seen().await)
        };
        let other = within(place(3), async {
            tokio::task::yield_now().await;
            seen().await
        });
        let (first, second) = futures::join!(within(place(1), inner), other);
        assert_eq!((first, second), ((place(1), place(2), place(1)), place(3)));
        // Without one it is that of whoever waits.
        assert_eq!(within(place(1), within(None, seen())).await, place(1));
        let panics = AssertUnwindSafe(within(place(1), async { panic!("on purpose") }));
        assert!(panics.catch_unwind().await.is_err());
        assert_eq!(seen().await, None);
    }
}
