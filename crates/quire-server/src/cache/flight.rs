//! Singleflight: callers who want the same thing while it is being loaded share one load and its outcome,
//! failures included.
//!
//! Promises: a load that was *detached* (its paste was deleted while it was under way) is joined by nobody
//! who comes later and its result is not kept; a load whose callers have all gone away leaves nothing
//! behind. Loads are polled by whoever waits for them, so that no runtime is needed.

use std::{
    collections::HashMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use futures_util::future::{FutureExt as _, Shared, WeakShared};
use quire_core::paste::Id;

type Load<V> = Pin<Box<dyn Future<Output = V> + Send>>;

/// The loads under way, by paste.
pub(super) struct SingleFlight<V: Clone> {
    flights: Mutex<Flights<V>>,
}

struct Flights<V: Clone> {
    next_number: u64,
    by_id: HashMap<Id, Flight<V>>,
}

struct Flight<V: Clone> {
    number: u64,
    /// Weak, so that a load nobody waits for is dropped and not kept by this map.
    load: WeakShared<Load<V>>,
}

impl<V: Clone + Send + Sync + 'static> SingleFlight<V> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { flights: Mutex::new(Flights { next_number: 0, by_id: HashMap::new() }) })
    }

    /// Joins the load of `id` that is under way, or begins one. When the load ends, `keep` is called with
    /// its result unless the load was detached by then; nothing can be detached while it runs.
    pub(super) fn join(
        self: &Arc<Self>,
        id: Id,
        load: Load<V>,
        keep: impl FnOnce(&V) + Send + 'static,
    ) -> Shared<Load<V>> {
        let mut flights = self.lock();
        if let Some(under_way) = flights.by_id.get(&id).and_then(|flight| flight.load.upgrade()) {
            return under_way;
        }
        let number = flights.next_number;
        flights.next_number += 1;
        let landing = Landing { of: Arc::clone(self), id, number };
        let begun: Load<V> = Box::pin(async move {
            let value = load.await;
            landing.land(&value, keep);
            value
        });
        let begun = begun.shared();
        if let Some(load) = begun.downgrade() {
            flights.by_id.insert(id, Flight { number, load });
        }
        begun
    }

    /// Nobody joins the load of `id` from now on, and its result is not kept. `forget` runs before another
    /// load can end.
    pub(super) fn detach(&self, id: Id, forget: impl FnOnce()) {
        let mut flights = self.lock();
        flights.by_id.remove(&id);
        forget();
    }

    fn lock(&self) -> MutexGuard<'_, Flights<V>> {
        self.flights.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn under_way(&self) -> usize {
        self.lock().by_id.len()
    }
}

/// Takes the load out of the map when it ends or is dropped.
struct Landing<V: Clone + Send + Sync + 'static> {
    of: Arc<SingleFlight<V>>,
    id: Id,
    number: u64,
}

impl<V: Clone + Send + Sync + 'static> Landing<V> {
    fn land(&self, value: &V, keep: impl FnOnce(&V)) {
        let mut flights = self.of.lock();
        if self.take_out(&mut flights) {
            keep(value);
        }
    }

    fn take_out(&self, flights: &mut Flights<V>) -> bool {
        let ours = flights.by_id.get(&self.id).is_some_and(|flight| flight.number == self.number);
        if ours {
            flights.by_id.remove(&self.id);
        }
        ours
    }
}

impl<V: Clone + Send + Sync + 'static> Drop for Landing<V> {
    fn drop(&mut self) {
        let mut flights = self.of.lock();
        self.take_out(&mut flights);
    }
}
