//! Stores in memory, and a server over them on a real socket.
//!
//! Fault model: a gate stops every call of a store until it is opened ("slow" is a gate, not a sleep), and one
//! stops removals of bodies alone; a store can be down or its queue full, and a body can be missing or corrupt.

use std::{
    collections::HashMap,
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use prometheus::Registry;
use quire_core::{
    admission::{AdmissionBudgets, Budgets, CreateBudgets},
    paste::{BodyRef, Digest, Id, Row, StoredRow, TokenHash, Ttl},
    ports::{
        Bodies, Clock as _, Fault, GrantedBy, Insert, NewBody, NewRow, PortError, PortFuture, Put, Rows,
    },
    service::{COMMIT_DEADLINE_DEFAULT, Service},
    source::TrustedProxies,
    time::Timestamp,
};
use quire_testkit::client::Client;
use tokio::{net::TcpListener, runtime::Runtime, sync::watch};

use crate::{
    http::{Api, Bounds, Metrics, Settings, serve},
    limits::memory::MemoryLimits,
    system::{SystemClock, SystemEntropy},
};

/// Admits everything: what is tested here is everything else.
const NO_BUDGETS: Budgets = Budgets {
    creates: AdmissionBudgets {
        source: CreateBudgets { creates: None, bytes: None },
        service: CreateBudgets { creates: None, bytes: None },
    },
    source_reads: None,
    source_deletes: None,
};

/// Rows and bodies in memory, and the switches of the fault model.
pub(super) struct Store {
    rows: Mutex<HashMap<Id, Arc<StoredRow>>>,
    bodies: Mutex<HashMap<Id, Bytes>>,
    clock: SystemClock,
    open: watch::Sender<bool>,
    pub(super) rows_down: AtomicBool,
    pub(super) bodies_down: AtomicBool,
    pub(super) bodies_gone: AtomicBool,
    pub(super) bodies_corrupt: AtomicBool,
    pub(super) queue_full: AtomicBool,
    removals_held: watch::Sender<bool>,
    pub(super) disk_low: AtomicBool,
}

impl Store {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            rows: Mutex::default(),
            bodies: Mutex::default(),
            clock: SystemClock::new(),
            open: watch::Sender::new(true),
            rows_down: AtomicBool::new(false),
            bodies_down: AtomicBool::new(false),
            bodies_gone: AtomicBool::new(false),
            bodies_corrupt: AtomicBool::new(false),
            queue_full: AtomicBool::new(false),
            removals_held: watch::Sender::new(false),
            disk_low: AtomicBool::new(false),
        })
    }

    /// Stops every call from now on, or lets all go on.
    pub(super) fn set_open(&self, open: bool) {
        self.open.send_replace(open);
    }

    /// Stops removals of bodies from now on, or lets them go on.
    pub(super) fn hold_removals(&self, held: bool) {
        self.removals_held.send_replace(held);
    }

    /// How many bodies are stored, with or without a row.
    pub(super) fn bodies(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }

    /// How many pastes are stored.
    pub(super) fn count(&self) -> usize {
        self.rows.lock().unwrap().len()
    }

    /// Stores a paste directly.
    pub(super) fn put(&self, id: &str, text: impl Into<Bytes>, lives: Duration) {
        let (id, text) = (Id::parse(id.as_bytes()).unwrap(), text.into());
        let row = Row {
            id,
            created_at: self.clock.wall(),
            expires_at: self.clock.wall().plus(lives),
            size_bytes: text.len().try_into().unwrap(),
            syntax: None,
            delete_token_hash: TokenHash(Digest::of(b"")),
            body_sha256: Digest::of(&text),
            locator: None,
        };
        self.bodies.lock().unwrap().insert(id, text);
        self.rows.lock().unwrap().insert(id, Arc::new(StoredRow::new(row)));
    }

    async fn pass(&self, down: &AtomicBool) -> Result<(), PortError> {
        self.open.subscribe().wait_for(|open| *open).await.unwrap();
        if self.queue_full.load(Ordering::Relaxed) {
            return Err(PortError::new(Fault::Overloaded));
        }
        if down.load(Ordering::Relaxed) { Err(PortError::new(Fault::Unavailable)) } else { Ok(()) }
    }

    fn live(&self, id: Id) -> Option<Arc<StoredRow>> {
        let row = self.rows.lock().unwrap().get(&id).cloned()?;
        (row.row.expires_at > self.clock.wall()).then_some(row)
    }
}

impl Rows for Store {
    fn now(&self) -> PortFuture<'_, Timestamp> {
        Box::pin(async { Ok(self.clock.wall()) })
    }

    fn insert(&self, row: NewRow) -> PortFuture<'_, Insert> {
        Box::pin(async move {
            self.pass(&self.rows_down).await?;
            let now = self.clock.wall();
            let expires_at = now.expiry(row.ttl);
            let stored = Row {
                id: row.id,
                created_at: now,
                expires_at,
                size_bytes: row.size_bytes,
                syntax: row.syntax,
                delete_token_hash: row.delete_token_hash,
                body_sha256: row.body_sha256,
                locator: None,
            };
            self.rows.lock().unwrap().insert(row.id, Arc::new(StoredRow::new(stored)));
            Ok(Insert::Inserted { expires_at })
        })
    }

    fn find(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        self.find_in_store(id)
    }

    fn find_in_store(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        Box::pin(async move {
            self.pass(&self.rows_down).await?;
            Ok(self.live(id))
        })
    }

    fn remove(&self, id: Id) -> PortFuture<'_, bool> {
        Box::pin(async move {
            self.pass(&self.rows_down).await?;
            Ok(self.rows.lock().unwrap().remove(&id).is_some())
        })
    }
}

impl Bodies for Store {
    fn put(&self, body: NewBody) -> PortFuture<'_, Put> {
        Box::pin(async move {
            self.pass(&self.bodies_down).await?;
            self.bodies.lock().unwrap().insert(body.id, body.text.bytes().clone());
            Ok(Put::Stored(None))
        })
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        Box::pin(async move {
            self.pass(&self.bodies_down).await?;
            if self.bodies_corrupt.load(Ordering::Relaxed) {
                return Err(PortError::new(Fault::Corrupt));
            }
            if self.bodies_gone.load(Ordering::Relaxed) {
                return Ok(None);
            }
            Ok(self.bodies.lock().unwrap().get(&body.id).cloned())
        })
    }

    fn remove(&self, body: BodyRef) -> PortFuture<'_, ()> {
        Box::pin(async move {
            self.removals_held.subscribe().wait_for(|held| !*held).await.unwrap();
            self.pass(&self.bodies_down).await?;
            self.bodies.lock().unwrap().remove(&body.id);
            Ok(())
        })
    }
}

/// A listening server.
pub(super) struct Server {
    pub(super) runtime: Runtime,
    pub(super) address: SocketAddr,
    pub(super) api: Arc<Api>,
    pub(super) store: Arc<Store>,
    registry: Registry,
}

impl Server {
    pub(super) fn start(bounds: Bounds) -> Self {
        Self::start_with(bounds, &[])
    }

    pub(super) fn start_with(bounds: Bounds, allow_origins: &[&str]) -> Self {
        let runtime = Runtime::new().unwrap();
        let store = Store::new();
        let rows: Arc<dyn Rows> = store.clone();
        let bodies: Arc<dyn Bodies> = store.clone();
        let clock = Arc::new(SystemClock::new());
        let service =
            Service::new(rows, bodies, Arc::new(SystemEntropy), clock.clone(), COMMIT_DEADLINE_DEFAULT);
        let limits = Arc::new(MemoryLimits::new(NO_BUDGETS, GrantedBy::Service, clock.clone()));
        let registry = Registry::new();
        let disk = Arc::clone(&store);
        let api = Api::new(Settings {
            service: Arc::new(service),
            public_url: "https://paste.example/".to_owned(),
            allow_origins: allow_origins.iter().map(|&site| site.to_owned()).collect(),
            cache_max_age: Duration::from_secs(30),
            bounds,
            limits: limits.clone(),
            source_limits: limits,
            trusted_proxies: TrustedProxies::default(),
            clock,
            is_disk_low: Arc::new(move || disk.disk_low.load(Ordering::Relaxed)),
            metrics: Metrics::new(&registry).unwrap(),
        });
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        runtime.spawn(serve(listener, Arc::clone(&api)));
        Self { runtime, address, api, store, registry }
    }

    pub(super) fn client(&self) -> Client {
        Client::connect(self.address).unwrap()
    }

    /// The value of a metric, by its line's beginning.
    pub(super) fn metric(&self, line: &str) -> u64 {
        let text = prometheus::TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap();
        let value = text.lines().find_map(|candidate| candidate.strip_prefix(line)?.strip_prefix(' '));
        value.unwrap_or_else(|| panic!("no {line} in {text}")).parse().unwrap()
    }
}

/// How long a paste lives in tests that do not care.
pub(super) const LONG: Duration = Ttl::Day.duration();
