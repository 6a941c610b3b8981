//! Who holds which connections, so that nobody can lock out the others.
//!
//! Promises: never more than the bound are open, but for those already told to close. When the bound is
//! reached, a newcomer takes the place of a connection that waits, of the source that holds most, if that
//! source still holds no fewer than the newcomer's afterwards: places move towards equal shares and never
//! back. Its lock is taken when a connection begins and when it ends, never for a request, and for no longer
//! than a bounded number of looks.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, hash_map::Entry},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use quire_core::source::SourceKey;

use super::record::{Connection, Order};

/// How many of the largest holders are looked at for a newcomer, and how many connections of each. Hardly any
/// connection of a source can be at work at once (H2), so that the first few looks find one that waits.
const HOLDERS_LOOKED_AT: usize = 4;
const CONNECTIONS_LOOKED_AT: usize = 128;

/// The connections of one server.
pub(super) struct Registry {
    connections_max: usize,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    holders: HashMap<Holder, Held>,
    /// How many each source holds, but for proxies; kept so that finding the largest is no search.
    by_count: BTreeSet<(usize, SourceKey)>,
    open: usize,
    next_number: u64,
    /// Set once: from then on nobody is admitted.
    closed: bool,
}

/// Whoever's connections are counted together. A proxy holds many for good reason and makes room for nobody.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Holder {
    source: SourceKey,
    is_proxy: bool,
}

/// What one holder has.
#[derive(Default)]
struct Held {
    /// By age.
    connections: BTreeMap<u64, Arc<Connection>>,
    /// Where the next look begins, so that not the same ones are looked at again and again.
    next_look: u64,
}

/// A connection's place; given back when dropped.
pub(super) struct Place {
    registry: Arc<Registry>,
    holder: Holder,
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

    /// Finds a place for a new connection of this source.
    pub(super) fn admit(self: &Arc<Self>, source: SourceKey, is_proxy: bool) -> Admission {
        let holder = Holder { source, is_proxy };
        let mut state = self.state();
        if state.closed {
            return Admission::Full;
        }
        let is_full = state.open >= self.connections_max;
        if is_full && !state.make_room_for(holder) {
            return Admission::Full;
        }
        let connection = Connection::new();
        let number = state.add(holder, &connection);
        let place = Place { registry: Arc::clone(self), holder, number, connection };
        if is_full { Admission::InsteadOfHog(place) } else { Admission::Admitted(place) }
    }

    /// Admits nobody any more, and lets every connection finish what is in flight on it.
    pub(super) fn close(&self) {
        let mut state = self.state();
        state.closed = true;
        for connection in state.holders.values().flat_map(|held| held.connections.values()) {
            connection.order(Order::Finish);
        }
    }
}

impl State {
    fn count(&self, holder: Holder) -> usize {
        self.holders.get(&holder).map_or(0, |held| held.connections.len())
    }

    fn add(&mut self, holder: Holder, connection: &Arc<Connection>) -> u64 {
        let number = self.next_number;
        self.next_number += 1;
        self.open += 1;
        let held = self.holders.entry(holder).or_default();
        held.connections.insert(number, Arc::clone(connection));
        let count = held.connections.len();
        self.recount(holder, count.saturating_sub(1), count);
        number
    }

    fn remove(&mut self, holder: Holder, number: u64) {
        let Entry::Occupied(mut held) = self.holders.entry(holder) else { return };
        // It is gone already if it had to make room.
        if held.get_mut().connections.remove(&number).is_none() {
            return;
        }
        let left = held.get().connections.len();
        if left == 0 {
            held.remove();
        }
        self.open = self.open.saturating_sub(1);
        self.recount(holder, left + 1, left);
    }

    fn recount(&mut self, holder: Holder, before: usize, after: usize) {
        if holder.is_proxy {
            return;
        }
        self.by_count.remove(&(before, holder.source));
        if after > 0 {
            self.by_count.insert((after, holder.source));
        }
    }

    /// Tells a connection to close of one of those who hold more than their share beside this one.
    fn make_room_for(&mut self, newcomer: Holder) -> bool {
        // With one less they must still hold as many as the newcomer with one more; else two equals would
        // take each other's places in turn.
        let least = self.count(newcomer) + 2;
        let largest = self.by_count.iter().rev().take_while(|(count, _)| *count >= least);
        let largest: Vec<_> = largest.take(HOLDERS_LOOKED_AT).map(|(_, source)| *source).collect();
        largest.into_iter().any(|source| self.close_one_of(Holder { source, is_proxy: false }))
    }

    /// Tells a connection that waits to close, the oldest first, and counts it out.
    fn close_one_of(&mut self, holder: Holder) -> bool {
        let Some(Held { connections, next_look }) = self.holders.get_mut(&holder) else { return false };
        let in_turn = connections.range(*next_look..).chain(connections.range(..*next_look));
        let mut closed = None;
        for (number, connection) in in_turn.take(CONNECTIONS_LOOKED_AT) {
            *next_look = number + 1;
            if connection.close_if_waiting() {
                closed = Some(*number);
                break;
            }
        }
        // Its place is free from now on; that it still has to notice takes no place of the newcomer.
        closed.map(|number| self.remove(holder, number)).is_some()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.registry.state().remove(self.holder, self.number);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(last: u8) -> SourceKey {
        SourceKey::V4([192, 0, 2, last])
    }

    fn admit_as(registry: &Arc<Registry>, last: u8, is_proxy: bool) -> Option<Place> {
        match registry.admit(key(last), is_proxy) {
            Admission::Admitted(place) | Admission::InsteadOfHog(place) => Some(place),
            Admission::Full => None,
        }
    }

    fn admit(registry: &Arc<Registry>, last: u8) -> Option<Place> {
        admit_as(registry, last, false)
    }

    fn count(registry: &Registry, last: u8) -> usize {
        registry.state().count(Holder { source: key(last), is_proxy: false })
    }

    #[test]
    fn the_bound_holds_and_a_place_is_given_back() {
        let registry = Registry::new(2);
        let first = admit(&registry, 1);
        let _second = admit(&registry, 2);
        assert!(admit(&registry, 3).is_none(), "everybody has one");
        drop(first);
        let _third = admit(&registry, 3).unwrap();
        let state = registry.state();
        assert_eq!((state.open, state.holders.len()), (2, 2));
    }

    #[test]
    fn a_hog_makes_room_for_somebody_else_but_not_for_itself() {
        let registry = Registry::new(4);
        let mut hogs: Vec<_> = (0..4).filter_map(|_| admit(&registry, 1)).collect();
        assert_eq!(hogs.len(), 4);
        assert!(admit(&registry, 1).is_none());
        // Something is in flight on the oldest: it is spared.
        hogs[0].connection.request_begins(Some(0));
        assert!(matches!(registry.admit(key(2), false), Admission::InsteadOfHog(_)));
        let _other = admit(&registry, 3).unwrap();
        assert!(!hogs[1].connection.close_if_waiting(), "the second oldest was told to close");
        // The dropped newcomer's place went to the last one, so the hog has three of four left.
        assert!(hogs[2].connection.close_if_waiting());
        hogs.clear();
        assert_eq!(count(&registry, 1), 0);
        assert_eq!(registry.state().open, 1);
    }

    #[test]
    fn several_that_hold_everything_among_them_make_room_too() {
        let registry = Registry::new(30);
        let _held: Vec<_> = (0..30).filter_map(|number| admit(&registry, number % 3)).collect();
        let _newcomers: Vec<_> = (0..20).filter_map(|_| admit(&registry, 9)).collect();
        assert_eq!([0, 1, 2, 9].map(|source| count(&registry, source)), [8, 8, 7, 7], "as equal as can be");
    }

    #[test]
    fn where_all_of_the_largest_are_at_work_the_next_makes_room() {
        let registry = Registry::new(5);
        let busy: Vec<_> = (0..3).filter_map(|_| admit(&registry, 1)).collect();
        for place in &busy {
            place.connection.request_begins(Some(0));
        }
        let _waiting: Vec<_> = (0..2).filter_map(|_| admit(&registry, 2)).collect();
        let _newcomer = admit(&registry, 3).unwrap();
        assert_eq!([1, 2, 3].map(|source| count(&registry, source)), [3, 1, 1]);
        assert!(admit(&registry, 4).is_none());
    }

    #[test]
    fn one_that_waits_is_found_behind_many_at_work() {
        let held_max = CONNECTIONS_LOOKED_AT * 2;
        let registry = Registry::new(held_max);
        let held: Vec<_> = (0..held_max).filter_map(|_| admit(&registry, 1)).collect();
        for place in held.iter().rev().skip(1) {
            place.connection.request_begins(Some(0));
        }
        assert!(admit(&registry, 2).is_none(), "not all of them are looked at");
        assert!(admit(&registry, 2).is_some(), "and the next look goes on from there");
    }

    #[test]
    fn a_proxy_that_holds_most_makes_no_room() {
        let registry = Registry::new(4);
        let _held: Vec<_> = (0..4).map(|_| admit_as(&registry, 1, true)).collect();
        assert!(admit(&registry, 2).is_none());
        assert!(registry.state().by_count.is_empty());
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
        assert!(registry.state().holders.is_empty());
    }

    proptest! {
        /// Whoever comes and goes: the counts are right, the bound holds, and nobody is refused while somebody
        /// else holds two more.
        #[test]
        fn counts_are_right_and_shares_are_fair(
            steps in proptest::collection::vec((0_u8..5, any::<bool>(), 0_usize..40), 0..120),
        ) {
            const PROXY: u8 = 4;
            let registry = Registry::new(12);
            let mut places = Vec::new();
            for (source, leaves, which) in steps {
                if leaves && !places.is_empty() {
                    places.remove(which % places.len());
                } else {
                    let has = registry.state().count(Holder { source: key(source), is_proxy: source == PROXY });
                    let largest = registry.state().by_count.last().map_or(0, |(count, _)| *count);
                    let is_full = registry.state().open == 12;
                    let place = admit_as(&registry, source, source == PROXY);
                    prop_assert_eq!(place.is_some(), !is_full || largest >= has + 2);
                    places.extend(place);
                }
                let state = registry.state();
                let counts = state.holders.iter().map(|(holder, held)| (*holder, held.connections.len()));
                let counts: Vec<_> = counts.collect();
                prop_assert_eq!(state.open, counts.iter().map(|(_, count)| count).sum::<usize>());
                prop_assert!(state.open <= 12 && counts.iter().all(|(_, count)| *count > 0));
                let by_count = counts.iter().filter(|(holder, _)| !holder.is_proxy);
                let by_count: BTreeSet<_> = by_count.map(|(holder, count)| (*count, holder.source)).collect();
                prop_assert_eq!(&state.by_count, &by_count);
            }
            places.clear();
            prop_assert!(registry.state().holders.is_empty());
            prop_assert_eq!(registry.state().open, 0);
        }
    }
}
