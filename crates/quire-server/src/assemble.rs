//! From a checked configuration to a running server, and to its end: the only place that names concrete
//! adapters.
//!
//! Everything that can be refused is refused before the public listener accepts: the order below is lock,
//! stores, listeners. What it says on the way is logged once.

use std::{io, net::SocketAddr, path::Path, sync::Arc, time::Duration};

use quire_core::{
    ports::{Bodies, Clock, GrantedBy, Limits, Rows, SourceLimits},
    service::Service,
};
use tokio::{
    net::TcpListener,
    signal::unix::{Signal, SignalKind, signal},
    time::Instant,
};

use crate::{
    admin::{self, Readiness},
    announce::Announcement,
    bodies::volumes::{self, VolumeOptions, VolumeStore},
    cache::{CacheBudget, CachedBodies, CachedRows},
    config::{
        Config,
        admission::LimitStore,
        stores::{BodyStore, RowStore, Stores},
    },
    data_folder::{self, DataFolder, DataFolderError},
    disk::DiskWatch,
    http::{self, Api, Drain},
    limits::{
        fallback::FallbackLimits,
        memory::MemoryLimits,
        metrics::{LimiterMetrics, MeteredLimits},
        redis::{self, RedisLimits, StoreUrlError},
    },
    metrics::{MeteredBodies, MeteredRows, StoreMetrics},
    rows::sqlite::{self, SqliteRows},
    system::{SystemClock, SystemEntropy},
};

mod closing;

/// Files the process needs beside its connections: volumes, the database, the log (contract H2).
const OPEN_FILES_RESERVED: usize = 512;
/// Connections that are allowed even where the open-file limit leaves none.
const CONNECTIONS_MIN: usize = 16;
/// How long what is in flight may take to finish (contract H3).
const DRAIN_MAX: Duration = Duration::from_secs(30);

/// Why a server did not start, or did not end well.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The data folder is in use, unusable or does not fit together.
    #[error(transparent)]
    DataFolder(#[from] DataFolderError),
    /// The row store cannot be opened.
    #[error("--rows: {0}")]
    Rows(#[from] sqlite::OpenError),
    /// The body store cannot be opened.
    #[error("--bodies: {0}")]
    Bodies(#[from] volumes::OpenError),
    /// The limiter's store has no usable URL.
    #[error("--limits: {0}")]
    Limits(#[from] StoreUrlError),
    /// An address cannot be listened on.
    #[error("{flag} {address}: {source}; choose another address, or port 0 for any free one")]
    Listen {
        /// Which listener.
        flag: &'static str,
        /// What it should have listened on.
        address: SocketAddr,
        /// What the operating system says.
        source: io::Error,
    },
    /// Metrics contradict each other: a mistake in the program.
    #[error("the metrics could not be registered: {0}")]
    Metrics(#[from] prometheus::Error),
    /// Signals cannot be waited for.
    #[error("signals cannot be received: {0}")]
    Signals(#[source] io::Error),
}

/// The stores, with their decorators around them.
struct OpenStores {
    rows: Arc<dyn Rows>,
    bodies: Arc<dyn Bodies>,
    to_close: closing::Stores,
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// Everything that was in flight is finished and the stores are closed.
    Finished,
    /// Something was still waiting after the time it was given, for a frozen disk say. The stores are left as
    /// a crash would leave them, which they are made for; to wait for them could take for ever.
    Unfinished,
}

/// Serves until SIGTERM or SIGINT, then finishes what is in flight.
///
/// # Errors
/// It could not start; nothing was served.
pub async fn run(config: Config) -> Result<Ended, ServeError> {
    let mut signals = Signals::new().map_err(ServeError::Signals)?;
    let registry = prometheus::Registry::new();
    let readiness = Readiness::default();
    let clock: Arc<dyn Clock> = Arc::new(SystemClock::new());

    let stores = open_stores(&config, &clock, &registry)?;
    let disk = DiskWatch::new(&config.stores, config.disk_reserve);
    let service = Arc::new(Service::new(
        Arc::clone(&stores.rows),
        Arc::clone(&stores.bodies),
        Arc::new(SystemEntropy),
        Arc::clone(&clock),
        config.commit_deadline,
    ));

    let limits = open_limits(&config, &clock, &registry).await?;
    announce_limits(&config, &disk);

    let (admin_listener, admin_address) = listen("--admin-listen", config.admin_listen).await?;
    let (listener, address) = listen("--listen", config.listen).await?;
    let api = api(&config, address, service, limits, clock, &disk, &registry)?;
    let drain = api.drain();

    let admin = tokio::spawn(admin::serve(admin_listener, registry, readiness.clone()));
    let disk = tokio::spawn(disk.run());
    let public = tokio::spawn(http::serve(listener, api));
    readiness.serving();
    tracing::info!(address = %admin_address, "admin listening");
    tracing::info!(address = %address, "listening");

    told_to_stop(&mut signals, &readiness, &drain, config.drain_wait).await;
    let deadline = Instant::now() + DRAIN_MAX;
    let finished = drain.finish(DRAIN_MAX).await;
    for task in [public, admin, disk] {
        task.abort();
        // Until it is gone it may hold a store. None of them blocks, and how one ended does not matter here.
        let _ = task.await;
    }
    let OpenStores { rows, bodies, to_close } = stores;
    drop((rows, bodies));
    if !finished {
        to_close.leave();
        tracing::warn!(
            "stopped with requests unfinished after 30 s; the stores are left as a crash would leave them"
        );
        return Ok(Ended::Unfinished);
    }
    let closed = to_close.close(deadline).await;
    match closed {
        Ended::Finished => tracing::info!("stopped"),
        Ended::Unfinished => tracing::warn!(
            "stopped; the stores did not close in time and are left as a crash would leave them"
        ),
    }
    Ok(closed)
}

fn open_stores(
    config: &Config,
    clock: &Arc<dyn Clock>,
    registry: &prometheus::Registry,
) -> Result<OpenStores, ServeError> {
    let Stores { data, rows: RowStore::Sqlite(rows_path), bodies: BodyStore::Local(bodies_path) } =
        &config.stores;
    // The body store has a lock of its own, because --bodies may lie outside of the data folder and two
    // writers would write over each other.
    let locks = [DataFolder::lock("--data", data)?, DataFolder::lock("--bodies", bodies_path)?];
    sqlite::check_folder(rows_path)?;
    pair_up(rows_path, bodies_path)?;

    let metrics = StoreMetrics::register(registry)?;
    let rows = Arc::new(SqliteRows::open(rows_path, Arc::clone(clock), &sqlite::Options::default())?);
    let bodies = Arc::new(VolumeStore::open(bodies_path, Arc::clone(clock), VolumeOptions::default())?);
    let to_close = closing::Stores::new(Arc::clone(&rows), Arc::clone(&bodies), locks);
    let mut rows: Arc<dyn Rows> = Arc::new(MeteredRows::new(rows, &metrics));
    let mut bodies: Arc<dyn Bodies> = Arc::new(MeteredBodies::new(bodies, &metrics));
    if config.cache_bytes > 0 {
        let budget = CacheBudget::of(config.cache_bytes);
        rows = Arc::new(CachedRows::new(rows, Arc::clone(clock), budget.rows_bytes));
        bodies = Arc::new(CachedBodies::new(bodies, budget.bodies_bytes));
    }
    Ok(OpenStores { rows, bodies, to_close })
}

/// Makes sure that both stores exist and carry the same pair id (contract O5).
fn pair_up(rows_path: &Path, bodies_path: &Path) -> Result<(), ServeError> {
    let of_rows = sqlite::pair_id(rows_path)?;
    let of_bodies = volumes::pair::read(bodies_path)?;
    let bodies_exist = volumes::pair::has_volumes(bodies_path)?;
    let pair = data_folder::pair_id(of_rows, of_bodies, bodies_exist, &SystemEntropy)?;
    // Bodies first: see `data_folder::pair_id` for what an interruption in between leaves.
    if of_bodies.is_none() {
        volumes::pair::write(bodies_path, pair)?;
    }
    if of_rows.is_none() {
        sqlite::create(rows_path, pair)?;
    }
    Ok(())
}

/// The limiter's two faces: of creates, which may be shared, and of reads and deletes, which never are.
struct OpenLimits {
    creates: Arc<dyn Limits>,
    sources: Arc<dyn SourceLimits>,
}

async fn open_limits(
    config: &Config,
    clock: &Arc<dyn Clock>,
    registry: &prometheus::Registry,
) -> Result<OpenLimits, ServeError> {
    let (LimitStore::Redis(url), Some(fleet_size)) = (&config.limits, config.fleet_size) else {
        let local = Arc::new(MemoryLimits::new(config.budgets, GrantedBy::Service, Arc::clone(clock)));
        return Ok(OpenLimits { creates: local.clone(), sources: local });
    };
    let metrics = LimiterMetrics::register(registry)?;
    let shared =
        RedisLimits::connect(url.expose(), redis::KEY_PREFIX, config.budgets.creates, Arc::clone(clock))
            .await?;
    let shared = Arc::new(MeteredLimits::new(Arc::new(shared), metrics.clone()));
    let limits =
        Arc::new(FallbackLimits::new(shared, config.budgets, fleet_size, Arc::clone(clock), metrics));
    Ok(OpenLimits { creates: limits.clone(), sources: limits })
}

/// Says once what the limits bound (contract A8).
fn announce_limits(config: &Config, disk: &DiskWatch) {
    let apps = config.fleet_size.filter(|_| matches!(config.limits, LimitStore::Redis(_)));
    Announcement::new(&config.budgets, apps, disk.room_bytes()).log();
}

fn api(
    config: &Config,
    address: SocketAddr,
    service: Arc<Service>,
    limits: OpenLimits,
    clock: Arc<dyn Clock>,
    disk: &DiskWatch,
    registry: &prometheus::Registry,
) -> Result<Arc<Api>, ServeError> {
    let public_url =
        config.public_url.as_ref().map_or_else(|| format!("http://{address}"), |url| url.as_str().to_owned());
    let defaults = http::Bounds::default();
    let bounds = http::Bounds {
        connections_max: connections_max(defaults.connections_max),
        source_in_flight: config.source_in_flight.map(|bound| http::SourceInFlight {
            requests_max: usize::try_from(bound.requests_max).unwrap_or(usize::MAX),
            creates_max: usize::try_from(bound.creates_max).unwrap_or(usize::MAX),
        }),
        ..defaults
    };
    let disk = disk.clone();
    Ok(Api::new(http::Settings {
        service,
        public_url,
        allow_origins: config.allow_origins.iter().map(|origin| origin.as_str().to_owned()).collect(),
        cache_max_age: config.cache_max_age,
        bounds,
        limits: limits.creates,
        source_limits: limits.sources,
        trusted_proxies: config.trusted_proxies.clone(),
        clock,
        is_disk_low: Arc::new(move || disk.is_low()),
        metrics: http::Metrics::new(registry)?,
    }))
}

/// As many connections as the open-file limit leaves, after raising it as far as the operator allows.
fn connections_max(wanted: usize) -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    // Where it may not be raised, what there is has to do.
    let _ = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
    let allowed = getrlimit(Resource::Nofile).current;
    let allowed = allowed.and_then(|files| usize::try_from(files).ok()).unwrap_or(usize::MAX);
    wanted.min(allowed.saturating_sub(OPEN_FILES_RESERVED)).max(CONNECTIONS_MIN)
}

async fn listen(flag: &'static str, address: SocketAddr) -> Result<(TcpListener, SocketAddr), ServeError> {
    let refused = |source| ServeError::Listen { flag, address, source };
    let listener = TcpListener::bind(address).await.map_err(refused)?;
    let bound = listener.local_addr().map_err(refused)?;
    Ok((listener, bound))
}

/// SIGTERM and SIGINT, which mean the same.
struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// The beginning of the end (contract H3): say so while still accepting. A second signal cuts this waiting short,
/// but not what is in flight.
async fn told_to_stop(signals: &mut Signals, readiness: &Readiness, drain: &Drain, drain_wait: Duration) {
    signals.next().await;
    readiness.draining();
    drain.start();
    tracing::info!("draining");
    tokio::select! {
        () = tokio::time::sleep(drain_wait) => {}
        () = signals.next() => {}
    }
}
