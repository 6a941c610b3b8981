//! Every fault at every port call of every use case in turn: what the caller is told, what exists
//! afterwards, and that a fresh process finds the world in order.

#![expect(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test fails by panicking")]

use std::{pin::pin, sync::Arc, time::Duration};

use bytes::Bytes;
use quire_core::{
    paste::{DeleteToken, Id, Text, Ttl},
    service::{CreateError, Created, DeleteError, Deleted, MINTS_MAX, NewPaste, ReadError},
    testing::{
        exec::{run_or_drop, run_until_stuck},
        faults::{Call, Fault, Gate},
        world::World,
    },
    time::Timestamp,
};

const BODY: &[u8] = "caf\u{e9} au lait\r\n".as_bytes();

fn paste() -> NewPaste {
    NewPaste { ttl: Ttl::Month, syntax: None, text: Text::new(Bytes::from_static(BODY)).unwrap() }
}

fn every_fault() -> Vec<Fault> {
    let both = |fault: fn(bool) -> Fault| [fault(true), fault(false)];
    let mut all = vec![Fault::Refused, Fault::Full, Fault::Slow(Gate::default())];
    all.extend(both(|done| Fault::AnswerLost { done }));
    all.extend(both(|done| Fault::ProcessGone { done }));
    all
}

fn create(world: &Arc<World>) -> Created {
    run_or_drop(world.service().create(paste())).expect("not stuck").expect("stored")
}

fn reads_back(world: &Arc<World>, id: Id) -> bool {
    let read = run_or_drop(world.service().read(id)).expect("not stuck").expect("answered");
    read.is_some_and(|paste| paste.body == BODY)
}

/// Polls a use case to its end, opening the gate of a slow call only after it was seen to wait there.
fn run<T>(fault: &Fault, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    let first = run_until_stuck(future.as_mut());
    let Fault::Slow(gate) = fault else { return first };
    assert!(first.is_none(), "a slow call is waited for");
    gate.open();
    run_until_stuck(future.as_mut())
}

#[derive(Debug, PartialEq, Eq)]
enum Exists {
    Nothing,
    Orphan,
    Paste,
}

fn what_exists(world: &World) -> Exists {
    let state = world.state();
    match (state.bodies.len(), state.rows.len()) {
        (0, 0) => Exists::Nothing,
        (1, 0) => Exists::Orphan,
        (1, 1) => Exists::Paste,
        other => panic!("neither nothing, nor an orphan, nor a paste: {other:?}"),
    }
}

fn in_order(world: &World) {
    assert!(world.every_live_row_has_its_body());
}

#[test]
fn create_without_a_fault_makes_these_calls_in_this_order() {
    let world = World::new();
    create(&world);
    let expected = [Call::RowsNow, Call::EntropyFill, Call::EntropyFill, Call::BodiesPut, Call::RowsInsert];
    assert_eq!(world.script.made(), expected);
}

#[test]
fn create_under_every_fault_at_every_call() {
    let calls = [Call::RowsNow, Call::EntropyFill, Call::EntropyFill, Call::BodiesPut, Call::RowsInsert];
    for (index, call) in calls.into_iter().enumerate() {
        for fault in every_fault() {
            // The generator neither waits nor has an effect that could be lost.
            if call == Call::EntropyFill && !matches!(fault, Fault::Refused) {
                continue;
            }
            let world = World::new();
            world.script.fail_at(index, fault.clone());
            let service = world.service();
            let answer = run(&fault, service.create(paste()));

            let told = match &answer {
                None => "nothing",
                Some(Ok(_)) => "created",
                Some(Err(error)) if error.is_overload() => "overloaded",
                Some(Err(CreateError::Clock(_))) => "clock failed",
                Some(Err(CreateError::Mint(_))) => "mint failed",
                Some(Err(CreateError::Body(_))) => "body failed",
                Some(Err(CreateError::Row(_))) => "row failed",
                Some(Err(_)) => "something else",
            };
            let expected = match (&fault, call) {
                (Fault::ProcessGone { .. }, _) => "nothing",
                (Fault::Slow(_), _) => "created",
                (_, Call::EntropyFill) => "mint failed",
                (Fault::Full, _) => "overloaded",
                (_, Call::RowsNow) => "clock failed",
                (_, Call::BodiesPut) => "body failed",
                _ => "row failed",
            };
            assert_eq!(told, expected, "{call:?} {fault:?}");
            if let Some(Err(error)) = &answer
                && error.wrote_no_body()
            {
                assert!(world.state().bodies.is_empty(), "{call:?} {fault:?}");
            }

            let done = matches!(
                fault,
                Fault::Slow(_) | Fault::AnswerLost { done: true } | Fault::ProcessGone { done: true }
            );
            let expected = match (call, done) {
                _ if matches!(fault, Fault::Slow(_)) => Exists::Paste,
                (Call::BodiesPut, true) | (Call::RowsInsert, false) => Exists::Orphan,
                (Call::RowsInsert, true) => Exists::Paste,
                _ => Exists::Nothing,
            };
            assert_eq!(what_exists(&world), expected, "{call:?} {fault:?}");

            in_order(&world);
            if let Some(Ok(created)) = answer {
                assert!(reads_back(&world, created.id), "acknowledged, so it is there");
            }
            // What is there, a fresh process serves; and it stores new pastes.
            let ids: Vec<Id> = world.state().rows.keys().copied().collect();
            assert!(ids.into_iter().all(|id| reads_back(&world, id)));
            assert!(reads_back(&world, create(&world).id));
        }
    }
}

#[test]
fn read_under_every_fault_at_every_call() {
    for (index, call) in [Call::RowsFind, Call::BodiesGet].into_iter().enumerate() {
        for fault in every_fault() {
            let world = World::new();
            let id = create(&world).id;
            world.script.fail_at(index, fault.clone());
            let service = world.service();
            let answer = run(&fault, service.read(id));
            let told = match &answer {
                None => "nothing",
                Some(Ok(Some(paste))) if paste.body == BODY => "the paste",
                Some(Ok(_)) => "another paste, or none",
                Some(Err(ReadError::Row(_))) => "row failed",
                Some(Err(ReadError::Body(_))) => "body failed",
                Some(Err(_)) => "a broken paste",
            };
            let expected = match (&fault, call) {
                (Fault::ProcessGone { .. }, _) => "nothing",
                (Fault::Slow(_), _) => "the paste",
                (_, Call::RowsFind) => "row failed",
                _ => "body failed",
            };
            assert_eq!(told, expected, "{call:?} {fault:?}");
            assert_eq!(what_exists(&world), Exists::Paste);
            assert!(reads_back(&world, id), "the next read is not affected");
        }
    }
}

#[test]
fn a_row_store_that_fails_the_second_look_is_unavailable() {
    for fault in every_fault() {
        let world = World::new();
        let id = create(&world).id;
        world.state().bodies.clear();
        world.script.fail_at(2, fault.clone());
        let service = world.service();
        let answer = run(&fault, service.read(id));
        match fault {
            Fault::ProcessGone { .. } => assert!(answer.is_none()),
            Fault::Slow(_) => assert!(matches!(answer, Some(Err(ReadError::BodyMissing)))),
            _ => assert!(matches!(answer, Some(Err(ReadError::Row(_)))), "{answer:?}"),
        }
    }
}

#[test]
fn delete_under_every_fault_at_every_call() {
    let calls = [Call::RowsFindInStore, Call::RowsRemove];
    for (index, call) in calls.into_iter().enumerate() {
        for fault in every_fault() {
            let world = World::new();
            let Created { id, delete_token, .. } = create(&world);
            world.script.fail_at(index, fault.clone());
            let service = world.service();
            let answer = run(&fault, service.delete(id, &delete_token));
            let told = match &answer {
                None => "nothing",
                Some(Ok(Deleted::Gone(_))) => "gone",
                Some(Ok(Deleted::NotFound)) => "not found",
                Some(Err(DeleteError::Row(_))) => "row failed",
            };
            let expected = match &fault {
                Fault::ProcessGone { .. } => "nothing",
                Fault::Slow(_) => "gone",
                _ => "row failed",
            };
            assert_eq!(told, expected, "{call:?} {fault:?}");

            let done = matches!(
                fault,
                Fault::Slow(_) | Fault::AnswerLost { done: true } | Fault::ProcessGone { done: true }
            );
            let expected = match call {
                _ if matches!(fault, Fault::Slow(_)) => Exists::Orphan,
                Call::RowsRemove if done => Exists::Orphan,
                // On an unknown outcome the row may still be there, so nothing else is done.
                _ => Exists::Paste,
            };
            assert_eq!(what_exists(&world), expected, "{call:?} {fault:?}");
            assert!(!world.script.made().contains(&Call::BodiesRemove), "the body is the second stage's");
            assert_eq!(reads_back(&world, id), expected == Exists::Paste);
        }
    }
}

#[test]
fn the_body_of_a_deleted_paste_under_every_fault() {
    for fault in every_fault() {
        let world = World::new();
        let Created { id, delete_token, .. } = create(&world);
        let service = world.service();
        let deleted = run_or_drop(service.delete(id, &delete_token)).expect("not stuck");
        let Ok(Deleted::Gone(body)) = deleted else { panic!("{deleted:?}") };
        // The commit was the row's removal: whatever becomes of the body, the paste is gone.
        assert_eq!(what_exists(&world), Exists::Orphan);
        assert!(!reads_back(&world, id));

        let before = world.script.made().len();
        world.script.fail_at(0, fault.clone());
        let removed = run(&fault, service.remove_body(body));
        assert_eq!(world.script.made()[before..], [Call::BodiesRemove]);
        let done = matches!(
            fault,
            Fault::Slow(_) | Fault::AnswerLost { done: true } | Fault::ProcessGone { done: true }
        );
        match fault {
            Fault::ProcessGone { .. } => assert!(removed.is_none()),
            Fault::Slow(_) => assert!(matches!(removed, Some(Ok(())))),
            _ => assert!(matches!(removed, Some(Err(_))), "{fault:?}"),
        }
        assert_eq!(what_exists(&world), if done { Exists::Nothing } else { Exists::Orphan }, "{fault:?}");
        in_order(&world);
        assert!(!reads_back(&world, id));
    }
}

#[test]
fn a_taken_id_is_minted_again_and_the_older_paste_is_untouched() {
    let world = World::new();
    let first = create(&world);
    // The generator starts over, so that the next mint is the same id.
    world.state().entropy = 0;
    let second = create(&world);
    assert_ne!(first.id, second.id);
    assert!(reads_back(&world, first.id) && reads_back(&world, second.id));
    let puts = world.script.made().into_iter().filter(|call| *call == Call::BodiesPut).count();
    assert_eq!(puts, 3, "one for the first paste, two for the second");
}

#[test]
fn a_row_conflict_counts_as_a_collision_too() {
    let world = World::new();
    let first = create(&world);
    // As after a lost body: the put succeeds, the insert finds the row.
    world.state().bodies.clear();
    world.state().entropy = 0;
    let second = create(&world);
    assert_ne!(first.id, second.id);
    assert!(reads_back(&world, second.id));
}

#[test]
fn after_four_taken_ids_it_gives_up() {
    let world = World::new();
    for _ in 0..MINTS_MAX {
        create(&world);
    }
    let before = world.script.made().len();
    world.state().entropy = 0;
    let answer = run_or_drop(world.service().create(paste())).expect("not stuck");
    assert!(matches!(answer, Err(CreateError::Collisions)));
    let puts = world.script.made()[before..].iter().filter(|call| **call == Call::BodiesPut).count();
    assert_eq!(puts, MINTS_MAX);
    assert_eq!(world.state().rows.len(), MINTS_MAX);
}

#[test]
fn a_create_frozen_past_its_deadline_commits_nothing() {
    let world = World::new();
    let gate = Gate::default();
    world.script.fail_at(4, Fault::Slow(gate.clone()));
    let service = world.service();
    let mut future = pin!(service.create(paste()));
    assert!(run_until_stuck(future.as_mut()).is_none(), "frozen between body and row");
    world.pass(Duration::from_secs(61));
    gate.open();
    let answer = run_until_stuck(future.as_mut());
    assert!(matches!(answer, Some(Err(CreateError::DeadlinePassed))), "{answer:?}");
    assert_eq!(what_exists(&world), Exists::Orphan);
    // The clock is asked anew, so the next create is not refused for an old sample.
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
}

#[test]
fn a_clock_that_was_set_forward_costs_one_create_at_most() {
    let world = World::new();
    let service = world.service();
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
    // The machine's own clock, which it can see jump.
    let jumped = world.state().wall.plus(Ttl::Year.duration());
    world.state().wall = jumped;
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
    // The row store's alone, which it cannot see.
    world.state().rows_ahead = Ttl::Year.duration();
    let refused = run_or_drop(service.create(paste())).expect("not stuck");
    assert!(matches!(refused, Err(CreateError::DeadlinePassed)));
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
}

#[test]
fn a_clock_that_was_set_back_makes_no_deadline_longer() {
    let world = World::new();
    let service = world.service();
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
    let hour_ms = 3_600_000;
    let back = Timestamp::from_unix_ms(world.state().wall.unix_ms() - hour_ms);
    world.state().wall = back;
    let gate = Gate::default();
    // The second create asks for the time again: mint, now, put, insert after the first one's calls.
    let before = world.script.made().len();
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
    assert!(world.script.made()[before..].contains(&Call::RowsNow));
    world.script.fail_at(3, Fault::Slow(gate.clone()));
    let mut frozen = pin!(service.create(paste()));
    assert!(run_until_stuck(frozen.as_mut()).is_none());
    world.pass(Duration::from_secs(61));
    gate.open();
    let late = run_until_stuck(frozen.as_mut());
    assert!(matches!(late, Some(Err(CreateError::DeadlinePassed))), "{late:?}");
}

#[test]
fn the_row_store_is_asked_for_the_time_once_in_ten_seconds() {
    let world = World::new();
    let service = world.service();
    let asked = || world.script.made().into_iter().filter(|call| *call == Call::RowsNow).count();
    for _ in 0..5 {
        assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
        world.pass(Duration::from_secs(2));
    }
    assert_eq!(asked(), 1);
    world.pass(Duration::from_secs(2));
    assert!(run_or_drop(service.create(paste())).expect("not stuck").is_ok());
    assert_eq!(asked(), 2);
}

#[test]
fn an_expired_paste_is_gone_for_read_and_delete() {
    let world = World::new();
    let Created { id, delete_token, expires_at } = create(&world);
    world.state().wall = expires_at;
    assert!(!reads_back(&world, id), "at the very instant it expires");
    let deleted = run_or_drop(world.service().delete(id, &delete_token)).expect("not stuck");
    assert!(matches!(deleted, Ok(Deleted::NotFound)));
    world.state().wall = expires_at.plus(Duration::from_secs(1));
    assert!(!reads_back(&world, id));
}

#[test]
fn a_wrong_token_changes_nothing() {
    let world = World::new();
    let Created { id, .. } = create(&world);
    let wrong = DeleteToken::from_random([9; 16]);
    let answer = run_or_drop(world.service().delete(id, &wrong)).expect("not stuck");
    assert!(matches!(answer, Ok(Deleted::NotFound)));
    assert!(reads_back(&world, id));
    assert!(!world.script.made().contains(&Call::RowsRemove));
}

#[test]
fn of_two_racing_deletes_exactly_one_is_told_gone() {
    let world = World::new();
    let Created { id, delete_token, .. } = create(&world);
    let gate = Gate::default();
    // The first has compared the token and waits in front of the commit point.
    world.script.fail_at(1, Fault::Slow(gate.clone()));
    let service = world.service();
    let mut slow = pin!(service.delete(id, &delete_token));
    assert!(run_until_stuck(slow.as_mut()).is_none());
    let quick = run_or_drop(service.delete(id, &delete_token)).expect("not stuck").expect("answered");
    gate.open();
    let slow = run_until_stuck(slow.as_mut()).expect("not stuck").expect("answered");
    assert!(matches!((quick, slow), (Deleted::Gone(_), Deleted::NotFound)));
}

#[test]
fn a_delete_that_wins_the_race_against_a_read_makes_it_not_found() {
    for corrupt in [false, true] {
        let world = World::new();
        let id = create(&world).id;
        let gate = Gate::default();
        world.script.fail_at(1, Fault::Slow(gate.clone()));
        let service = world.service();
        let mut read = pin!(service.read(id));
        assert!(run_until_stuck(read.as_mut()).is_none(), "row found, body about to be fetched");
        world.state().rows.clear();
        world.state().bodies.clear();
        if corrupt {
            world.state().bodies.insert(id, Bytes::from_static(b"\0\0\0"));
        }
        gate.open();
        let answer = run_until_stuck(read.as_mut()).expect("not stuck");
        assert!(matches!(answer, Ok(None)), "{answer:?}");
    }
}

#[test]
fn a_live_row_without_its_body_is_a_fault() {
    let world = World::new();
    let id = create(&world).id;
    world.state().bodies.insert(id, Bytes::from_static(b"something else"));
    let answer = run_or_drop(world.service().read(id)).expect("not stuck");
    assert!(matches!(answer, Err(ReadError::BodyCorrupt(_))));
    world.state().bodies.clear();
    let answer = run_or_drop(world.service().read(id)).expect("not stuck");
    assert!(matches!(answer, Err(ReadError::BodyMissing)));
}
