//! Create, read and delete: the only place where the order of effects is decided.
//!
//! # Create
//!
//! | step | if it fails the client sees | what exists then | who repairs it |
//! | --- | --- | --- | --- |
//! | 1 admit (before the body is read; not here) | 429, 503 | nothing | nobody needs to |
//! | 2 mint id and token | 500 | nothing | nobody needs to |
//! | 3 body durable, create-only | 500, or 503 if the queue was full | nothing visible; perhaps an orphan | the janitor |
//! | 4 row durable, within its deadline: **the commit point** | 500, or 503 if the queue was full | an orphan; if the outcome is unknown, perhaps a paste | the janitor, or expiry |
//! | 5 answer | nothing | a complete paste that nobody can reach | expiry |
//!
//! A conflict at 3 or 4 means that the id is taken: mint again, four times in all (C6). Nothing else is ever
//! tried again: an insert of unknown outcome may have happened.
//!
//! # Delete
//!
//! 1 find the row, 2 compare the token, 3 row removed: **the commit point**, 4 body removed. The client is
//! answered after 3, so that a body store that is slow or down changes nothing for it; a body that stays
//! behind is an orphan.

use std::{sync::Arc, time::Duration};

use crate::{
    paste::{
        BodyRef, DeleteToken, Digest, ID_LEN, Id, Paste, Row, StoredRow, Syntax, TOKEN_RANDOM_BYTES, Text,
        Ttl,
    },
    ports::{Bodies, Clock, Entropy, Fault, Insert, NewBody, NewRow, PortError, Put, Rows},
    time::Timestamp,
};

mod deadline;

use deadline::RowClock;

/// Mints in one create, the first included (contract C6).
pub const MINTS_MAX: usize = 4;

/// Default for how long a create may take from its first step to the commit of its row (contract O5).
pub const COMMIT_DEADLINE_DEFAULT: Duration = Duration::from_mins(1);

/// What a client asks to be stored, all of it checked.
#[derive(Clone, Debug)]
pub struct NewPaste {
    /// How long it shall live.
    pub ttl: Ttl,
    /// Its label.
    pub syntax: Option<Syntax>,
    /// Its body.
    pub text: Text,
}

/// What the client is told about its paste. The token is nowhere else.
#[derive(Clone, Debug)]
pub struct Created {
    /// The id to read it by.
    pub id: Id,
    /// The token to delete it with.
    pub delete_token: DeleteToken,
    /// When it expires, as stored.
    pub expires_at: Timestamp,
}

/// Why a paste was not acknowledged.
#[derive(Clone, Debug, thiserror::Error)]
pub enum CreateError {
    /// The row store could not say what time it is. Nothing was stored.
    #[error("the row store did not tell the time: {0}")]
    Clock(#[source] PortError),
    /// No id could be minted.
    #[error("no id could be minted: {0}")]
    Mint(#[source] PortError),
    /// The body store failed.
    #[error("the body was not stored: {0}")]
    Body(#[source] PortError),
    /// The row store failed. If the outcome is unknown, the paste may exist.
    #[error("the row was not stored: {0}")]
    Row(#[source] PortError),
    /// The row did not come within its deadline.
    #[error("the row was not committed within its deadline")]
    DeadlinePassed,
    /// Every minted id was taken.
    #[error("{MINTS_MAX} minted ids in a row were taken")]
    Collisions,
}

/// Why a paste could not be read although it may exist.
#[derive(Clone, Debug, thiserror::Error)]
pub enum ReadError {
    /// The row store could not say.
    #[error("the row could not be looked up: {0}")]
    Row(#[source] PortError),
    /// The body store could not say.
    #[error("the body could not be read: {0}")]
    Body(#[source] PortError),
    /// A live row has no body.
    #[error("a live row has no body")]
    BodyMissing,
    /// A live row's body is not the one that was stored.
    #[error("a live row's body is not the one that was stored: {0}")]
    BodyCorrupt(#[source] PortError),
}

/// Why a paste was perhaps not deleted.
#[derive(Clone, Debug, thiserror::Error)]
pub enum DeleteError {
    /// The row store could not say, or may or may not have removed the row.
    #[error("the row was not removed for certain: {0}")]
    Row(#[source] PortError),
}

/// What became of a delete.
#[derive(Clone, Debug)]
pub enum Deleted {
    /// The paste is gone from this moment on. Its body is an orphan until
    /// [`remove_body`](Service::remove_body) has removed it.
    Gone(BodyRef),
    /// There is no such paste, or the token is not its token; the caller must not learn which.
    NotFound,
}

/// The use cases over whichever stores were chosen.
pub struct Service {
    rows: Arc<dyn Rows>,
    bodies: Arc<dyn Bodies>,
    entropy: Arc<dyn Entropy>,
    row_clock: RowClock,
    commit_deadline: Duration,
}

impl Service {
    /// A service over these ports. A create commits its row within `commit_deadline` or not at all.
    pub fn new(
        rows: Arc<dyn Rows>,
        bodies: Arc<dyn Bodies>,
        entropy: Arc<dyn Entropy>,
        clock: Arc<dyn Clock>,
        commit_deadline: Duration,
    ) -> Self {
        Self { rows, bodies, entropy, row_clock: RowClock::new(clock), commit_deadline }
    }

    /// Stores a paste; returns once body and row are durable. The steps are numbered in the module's header.
    ///
    /// # Errors
    /// Whatever the error, nothing is readable, unless a row error's outcome is unknown.
    pub async fn create(&self, paste: NewPaste) -> Result<Created, CreateError> {
        let body_sha256 = Digest::of(paste.text.bytes());
        let began = self.row_clock.estimate(&*self.rows).await.map_err(CreateError::Clock)?;
        for _ in 0..MINTS_MAX {
            // 2 mint
            let (id, delete_token) = self.mint().map_err(CreateError::Mint)?;

            // 3 body durable
            let body = NewBody {
                id,
                text: paste.text.clone(),
                sha256: body_sha256,
                expires_near: began.expiry(paste.ttl),
            };
            let locator = match self.bodies.put(body).await.map_err(CreateError::Body)? {
                Put::Stored(locator) => locator,
                Put::Exists => continue,
            };

            // 4 row durable: the commit point
            let row = NewRow {
                id,
                ttl: paste.ttl,
                size_bytes: u32::try_from(paste.text.bytes().len()).unwrap_or(u32::MAX),
                syntax: paste.syntax.clone(),
                delete_token_hash: delete_token.hash(),
                body_sha256,
                locator,
                deadline: began.plus(self.commit_deadline),
            };
            match self.rows.insert(row).await.map_err(CreateError::Row)? {
                Insert::Inserted { expires_at } => return Ok(Created { id, delete_token, expires_at }),
                Insert::Conflict => {}
                Insert::DeadlinePassed => {
                    // Perhaps it was slow; perhaps the row store's clock was set. Ask it again next time.
                    self.row_clock.forget();
                    return Err(CreateError::DeadlinePassed);
                }
            }
        }
        Err(CreateError::Collisions)
    }

    /// A live paste with its body, or `None` for whatever is not there.
    ///
    /// # Errors
    /// A store that cannot answer is an error, never `None` (R4); so is a live row without its body (R5).
    pub async fn read(&self, id: Id) -> Result<Option<Paste>, ReadError> {
        let Some(row) = self.rows.find(id).await.map_err(ReadError::Row)? else { return Ok(None) };
        let broken = match self.bodies.get(row.row.body()).await {
            Ok(Some(body)) => return Ok(Some(Paste { row, body })),
            Ok(None) => ReadError::BodyMissing,
            Err(error) if error.fault() == Fault::Corrupt => ReadError::BodyCorrupt(error),
            Err(error) => return Err(ReadError::Body(error)),
        };
        // A delete or the sweeper may have won the race between the two lookups: the row goes first, then
        // the body. Only a row that is still there makes this a fault.
        match self.rows.find_in_store(id).await.map_err(ReadError::Row)? {
            Some(_) => Err(broken),
            None => Ok(None),
        }
    }

    /// The row of a live paste, for answers that need no body.
    ///
    /// # Errors
    /// A row store that cannot answer is an error, never `None` (R4).
    pub async fn find(&self, id: Id) -> Result<Option<Arc<StoredRow>>, ReadError> {
        self.rows.find(id).await.map_err(ReadError::Row)
    }

    /// Deletes a live paste if the token is its token: steps 1 to 3 of the module's header. Step 4 is left to
    /// the caller, who need not keep the client waiting for it.
    ///
    /// # Errors
    /// A row store that cannot answer is an error, never [`Deleted::NotFound`] (D3).
    pub async fn delete(&self, id: Id, token: &DeleteToken) -> Result<Deleted, DeleteError> {
        let Some(found) = self.rows.find_in_store(id).await.map_err(DeleteError::Row)? else {
            return Ok(Deleted::NotFound);
        };
        let row: &Row = &found.row;
        if row.delete_token_hash != token.hash() {
            return Ok(Deleted::NotFound);
        }
        // The commit point. On an unknown outcome the row may still be there, so its body stays.
        if !self.rows.remove(id).await.map_err(DeleteError::Row)? {
            return Ok(Deleted::NotFound);
        }
        Ok(Deleted::Gone(row.body()))
    }

    /// Removes the body of a paste that [`delete`](Self::delete) has just removed: step 4.
    ///
    /// # Errors
    /// The body may still be there, and is an orphan.
    pub async fn remove_body(&self, body: BodyRef) -> Result<(), PortError> {
        self.bodies.remove(body).await
    }

    fn mint(&self) -> Result<(Id, DeleteToken), PortError> {
        // Of twice as many bytes as an id has characters 62/64 are usable, so that running short is rarer
        // than one in 10^15; then it is asked for again.
        let mut random = [0; ID_LEN * 2];
        let id = loop {
            self.entropy.fill(&mut random)?;
            if let Some(id) = Id::from_random(&random) {
                break id;
            }
        };
        let mut secret = [0; TOKEN_RANDOM_BYTES];
        self.entropy.fill(&mut secret)?;
        Ok((id, DeleteToken::from_random(secret)))
    }
}

impl CreateError {
    /// Whether a store's queue was full: load, and no fault. Nothing was stored that anyone can see.
    #[must_use]
    pub fn is_overload(&self) -> bool {
        matches!(self, Self::Clock(error) | Self::Body(error) | Self::Row(error) if error.fault() == Fault::Overloaded)
    }

    /// Whether it is certain that no body was written, so that what the create took from the service's
    /// budgets can be given back (contract A2).
    #[must_use]
    pub fn wrote_no_body(&self) -> bool {
        match self {
            Self::Clock(_) | Self::Mint(_) => true,
            Self::Body(error) => error.fault() != Fault::UnknownOutcome,
            Self::Row(_) | Self::DeadlinePassed | Self::Collisions => false,
        }
    }
}
