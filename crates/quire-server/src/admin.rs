//! The second listener, for operators: `/metrics`, `/livez`, `/readyz` (contract P1).
//!
//! Readiness is this process's own state. It never asks a store: a dead shared store must not take every
//! app out of the balancer.

use std::{
    convert::Infallible,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::Full;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus::{Registry, TextEncoder};
use tokio::{net::TcpListener, sync::Semaphore, time::timeout};

/// Connections at once; the rest wait. Whoever scrapes needs one or two.
const CONNECTIONS_MAX: usize = 64;
/// Time for a request's headers, and for a connection to be idle.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Time for a connection in all, so that clients that do not read cannot keep every place. It is far above
/// what a scrape takes.
const CONNECTION_TIME_MAX: Duration = Duration::from_secs(30);
/// Pause after an accept that failed, so that a full table of open files does not make the loop spin.
const ACCEPT_RETRY: Duration = Duration::from_millis(100);

const STARTING: u8 = 0;
const SERVING: u8 = 1;
const DRAINING: u8 = 2;

/// Where this process is in its life.
#[derive(Clone, Debug, Default)]
pub struct Readiness(Arc<AtomicU8>);

impl Readiness {
    /// The public listener accepts.
    pub fn serving(&self) {
        self.0.store(SERVING, Ordering::Relaxed);
    }

    /// The process was told to stop.
    pub fn draining(&self) {
        self.0.store(DRAINING, Ordering::Relaxed);
    }

    fn answer(&self) -> (StatusCode, &'static str) {
        match self.0.load(Ordering::Relaxed) {
            STARTING => (StatusCode::SERVICE_UNAVAILABLE, "starting\n"),
            SERVING => (StatusCode::OK, "serving\n"),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "draining\n"),
        }
    }
}

/// Answers on the listener until the task is aborted.
pub async fn serve(listener: TcpListener, registry: Registry, readiness: Readiness) {
    serve_within(CONNECTION_TIME_MAX, listener, registry, readiness).await;
}

async fn serve_within(
    connection_time_max: Duration,
    listener: TcpListener,
    registry: Registry,
    readiness: Readiness,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "the admin listener could not accept a connection");
                tokio::time::sleep(ACCEPT_RETRY).await;
                continue;
            }
        };
        let (registry, readiness) = (registry.clone(), readiness.clone());
        tokio::spawn(async move {
            let answer = service_fn(move |request: Request<Incoming>| {
                let response = answer(&request, &registry, &readiness);
                async move { Ok::<_, Infallible>(response) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_TIMEOUT)
                .serve_connection(TokioIo::new(stream), answer);
            // A client that breaks off, or is cut off, is no event worth a line.
            let _ = timeout(connection_time_max, connection).await;
            drop(place);
        });
    }
}

fn answer(request: &Request<Incoming>, registry: &Registry, readiness: &Readiness) -> Response<Full<Bytes>> {
    let (status, body) = match (request.method(), request.uri().path()) {
        (&Method::GET | &Method::HEAD, "/livez") => (StatusCode::OK, Bytes::from_static(b"alive\n")),
        (&Method::GET | &Method::HEAD, "/readyz") => {
            let (status, text) = readiness.answer();
            (status, Bytes::from_static(text.as_bytes()))
        }
        (&Method::GET | &Method::HEAD, "/metrics") => metrics(registry),
        (_, "/livez" | "/readyz" | "/metrics") => {
            (StatusCode::METHOD_NOT_ALLOWED, Bytes::from_static(b"only GET and HEAD\n"))
        }
        _ => (StatusCode::NOT_FOUND, Bytes::from_static(b"there are /metrics, /livez and /readyz\n")),
    };
    let mut response = Response::new(Full::new(body));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, header::HeaderValue::from_static("GET, HEAD"));
    }
    response
}

fn metrics(registry: &Registry) -> (StatusCode, Bytes) {
    match TextEncoder::new().encode_to_string(&registry.gather()) {
        Ok(text) => (StatusCode::OK, text.into()),
        Err(error) => {
            tracing::error!(%error, "the metrics could not be written out");
            (StatusCode::INTERNAL_SERVER_ERROR, Bytes::from_static(b"the metrics could not be written out\n"))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write as _, time::Instant};

    use quire_testkit::client::{Client, ask};
    use tokio::runtime::Runtime;

    use super::*;

    #[test]
    fn clients_that_do_not_read_keep_their_places_for_a_time() {
        let runtime = Runtime::new().unwrap();
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        // Far below the time for a head, so that it is not that which ends them.
        let time_max = Duration::from_millis(500);
        runtime.spawn(serve_within(time_max, listener, Registry::new(), Readiness::default()));
        // More requests than their answers find room for.
        let requests = "GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n".repeat(50_000);
        let _held: Vec<_> = (0..CONNECTIONS_MAX)
            .map(|_| {
                let client = Client::connect(address).unwrap();
                client.socket().set_nonblocking(true).unwrap();
                let _ = client.socket().write(requests.as_bytes());
                client
            })
            .collect();
        let began = Instant::now();
        assert_eq!(ask(address, "GET", "/livez", &[], None).unwrap().status, 200);
        assert!(began.elapsed() < HEADER_TIMEOUT / 2);
    }
}
