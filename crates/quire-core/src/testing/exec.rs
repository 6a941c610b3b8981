//! Polls futures by hand: no runtime, no timers, and a future that waits for ever is seen to do so.

use std::{
    future::Future,
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

struct WokenFlag(AtomicBool);

impl Wake for WokenFlag {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Polls until the future is done or waits for something nobody will do: then `None`.
#[must_use]
pub fn run_until_stuck<F: Future>(mut future: Pin<&mut F>) -> Option<F::Output> {
    let woken = Arc::new(WokenFlag(AtomicBool::new(true)));
    let waker = Waker::from(Arc::clone(&woken));
    let mut context = Context::from_waker(&waker);
    while woken.0.swap(false, Ordering::SeqCst) {
        if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
            return Some(output);
        }
    }
    None
}

/// As [`run_until_stuck`], for a future that is dropped when it is stuck, as a killed process drops it.
pub fn run_or_drop<F: Future>(future: F) -> Option<F::Output> {
    run_until_stuck(pin!(future))
}
