//! The cache over the fakes, polled by hand: coherence with deletes at every interleaving, expiry on every
//! hit, one load for many readers.

use std::{pin::pin, time::Duration};

use quire_core::{
    paste::{Paste, Text, Ttl},
    service::{COMMIT_DEADLINE_DEFAULT, Created, Deleted, NewPaste, ReadError, Service},
    testing::{
        exec::{run_or_drop, run_until_stuck},
        faults::{Call, Fault, Gate},
        world::World,
    },
};

use super::*;

struct Cached {
    world: Arc<World>,
    rows: Arc<CachedRows>,
    bodies: Arc<CachedBodies>,
    service: Service,
}

fn cached() -> Cached {
    let world = World::new();
    let rows = Arc::new(CachedRows::new(world.clone(), world.clone(), 1_000_000));
    let bodies = Arc::new(CachedBodies::new(world.clone(), 1_000_000));
    let service =
        Service::new(rows.clone(), bodies.clone(), world.clone(), world.clone(), COMMIT_DEADLINE_DEFAULT);
    Cached { world, rows, bodies, service }
}

impl Cached {
    fn create(&self) -> Created {
        let paste =
            NewPaste { ttl: Ttl::Day, syntax: None, text: Text::new(Bytes::from_static(b"hello")).unwrap() };
        run_or_drop(self.service.create(paste)).unwrap().unwrap()
    }

    fn read(&self, id: Id) -> Result<Option<Paste>, ReadError> {
        run_or_drop(self.service.read(id)).expect("not stuck")
    }

    fn delete(&self, made: &Created) -> Deleted {
        let deleted = run_or_drop(self.service.delete(made.id, &made.delete_token)).unwrap().unwrap();
        if let Deleted::Gone(body) = &deleted {
            run_or_drop(self.service.remove_body(*body)).unwrap().unwrap();
        }
        deleted
    }

    fn calls(&self, call: Call) -> usize {
        self.world.script.made().into_iter().filter(|made| *made == call).count()
    }
}

#[test]
fn a_hot_paste_asks_no_store() {
    let cached = cached();
    let made = cached.create();
    for _ in 0..5 {
        assert_eq!(cached.read(made.id).unwrap().unwrap().body, "hello");
    }
    assert_eq!((cached.calls(Call::RowsFind), cached.calls(Call::BodiesGet)), (1, 1));
}

#[test]
fn an_absent_row_is_asked_for_again() {
    let cached = cached();
    let id = Id::parse(b"000000000000").unwrap();
    assert!(cached.read(id).unwrap().is_none());
    assert!(cached.read(id).unwrap().is_none());
    assert_eq!(cached.calls(Call::RowsFind), 2);
}

#[test]
fn expiry_is_checked_on_every_hit() {
    let cached = cached();
    let made = cached.create();
    assert!(cached.read(made.id).unwrap().is_some());
    cached.world.state().wall = made.expires_at;
    assert!(cached.read(made.id).unwrap().is_none());
    assert_eq!(cached.calls(Call::RowsFind), 1, "the cache knew");
}

#[test]
fn a_delete_is_seen_by_the_next_read_whatever_its_outcome() {
    for done in [true, false] {
        let cached = cached();
        let made = cached.create();
        assert!(cached.read(made.id).unwrap().is_some());
        cached.world.script.fail_at(1, Fault::AnswerLost { done });
        let deleted = run_or_drop(cached.service.delete(made.id, &made.delete_token)).unwrap();
        assert!(deleted.is_err(), "the outcome is unknown");
        assert_eq!(cached.read(made.id).unwrap().is_some(), !done, "so the store was asked");
    }
}

#[test]
fn a_delete_that_is_given_up_forgets_the_row_too() {
    let cached = cached();
    let made = cached.create();
    assert!(cached.read(made.id).unwrap().is_some());
    cached.world.script.fail_at(1, Fault::ProcessGone { done: true });
    assert!(run_or_drop(cached.service.delete(made.id, &made.delete_token)).is_none());
    assert!(cached.read(made.id).unwrap().is_none());
}

#[test]
fn a_row_loaded_while_it_is_deleted_is_not_kept() {
    let cached = cached();
    let made = cached.create();
    // The lookup reads the row, then its answer is on the way while the paste is deleted.
    let rows: &CachedRows = &cached.rows;
    let gate = Gate::default();
    let answer_on_the_way = {
        let (gate, world) = (gate.clone(), cached.world.clone());
        let load: PortFuture<'static, _> = Box::pin(async move {
            let found = world.find(made.id).await;
            gate.passed().await;
            found
        });
        let kept = rows.kept.clone();
        rows.flights.join(made.id, load, move |found| {
            if let Ok(Some(stored)) = found {
                kept.insert(made.id, stored.clone());
            }
        })
    };
    let mut early = pin!(answer_on_the_way);
    assert!(run_until_stuck(early.as_mut()).is_none());
    let mut joined = pin!(cached.service.read(made.id));
    assert!(run_until_stuck(joined.as_mut()).is_none(), "a second reader joins the load");

    assert!(matches!(cached.delete(&made), Deleted::Gone(_)));
    assert!(cached.read(made.id).unwrap().is_none(), "begun after the delete: joins nothing, finds nothing");

    gate.open();
    assert!(run_until_stuck(early.as_mut()).unwrap().unwrap().is_some(), "it began before the delete");
    assert!(run_until_stuck(joined.as_mut()).is_some());
    assert!(cached.read(made.id).unwrap().is_none(), "and what it found was not kept");
    assert_eq!(cached.rows.kept.len(), 0);
}

#[test]
fn readers_who_come_together_share_one_lookup_and_one_fetch() {
    let cached = cached();
    let made = cached.create();
    let (row_gate, body_gate) = (Gate::default(), Gate::default());
    cached.world.script.fail_at(0, Fault::Slow(row_gate.clone()));
    cached.world.script.fail_at(1, Fault::Slow(body_gate.clone()));
    let mut readers: Vec<_> = (0..20).map(|_| Box::pin(cached.service.read(made.id))).collect();
    assert!(readers.iter_mut().all(|reader| run_until_stuck(reader.as_mut()).is_none()));
    row_gate.open();
    assert!(readers.iter_mut().all(|reader| run_until_stuck(reader.as_mut()).is_none()));
    body_gate.open();
    for reader in &mut readers {
        let paste = run_until_stuck(reader.as_mut()).unwrap().unwrap().unwrap();
        assert_eq!(paste.body, "hello");
    }
    assert_eq!((cached.calls(Call::RowsFind), cached.calls(Call::BodiesGet)), (1, 1));
    assert_eq!((cached.rows.flights.under_way(), cached.bodies.flights.under_way()), (0, 0));
}

#[test]
fn readers_who_come_together_share_a_failure_and_it_is_not_kept() {
    let cached = cached();
    let made = cached.create();
    let gate = Gate::default();
    let rows = &cached.rows;
    let failing: PortFuture<'static, Option<Arc<StoredRow>>> = {
        let gate = gate.clone();
        Box::pin(async move {
            gate.passed().await;
            Err(PortError::new(quire_core::ports::Fault::Unavailable))
        })
    };
    let _first = rows.flights.join(made.id, failing, |_| ());
    let mut readers: Vec<_> = (0..5).map(|_| Box::pin(cached.service.read(made.id))).collect();
    assert!(readers.iter_mut().all(|reader| run_until_stuck(reader.as_mut()).is_none()));
    gate.open();
    for reader in &mut readers {
        assert!(matches!(run_until_stuck(reader.as_mut()), Some(Err(ReadError::Row(_)))));
    }
    assert_eq!(cached.calls(Call::RowsFind), 0, "nobody asked on their own");
    assert!(cached.read(made.id).unwrap().is_some(), "the next read asks again");
}

#[test]
fn a_load_whose_readers_hang_up_leaves_nothing_behind() {
    let cached = cached();
    let made = cached.create();
    cached.world.script.fail_at(0, Fault::Slow(Gate::default()));
    let mut reader = Box::pin(cached.service.read(made.id));
    assert!(run_until_stuck(reader.as_mut()).is_none());
    assert_eq!(cached.rows.flights.under_way(), 1);
    drop(reader);
    assert_eq!(cached.rows.flights.under_way(), 0);
    assert!(cached.read(made.id).unwrap().is_some());
}

#[test]
fn a_shared_lookup_does_not_serve_what_has_expired_since() {
    let cached = cached();
    let made = cached.create();
    let gate = Gate::default();
    cached.world.script.fail_at(0, Fault::Slow(gate.clone()));
    let mut prompt = pin!(cached.rows.find(made.id));
    let mut late = pin!(cached.rows.find(made.id));
    assert!(run_until_stuck(prompt.as_mut()).is_none());
    assert!(run_until_stuck(late.as_mut()).is_none());
    gate.open();
    assert!(run_until_stuck(prompt.as_mut()).unwrap().unwrap().is_some());
    // The other reader shares that answer, but looks at it only after the paste has expired.
    cached.world.pass(Duration::from_hours(25));
    assert!(run_until_stuck(late.as_mut()).unwrap().unwrap().is_none());
}

#[test]
fn a_deleted_body_is_forgotten_and_the_budget_is_kept() {
    let cached = cached();
    let made = cached.create();
    assert!(cached.read(made.id).unwrap().is_some());
    assert_eq!(cached.bodies.kept.len(), 1);
    cached.delete(&made);
    assert_eq!(cached.bodies.kept.len(), 0);

    let small = CachedBodies::new(cached.world.clone(), 100_000);
    for number in 0..100_u32 {
        let id = Id::parse(format!("{number:012}").as_bytes()).unwrap();
        small.kept.insert(id, Bytes::from(vec![b'x'; 10_000]));
    }
    assert!(small.kept.weight() <= 100_000, "{}", small.kept.weight());
}
