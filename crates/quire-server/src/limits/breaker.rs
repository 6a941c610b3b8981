//! Whether the shared state is worth asking: after a few failures in a row nobody waits for it any more, but
//! for one probe at a time.
//!
//! It counts and keeps time by the clock port alone; it has no timer, no task and no opinion of what is asked.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use quire_core::ports::Clock;

/// Failures in a row after which it opens. One would hand out local budgets for every hiccup of a loaded
/// machine; a few cost a few more waits of the call budget.
pub(super) const FAILURES_TO_OPEN: u32 = 3;
/// Probes begin at least so far apart.
pub(super) const PROBE_EVERY: Duration = Duration::from_millis(100);

/// The breaker. Closed lets everybody ask.
pub(super) struct Breaker {
    clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
enum State {
    Closed {
        /// In a row.
        failures: u32,
    },
    Open {
        probe_from: Duration,
        /// A probe is on its way.
        probing: bool,
    },
}

/// Leave to ask once. Dropped unsettled, as when the client hangs up, it counts as nothing.
pub(super) struct Attempt<'a> {
    breaker: &'a Breaker,
    is_probe: bool,
}

impl Breaker {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, state: Mutex::new(State::Closed { failures: 0 }) }
    }

    /// Leave to ask, if there is any now.
    pub(super) fn attempt(&self) -> Option<Attempt<'_>> {
        let mut state = self.state();
        let is_probe = match &mut *state {
            State::Closed { .. } => false,
            State::Open { probing: true, .. } => return None,
            State::Open { probe_from, probing } => {
                let now = self.clock.monotonic();
                if now < *probe_from {
                    return None;
                }
                *probe_from = now + PROBE_EVERY;
                *probing = true;
                true
            }
        };
        Some(Attempt { breaker: self, is_probe })
    }

    /// Whether nobody but a probe asks. What is no decision is not worth being the probe.
    pub(super) fn is_open(&self) -> bool {
        matches!(*self.state(), State::Open { .. })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Attempt<'_> {
    /// The shared state answered. Whether that closed the breaker.
    pub(super) fn succeeded(self) -> bool {
        let mut state = self.breaker.state();
        let was_open = matches!(*state, State::Open { .. });
        *state = State::Closed { failures: 0 };
        was_open
    }

    /// It did not. Whether that opened the breaker.
    pub(super) fn failed(self) -> bool {
        let mut state = self.breaker.state();
        // What was asked before it opened tells nothing new; a probe's turn ends when it is dropped.
        let State::Closed { failures } = &mut *state else { return false };
        *failures += 1;
        let opens = *failures >= FAILURES_TO_OPEN;
        if opens {
            let probe_from = self.breaker.clock.monotonic() + PROBE_EVERY;
            *state = State::Open { probe_from, probing: false };
        }
        opens
    }
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if self.is_probe
            && let State::Open { probing, .. } = &mut *self.breaker.state()
        {
            *probing = false;
        }
    }
}
