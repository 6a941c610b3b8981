//! Which call goes wrong, and how. The fault model is stated in the parent module.

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Waker},
};

/// Every call of every port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Call {
    /// `Rows::now`
    RowsNow,
    /// `Rows::insert`
    RowsInsert,
    /// `Rows::find`
    RowsFind,
    /// `Rows::find_in_store`
    RowsFindInStore,
    /// `Rows::remove`
    RowsRemove,
    /// `Bodies::put`
    BodiesPut,
    /// `Bodies::get`
    BodiesGet,
    /// `Bodies::remove`
    BodiesRemove,
    /// `Entropy::fill`
    EntropyFill,
}

/// What goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// Nothing happens; `Unavailable`.
    Refused,
    /// Nothing happens; `Overloaded`.
    Full,
    /// Nothing happens until the gate opens.
    Slow(Gate),
    /// `UnknownOutcome`, whether or not it happened.
    AnswerLost {
        /// Whether it happened.
        done: bool,
    },
    /// The call never returns.
    ProcessGone {
        /// Whether the effect happened before the process was gone.
        done: bool,
    },
}

/// Something a test opens once.
#[derive(Clone, Debug, Default)]
pub struct Gate(Arc<Mutex<GateState>>);

#[derive(Debug, Default)]
struct GateState {
    open: bool,
    waiting: Vec<Waker>,
}

impl Gate {
    /// Lets everybody through, now and later.
    pub fn open(&self) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.open = true;
        state.waiting.drain(..).for_each(Waker::wake);
    }

    /// Waits until it is open.
    #[must_use]
    pub fn passed(&self) -> Passed {
        Passed(self.clone())
    }
}

/// Completes when its gate is open.
#[derive(Debug)]
pub struct Passed(Gate);

impl Future for Passed {
    type Output = ();

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.0.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.open {
            return Poll::Ready(());
        }
        state.waiting.push(context.waker().clone());
        Poll::Pending
    }
}

/// The script of one test: which calls were made, and which of them go wrong.
#[derive(Debug, Default)]
pub struct Script {
    made: Mutex<Vec<Call>>,
    planned: Mutex<Vec<(usize, Fault)>>,
}

impl Script {
    /// The `index`th call from now on, counted from zero over all ports, goes wrong like this.
    pub fn fail_at(&self, index: usize, fault: Fault) {
        let from_now = self.made.lock().unwrap_or_else(PoisonError::into_inner).len();
        self.planned.lock().unwrap_or_else(PoisonError::into_inner).push((from_now + index, fault));
    }

    /// Every call so far, in order.
    #[must_use]
    pub fn made(&self) -> Vec<Call> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a call; says what goes wrong with it.
    pub(super) fn meet(&self, call: Call) -> Option<Fault> {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        let index = made.len();
        made.push(call);
        let planned = self.planned.lock().unwrap_or_else(PoisonError::into_inner);
        planned.iter().find(|(at, _)| *at == index).map(|(_, fault)| fault.clone())
    }
}
