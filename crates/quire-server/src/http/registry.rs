//! Who holds which connections, so that one peer cannot lock out the others.
//!
//! Promises: never more than the bound are open, but for those already told to close. When the bound is
//! reached and one source holds more than half of all, somebody else's new connection takes the place of one
//! on which nothing is in flight. Its lock is taken when a connection begins and when it ends, never for a
//! request.

use std::{
    collections::{BTreeMap, HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quire_core::source::SourceKey;

use super::connection::{Connection, Order};

/// The connections of one server.
pub(super) struct Registry {
    connections_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By source, and within a source by age.
    of_source: HashMap<SourceKey, BTreeMap<u64, Arc<Connection>>>,
    open: usize,
    next_number: u64,
    /// The one source that holds more than half of the bound, if there is one.
    hog: Option<SourceKey>,
    /// Set once: from then on nobody is admitted.
    closed: bool,
}

/// A connection's place; given back when dropped.
pub(super) struct Place {
    registry: Arc<Registry>,
    source: SourceKey,
    number: u64,
    /// The record of the connection that has this place.
    pub(super) connection: Arc<Connection>,
}

/// What became of a new connection.
pub(super) enum Admission {
    /// It may stay.
    Admitted(Place),
    /// It may stay, because a connection of the source that held most was told to close.
    InsteadOfHog(Place),
    /// There is no room.
    Full,
}

impl Registry {
    pub(super) fn new(connections_max: usize) -> Arc<Self> {
        Arc::new(Self { connections_max, state: Mutex::default() })
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Finds a place for a new connection of this source. One that is a proxy holds many for good reason.
    pub(super) fn admit(self: &Arc<Self>, source: SourceKey, is_proxy: bool) -> Admission {
        let mut state = self.state();
        if state.closed {
            return Admission::Full;
        }
        let mut instead_of_hog = false;
        if state.open >= self.connections_max {
            match state.hog.filter(|hog| *hog != source) {
                Some(hog) if state.close_one_of(hog) => instead_of_hog = true,
                _ => return Admission::Full,
            }
        }
        let number = state.next_number;
        state.next_number += 1;
        state.open += 1;
        let connection = Connection::new();
        let of_source = state.of_source.entry(source).or_default();
        of_source.insert(number, Arc::clone(&connection));
        if !is_proxy && of_source.len() > self.connections_max / 2 {
            state.hog = Some(source);
        }
        let place = Place { registry: Arc::clone(self), source, number, connection };
        if instead_of_hog { Admission::InsteadOfHog(place) } else { Admission::Admitted(place) }
    }

    /// Admits nobody any more, and lets every connection finish what is in flight on it.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for connection in state.of_source.values().flat_map(BTreeMap::values) {
            connection.order(Order::Finish);
        }
    }

    fn leave(&self, source: SourceKey, number: u64) {
        self.state().remove(source, number, self.connections_max);
    }
}

impl State {
    /// Tells the oldest connection of `source` on which nothing is in flight to close, and counts it out.
    fn close_one_of(&mut self, source: SourceKey) -> bool {
        let Some(of_source) = self.of_source.get_mut(&source) else { return false };
        let waiting = of_source.iter().find(|(_, connection)| connection.close_if_waiting());
        let Some(number) = waiting.map(|(number, _)| *number) else { return false };
        // Its place is free from now on; that it still has to notice takes no place of the newcomer.
        of_source.remove(&number);
        self.open = self.open.saturating_sub(1);
        true
    }

    fn remove(&mut self, source: SourceKey, number: u64, connections_max: usize) {
        let Entry::Occupied(mut of_source) = self.of_source.entry(source) else { return };
        if of_source.get_mut().remove(&number).is_none() {
            return;
        }
        let left = of_source.get().len();
        if left == 0 {
            of_source.remove();
        }
        self.open = self.open.saturating_sub(1);
        if self.hog == Some(source) && left <= connections_max / 2 {
            self.hog = None;
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.leave(self.source, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(last: u8) -> SourceKey {
        SourceKey::V4([192, 0, 2, last])
    }

    fn admit(registry: &Arc<Registry>, last: u8) -> Option<Place> {
        match registry.admit(key(last), false) {
            Admission::Admitted(place) | Admission::InsteadOfHog(place) => Some(place),
            Admission::Full => None,
        }
    }

    #[test]
    fn the_bound_holds_and_a_place_is_given_back() {
        let registry = Registry::new(2);
        let first = admit(&registry, 1);
        let _second = admit(&registry, 2);
        assert!(admit(&registry, 3).is_none(), "nobody holds more than half");
        drop(first);
        let _third = admit(&registry, 3).unwrap();
        let state = registry.state();
        assert_eq!((state.open, state.of_source.len()), (2, 2));
    }

    #[test]
    fn a_hog_makes_room_for_somebody_else_but_not_for_itself() {
        let registry = Registry::new(4);
        let mut hogs: Vec<_> = (0..4).filter_map(|_| admit(&registry, 1)).collect();
        assert_eq!(hogs.len(), 4);
        assert!(admit(&registry, 1).is_none());
        // Something is in flight on the oldest: it is spared.
        hogs[0].connection.request_begins();
        assert!(matches!(registry.admit(key(2), false), Admission::InsteadOfHog(_)));
        let _other = admit(&registry, 3).unwrap();
        assert!(!hogs[1].connection.close_if_waiting(), "the second oldest was told to close");
        // The dropped newcomer's place went to the last one, so the hog has three of four left.
        assert!(hogs[2].connection.close_if_waiting());
        hogs.clear();
        let state = registry.state();
        assert_eq!((state.open, state.hog), (1, None));
    }

    #[test]
    fn a_proxy_that_holds_most_is_no_hog() {
        let registry = Registry::new(4);
        let _held: Vec<_> = (0..4).map(|_| registry.admit(key(1), true)).collect();
        assert!(admit(&registry, 2).is_none());
    }

    #[test]
    fn nobody_is_admitted_after_the_end() {
        let registry = Registry::new(4);
        registry.close();
        assert!(admit(&registry, 1).is_none());
    }

    #[test]
    fn an_evicted_connection_is_not_counted_out_twice() {
        let registry = Registry::new(2);
        let hogs: Vec<_> = (0..2).filter_map(|_| admit(&registry, 1)).collect();
        let newcomer = admit(&registry, 2).unwrap();
        drop(hogs);
        assert_eq!(registry.state().open, 1);
        drop(newcomer);
        assert_eq!(registry.state().open, 0);
        assert!(registry.state().of_source.is_empty());
    }
}
