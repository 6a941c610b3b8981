//! One connection: the record of what it is doing, the watchdog that reads the record, and the loop that
//! serves it.
//!
//! Promises: a head comes within its time, also the first one; an idle connection ends; a peer that takes no
//! bytes of its answer is cut off; all of it costs a request no timer, since one timer per connection is set
//! anew only when it rings or when something nearer comes up (hyper's own header timeout takes a timer per
//! request and counts idle time). A request counts as in flight until its answer has left. It must never
//! look at what the bytes mean, except through [`parser_refusal`](super::parser_refusal).

use std::{
    convert::Infallible,
    future::{Future as _, poll_fn},
    io::ErrorKind,
    net::IpAddr,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncWrite as _, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until, timeout},
};

use super::{
    Api,
    bounds::Bounds,
    guard::{InFlight, Share},
    parser_refusal::instead_of_parser,
    peer::Peer,
    stream::Stream,
};

/// Longest head in bytes; hyper answers 431 past it. Also how much it buffers of anything.
const HEAD_BYTES_MAX: usize = 16_384;
/// Most header lines of a head; hyper answers 431 past it.
const HEADERS_MAX: usize = 64;
/// How much of a head is kept beside what hyper keeps: enough for a length of thousands of digits.
const HEAD_BYTES_SEEN: usize = 8_192;
/// Room that is kept while a connection is idle, so that most heads need no allocation.
const HEAD_BYTES_KEPT: usize = 1_024;
/// How much is read at once while a peer is given time to read its last answer.
const LINGER_READ_BYTES: usize = 4_096;

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
    /// The first bytes of the head that is being read.
    head: Vec<u8>,
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
            head: Vec::new(),
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

    /// Bytes came.
    pub(super) fn received(&self, bytes: &[u8]) {
        let mut state = self.state();
        match state.phase {
            Phase::Idle => {
                state.phase = Phase::Head;
                state.since = Instant::now();
            }
            Phase::Head => {}
            Phase::Busy | Phase::Answering => return,
        }
        let room = HEAD_BYTES_SEEN.saturating_sub(state.head.len()).min(bytes.len());
        state.head.extend_from_slice(bytes.get(..room).unwrap_or_default());
    }

    /// No more bytes will come.
    pub(super) fn peer_closed(&self) {
        self.state().peer_closed = true;
    }

    /// A head was read and its handler begins. Says whether the request's target has a `#`, which the parsed
    /// URI no longer shows and which makes a path malformed.
    pub(super) fn request_begins(&self) -> bool {
        let mut state = self.state();
        let target = state.head.split(|byte| *byte == b'\n').next().unwrap_or_default();
        let has_fragment = target.contains(&b'#');
        state.forget_head();
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
    }

    /// hyper begins to write something.
    pub(super) fn writing(&self) -> Writing {
        let mut state = self.state();
        if matches!(state.phase, Phase::Busy | Phase::Answering) {
            return Writing::AsItIs;
        }
        // No handler was called for this head, so this is the parser's refusal, after which hyper closes.
        state.input_left = true;
        instead_of_parser(&state.head).map_or(Writing::AsItIs, |code| Writing::Instead(code.answer_bytes()))
    }

    /// The peer takes no bytes at the moment, or takes them again.
    pub(super) fn write_blocked(&self, blocked: bool) {
        self.state().write_blocked_since = blocked.then(Instant::now);
    }

    /// All that was written has left.
    pub(super) fn flushed(&self) {
        let mut state = self.state();
        if state.phase == Phase::Answering {
            state.phase = Phase::Idle;
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

    /// Orders it to close if no request is in flight on it. Says whether that was done.
    pub(super) fn close_if_waiting(&self) -> bool {
        let waits = matches!(self.state().phase, Phase::Head | Phase::Idle);
        waits && self.order(Order::Close)
    }

    /// Nothing is in flight on it any more. Says whether its peer may still be sending.
    fn ended(&self) -> bool {
        let mut state = self.state();
        state.held = None;
        state.input_left && !state.peer_closed
    }
}

impl State {
    fn forget_head(&mut self) {
        if self.head.capacity() > HEAD_BYTES_KEPT {
            self.head = Vec::new();
        } else {
            self.head.clear();
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

/// One timer, and the record it is set by.
struct Watchdog<'a> {
    connection: &'a Connection,
    bounds: &'a Bounds,
    timer: Pin<Box<Sleep>>,
}

impl<'a> Watchdog<'a> {
    fn new(connection: &'a Connection, bounds: &'a Bounds) -> Self {
        let due = connection.state().due(bounds);
        Self { connection, bounds, timer: Box::pin(sleep_until(due)) }
    }

    /// Ready when there is something to do: what the listener ordered, or to close because time is up.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Order> {
        let (order, due) = {
            let mut state = self.connection.state();
            match &state.waker {
                Some(waker) if waker.will_wake(context.waker()) => {}
                _ => state.waker = Some(context.waker().clone()),
            }
            // `Finish` is carried out once; `Close` stays, so that no other order follows it.
            let order = state.order;
            if order == Some(Order::Finish) {
                state.order = None;
            }
            (order, state.due(self.bounds))
        };
        if let Some(order) = order {
            return Poll::Ready(order);
        }
        // On a busy connection what is due moves away with every request, and the timer stays as it is.
        if due < self.timer.deadline() {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            let due = self.connection.state().due(self.bounds);
            if due <= Instant::now() {
                return Poll::Ready(Order::Close);
            }
            self.timer.as_mut().reset(due);
        }
        Poll::Pending
    }
}

/// Serves a connection until it ends.
pub(super) async fn serve(tcp: TcpStream, api: Arc<Api>, connection: Arc<Connection>, peer: IpAddr) {
    // Answers are written whole; waiting for more to send would only delay them. A socket that refuses the
    // option is on its way out.
    let _ = tcp.set_nodelay(true);
    let mut watchdog = Watchdog::new(&connection, &api.bounds);
    // A connection that sends nothing gets no buffers. It is peeked at, since the runtime takes a new socket
    // for readable until a read has shown that it is not.
    let speaks = poll_fn(|context| {
        if tcp.poll_peek(context, &mut ReadBuf::new(&mut [0])).is_ready() {
            return Poll::Ready(true);
        }
        watchdog.poll(context).map(|_| false)
    });
    if !speaks.await {
        return;
    }

    let service = {
        let (api, connection) = (Arc::clone(&api), Arc::clone(&connection));
        let peer = Arc::new(Peer::new(&api, peer));
        service_fn(move |request| {
            let (api, connection, peer) = (Arc::clone(&api), Arc::clone(&connection), Arc::clone(&peer));
            async move { Ok::<_, Infallible>(super::answer(&api, &connection, &peer, request).await) }
        })
    };
    let stream = TokioIo::new(Stream::new(tcp, Arc::clone(&connection)));
    let mut http = protocol().serve_connection(stream, service);
    let ended = poll_fn(|context| {
        loop {
            if Pin::new(&mut http).poll(context).is_ready() {
                return Poll::Ready(true);
            }
            match watchdog.poll(context) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Order::Finish) => Pin::new(&mut http).graceful_shutdown(),
                Poll::Ready(Order::Close) => return Poll::Ready(false),
            }
        }
    })
    .await;
    if connection.ended() && ended {
        let tcp = http.into_parts().io.into_inner().into_tcp();
        linger(tcp, &api).await;
    }
}

/// How the listener's connections speak HTTP.
fn protocol() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // A client that closes its sending side after its request still wants the answer (`nc -N` does that).
    builder
        .half_close(true)
        .keep_alive(true)
        .pipeline_flush(false)
        .max_buf_size(HEAD_BYTES_MAX)
        .max_headers(HEADERS_MAX)
        .header_read_timeout(None::<Duration>);
    builder
}

/// Closes a connection whose peer may still be sending: a socket closed with unread input is reset, and a
/// reset takes the answer away from a peer that has not read it yet. So the sending side is closed, and what
/// comes is thrown away for a short time; if too many are waiting like this already, not at all.
pub(super) async fn linger(mut tcp: TcpStream, api: &Api) {
    let Some(_place) = api.guard.linger() else { return };
    let until_closed = async {
        if poll_fn(|context| Pin::new(&mut tcp).poll_shutdown(context)).await.is_err() {
            return;
        }
        let mut thrown_away = vec![0; LINGER_READ_BYTES];
        while tcp.readable().await.is_ok() {
            match tcp.try_read(&mut thrown_away) {
                Ok(0) => return,
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    // Either way the connection ends now.
    let _ = timeout(api.bounds.linger_time_max, until_closed).await;
}
