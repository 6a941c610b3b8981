//! What operators rely on: health and metrics, the way a server ends, the disk reserve, settings that are
//! checked before anything is opened.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    os::unix::{fs::PermissionsExt as _, process::CommandExt as _},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::Duration,
};

use quire_testkit::{
    client::{Answer, ask, create},
    eventually,
    server::Server,
};
use rustix::process::Signal;

const QUIRE: &str = env!("CARGO_BIN_EXE_quire");
const WAIT_MAX: Duration = Duration::from_secs(30);

fn admin(server: &Server, path: &str) -> Answer {
    ask(server.admin, "GET", path, &[], None).unwrap()
}

/// The value of a series, by its name and labels as they are written out.
fn metric(server: &Server, series: &str) -> f64 {
    let all = admin(server, "/metrics");
    let text = all.text().unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {series} in {text}")).parse().unwrap()
}

#[test]
fn health_is_the_processs_own_and_the_public_listener_has_none_of_it() {
    let server = Server::start(QUIRE, &[]).unwrap();
    for path in ["/livez", "/readyz", "/metrics"] {
        assert_eq!(admin(&server, path).status, 200, "{path}");
        assert_eq!(ask(server.public, "GET", path, &[], None).unwrap().status, 404, "{path}");
        assert_eq!(ask(server.admin, "POST", path, &[], Some(b"")).unwrap().status, 405, "{path}");
    }
    assert_eq!(admin(&server, "/elsewhere").status, 404);
}

#[test]
fn what_happens_is_counted() {
    let server = Server::start(QUIRE, &[]).unwrap();
    let made = create(server.public, "12345", &[]).unwrap();
    ask(server.public, "GET", &format!("/{}", made.id), &[], None).unwrap();
    ask(server.public, "GET", "/000000000000", &[], None).unwrap();
    ask(server.public, "POST", "/v1/pastes", &[("X-Paste-TTL", "2d")], Some(b"x")).unwrap();
    for (series, value) in [
        ("quire_creates_total{outcome=\"created\"}", 1.0),
        ("quire_creates_total{outcome=\"bad_ttl\"}", 1.0),
        ("quire_stored_bytes_total", 5.0),
        ("quire_http_requests_total{call=\"read\",class=\"2xx\"}", 1.0),
        ("quire_http_requests_total{call=\"read\",class=\"4xx\"}", 1.0),
        ("quire_http_request_seconds_count{call=\"read\"}", 2.0),
        ("quire_store_seconds_count{call=\"insert\",store=\"rows\"}", 1.0),
        ("quire_store_errors_total{call=\"put\",fault=\"unavailable\",store=\"bodies\"}", 0.0),
        ("quire_id_collisions_total", 0.0),
        ("quire_bodies_missing_total", 0.0),
        ("quire_bodies_corrupt_total", 0.0),
    ] {
        assert!((metric(&server, series) - value).abs() < f64::EPSILON, "{series}");
    }
    // Nothing that was asked for, sent or given out stands among them.
    let all = admin(&server, "/metrics");
    for secret in [made.id.as_str(), made.delete_token.as_str(), "12345\n", "127.0.0.1"] {
        assert!(!all.text().unwrap().contains(secret));
    }
}

#[test]
fn while_it_drains_it_says_so_and_still_answers() {
    for signal in [Signal::TERM, Signal::INT] {
        let mut server = Server::start(QUIRE, &["--drain-wait", "2s"]).unwrap();
        let made = create(server.public, "still here", &[]).unwrap();
        server.signal(signal).unwrap();
        eventually("it is not ready any more", WAIT_MAX, || Ok(admin(&server, "/readyz").status == 503))
            .unwrap();
        assert_eq!(admin(&server, "/livez").status, 200);
        let read = ask(server.public, "GET", &format!("/{}", made.id), &[], None).unwrap();
        assert_eq!((read.status, read.body.as_slice()), (200, b"still here".as_slice()));
        assert_eq!(read.header("connection").unwrap(), Some("close"));
        create(server.public, "and takes new ones", &[]).unwrap();
        assert_eq!(server.ended(WAIT_MAX).unwrap().code(), Some(0));
        eventually("it says that it stopped", WAIT_MAX, || Ok(server.log().contains("stopped"))).unwrap();
        assert!(!server.log().contains("ERROR"), "{}", server.log());
        // Closed, and not left as by a crash: the log is folded into the database.
        assert!(!server.data().join("rows.db-wal").exists());
    }
}

#[test]
fn a_second_signal_cuts_the_waiting_short() {
    let mut server = Server::start(QUIRE, &["--drain-wait", "1h"]).unwrap();
    server.terminate().unwrap();
    eventually("it drains", WAIT_MAX, || Ok(admin(&server, "/readyz").status == 503)).unwrap();
    server.terminate().unwrap();
    assert_eq!(server.ended(WAIT_MAX).unwrap().code(), Some(0));
}

#[test]
fn under_the_disk_reserve_creates_are_refused_and_all_else_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start_in(QUIRE, folder.path(), &[]).unwrap();
    let made = create(server.public, "from better times", &[]).unwrap();
    drop(server);
    let server = Server::start_in(QUIRE, folder.path(), &["--disk-reserve", "1000000GB"]).unwrap();
    let refused = ask(server.public, "POST", "/v1/pastes", &[], Some(b"x")).unwrap();
    assert_eq!(refused.status, 503);
    assert!(refused.header("retry-after").unwrap().is_some());
    let path = format!("/v1/pastes/{}", made.id);
    assert_eq!(ask(server.public, "GET", &path, &[], None).unwrap().status, 200);
    let token = [("X-Delete-Token", made.delete_token.as_str())];
    assert_eq!(ask(server.public, "DELETE", &path, &token, None).unwrap().status, 204);
}

#[test]
fn a_wrong_setting_is_named_before_anything_is_opened() {
    for (flag, value) in [
        ("--listen", "nowhere"),
        ("--public-url", "paste.example"),
        ("--cache-bytes", "64MiB"),
        ("--drain-wait", "soon"),
        ("--disk-reserve", "200%"),
        ("--source-in-flight", "16"),
        ("--rows", "mysql:x"),
        ("--commit-deadline", "3h"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        let refused = Command::new(QUIRE).args(["serve", flag, value, "--data"]).arg(&data).output().unwrap();
        let said = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(refused.status.code() == Some(2) && said.contains(flag), "{flag}: {said}");
        assert!(!data.exists(), "{flag}");
    }
}

#[test]
fn every_flag_can_come_from_the_environment() {
    let folder = tempfile::tempdir().unwrap();
    let refused = Command::new(QUIRE)
        .arg("serve")
        .env("QUIRE_DATA", folder.path().join("data"))
        .env("QUIRE_CACHE_BYTES", "lots")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && said.contains("--cache-bytes"), "{said}");
}

#[test]
fn lines_for_machines_are_objects() {
    let server = Server::start(QUIRE, &["--log", "json"]).unwrap();
    for line in server.log().lines() {
        let object: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(object.get("message").is_some() && object.get("level").is_some(), "{line}");
    }
    assert!(server.log().contains(&server.public.to_string()));
}

#[test]
fn a_variable_that_names_no_flag_is_warned_of_without_its_value() {
    let folder = tempfile::tempdir().unwrap();
    let mut server = Command::new(QUIRE)
        .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"])
        .env("QUIRE_DATA", folder.path().join("data"))
        .env("QUIRE_SOURCE_CREATE", "hunter2")
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    for line in BufReader::new(server.stderr.take().unwrap()).lines() {
        said.push_str(&line.unwrap());
        if said.contains(" listening") && said.matches("listening").count() > 1 {
            break;
        }
    }
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(said.contains("QUIRE_SOURCE_CREATE") && !said.contains("hunter2"), "{said}");
    assert!(!said.contains("QUIRE_DATA"), "{said}");
}

#[test]
fn it_refuses_to_start_where_it_cannot_write() {
    // As a user whom permissions bind: root is not one.
    const NOBODY: u32 = 65_534;
    let folder = tempfile::tempdir().unwrap();
    let open = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    open(folder.path(), 0o755);
    let binary = folder.path().join("quire");
    fs::copy(QUIRE, &binary).unwrap();
    let data = folder.path().join("data");
    let mut server = Server::start_in(QUIRE, &data, &[]).unwrap();
    create(server.public, "from better times", &[]).unwrap();
    server.terminate().unwrap();
    assert!(server.ended(WAIT_MAX).unwrap().success());
    let is_root = rustix::process::geteuid().is_root();
    let all = || {
        let inside =
            |folder: &Path| fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
        let mut paths: Vec<PathBuf> = inside(&data);
        paths.extend::<Vec<PathBuf>>(inside(&data.join("bodies")));
        paths.push(data.clone());
        paths
    };
    for (locked, mode, flag) in
        [("rows.db", 0o444, "--rows"), ("bodies", 0o555, "--bodies"), ("", 0o555, "--data")]
    {
        for path in all() {
            if is_root {
                std::os::unix::fs::chown(&path, Some(NOBODY), Some(NOBODY)).unwrap();
            }
        }
        let locked = if locked.is_empty() { data.clone() } else { data.join(locked) };
        let before = fs::metadata(&locked).unwrap().permissions().mode();
        open(&locked, mode);
        let mut command = Command::new(&binary);
        command
            .args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data"])
            .arg(&data);
        if is_root {
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut ended = None;
        let waited = eventually("it refuses", WAIT_MAX, || {
            ended = child.try_wait()?;
            Ok(ended.is_some())
        });
        child.kill().unwrap();
        let output = child.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(waited.is_ok() && ended.unwrap().code() == Some(1), "{flag}: {said}");
        assert!(said.contains(flag) && !said.contains("listening"), "{flag}: {said}");
        open(&locked, before);
    }
}
