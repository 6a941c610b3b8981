//! The accept loop of the public listener, and how it ends.
//!
//! Promises: no error of `accept` ends the loop or makes it spin; past the bound on connections a newcomer is
//! told 503 at once instead of being left to wait (H2); when it drains, what is in flight is finished (H3).

use std::{
    io::{ErrorKind, Write as _},
    net::{IpAddr, Shutdown},
    sync::{
        Arc, LazyLock,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use quire_core::source::SourceKey;
use tokio::{
    net::{TcpListener, TcpStream},
    time::{sleep, timeout},
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{
    Api, connection,
    error::ErrorCode,
    metrics::Shed,
    registry::{Admission, Place, Registry},
};

/// How long to wait after `accept` failed: out of file descriptors, it would fail again at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

static FULL_ANSWER: LazyLock<Bytes> = LazyLock::new(|| ErrorCode::Overloaded.answer_bytes());

/// How the listener is brought to an end, in two steps (H3).
#[derive(Clone)]
pub struct Drain(Arc<State>);

struct State {
    draining: AtomicBool,
    stop: CancellationToken,
    registry: Arc<Registry>,
    connections: TaskTracker,
    work: TaskTracker,
}

impl Drain {
    pub(super) fn new(connections_max: usize) -> Self {
        Self(Arc::new(State {
            draining: AtomicBool::new(false),
            stop: CancellationToken::new(),
            registry: Registry::new(connections_max),
            connections: TaskTracker::new(),
            work: TaskTracker::new(),
        }))
    }

    /// From now on every answer carries `Connection: close`; connections are still accepted.
    pub fn start(&self) {
        self.0.draining.store(true, Ordering::Relaxed);
    }

    /// Whether it was started.
    #[must_use]
    pub fn is_draining(&self) -> bool {
        self.0.draining.load(Ordering::Relaxed)
    }

    /// Stops accepting, closes idle connections and waits for all others and for every create and delete
    /// that has begun, for at most `time_max`. Says whether everything was finished.
    pub async fn finish(&self, time_max: Duration) -> bool {
        self.start();
        self.0.stop.cancel();
        self.0.registry.close();
        self.0.connections.close();
        let everything = async {
            self.0.connections.wait().await;
            // Only connections begin work, so from here on there is no new one.
            self.0.work.close();
            self.0.work.wait().await;
        };
        timeout(time_max, everything).await.is_ok()
    }

    /// Where creates and deletes run, so that they are finished whoever hangs up.
    pub(super) fn work(&self) -> &TaskTracker {
        &self.0.work
    }
}

/// Accepts and serves connections until [`Drain::finish`] is called.
pub async fn serve(listener: TcpListener, api: Arc<Api>) {
    let drain = api.drain();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            () = drain.0.stop.cancelled() => return,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((tcp, peer)) => {
                failing = false;
                welcome(tcp, peer.ip(), &api, &drain);
            }
            // A peer that is gone before it was accepted says nothing about the next one.
            Err(error) if error.kind() == ErrorKind::ConnectionAborted => {}
            Err(error) => {
                // Said once, not ten times a second for as long as it lasts.
                if !failing {
                    tracing::warn!(%error, "connections cannot be accepted");
                }
                failing = true;
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

fn welcome(tcp: TcpStream, peer: IpAddr, api: &Arc<Api>, drain: &Drain) {
    let place = match drain.0.registry.admit(SourceKey::of(peer), api.proxies.contain(peer)) {
        Admission::Admitted(place) => place,
        Admission::InsteadOfHog(place) => {
            api.metrics.shed(Shed::Hog);
            place
        }
        Admission::Full => {
            api.metrics.shed(Shed::Connections);
            turn_away(tcp, Arc::clone(api), drain);
            return;
        }
    };
    drain.0.connections.spawn(attend(tcp, peer, place, Arc::clone(api)));
}

async fn attend(tcp: TcpStream, peer: IpAddr, place: Place, api: Arc<Api>) {
    api.metrics.connections.inc();
    // Counted out also if a handler panics, which ends this task and nothing else.
    let _counted = CountedOut(&api);
    connection::serve(tcp, Arc::clone(&api), Arc::clone(&place.connection), peer).await;
}

struct CountedOut<'a>(&'a Api);

impl Drop for CountedOut<'_> {
    fn drop(&mut self) {
        self.0.metrics.connections.dec();
    }
}

/// Answers 503 without reading the request, and closes.
fn turn_away(tcp: TcpStream, api: Arc<Api>, drain: &Drain) {
    // A fresh socket takes this much without waiting, and if not there is nothing to be done about it.
    let Ok(mut tcp) = tcp.into_std() else { return };
    if tcp.write_all(&FULL_ANSWER).is_err() || tcp.shutdown(Shutdown::Write).is_err() {
        return;
    }
    let Ok(tcp) = TcpStream::from_std(tcp) else { return };
    drain.0.connections.spawn(async move { connection::linger(tcp, &api).await });
}
