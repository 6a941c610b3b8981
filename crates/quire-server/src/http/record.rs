//! The record of one connection: what it is doing, since when, and what it holds.
//!
//! Promises: a request counts as in flight until its answer has left; who must not wait is told from the
//! record alone. Its lock is held for a few instructions and never across an await. It must never look at
//! what the bytes mean, except through [`inbound`](super::inbound) and
//! [`parser_refusal`](super::parser_refusal).

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use tokio::time::Instant;

use super::{
    bounds::Bounds,
    guard::{InFlight, Share},
    inbound::Inbound,
    parser_refusal::instead_of_parser,
};

/// How long answers may be stuck before their connection may have to make room for somebody else's: longer
/// than a round trip, so that nobody loses a connection that merely waits for the network.
const STUCK_AFTER: Duration = Duration::from_secs(1);

/// What a connection is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// A head is awaited for the first time, or has begun.
    Head,
    /// Between an answer and the next head.
    Idle,
    /// A handler is at work.
    Busy,
    /// The handler is done and its answer is being written.
    Answering,
}

/// What the listener wants of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Finish the request in flight, if any, then close.
    Finish,
    /// Close at once.
    Close,
}

/// What hyper is about to write.
pub(super) enum Writing {
    /// An answer of ours, or one of its own that stands.
    AsItIs,
    /// An answer of its own, for which these bytes go out.
    Instead(Bytes),
}

/// What a request holds until its answer has left.
pub(super) struct Held {
    /// Its place.
    pub(super) _in_flight: InFlight,
    /// The room of its answer, if that is large.
    pub(super) _answer: Option<Share>,
}

/// The record of one connection, shared by its stream, its handlers, its watchdog and the listener. The lock
/// is held for a few instructions and is contended only when the listener gives an order.
pub(super) struct Connection {
    state: Mutex<State>,
}

struct State {
    phase: Phase,
    /// When the phase began.
    since: Instant,
    /// Since when the peer has not taken a byte.
    write_blocked_since: Option<Instant>,
    /// Since when there is an answer that has not left.
    unsent_since: Option<Instant>,
    inbound: Inbound,
    held: Option<Held>,
    /// Whether the peer may still be sending what nobody will read.
    input_left: bool,
    peer_closed: bool,
    order: Option<Order>,
    /// Whom to wake for an order.
    waker: Option<Waker>,
}

impl Connection {
    /// A connection that was accepted just now.
    pub(super) fn new() -> Arc<Self> {
        let state = State {
            phase: Phase::Head,
            since: Instant::now(),
            write_blocked_since: None,
            unsent_since: None,
            inbound: Inbound::default(),
            held: None,
            input_left: false,
            peer_closed: false,
            order: None,
            waker: None,
        };
        Arc::new(Self { state: Mutex::new(state) })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many bytes may be read at once, so that none is missed.
    pub(super) fn read_bytes_max(&self) -> usize {
        self.state().inbound.room_bytes()
    }

    /// Bytes came.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        if state.phase == Phase::Idle {
            state.phase = Phase::Head;
            state.since = Instant::now();
        }
        state.inbound.received(bytes);
    }

    /// No more bytes will come.
    pub(super) fn peer_closed(&self) {
        self.state().peer_closed = true;
    }

    /// A head was read and its handler begins; a body of so many bytes follows, or of nobody knows how many.
    /// Says whether the request's target has a `#`, which the parsed URI no longer shows and which makes a
    /// path malformed.
    pub(super) fn request_begins(&self, body_bytes: Option<u64>) -> bool {
        let mut state = self.state();
        let has_fragment = state.inbound.head_taken(body_bytes);
        state.phase = Phase::Busy;
        state.since = Instant::now();
        has_fragment
    }

    /// What the request holds until its answer has left.
    pub(super) fn hold(&self, held: Held) {
        self.state().held = Some(held);
    }

    /// The handler is done. `input_left` says that the rest of its body was not read, so that the connection
    /// closes after the answer.
    pub(super) fn answer_ready(&self, input_left: bool) {
        let mut state = self.state();
        state.phase = Phase::Answering;
        state.input_left |= input_left;
        // One moment of the request is near enough, and reading the clock once is cheaper.
        let since = state.since;
        state.unsent_since.get_or_insert(since);
    }

    /// hyper begins to write something.
    pub(super) fn writing(&self) -> Writing {
        let mut state = self.state();
        if matches!(state.phase, Phase::Busy | Phase::Answering) {
            return Writing::AsItIs;
        }
        // No handler was called for this head, so this is the parser's refusal, after which hyper closes.
        state.input_left = true;
        instead_of_parser(state.inbound.head())
            .map_or(Writing::AsItIs, |code| Writing::Instead(code.answer_bytes()))
    }

    /// The peer takes no bytes at the moment, or takes them again.
    pub(super) fn write_blocked(&self, blocked: bool) {
        self.state().write_blocked_since = blocked.then(Instant::now);
    }

    /// All that was written has left.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        state.unsent_since = None;
        if state.phase == Phase::Answering {
            // What came in the meantime begins the next head, and its time runs from now.
            state.phase = if state.inbound.head_may_have_begun() { Phase::Head } else { Phase::Idle };
            state.since = Instant::now();
            state.held = None;
        }
    }

    /// Gives an order. Says whether it was taken: one is enough, and the last word is to close.
    pub(super) fn order(&self, order: Order) -> bool {
        let mut state = self.state();
        if state.order == Some(Order::Close) {
            return false;
        }
        state.order = Some(order);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
        true
    }

    /// Orders it to close if nobody is at work on it: no request is in flight, or its peer does not take the
    /// answers. Says whether that was done.
    pub(super) fn close_if_waiting(&self) -> bool {
        let waits = self.state().waits();
        waits && self.order(Order::Close)
    }

    /// When patience with the present state of things ends.
    pub(super) fn due(&self, bounds: &Bounds) -> Instant {
        self.state().due(bounds)
    }

    /// The order to carry out, if there is one, and when patience ends. Whoever asks is woken for the next.
    pub(super) fn watch(&self, waker: &Waker, bounds: &Bounds) -> (Option<Order>, Instant) {
        let mut state = self.state();
        match &state.waker {
            Some(known) if known.will_wake(waker) => {}
            _ => state.waker = Some(waker.clone()),
        }
        // `Finish` is carried out once; `Close` stays, so that no other order follows it.
        let order = state.order;
        if order == Some(Order::Finish) {
            state.order = None;
        }
        (order, state.due(bounds))
    }

    /// Nothing is in flight on it any more. Says whether its peer may still be sending.
    pub(super) fn ended(&self) -> bool {
        let mut state = self.state();
        state.held = None;
        state.input_left && !state.peer_closed
    }
}

impl State {
    fn waits(&self) -> bool {
        match self.phase {
            Phase::Head | Phase::Idle => true,
            Phase::Busy => false,
            // By when the answers began and not by the last byte that was taken: a peer that takes one now
            // and then is stuck on purpose.
            Phase::Answering => {
                self.write_blocked_since.is_some()
                    && self.unsent_since.is_some_and(|since| since.elapsed() >= STUCK_AFTER)
            }
        }
    }

    /// When patience with the present state of things ends.
    fn due(&self, bounds: &Bounds) -> Instant {
        let patience = match self.phase {
            Phase::Head => bounds.head_time_max,
            Phase::Idle => bounds.idle_time_max,
            Phase::Busy | Phase::Answering => bounds.busy_time_max,
        };
        let due = self.since + patience;
        self.write_blocked_since.map_or(due, |blocked| due.min(blocked + bounds.write_stall_max))
    }
}
