//! What was acknowledged is there: after kills in the middle of concurrent creates, and in a backup taken
//! under load.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    net::SocketAddr,
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Output},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    thread,
    time::Duration,
};

use quire_testkit::{
    client::{Client, Created, created, request},
    eventually,
    server::{NO_LIMITS, Server},
};

const QUIRE: &str = env!("CARGO_BIN_EXE_quire");
const KILLS: usize = 24;
const WRITERS: usize = 16;
const WAIT_MAX: Duration = Duration::from_mins(1);

/// A paste as its writer knows it.
struct Paste {
    id: String,
    body: String,
    /// The server has said 204: it must never be seen again.
    deleted: bool,
    /// A delete was sent and not answered: both are right.
    delete_asked: bool,
}

/// Different for every paste, of different lengths, with multi-byte text in it.
fn body(writer: usize, number: usize) -> String {
    format!("writer {writer} paste {number} \u{1F4DC}\n").repeat(1 + (writer * 31 + number * 7) % 400)
}

/// Creates, and deletes every fifth, until told to stop or until the server is gone. Returns what it was told.
fn write_until_the_end(
    address: SocketAddr,
    writer: usize,
    stop: &AtomicBool,
    acknowledged: &AtomicUsize,
) -> Vec<Paste> {
    let mut pastes = Vec::new();
    for number in 0.. {
        if stop.load(Ordering::SeqCst) {
            break;
        }
        let body = body(writer, number);
        let Ok(Created { id, delete_token, .. }) = try_create(address, &body) else { break };
        acknowledged.fetch_add(1, Ordering::SeqCst);
        let mut paste = Paste { id, body, deleted: false, delete_asked: false };
        if number % 5 == 4 {
            paste.delete_asked = true;
            paste.deleted = try_delete(address, &paste.id, &delete_token).is_ok();
        }
        pastes.push(paste);
    }
    pastes
}

fn try_create(address: SocketAddr, body: &str) -> anyhow::Result<Created> {
    let answer =
        Client::connect(address)?.exchange(request("POST", "/v1/pastes", &[], Some(body.as_bytes())))?;
    created(&answer)
}

fn try_delete(address: SocketAddr, id: &str, token: &str) -> anyhow::Result<()> {
    let target = format!("/v1/pastes/{id}");
    let answer =
        Client::connect(address)?.exchange(request("DELETE", &target, &[("X-Delete-Token", token)], None))?;
    anyhow::ensure!(answer.status == 204, "{}", answer.status);
    Ok(())
}

/// Reads every paste and counts those that are not as they were acknowledged.
fn lost(address: SocketAddr, pastes: &[Paste]) -> usize {
    let mut client = Client::connect(address).unwrap();
    let is_right = |paste: &&Paste| {
        let answer = client.exchange(request("GET", &format!("/{}", paste.id), &[], None)).unwrap();
        let there = answer.status == 200 && answer.body == paste.body.as_bytes();
        let gone = answer.status == 404;
        if paste.deleted { gone } else { there || (paste.delete_asked && gone) }
    };
    pastes.len() - pastes.iter().filter(is_right).count()
}

fn quire(arguments: &[&str]) -> Output {
    Command::new(QUIRE).args(arguments).output().expect("quire runs")
}

fn assert_clean(data: &Path) -> String {
    let checked = quire(&["verify", "--data", data.to_str().unwrap()]);
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{said}{}", String::from_utf8_lossy(&checked.stderr));
    said
}

#[test]
fn kills_in_the_middle_of_concurrent_creates_lose_nothing_acknowledged() {
    let folder = tempfile::tempdir().unwrap();
    let mut all: Vec<Paste> = Vec::new();
    let mut killed_with_work_under_way = 0;
    for kill in 0..KILLS {
        let mut server = Server::start_in(QUIRE, folder.path(), NO_LIMITS).unwrap();
        assert_eq!(lost(server.public, &all), 0, "after {kill} kills");
        let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
        let enough = 10 + kill * 13 % 160;
        let told: Vec<Paste> = thread::scope(|scope| {
            let address = server.public;
            let (stop, acknowledged) = (&stop, &acknowledged);
            let writers: Vec<_> = (0..WRITERS)
                .map(|writer| {
                    scope.spawn(move || {
                        write_until_the_end(address, kill * WRITERS + writer, stop, acknowledged)
                    })
                })
                .collect();
            eventually("pastes are acknowledged", WAIT_MAX, || {
                Ok(acknowledged.load(Ordering::SeqCst) >= enough)
            })
            .unwrap();
            // Nobody was told to stop, so every writer has a create or a delete under way.
            killed_with_work_under_way += usize::from(writers.iter().any(|writer| !writer.is_finished()));
            server.kill().unwrap();
            writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect()
        });
        assert!(told.len() >= enough);
        all.extend(told);
        assert_clean(folder.path());
    }
    let server = Server::start_in(QUIRE, folder.path(), NO_LIMITS).unwrap();
    assert_eq!(lost(server.public, &all), 0);
    assert_eq!(killed_with_work_under_way, KILLS);
    println!("{KILLS} kills, {} pastes acknowledged, 0 lost", all.len());
}

#[test]
fn a_backup_under_load_verifies_clean_and_serves_elsewhere() {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("copy");
    let server = Server::start(QUIRE, NO_LIMITS).unwrap();
    let (stop, acknowledged) = (AtomicBool::new(false), AtomicUsize::new(0));
    let before = Arc::new(Mutex::new(Vec::new()));
    for number in 0..200 {
        let body = body(999, number);
        let made = try_create(server.public, &body).unwrap();
        before.lock().unwrap().push(Paste { id: made.id, body, deleted: false, delete_asked: false });
    }
    thread::scope(|scope| {
        let address = server.public;
        let (stop, acknowledged) = (&stop, &acknowledged);
        let writers: Vec<_> = (0..4)
            .map(|writer| scope.spawn(move || write_until_the_end(address, writer, stop, acknowledged)))
            .collect();
        let reached = |count| {
            eventually("pastes are acknowledged", WAIT_MAX, || {
                Ok(acknowledged.load(Ordering::SeqCst) >= count)
            })
            .unwrap();
        };
        reached(50);
        let done = quire(&["backup", copy.to_str().unwrap(), "--data", server.data().to_str().unwrap()]);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        // The server was writing all the while, and goes on.
        reached(acknowledged.load(Ordering::SeqCst) + 50);
        stop.store(true, Ordering::SeqCst);
        let told: Vec<Paste> = writers.into_iter().flat_map(|writer| writer.join().unwrap()).collect();
        assert_eq!(lost(server.public, &told), 0, "a backup takes nothing from the server");
    });
    assert_clean(&copy);
    assert_clean(server.data());
    let restored = Server::start_in(QUIRE, &copy, NO_LIMITS).unwrap();
    assert_eq!(lost(restored.public, &before.lock().unwrap()), 0);
    assert!(try_create(restored.public, "a restored store takes new pastes").is_ok());
}

#[test]
fn a_backup_never_writes_into_a_folder_that_is_in_use() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("mine"), "precious").unwrap();
    let server = Server::start(QUIRE, &[]).unwrap();
    let refused =
        quire(&["backup", folder.path().to_str().unwrap(), "--data", server.data().to_str().unwrap()]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("is not empty"));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
}

#[test]
fn a_backup_is_for_its_owner_alone_and_never_inside_what_it_copies() {
    let folder = tempfile::tempdir().unwrap();
    // Made by the server, so with its mode.
    let server = Server::start_in(QUIRE, &folder.path().join("data"), &[]).unwrap();
    try_create(server.public, "private").unwrap();
    let data = server.data().to_str().unwrap();
    let copy = folder.path().join("backups/monday");
    let done = quire(&["backup", copy.to_str().unwrap(), "--data", data]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (mut waiting, mut files) = (vec![copy, server.data().to_owned()], 0);
    while let Some(path) = waiting.pop() {
        let found = std::fs::metadata(&path).unwrap();
        let expected = if found.is_dir() { 0o700 } else { 0o600 };
        assert_eq!(found.permissions().mode() & 0o777, expected, "{}", path.display());
        files += usize::from(found.is_file());
        if found.is_dir() {
            waiting.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
    }
    assert!(files > 6, "{files}");

    let link = folder.path().join("link");
    std::os::unix::fs::symlink(data, &link).unwrap();
    for inside in [format!("{data}/copy"), format!("{data}/bodies/a/b"), format!("{}/copy", link.display())] {
        let refused = quire(&["backup", &inside, "--data", data]);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("lies inside"), "{said}");
        assert!(!Path::new(&inside).exists());
    }
}

#[test]
fn a_second_server_on_the_same_folder_is_refused_and_harms_nothing() {
    let server = Server::start(QUIRE, &[]).unwrap();
    let made = try_create(server.public, "first").unwrap();
    let data = server.data().to_str().unwrap();
    let refused =
        quire(&["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data", data]);
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success());
    assert!(said.contains("another quire server is using this folder"), "{said}");
    let paste = Paste { id: made.id, body: "first".into(), deleted: false, delete_asked: false };
    assert_eq!(lost(server.public, &[paste]), 0);
}

#[test]
fn verify_names_what_is_missing_corrupt_or_orphaned() {
    let mut server = Server::start(QUIRE, &[]).unwrap();
    let data = server.data().to_owned();
    let kept = try_create(server.public, &body(1, 1)).unwrap();
    let corrupt = try_create(server.public, &body(2, 2)).unwrap();
    let orphan = try_create(server.public, "an orphan").unwrap();
    let missing = try_create(server.public, &body(3, 3)).unwrap();
    server.terminate().unwrap();
    assert!(server.ended(WAIT_MAX).unwrap().success());
    assert_clean(&data);

    let rows = rusqlite::Connection::open(data.join("rows.db")).unwrap();
    assert_eq!(rows.execute("DELETE FROM pastes WHERE id = ?1", [&orphan.id]).unwrap(), 1);
    let moved = "UPDATE pastes SET body_offset = 64000000 WHERE id = ?1";
    assert_eq!(rows.execute(moved, [&missing.id]).unwrap(), 1);
    let offset: i64 = rows
        .query_row("SELECT body_offset FROM pastes WHERE id = ?1", [&corrupt.id], |row| row.get(0))
        .unwrap();
    drop(rows);
    let volume = std::fs::read_dir(data.join("bodies"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .find(|path| path.extension().is_some_and(|extension| extension == "vol"))
        .unwrap();
    let mut bytes = std::fs::read(&volume).unwrap();
    let hit = usize::try_from(offset).unwrap() + 64 + 3;
    bytes[hit] ^= 1;
    std::fs::write(&volume, bytes).unwrap();

    let checked = quire(&["verify", "--data", data.to_str().unwrap()]);
    let said = String::from_utf8(checked.stdout).unwrap();
    assert_eq!(checked.status.code(), Some(1), "{said}");
    let lines: Vec<&str> = said.lines().collect();
    assert!(lines.contains(&format!("missing {}", missing.id).as_str()), "{said}");
    assert!(lines.contains(&format!("corrupt {}", corrupt.id).as_str()), "{said}");
    assert!(lines.iter().any(|line| line.starts_with(&format!("orphan {} 9 ", orphan.id))), "{said}");
    assert!(!said.contains(&kept.id), "{said}");

    let nothing = quire(&["verify", "--data", "/nonexistent"]);
    assert_eq!(nothing.status.code(), Some(2));

    // The server says so too, by status and by metric, and never 404.
    let server = Server::start_in(QUIRE, &data, &[]).unwrap();
    for (paste, code) in [(&missing, "body_missing"), (&corrupt, "body_corrupt")] {
        let answer = Client::connect(server.public)
            .and_then(|mut client| client.exchange(request("GET", &format!("/{}", paste.id), &[], None)))
            .unwrap();
        assert_eq!((answer.status, answer.error().unwrap().as_str()), (500, code));
    }
    let metrics = Client::connect(server.admin)
        .and_then(|mut client| client.exchange(request("GET", "/metrics", &[], None)))
        .unwrap();
    let metrics = metrics.text().unwrap().to_owned();
    for line in ["quire_bodies_missing_total 1", "quire_bodies_corrupt_total 1"] {
        assert!(metrics.contains(line), "{metrics}");
    }
}

#[test]
fn rows_and_bodies_of_different_stores_are_refused() {
    let (mut one, mut other) = (Server::start(QUIRE, &[]).unwrap(), Server::start(QUIRE, &[]).unwrap());
    try_create(one.public, "one").unwrap();
    one.kill().unwrap();
    other.kill().unwrap();
    let rows = format!("sqlite:{}", other.data().join("rows.db").display());
    for command in ["serve", "verify"] {
        let data = one.data().to_str().unwrap();
        let mut arguments = vec![command, "--data", data, "--rows", &rows];
        if command == "serve" {
            arguments.extend(["--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"]);
        }
        let refused = quire(&arguments);
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(!refused.status.success() && said.contains("pair"), "{command}: {said}");
    }
    // An emptied row store is refused as well, and so is an emptied body store.
    std::fs::remove_file(one.data().join("rows.db")).unwrap();
    for leftover in ["rows.db-wal", "rows.db-shm"] {
        let _ = std::fs::remove_file(one.data().join(leftover));
    }
    if let Ok(server) = Server::start_in(QUIRE, one.data(), &[]) {
        panic!("served bodies without their rows: {}", server.log());
    }
}
