//! What every adapter of [`Bodies`] must do, as one suite: the fakes, the volumes and the bucket all run it.
//!
//! Each function takes a factory and asks it for a store of its own; what the factory gives out need not be
//! empty. [`all`] runs them one after another. The functions are plain futures: any executor will do. They
//! fail by panicking, as a test does.

#![expect(clippy::expect_used, clippy::panic, reason = "a suite fails by panicking")]
#![expect(clippy::missing_panics_doc, reason = "every function here panics when the adapter fails it")]

use std::{
    future::poll_fn,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    task::Poll,
};

use bytes::Bytes;
use futures_util::future::join_all;

use crate::{
    paste::{BODY_BYTES_MAX, BodyRef, Digest, ID_LEN, Id, Locator, Text, Ttl},
    ports::{Bodies, Fault, NewBody, Put},
    time::Timestamp,
};

/// Some instant in 2026, for bodies whose expiry does not matter.
const NOW: Timestamp = Timestamp::from_unix_ms(1_793_641_440_000);
/// Puts at once in [`concurrent_puts_all_read_back`].
const CONCURRENT_PUTS: usize = 64;

/// Runs the whole suite.
pub async fn all(make: impl Fn() -> Arc<dyn Bodies>) {
    what_was_put_reads_back(&*make()).await;
    every_lifetime_reads_back(&*make()).await;
    what_was_never_put_is_not_there(&*make()).await;
    ids_that_differ_in_case_are_two(&*make()).await;
    a_second_put_leaves_the_first_alone(&*make()).await;
    equal_bodies_are_removed_apart(&*make()).await;
    what_was_removed_is_not_there(&*make()).await;
    removing_what_is_not_there_is_no_error(&*make()).await;
    removing_under_another_id_removes_nothing(&*make()).await;
    other_bytes_than_were_asked_for_are_corrupt(&*make()).await;
    another_id_never_gets_the_body(&*make()).await;
    concurrent_puts_all_read_back(&*make()).await;
    abandoned_puts_harm_nobody(&*make()).await;
}

/// Bodies of every awkward size and content read back byte for byte (C5).
pub async fn what_was_put_reads_back(store: &dyn Bodies) {
    let mut texts: Vec<String> =
        [1, 2, 63, 64, 65, 127, 128, 129, 4_095, 4_096, 4_097, 70_000, BODY_BYTES_MAX]
            .into_iter()
            .map(|length| "x".repeat(length))
            .collect();
    texts.extend(["\0", "\u{FEFF}a\r\nb\0 e\u{301}\n", "\u{1F980}".repeat(100).as_str()].map(str::to_owned));
    let mut stored = Vec::new();
    for text in &texts {
        stored.push(put(store, fresh_id(), text).await);
    }
    for (body, text) in stored.iter().zip(&texts) {
        expect_body(store, *body, text).await;
    }
}

/// Bodies of all lifetimes, and of days that are over, can be stored side by side.
pub async fn every_lifetime_reads_back(store: &dyn Bodies) {
    let mut puts: Vec<NewBody> =
        Ttl::ALL.iter().map(|ttl| new_body(fresh_id(), ttl.as_str(), NOW.expiry(*ttl))).collect();
    puts.push(new_body(fresh_id(), "long ago", Timestamp::from_unix_ms(0)));
    let stored = join_all(puts.iter().map(|body| store.put(body.clone()))).await;
    for (body, stored) in puts.iter().zip(stored) {
        let body_ref = refer(body, stored.expect("a put"));
        let read = store.get(body_ref).await.expect("a get");
        assert_eq!(read.as_ref(), Some(body.text.bytes()));
    }
}

/// A body that was never put is `None`, not an error, wherever it is looked for.
pub async fn what_was_never_put_is_not_there(store: &dyn Bodies) {
    let known = put(store, fresh_id(), "known").await;
    let id = fresh_id();
    let unknown = BodyRef { id, locator: None, ..known };
    assert_eq!(store.get(unknown).await.expect("a get"), None, "without a place");
    if let Some(locator) = known.locator {
        let places = [
            Locator { offset: locator.offset + 64 * 1_000_000, ..locator },
            Locator { offset: i64::MAX - 63, ..locator },
            Locator { offset: -64, ..locator },
            Locator { volume: locator.volume + 1, ..locator },
            Locator { volume: i64::MAX, ..locator },
            Locator { volume: i64::MIN, ..locator },
        ];
        for place in places {
            let unknown = BodyRef { id, locator: Some(place), ..known };
            assert_eq!(store.get(unknown).await.expect("a get"), None, "at {place:?}");
        }
    }
    expect_body(store, known, "known").await;
}

/// Two ids that differ only in case never share a body (M1).
pub async fn ids_that_differ_in_case_are_two(store: &dyn Bodies) {
    let lower = fresh_id();
    let upper = Id::parse(lower.as_str().to_ascii_uppercase().as_bytes()).expect("an id");
    assert!(lower != upper, "a fresh id has a lower-case letter");
    let first = put(store, lower, "lower").await;
    let second = put(store, upper, "upper").await;
    expect_body(store, first, "lower").await;
    expect_body(store, second, "upper").await;
    store.remove(first).await.expect("a remove");
    expect_body(store, second, "upper").await;
}

/// A colliding id never touches the older body (M3): it is refused, or stored apart.
pub async fn a_second_put_leaves_the_first_alone(store: &dyn Bodies) {
    let id = fresh_id();
    let first = put(store, id, "first").await;
    let second = new_body(id, "second, and longer", NOW.expiry(Ttl::Month));
    match store.put(second.clone()).await.expect("a put") {
        Put::Exists => {}
        stored @ Put::Stored(locator) => {
            assert!(locator.is_some() && locator != first.locator, "two bodies in one place");
            expect_body(store, refer(&second, stored), "second, and longer").await;
            expect_body(store, first, "first").await;
            store.remove(refer(&second, stored)).await.expect("a remove");
        }
    }
    expect_body(store, first, "first").await;
}

/// Nothing is shared between bodies that are equal.
pub async fn equal_bodies_are_removed_apart(store: &dyn Bodies) {
    let first = put(store, fresh_id(), "the same").await;
    let second = put(store, fresh_id(), "the same").await;
    store.remove(first).await.expect("a remove");
    assert_eq!(store.get(first).await.expect("a get"), None);
    expect_body(store, second, "the same").await;
}

/// A removed body is `None`; its neighbours stay; removing it again is no error.
pub async fn what_was_removed_is_not_there(store: &dyn Bodies) {
    let long = "y".repeat(100_000);
    let before = put(store, fresh_id(), &long).await;
    let removed = put(store, fresh_id(), &long).await;
    let after = put(store, fresh_id(), &long).await;
    for _ in 0..2 {
        store.remove(removed).await.expect("a remove");
        assert_eq!(store.get(removed).await.expect("a get"), None);
    }
    expect_body(store, before, &long).await;
    expect_body(store, after, &long).await;
    let later = put(store, fresh_id(), &long).await;
    expect_body(store, later, &long).await;
    expect_body(store, after, &long).await;
}

/// Removing is told to make sure, and may be told so of anything.
pub async fn removing_what_is_not_there_is_no_error(store: &dyn Bodies) {
    let known = put(store, fresh_id(), "known").await;
    let id = fresh_id();
    store.remove(BodyRef { id, locator: None, ..known }).await.expect("a remove without a place");
    if let Some(locator) = known.locator {
        for place in [
            Locator { offset: locator.offset + 64 * 1_000_000, ..locator },
            Locator { offset: locator.offset + 1, ..locator },
            Locator { offset: 0, ..locator },
            Locator { offset: -64, ..locator },
            Locator { volume: locator.volume + 1, ..locator },
            Locator { volume: i64::MIN, ..locator },
        ] {
            store.remove(BodyRef { locator: Some(place), ..known }).await.expect("a remove elsewhere");
        }
    }
    expect_body(store, known, "known").await;
}

/// Whoever holds a stale place cannot remove what stands there now.
pub async fn removing_under_another_id_removes_nothing(store: &dyn Bodies) {
    let known = put(store, fresh_id(), "known").await;
    store.remove(BodyRef { id: fresh_id(), ..known }).await.expect("a remove");
    expect_body(store, known, "known").await;
}

/// A row that does not fit its body is told so (R5).
pub async fn other_bytes_than_were_asked_for_are_corrupt(store: &dyn Bodies) {
    let known = put(store, fresh_id(), "known").await;
    for wrong in [
        BodyRef { sha256: Digest::of(b"other"), ..known },
        BodyRef { size_bytes: known.size_bytes - 1, ..known },
        BodyRef { size_bytes: known.size_bytes + 1, ..known },
        BodyRef { size_bytes: u32::MAX, ..known },
    ] {
        let error = store.get(wrong).await.expect_err("other bytes");
        assert_eq!(error.fault(), Fault::Corrupt);
    }
    expect_body(store, known, "known").await;
}

/// Whatever place it names, an id is never given another's body.
pub async fn another_id_never_gets_the_body(store: &dyn Bodies) {
    let known = put(store, fresh_id(), "known").await;
    match store.get(BodyRef { id: fresh_id(), ..known }).await {
        Ok(None) => {}
        Ok(Some(_)) => panic!("a body under an id it was not put under"),
        Err(error) => assert_eq!(error.fault(), Fault::Corrupt),
    }
}

/// Many puts at once are each stored once and whole.
pub async fn concurrent_puts_all_read_back(store: &dyn Bodies) {
    let text = |index: usize| format!("body {index} ").repeat(index * 7 + 1);
    let stored =
        join_all((0..CONCURRENT_PUTS).map(|index| async move { put(store, fresh_id(), &text(index)).await }))
            .await;
    assert_eq!(stored.len(), CONCURRENT_PUTS);
    for (index, body) in stored.iter().enumerate() {
        let shared = stored.iter().filter(|other| other.locator.is_some() && other.locator == body.locator);
        assert!(shared.count() <= 1, "two bodies in one place");
        expect_body(store, *body, &text(index)).await;
    }
}

/// A caller who stops waiting leaves the store in order.
pub async fn abandoned_puts_harm_nobody(store: &dyn Bodies) {
    let before = put(store, fresh_id(), "before").await;
    for _ in 0..8 {
        let mut abandoned = store.put(new_body(fresh_id(), "abandoned", NOW.expiry(Ttl::Month)));
        // Once, so that it has begun.
        poll_fn(|context| {
            let _ = abandoned.as_mut().poll(context);
            Poll::Ready(())
        })
        .await;
    }
    let after = put(store, fresh_id(), "after").await;
    expect_body(store, before, "before").await;
    expect_body(store, after, "after").await;
}

/// An id that this process has not used before, nor, in all likelihood, any other: a bucket outlives a test.
#[must_use]
pub fn fresh_id() -> Id {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let seed = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed), std::time::Instant::now());
    let digest = Digest::of(format!("{seed:?}").as_bytes()).to_hex();
    let written = format!("z{digest}");
    Id::parse(written.as_bytes().get(..ID_LEN).unwrap_or_default()).expect("an id")
}

/// A body to put.
#[must_use]
pub fn new_body(id: Id, text: &str, expires_near: Timestamp) -> NewBody {
    let text = Text::new(Bytes::copy_from_slice(text.as_bytes())).expect("a text");
    NewBody { id, sha256: Digest::of(text.bytes()), text, expires_near }
}

/// What a row would say of a body that was put.
#[must_use]
pub fn refer(body: &NewBody, put: Put) -> BodyRef {
    let Put::Stored(locator) = put else { panic!("the id was taken") };
    let size_bytes = u32::try_from(body.text.bytes().len()).expect("a length");
    BodyRef { id: body.id, size_bytes, sha256: body.sha256, locator }
}

/// Puts a text that expires in a month.
pub async fn put(store: &dyn Bodies, id: Id, text: &str) -> BodyRef {
    let body = new_body(id, text, NOW.expiry(Ttl::Month));
    let stored = store.put(body.clone()).await.expect("a put");
    refer(&body, stored)
}

async fn expect_body(store: &dyn Bodies, body: BodyRef, text: &str) {
    let read = store.get(body).await.expect("a get");
    assert!(read.is_some_and(|bytes| bytes == text.as_bytes()), "not the {} bytes that were put", text.len());
}
