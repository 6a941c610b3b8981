//! One connection: the watchdog that reads its record, and the loop that serves it.
//!
//! Promises: a head comes within its time, also the first one; an idle connection ends; a peer that takes no
//! bytes of its answer is cut off; all of it costs a request no timer, since one timer per connection is set
//! anew only when it rings or when something nearer comes up (hyper's own header timeout takes a timer per
//! request and counts idle time). What a connection is doing is in its [`record`](super::record).

use std::{
    convert::Infallible,
    future::{Future as _, poll_fn},
    io::ErrorKind,
    net::IpAddr,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use rustix::net::sockopt::set_socket_send_buffer_size;
use tokio::{
    io::{AsyncWrite as _, ReadBuf},
    net::TcpStream,
    time::{Instant, Sleep, sleep_until, timeout},
};

use super::{
    Api,
    bounds::Bounds,
    peer::Peer,
    record::{Connection, Order},
    stream::Stream,
};

/// Longest head in bytes; hyper answers 431 past it. Also how much it buffers of anything.
pub(super) const HEAD_BYTES_MAX: usize = 16_384;
/// Most header lines of a head; hyper answers 431 past it.
const HEADERS_MAX: usize = 64;
/// What the kernel may hold of answers that a peer has not taken, per connection; it doubles the number for its
/// own bookkeeping. Left to itself it takes megabytes off a server's hands, and then an answer seems to have
/// left although nobody reads it. A connection sends no more than this in one round trip.
const SEND_BUFFER_BYTES: usize = 131_072;
/// How much is read at once while a peer is given time to read its last answer.
const LINGER_READ_BYTES: usize = 4_096;

/// One timer, and the record it is set by.
struct Watchdog<'a> {
    connection: &'a Connection,
    bounds: &'a Bounds,
    timer: Pin<Box<Sleep>>,
}

impl<'a> Watchdog<'a> {
    fn new(connection: &'a Connection, bounds: &'a Bounds) -> Self {
        let due = connection.due(bounds);
        Self { connection, bounds, timer: Box::pin(sleep_until(due)) }
    }

    /// Ready when there is something to do: what the listener ordered, or to close because time is up.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Order> {
        let (order, due) = self.connection.watch(context.waker(), self.bounds);
        if let Some(order) = order {
            return Poll::Ready(order);
        }
        // On a busy connection what is due moves away with every request, and the timer stays as it is.
        if due < self.timer.deadline() {
            self.timer.as_mut().reset(due);
        }
        while self.timer.as_mut().poll(context).is_ready() {
            let due = self.connection.due(self.bounds);
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
    // Not left to be inherited from the listener, where a first connection may come before it is set.
    let _ = set_socket_send_buffer_size(&tcp, SEND_BUFFER_BYTES);
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
