//! What a failing disk does: every call of the writer's can be made to fail, or to wait at a gate.

use std::{
    fs::File,
    io,
    path::Path,
    sync::{Arc, Mutex},
};

use crossbeam_channel::{Receiver, Sender, bounded, unbounded};
use futures_util::{FutureExt as _, future::join_all};
use quire_core::{
    paste::{BodyRef, Ttl},
    ports::{Bodies, BodiesAudit, Fault, NewBody, PortError, PortFuture, Put},
    testing::bodies_contract::{fresh_id, new_body, refer},
};

use super::{
    super::{
        VolumeOptions, VolumeStore,
        disk::{Disk, DiskFile, LocalDisk},
    },
    NOW, TestClock, block_on, get, list_all, new_folder, open, put, volume_files, volume_of,
};

const ENOSPC: i32 = 28;
const EIO: i32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Create,
    Open,
    Remove,
    Write,
    Sync,
    SetLen,
    SyncFolder,
}

/// A real disk that keeps a list of its calls and fails those it is told to, each once.
#[derive(Debug, Default)]
struct Faulty {
    calls: Mutex<Vec<(Call, String)>>,
    to_fail: Mutex<Vec<(Call, i32)>>,
    gate: Mutex<Option<Gate>>,
}

/// Every write says that it has come and waits until it is let through, or the gate is taken away.
#[derive(Clone, Debug)]
struct Gate {
    arrived: Sender<()>,
    let_through: Receiver<()>,
}

#[derive(Clone, Debug)]
struct FaultyDisk(Arc<Faulty>);

#[derive(Debug)]
struct FaultyFile {
    disk: FaultyDisk,
    file: File,
    name: String,
}

impl FaultyDisk {
    fn call(&self, call: Call, name: &str) -> io::Result<()> {
        self.0.calls.lock().unwrap().push((call, name.to_owned()));
        let gate = self.0.gate.lock().unwrap().clone();
        if let Some(gate) = gate.filter(|_| call == Call::Write) {
            let _ = gate.arrived.send(());
            let _ = gate.let_through.recv();
        }
        let mut to_fail = self.0.to_fail.lock().unwrap();
        match to_fail.iter().position(|(failing, _)| *failing == call) {
            Some(index) => Err(io::Error::from_raw_os_error(to_fail.remove(index).1)),
            None => Ok(()),
        }
    }

    fn fail(&self, faults: &[(Call, i32)]) {
        self.0.to_fail.lock().unwrap().extend_from_slice(faults);
    }

    /// The calls since it was last asked; every fault must have been met.
    fn calls(&self) -> Vec<(Call, String)> {
        assert!(self.0.to_fail.lock().unwrap().is_empty(), "a fault that nobody ran into proves nothing");
        std::mem::take(&mut *self.0.calls.lock().unwrap())
    }

    fn close_gate(&self) -> (Receiver<()>, Sender<()>) {
        let (arrived, at_gate) = unbounded();
        let (open_gate, let_through) = bounded(0);
        *self.0.gate.lock().unwrap() = Some(Gate { arrived, let_through });
        (at_gate, open_gate)
    }

    fn file(&self, path: &Path, file: File) -> Box<dyn DiskFile> {
        Box::new(FaultyFile { disk: self.clone(), file, name: file_name(path) })
    }
}

fn file_name(path: &Path) -> String {
    path.file_name().unwrap().to_str().unwrap().to_owned()
}

impl Disk for FaultyDisk {
    fn create(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call(Call::Create, &file_name(path))?;
        LocalDisk.create(path).map(|file| self.file(path, file.reader().try_clone().unwrap()))
    }

    fn open(&self, path: &Path) -> io::Result<Box<dyn DiskFile>> {
        self.call(Call::Open, &file_name(path))?;
        LocalDisk.open(path).map(|file| self.file(path, file.reader().try_clone().unwrap()))
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.call(Call::Remove, &file_name(path))?;
        LocalDisk.remove(path)
    }

    fn sync_folder(&self, folder: &Path) -> io::Result<()> {
        self.call(Call::SyncFolder, "")?;
        LocalDisk.sync_folder(folder)
    }
}

impl DiskFile for FaultyFile {
    fn reader(&self) -> &File {
        &self.file
    }

    /// As a disk that fills up: half of it is written all the same.
    fn write_all_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let allowed = self.disk.call(Call::Write, &self.name);
        let written = if allowed.is_err() { &bytes[..bytes.len() / 2] } else { bytes };
        DiskFile::write_all_at(&self.file, written, offset)?;
        allowed
    }

    fn sync_data(&self) -> io::Result<()> {
        self.disk.call(Call::Sync, &self.name)?;
        DiskFile::sync_data(&self.file)
    }

    fn set_len(&self, length: u64) -> io::Result<()> {
        self.disk.call(Call::SetLen, &self.name)?;
        DiskFile::set_len(&self.file, length)
    }
}

struct Setup {
    store: VolumeStore,
    disk: FaultyDisk,
    folder: tempfile::TempDir,
}

impl Setup {
    fn new(options: VolumeOptions) -> Self {
        let folder = new_folder();
        let disk = FaultyDisk(Arc::default());
        let on = Arc::new(disk.clone());
        let store = VolumeStore::open_on(on, folder.path(), TestClock::new(), options).unwrap();
        Self { store, disk, folder }
    }

    fn put(&self) -> BodyRef {
        block_on(put(&self.store, "a body"))
    }

    fn fault(&self) -> Fault {
        block_on(self.store.put(month())).unwrap_err().fault()
    }

    fn holds(&self, bodies: &[BodyRef]) {
        for body in bodies {
            assert_eq!(block_on(get(&self.store, *body)).unwrap(), "a body");
        }
    }
}

fn month() -> NewBody {
    new_body(fresh_id(), "a body", NOW.expiry(Ttl::Month))
}

fn first(calls: &[(Call, String)]) -> Vec<Call> {
    calls.iter().map(|(call, _)| *call).collect()
}

fn on_volume(calls: &[(Call, String)], name: &str) -> Vec<Call> {
    calls.iter().filter(|(_, on)| on == name).map(|(call, _)| *call).collect()
}

/// Puts `bodies` while the writer stands at the gate with one, so that they all are in the next batch.
fn put_as_one_batch(
    setup: &Setup,
    bodies: &[NewBody],
    at_writer: impl FnOnce(),
) -> Vec<Result<Put, PortError>> {
    let (at_gate, open_gate) = setup.disk.close_gate();
    block_on(async {
        let mut held = setup.store.put(month());
        assert!(futures_util::poll!(held.as_mut()).is_pending());
        at_gate.recv().unwrap();
        let mut puts: Vec<PortFuture<'_, Put>> =
            bodies.iter().map(|body| setup.store.put(body.clone())).collect();
        for put in &mut puts {
            assert!(futures_util::poll!(put.as_mut()).is_pending());
        }
        *setup.disk.0.gate.lock().unwrap() = None;
        setup.disk.calls();
        // The one at the gate has passed the point where its write is failed; its sync is still to come, so
        // faults are armed only once it has been answered for.
        let (again, open_again) = setup.disk.close_gate();
        drop(open_gate);
        held.await.unwrap();
        again.recv().unwrap();
        at_writer();
        *setup.disk.0.gate.lock().unwrap() = None;
        drop(open_again);
        join_all(puts).await
    })
}

#[test]
fn nothing_is_answered_before_it_is_durable() {
    use Call::{Create, Sync, SyncFolder, Write};
    let setup = Setup::new(VolumeOptions::default());
    setup.put();
    assert_eq!(first(&setup.disk.calls()), [Create, Write, Sync, SyncFolder, Write, Sync]);
    setup.put();
    assert_eq!(first(&setup.disk.calls()), [Write, Sync]);
}

#[test]
fn a_day_that_is_over_is_closed_once_and_not_with_every_batch() {
    let folder = new_folder();
    let (disk, clock) = (FaultyDisk(Arc::default()), TestClock::new());
    let options = VolumeOptions::default();
    let store = VolumeStore::open_on(Arc::new(disk.clone()), folder.path(), clock.clone(), options).unwrap();
    let put_month = || block_on(store.put(month())).unwrap();
    put_month();
    disk.calls();
    clock.advance(std::time::Duration::from_hours(60 * 24));
    put_month();
    assert_eq!(first(&disk.calls()), [Call::Open, Call::SyncFolder, Call::Write, Call::Sync]);
    put_month();
    assert_eq!(first(&disk.calls()), [Call::Write, Call::Sync]);
}

#[test]
fn what_waits_is_written_and_synced_together() {
    let setup = Setup::new(VolumeOptions::default());
    setup.put();
    let bodies: Vec<_> = (0..64).map(|_| month()).collect();
    let stored = put_as_one_batch(&setup, &bodies, || {});
    // The held one's sync, then the batch.
    assert_eq!(first(&setup.disk.calls()), [Call::Sync, Call::Write, Call::Sync]);
    let refs: Vec<_> = bodies.iter().zip(stored).map(|(body, put)| refer(body, put.unwrap())).collect();
    setup.holds(&refs);
}

#[test]
fn a_batch_is_bounded() {
    let setup = Setup::new(VolumeOptions::default());
    setup.put();
    let bodies: Vec<_> = (0..1_100).map(|_| month()).collect();
    let stored = put_as_one_batch(&setup, &bodies, || {});
    assert!(stored.iter().all(Result::is_ok));
    let writes = setup.disk.calls().iter().filter(|(call, _)| *call == Call::Write).count();
    assert_eq!(writes, 3, "512 + 512 + 76");

    let large = "l".repeat(1_000_000);
    let bodies: Vec<_> = (0..20).map(|_| new_body(fresh_id(), &large, NOW.expiry(Ttl::Month))).collect();
    let stored = put_as_one_batch(&setup, &bodies, || {});
    assert!(stored.iter().all(Result::is_ok));
    let writes = setup.disk.calls().iter().filter(|(call, _)| *call == Call::Write).count();
    assert_eq!(writes, 3, "8 MB + 8 MB + 4 MB");
}

#[test]
fn a_full_disk_is_nothing_done_and_heals() {
    let setup = Setup::new(VolumeOptions::default());
    let before = setup.put();
    setup.disk.calls();
    setup.disk.fail(&[(Call::Write, ENOSPC)]);
    assert_eq!(setup.fault(), Fault::Unavailable);
    assert_eq!(first(&setup.disk.calls()), [Call::Write, Call::SetLen], "cut back, and not tried again");
    assert_eq!(block_on(list_all(&setup.store, 10)).len(), 1);
    let after = setup.put();
    assert_eq!(first(&setup.disk.calls()), [Call::Write, Call::Sync]);
    assert_eq!(after.locator.unwrap().offset, before.locator.unwrap().offset + 128);
    setup.holds(&[before, after]);
}

#[test]
fn a_volume_that_cannot_be_cut_back_is_left_for_good() {
    let setup = Setup::new(VolumeOptions::default());
    let before = setup.put();
    setup.disk.calls();
    setup.disk.fail(&[(Call::Write, EIO), (Call::SetLen, EIO)]);
    assert_eq!(setup.fault(), Fault::Unavailable);
    setup.disk.calls();
    let after = [setup.put(), setup.put()];
    assert!(on_volume(&setup.disk.calls(), &volume_of(before)).is_empty());
    assert!(after.iter().all(|body| volume_of(*body).ends_with(".000002.vol")));
    setup.holds(&[before, after[0], after[1]]);
}

#[test]
fn a_failed_sync_is_an_unknown_outcome_and_never_tried_again() {
    let setup = Setup::new(VolumeOptions::default());
    let before = setup.put();
    setup.disk.calls();
    setup.disk.fail(&[(Call::Sync, EIO)]);
    assert_eq!(setup.fault(), Fault::UnknownOutcome);
    assert_eq!(first(&setup.disk.calls()), [Call::Write, Call::Sync]);
    let after = [setup.put(), setup.put()];
    let calls = setup.disk.calls();
    assert!(on_volume(&calls, &volume_of(before)).is_empty(), "{calls:?}");
    assert!(after.iter().all(|body| volume_of(*body).ends_with(".000002.vol")));
    setup.holds(&[before, after[0], after[1]]);
    // And after a restart nothing of it is overwritten either.
    let Setup { store, folder, .. } = setup;
    store.close();
    let store = open(folder.path(), VolumeOptions::default());
    let later = block_on(put(&store, "a body"));
    assert!(volume_of(later).ends_with(".000002.vol"));
    for body in [before, after[0], after[1], later] {
        assert_eq!(block_on(get(&store, body)).unwrap(), "a body");
    }
}

#[test]
fn a_failed_sync_is_remembered_when_the_volume_is_closed() {
    let setup = Setup::new(VolumeOptions::default());
    let before = setup.put();
    setup.disk.fail(&[(Call::Sync, EIO)]);
    assert_eq!(setup.fault(), Fault::UnknownOutcome);
    for day in 0..30 {
        let expires = NOW.plus(std::time::Duration::from_secs(86_400 * (day + 40)));
        block_on(setup.store.put(new_body(fresh_id(), "other days", expires))).unwrap();
    }
    setup.disk.calls();
    let after = setup.put();
    assert!(on_volume(&setup.disk.calls(), &volume_of(before)).is_empty());
    assert!(volume_of(after).ends_with(".000002.vol"));
    setup.holds(&[before, after]);
}

#[test]
fn a_failed_sync_of_one_volume_fails_all_its_members_and_no_others() {
    let setup = Setup::new(VolumeOptions::default());
    setup.put();
    let day = |ttl| new_body(fresh_id(), "a body", NOW.expiry(ttl));
    let bodies = [day(Ttl::Year), day(Ttl::Month), day(Ttl::Month), day(Ttl::Year)];
    // The month comes before the year, and its volume is open: the first sync of the batch is the month's.
    let disk = setup.disk.clone();
    let stored = put_as_one_batch(&setup, &bodies, move || disk.fail(&[(Call::Sync, EIO)]));
    let faults: Vec<_> = stored.iter().map(|put| put.as_ref().err().map(PortError::fault)).collect();
    let unknown = Some(Fault::UnknownOutcome);
    assert_eq!(faults, [None, unknown, unknown, None]);
    let year = refer(&bodies[0], stored[0].clone().unwrap());
    let last = refer(&bodies[3], stored[3].clone().unwrap());
    setup.holds(&[year, last]);
}

#[test]
fn a_volume_that_was_removed_under_the_server_is_not_acknowledged_into() {
    let setup = Setup::new(VolumeOptions::default());
    let before = setup.put();
    std::fs::remove_file(setup.folder.path().join(volume_of(before))).unwrap();
    assert_eq!(setup.fault(), Fault::Unavailable);
    let after = [setup.put(), setup.put()];
    assert!(after.iter().all(|body| volume_of(*body).ends_with(".000002.vol")));
    setup.holds(&after);
}

#[test]
fn a_volume_that_cannot_be_made_leaves_nothing_behind() {
    for fault in [(Call::Create, ENOSPC), (Call::Write, ENOSPC), (Call::Sync, EIO), (Call::SyncFolder, EIO)] {
        let setup = Setup::new(VolumeOptions::default());
        setup.disk.fail(&[fault]);
        assert_eq!(setup.fault(), Fault::Unavailable, "{fault:?}");
        assert!(volume_files(setup.folder.path()).is_empty(), "{fault:?}");
        let body = setup.put();
        assert!(volume_of(body).ends_with(".000001.vol"), "{fault:?}");
        setup.holds(&[body]);
    }
}

#[test]
fn a_half_made_volume_that_stays_is_not_used() {
    let setup = Setup::new(VolumeOptions::default());
    setup.disk.fail(&[(Call::SyncFolder, EIO), (Call::Remove, EIO)]);
    assert_eq!(setup.fault(), Fault::Unavailable);
    let body = setup.put();
    assert!(volume_of(body).ends_with(".000002.vol"));
    assert_eq!(
        on_volume(&setup.disk.calls(), &volume_files(setup.folder.path())[0]).last(),
        Some(&Call::Remove)
    );
    setup.holds(&[body]);
}

#[test]
fn a_volume_found_after_a_restart_is_made_durable_in_its_folder() {
    let setup = Setup::new(VolumeOptions::default());
    let before = setup.put();
    let Setup { store, disk, folder } = setup;
    store.close();
    disk.calls();
    let on = Arc::new(disk.clone());
    let store = VolumeStore::open_on(on, folder.path(), TestClock::new(), VolumeOptions::default()).unwrap();
    assert!(first(&disk.calls()).is_empty(), "nothing is read before it is needed");
    let after = block_on(put(&store, "a body"));
    assert_eq!(first(&disk.calls()), [Call::Open, Call::SyncFolder, Call::Write, Call::Sync]);
    assert_eq!(volume_of(before), volume_of(after));
}

#[test]
fn a_volume_that_cannot_be_recovered_is_left_alone_and_followed_by_the_next() {
    for fault in [Call::Open, Call::SyncFolder] {
        let setup = Setup::new(VolumeOptions::default());
        let before = setup.put();
        let Setup { store, disk, folder } = setup;
        store.close();
        let on = Arc::new(disk.clone());
        let store =
            VolumeStore::open_on(on, folder.path(), TestClock::new(), VolumeOptions::default()).unwrap();
        disk.calls();
        disk.fail(&[(fault, EIO)]);
        let after = block_on(put(&store, "a body"));
        assert!(volume_of(after).ends_with(".000002.vol"), "{fault:?}");
        assert!(!on_volume(&disk.calls(), &volume_of(before)).contains(&Call::Write), "{fault:?}");
        for body in [before, after] {
            assert_eq!(block_on(get(&store, body)).unwrap(), "a body");
        }
    }
}

#[test]
fn a_full_queue_refuses_at_once_and_reads_go_on() {
    const QUEUE: usize = 3;
    let setup = Setup::new(VolumeOptions { write_queue_max: QUEUE, ..VolumeOptions::default() });
    let known = setup.put();
    let (at_gate, open_gate) = setup.disk.close_gate();
    block_on(async {
        let mut held = setup.store.put(month());
        assert!(futures_util::poll!(held.as_mut()).is_pending());
        at_gate.recv().unwrap();
        let mut waiting: Vec<_> = (0..QUEUE).map(|_| setup.store.put(month())).collect();
        for put in &mut waiting {
            assert!(futures_util::poll!(put.as_mut()).is_pending());
        }
        let refused = setup.store.put(month()).now_or_never().unwrap();
        assert_eq!(refused.unwrap_err().fault(), Fault::Overloaded);
        let refused = setup.store.remove(known).now_or_never().unwrap();
        assert_eq!(refused.unwrap_err().fault(), Fault::Overloaded);
        // The writer stands still, and nobody who reads notices.
        assert_eq!(get(&setup.store, known).await.unwrap(), "a body");
        assert_eq!(BodiesAudit::page(&setup.store, None, 10).await.unwrap().bodies.len(), 1);

        drop(open_gate);
        held.await.unwrap();
        assert!(join_all(waiting).await.iter().all(Result::is_ok));
        setup.store.put(month()).await.unwrap();
        assert_eq!(list_all(&setup.store, 100).await.len(), 1 + 1 + QUEUE + 1);
    });
}

#[test]
fn an_abandoned_put_is_whole_or_absent() {
    let setup = Setup::new(VolumeOptions::default());
    let (at_gate, open_gate) = setup.disk.close_gate();
    let body = month();
    block_on(async {
        let mut put = setup.store.put(body.clone());
        assert!(futures_util::poll!(put.as_mut()).is_pending());
        at_gate.recv().unwrap();
    });
    drop(open_gate);
    let after = setup.put();
    setup.holds(&[after]);
    let listed = block_on(list_all(&setup.store, 10));
    assert_eq!(listed.len(), 2);
    setup.holds(&[listed[0].body, listed[1].body]);
}
