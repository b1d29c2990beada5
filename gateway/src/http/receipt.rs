//! Whether an answer that hands out a lock was written out.
//!
//! The answer carries a [`Receipt`] among its extensions; the connection takes it out. What the two
//! outcomes mean exactly:
//!
//! - *delivered*: hyper has polled the whole body, and after that the stream was flushed, which hyper does only
//!   once its write buffer is empty. So every byte of the answer was taken by the system's socket. That the
//!   body was polled to its end says less: hyper drops it when its last bytes enter that buffer, before the
//!   first attempt to write them, and there they stay while the socket is full. Nobody can know that the caller
//!   has the bytes: the connection may break while they are in the socket or on the way.
//! - *undelivered*: the connection ended before, or the request was dropped. At least one byte of the
//!   answer was never given to the system, so the caller cannot have read it whole.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::engine::{Acquired, Engine};

/// Tells what became of an answer: at the latest, with `undelivered`, when the last copy is dropped.
#[derive(Clone)]
pub struct Receipt(Arc<Slip>);

type Tell = Box<dyn FnOnce(bool) + Send>;

struct Slip(Mutex<Option<Tell>>);

impl Receipt {
    /// A receipt that tells, once, whether the answer was delivered.
    pub fn new(tell: impl FnOnce(bool) + Send + 'static) -> Self {
        Self(Arc::new(Slip(Mutex::new(Some(Box::new(tell))))))
    }

    /// For the answer to a grant. A lock that its caller may have held for long is not to be given back
    /// because one more answer about it got lost: it needs none.
    pub fn of(engine: &Engine, acquired: &Acquired, proposed: bool) -> Option<Self> {
        if acquired.again && proposed {
            return None;
        }
        let (engine, grant) = (engine.clone(), acquired.grant.clone());
        Some(Self::new(move |delivered| {
            if !delivered {
                engine.undelivered(&grant, proposed);
            }
        }))
    }

    /// All bytes of the answer were handed to the system.
    pub fn delivered(self) {
        self.0.tell(true);
    }
}

impl Slip {
    fn tell(&self, delivered: bool) {
        let tell = self.0.lock().take();
        if let Some(tell) = tell {
            tell(delivered);
        }
    }
}

impl Drop for Slip {
    fn drop(&mut self) {
        self.tell(false);
    }
}
