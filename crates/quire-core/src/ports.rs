//! What the domain asks of the world, as traits. An adapter implements one of them and knows nobody else.
//!
//! # Rules for every adapter
//!
//! - An error says what is known of the effect, by [`Fault`]: *nothing was done*, or *nobody knows*. An
//!   adapter that cannot tell must say [`Fault::UnknownOutcome`]; claiming less than it knows is safe,
//!   claiming more loses pastes.
//! - A future that is dropped may leave its effect done or not done, never half done.
//! - No error text carries an id, a token, a body or a client's address.
//! - A call is answered within a bounded time or the caller stops waiting for it; the adapter's own queues
//!   are bounded, and a full one is [`Fault::Overloaded`] at once.

use std::{error::Error, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;

use crate::{
    admission::Refusal,
    paste::{BodyRef, Digest, Id, Locator, Row, StoredRow, Syntax, Text, TokenHash, Ttl},
    source::SourceKey,
    time::Timestamp,
};

/// What a port returns: boxed, so that adapters are chosen at start-up and not by generics.
pub type PortFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, PortError>> + Send + 'a>>;

/// What is known after a port failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The adapter's queue was full. Nothing was done.
    Overloaded,
    /// The store could not be reached or refused to work. Nothing was done.
    Unavailable,
    /// The store failed in the middle. The effect may or may not have happened, or may still happen.
    UnknownOutcome,
    /// What was read is not what was written. Only [`Bodies::get`] says so.
    Corrupt,
}

/// A port's failure by meaning, with the adapter's own error behind it for the log. Cheap to clone, so that
/// callers who wait for the same work can share its failure.
#[derive(Clone, Debug)]
pub struct PortError {
    fault: Fault,
    source: Option<Arc<dyn Error + Send + Sync>>,
}

impl PortError {
    /// A failure without a cause to show.
    #[must_use]
    pub const fn new(fault: Fault) -> Self {
        Self { fault, source: None }
    }

    /// A failure and what caused it.
    pub fn because(fault: Fault, source: impl Error + Send + Sync + 'static) -> Self {
        Self { fault, source: Some(Arc::new(source)) }
    }

    /// What is known of the effect.
    #[must_use]
    pub const fn fault(&self) -> Fault {
        self.fault
    }
}

impl fmt::Display for PortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let known = match self.fault {
            Fault::Overloaded => "the store's queue is full",
            Fault::Unavailable => "the store is unavailable",
            Fault::UnknownOutcome => "the store failed and the outcome is unknown",
            Fault::Corrupt => "the store returned other bytes than were written",
        };
        f.write_str(known)?;
        self.source.as_ref().map_or(Ok(()), |source| write!(f, ": {source}"))
    }
}

impl Error for PortError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        let source: &(dyn Error + 'static) = self.source.as_deref()?;
        Some(source)
    }
}

/// A row about to be inserted. The store adds `created_at` and `expires_at` from its own clock (M4).
#[derive(Clone, Debug)]
pub struct NewRow {
    /// Primary key.
    pub id: Id,
    /// How long from the insert on.
    pub ttl: Ttl,
    /// Bytes stored.
    pub size_bytes: u32,
    /// The client's label.
    pub syntax: Option<Syntax>,
    /// What the delete token must hash to.
    pub delete_token_hash: TokenHash,
    /// What the body must hash to.
    pub body_sha256: Digest,
    /// Where the body is, on one box.
    pub locator: Option<Locator>,
    /// By the row store's clock: past it the insert must not take effect (O5).
    pub deadline: Timestamp,
}

/// What an insert did, when the store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The row is durable.
    Inserted {
        /// When the paste expires, as stored.
        expires_at: Timestamp,
    },
    /// A row with this id exists. Nothing was done to it.
    Conflict,
    /// The deadline had passed. Nothing was done.
    DeadlinePassed,
}

/// The row store. It owns "now" (R3): whether a row has expired is judged by its clock, and no method takes
/// a time but for the deadline, which is in that clock's time.
pub trait Rows: Send + Sync {
    /// What the row store's clock says.
    fn now(&self) -> PortFuture<'_, Timestamp>;

    /// Inserts a row and returns once it is durable. The primary key alone excludes duplicates; there is no
    /// look before. Of an error only [`Fault::UnknownOutcome`] leaves open whether the row exists.
    fn insert(&self, row: NewRow) -> PortFuture<'_, Insert>;

    /// The row, if it exists and has not expired. May be answered from a cache that is kept coherent with
    /// every delete of this process.
    fn find(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>>;

    /// As [`find`](Self::find), but always asks the store itself.
    fn find_in_store(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>>;

    /// Removes the row if it exists and has not expired, and returns once that is durable. Of callers who
    /// race, exactly one is told `true`.
    fn remove(&self, id: Id) -> PortFuture<'_, bool>;
}

/// A body about to be written.
#[derive(Clone, Debug)]
pub struct NewBody {
    /// Whose body it will be.
    pub id: Id,
    /// The checked bytes.
    pub text: Text,
    /// Their digest.
    pub sha256: Digest,
    /// About when it will expire, so that what expires together can be stored together. The row decides.
    pub expires_near: Timestamp,
}

/// What a put did, when the store knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// The body is durable, the directory entry included.
    Stored(Option<Locator>),
    /// A body with this id exists. It was not touched.
    Exists,
}

/// The body store. Bodies never change under an id, so they may be cached anywhere.
pub trait Bodies: Send + Sync {
    /// Writes a body, create-only, and returns once it is durable. Never touches an older body (M3).
    fn put(&self, body: NewBody) -> PortFuture<'_, Put>;

    /// The body, checked: its length and SHA-256 are those asked for, else [`Fault::Corrupt`]. `None` if
    /// there is no such body.
    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>>;

    /// Removes a body that no row refers to any more. A body that is not there is no error, and neither is
    /// one that the store must keep for now (a backup is being taken): it then is an orphan.
    fn remove(&self, body: BodyRef) -> PortFuture<'_, ()>;
}

/// The row store as `verify` sees it: every row, expired or not.
pub trait RowsAudit: Send + Sync {
    /// Up to `limit` rows whose ids come after `after`, in the order of ids.
    fn page(&self, after: Option<Id>, limit: usize) -> PortFuture<'_, Vec<Row>>;

    /// The row with this id, expired or not.
    fn find_any(&self, id: Id) -> PortFuture<'_, Option<Row>>;
}

/// A place in the listing of a body store; only the adapter that gave it out can read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyCursor(pub String);

/// A body as a listing shows it.
#[derive(Clone, Debug)]
pub struct ListedBody {
    /// Where it is and what it should hash to.
    pub body: BodyRef,
    /// How old it is by the body store's clock.
    pub age: Duration,
}

/// One page of a listing.
#[derive(Clone, Debug)]
pub struct BodyPage {
    /// The bodies of this page.
    pub bodies: Vec<ListedBody>,
    /// Where the next page begins; `None` at the end.
    pub next: Option<BodyCursor>,
}

/// The body store as `verify` sees it: every body, whether or not a row refers to it.
pub trait BodiesAudit: Send + Sync {
    /// Up to about `limit` bodies from `from` on; what was removed or never finished is not listed.
    fn page(&self, from: Option<BodyCursor>, limit: usize) -> PortFuture<'_, BodyPage>;

    /// As [`Bodies::get`].
    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>>;
}

/// Where a create's tokens were taken from, so that they can go back there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GrantedBy {
    /// The state that all apps share, or the only app's own.
    Service,
    /// This app's share of the service budgets, while the shared state cannot be reached.
    LocalShare,
}

/// A create that was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Whose service tokens were taken.
    pub granted_by: GrantedBy,
    /// The declared bytes that were taken.
    pub bytes: u64,
}

/// What the limiter says to a create.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// Its tokens are taken.
    Admitted(Grant),
    /// Nothing is taken.
    Refused(Refusal),
}

/// The limiter of creates: four buckets that decide together (contract A2).
pub trait Limits: Send + Sync {
    /// Takes one create and its declared bytes from the source and from the service, or nothing from
    /// anyone. On an error nobody knows whether anything was taken, which costs nobody but the source.
    fn admit_create(&self, source: SourceKey, bytes: u64) -> PortFuture<'_, Admission>;

    /// Puts the service tokens of a grant back, never above the burst. The source's stay spent.
    fn give_back(&self, grant: Grant) -> PortFuture<'_, ()>;
}

/// The ceilings of reads and deletes, of this process alone (contract A6): they wait for nothing.
pub trait SourceLimits: Send + Sync {
    /// Charges a read to its source.
    ///
    /// # Errors
    /// The source is over its budget; nothing was taken.
    fn admit_read(&self, source: SourceKey) -> Result<(), Refusal>;

    /// Charges a delete to its source.
    ///
    /// # Errors
    /// The source is over its budget; nothing was taken.
    fn admit_delete(&self, source: SourceKey) -> Result<(), Refusal>;
}

/// The machine's clocks.
pub trait Clock: Send + Sync {
    /// Wall-clock time. It may jump.
    fn wall(&self) -> Timestamp;

    /// Time since some fixed point of this process. It never goes back.
    fn monotonic(&self) -> Duration;
}

/// The operating system's random generator.
pub trait Entropy: Send + Sync {
    /// Fills the buffer with unpredictable bytes.
    ///
    /// # Errors
    /// [`Fault::Unavailable`] if there are none to be had.
    fn fill(&self, buffer: &mut [u8]) -> Result<(), PortError>;
}
