//! In-memory row store, body store, clock and generator that obey the ports' contracts until a script says
//! otherwise.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;

use super::faults::{Call, Fault, Script};
use crate::{
    paste::{BodyRef, Digest, Id, Row, StoredRow},
    ports::{
        Bodies, Clock, Entropy, Fault as PortFault, Insert, NewBody, NewRow, PortError, PortFuture, Put, Rows,
    },
    service::{COMMIT_DEADLINE_DEFAULT, Service},
    time::Timestamp,
};

/// What survives a process, and the script of what goes wrong. One world serves any number of services,
/// as a restarted process or a second app would find it.
#[derive(Debug)]
pub struct World {
    state: Mutex<State>,
    /// What goes wrong, and what was called.
    pub script: Script,
}

/// The stores and the clock.
#[derive(Debug)]
pub struct State {
    /// The row store.
    pub rows: HashMap<Id, Row>,
    /// The body store.
    pub bodies: HashMap<Id, Bytes>,
    /// The machine's wall clock.
    pub wall: Timestamp,
    /// How far the row store's clock is ahead of it, as on another machine.
    pub rows_ahead: Duration,
    /// The monotonic clock.
    pub monotonic: Duration,
    /// The next random bytes; counts up, so that ids differ, unless a test sets it back.
    pub entropy: u64,
}

impl State {
    /// What the row store's clock says.
    #[must_use]
    pub fn rows_now(&self) -> Timestamp {
        self.wall.plus(self.rows_ahead)
    }
}

impl World {
    /// An empty world in the middle of a day.
    #[must_use]
    pub fn new() -> Arc<Self> {
        let state = State {
            rows: HashMap::new(),
            bodies: HashMap::new(),
            wall: Timestamp::from_unix_ms(1_793_641_440_500),
            rows_ahead: Duration::ZERO,
            monotonic: Duration::from_secs(7),
            entropy: 0,
        };
        Arc::new(Self { state: Mutex::new(state), script: Script::default() })
    }

    /// A service over this world, as a fresh process would make it.
    #[must_use]
    pub fn service(self: &Arc<Self>) -> Service {
        let (rows, bodies): (Arc<dyn Rows>, Arc<dyn Bodies>) = (self.clone(), self.clone());
        Service::new(rows, bodies, self.clone(), self.clone(), COMMIT_DEADLINE_DEFAULT)
    }

    /// Looks at, or changes, what is stored.
    pub fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Time passes, on both clocks.
    pub fn pass(&self, time: Duration) {
        let mut state = self.state();
        state.wall = state.wall.plus(time);
        state.monotonic += time;
    }

    /// The invariant: whoever has a live row has a body, and the right one.
    #[must_use]
    pub fn every_live_row_has_its_body(&self) -> bool {
        let state = self.state();
        state
            .rows
            .values()
            .filter(|row| row.expires_at > state.rows_now())
            .all(|row| state.bodies.get(&row.id).is_some_and(|body| Digest::of(body) == row.body_sha256))
    }

    /// Bodies nobody refers to.
    #[must_use]
    pub fn orphans(&self) -> usize {
        let state = self.state();
        state.bodies.keys().filter(|id| !state.rows.contains_key(id)).count()
    }

    /// Meets the script, then has the effect or not, as the fault says.
    fn call<T: Send + 'static>(
        &self,
        call: Call,
        effect: impl FnOnce(&mut State) -> Result<T, PortError> + Send + 'static,
    ) -> PortFuture<'_, T> {
        Box::pin(async move {
            match self.script.meet(call) {
                None => effect(&mut self.state()),
                Some(Fault::Refused) => Err(PortError::new(PortFault::Unavailable)),
                Some(Fault::Full) => Err(PortError::new(PortFault::Overloaded)),
                Some(Fault::Slow(gate)) => {
                    gate.passed().await;
                    effect(&mut self.state())
                }
                Some(Fault::AnswerLost { done }) => {
                    if done {
                        effect(&mut self.state())?;
                    }
                    Err(PortError::new(PortFault::UnknownOutcome))
                }
                Some(Fault::ProcessGone { done }) => {
                    if done {
                        effect(&mut self.state())?;
                    }
                    std::future::pending().await
                }
            }
        })
    }
}

impl Rows for World {
    fn now(&self) -> PortFuture<'_, Timestamp> {
        self.call(Call::RowsNow, |state| Ok(state.rows_now()))
    }

    fn insert(&self, row: NewRow) -> PortFuture<'_, Insert> {
        self.call(Call::RowsInsert, move |state| {
            if state.rows.contains_key(&row.id) {
                return Ok(Insert::Conflict);
            }
            let now = state.rows_now();
            if now > row.deadline {
                return Ok(Insert::DeadlinePassed);
            }
            let expires_at = now.expiry(row.ttl);
            let stored = Row {
                id: row.id,
                created_at: now,
                expires_at,
                size_bytes: row.size_bytes,
                syntax: row.syntax,
                delete_token_hash: row.delete_token_hash,
                body_sha256: row.body_sha256,
                locator: row.locator,
            };
            state.rows.insert(row.id, stored);
            Ok(Insert::Inserted { expires_at })
        })
    }

    fn find(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        self.call(Call::RowsFind, move |state| Ok(find_live(state, id)))
    }

    fn find_in_store(&self, id: Id) -> PortFuture<'_, Option<Arc<StoredRow>>> {
        self.call(Call::RowsFindInStore, move |state| Ok(find_live(state, id)))
    }

    fn remove(&self, id: Id) -> PortFuture<'_, bool> {
        self.call(Call::RowsRemove, move |state| {
            let live = find_live(state, id).is_some();
            if live {
                state.rows.remove(&id);
            }
            Ok(live)
        })
    }
}

fn find_live(state: &State, id: Id) -> Option<Arc<StoredRow>> {
    let row = state.rows.get(&id).filter(|row| row.expires_at > state.rows_now())?;
    Some(Arc::new(StoredRow::new(row.clone())))
}

impl Bodies for World {
    fn put(&self, body: NewBody) -> PortFuture<'_, Put> {
        self.call(Call::BodiesPut, move |state| {
            if state.bodies.contains_key(&body.id) {
                return Ok(Put::Exists);
            }
            state.bodies.insert(body.id, body.text.bytes().clone());
            Ok(Put::Stored(None))
        })
    }

    fn get(&self, body: BodyRef) -> PortFuture<'_, Option<Bytes>> {
        self.call(Call::BodiesGet, move |state| match state.bodies.get(&body.id) {
            None => Ok(None),
            Some(bytes)
                if u32::try_from(bytes.len()) == Ok(body.size_bytes) && Digest::of(bytes) == body.sha256 =>
            {
                Ok(Some(bytes.clone()))
            }
            Some(_) => Err(PortError::new(PortFault::Corrupt)),
        })
    }

    fn remove(&self, body: BodyRef) -> PortFuture<'_, ()> {
        self.call(Call::BodiesRemove, move |state| {
            state.bodies.remove(&body.id);
            Ok(())
        })
    }
}

impl Clock for World {
    fn wall(&self) -> Timestamp {
        self.state().wall
    }

    fn monotonic(&self) -> Duration {
        self.state().monotonic
    }
}

impl Entropy for World {
    /// Only "refused" and "full" have a meaning here: the call does not wait and has no effect to lose.
    fn fill(&self, buffer: &mut [u8]) -> Result<(), PortError> {
        if self.script.meet(Call::EntropyFill).is_some() {
            return Err(PortError::new(PortFault::Unavailable));
        }
        let mut state = self.state();
        for (slot, byte) in buffer.iter_mut().zip(state.entropy.to_le_bytes().into_iter().cycle()) {
            *slot = byte;
        }
        state.entropy += 1;
        Ok(())
    }
}
