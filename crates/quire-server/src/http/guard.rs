//! Counts of what is in flight: requests in all and per source, creates per source, bytes.
//!
//! Promises: nothing ever waits here, what does not fit is refused at once (H2); whatever was taken is given
//! back by `Drop`, however the work ends; a source that is not connected and has nothing in flight takes no
//! memory. It must never decide by anything but numbers.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicUsize, Ordering},
    },
};

use quire_core::source::SourceKey;

use super::{
    bounds::{Bounds, SourceInFlight},
    metrics::Shed,
};

/// Locks of the per-source table; a power of two, so that they divide the 256 values of a byte evenly.
const SHARDS: u8 = 64;

/// An amount of something that may be in use at once.
#[derive(Debug)]
pub(super) struct Budget {
    used: AtomicUsize,
    max: usize,
}

/// A part of a [`Budget`], given back when dropped.
#[derive(Debug)]
pub(super) struct Share {
    of: Arc<Budget>,
    amount: usize,
}

impl Budget {
    fn new(max: usize) -> Arc<Self> {
        Arc::new(Self { used: AtomicUsize::new(0), max })
    }

    /// Takes `amount` if it is there now.
    pub(super) fn try_take(self: &Arc<Self>, amount: usize) -> Option<Share> {
        let fits = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.max);
        // Nothing else is published through this number, so no ordering is needed.
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Share { of: Arc::clone(self), amount })
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.of.used.fetch_sub(self.amount, Ordering::Relaxed);
    }
}

/// What a request is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Create,
    Other,
}

/// All counts of one server.
pub(super) struct Guard {
    requests: Arc<Budget>,
    declared_bytes: Arc<Budget>,
    answer_bytes: Arc<Budget>,
    discards: Arc<Budget>,
    lingers: Arc<Budget>,
    sources: Arc<Sources>,
}

/// The sources that are connected or have something in flight.
struct Sources {
    bounds: Option<SourceInFlight>,
    shards: Vec<Mutex<HashMap<SourceKey, Weak<Source>>>>,
}

/// What one source has in flight. A connection looks it up once, so that a request costs no look-up.
pub(super) struct Source {
    key: SourceKey,
    /// Its bounds on requests and on creates; `None` if they are off.
    budgets: Option<(Arc<Budget>, Arc<Budget>)>,
    /// Where it is known.
    sources: Arc<Sources>,
}

/// A request's place; it is in flight until this is dropped.
pub(super) struct InFlight {
    _request: Share,
    _of_source: Option<(Share, Option<Share>)>,
    /// Holds the source's entry, so that a client who hangs up and comes back finds its work counted.
    _source: Arc<Source>,
}

impl Source {
    /// Whom it stands for.
    pub(super) const fn key(&self) -> SourceKey {
        self.key
    }
}

impl Guard {
    pub(super) fn new(bounds: &Bounds) -> Self {
        let shards = (0..SHARDS).map(|_| Mutex::default()).collect();
        Self {
            requests: Budget::new(bounds.requests_max),
            declared_bytes: Budget::new(bounds.declared_bytes_max),
            answer_bytes: Budget::new(bounds.answer_bytes_max),
            discards: Budget::new(bounds.discards_max),
            lingers: Budget::new(bounds.lingers_max),
            sources: Arc::new(Sources { bounds: bounds.source_in_flight, shards }),
        }
    }

    /// The counts of a source.
    pub(super) fn source(&self, key: SourceKey) -> Arc<Source> {
        self.sources.get(key)
    }

    /// A place for one request of this source.
    ///
    /// # Errors
    /// Which bound it would have passed.
    pub(super) fn enter(&self, source: &Arc<Source>, kind: Kind) -> Result<InFlight, Shed> {
        let request = self.requests.try_take(1).ok_or(Shed::Requests)?;
        let of_source = match &source.budgets {
            None => None,
            Some((requests, creates)) => {
                let request = requests.try_take(1).ok_or(Shed::SourceRequests)?;
                let create = match kind {
                    Kind::Create => Some(creates.try_take(1).ok_or(Shed::SourceCreates)?),
                    Kind::Other => None,
                };
                Some((request, create))
            }
        };
        Ok(InFlight { _request: request, _of_source: of_source, _source: Arc::clone(source) })
    }

    /// Room for a body of a create, by its declared length.
    pub(super) fn declare(&self, bytes: usize) -> Result<Share, Shed> {
        self.declared_bytes.try_take(bytes).ok_or(Shed::DeclaredBytes)
    }

    /// Room for a large answer.
    pub(super) fn answer(&self, bytes: usize) -> Result<Share, Shed> {
        self.answer_bytes.try_take(bytes).ok_or(Shed::AnswerBytes)
    }

    /// A place to read and throw away a refused body.
    pub(super) fn discard(&self) -> Option<Share> {
        self.discards.try_take(1)
    }

    /// A place to wait for a peer to read its last answer.
    pub(super) fn linger(&self) -> Option<Share> {
        self.lingers.try_take(1)
    }
}

impl Sources {
    /// The shard of a key; `None` is never needed, since the spread is taken modulo their number.
    fn shard(&self, key: SourceKey) -> Option<MutexGuard<'_, HashMap<SourceKey, Weak<Source>>>> {
        let shard = self.shards.get(usize::from(key.spread() % SHARDS))?;
        Some(shard.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn get(self: &Arc<Self>, key: SourceKey) -> Arc<Source> {
        let new = |budgets| Arc::new(Source { key, budgets, sources: Arc::clone(self) });
        let (Some(bounds), Some(mut shard)) = (self.bounds, self.shard(key)) else { return new(None) };
        if let Some(known) = shard.get(&key).and_then(Weak::upgrade) {
            return known;
        }
        let source = new(Some((Budget::new(bounds.requests_max), Budget::new(bounds.creates_max))));
        shard.insert(key, Arc::downgrade(&source));
        source
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        // Between the last holder's leaving and this lock, the same source may have come back.
        if self.budgets.is_some()
            && let Some(mut shard) = self.sources.shard(self.key)
            && let Entry::Occupied(entry) = shard.entry(self.key)
            && entry.get().strong_count() == 0
        {
            entry.remove();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(guard: &Guard, last: u8) -> Arc<Source> {
        guard.source(SourceKey::V4([192, 0, 2, last]))
    }

    fn guard(requests_max: usize) -> Guard {
        let source_in_flight = Some(SourceInFlight { requests_max: 3, creates_max: 2 });
        Guard::new(&Bounds { requests_max, source_in_flight, ..Bounds::default() })
    }

    fn sources_known(guard: &Guard) -> usize {
        guard.sources.shards.iter().map(|shard| shard.lock().unwrap().len()).sum()
    }

    #[test]
    fn one_source_has_its_own_bounds() {
        let guard = guard(100);
        let one = source(&guard, 1);
        let mut held = vec![guard.enter(&one, Kind::Create).ok(), guard.enter(&one, Kind::Create).ok()];
        assert_eq!(guard.enter(&one, Kind::Create).err(), Some(Shed::SourceCreates));
        held.push(guard.enter(&source(&guard, 1), Kind::Other).ok());
        assert_eq!(guard.enter(&one, Kind::Other).err(), Some(Shed::SourceRequests));
        assert!(guard.enter(&source(&guard, 2), Kind::Create).is_ok(), "another source is not concerned");
        drop(held);
        assert!(guard.enter(&one, Kind::Create).is_ok());
        drop(one);
        assert_eq!(sources_known(&guard), 0, "nothing is remembered of who has left");
    }

    #[test]
    fn work_is_counted_for_who_has_hung_up() {
        let guard = guard(100);
        let work = [(); 2].map(|()| guard.enter(&source(&guard, 1), Kind::Create).ok());
        assert_eq!(guard.enter(&source(&guard, 1), Kind::Create).err(), Some(Shed::SourceCreates));
        drop(work);
        assert_eq!(sources_known(&guard), 0);
    }

    #[test]
    fn everybody_together_has_a_bound() {
        let guard = guard(2);
        let first = guard.enter(&source(&guard, 1), Kind::Other).ok();
        let _second = guard.enter(&source(&guard, 2), Kind::Other);
        assert_eq!(guard.enter(&source(&guard, 3), Kind::Other).err(), Some(Shed::Requests));
        drop(first);
        assert!(guard.enter(&source(&guard, 3), Kind::Other).is_ok());
    }

    #[test]
    fn a_refusal_by_the_source_takes_nothing_from_all() {
        let guard = guard(4);
        let one = source(&guard, 1);
        let _held: Vec<_> = (0..3).map(|_| guard.enter(&one, Kind::Other)).collect();
        for _ in 0..10 {
            assert!(guard.enter(&one, Kind::Other).is_err());
        }
        assert!(guard.enter(&source(&guard, 2), Kind::Other).is_ok());
    }

    #[test]
    fn a_source_bound_can_be_off() {
        let guard = Guard::new(&Bounds { source_in_flight: None, ..Bounds::default() });
        let one = source(&guard, 1);
        let held: Vec<_> = (0..1_000).map(|_| guard.enter(&one, Kind::Create)).collect();
        assert!(held.iter().all(Result::is_ok));
        assert_eq!(sources_known(&guard), 0);
    }

    #[test]
    fn bytes_are_counted_and_given_back() {
        let budget = Budget::new(10);
        let all = budget.try_take(10);
        assert!(all.is_some() && budget.try_take(1).is_none() && budget.try_take(usize::MAX).is_none());
        drop(all);
        assert!(budget.try_take(10).is_some());
    }
}
