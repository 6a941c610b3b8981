//! The order of system calls of a lone create, as the kernel saw it: body synced, then row synced, then the
//! answer (contract O1). Needs `strace`, which `scripts/tools` installs.

#![expect(clippy::unwrap_used, clippy::expect_used, reason = "a test fails by panicking")]

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use quire_testkit::{client, eventually, server::Server};
use rustix::process::{Pid, Signal, kill_process};

const WAIT_MAX: Duration = Duration::from_secs(30);

/// What the trace must show, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Seen {
    BodySynced,
    RowSynced,
    Answered,
}

/// A tracer attached to every thread of a server.
struct Tracer {
    child: Child,
    trace: PathBuf,
}

impl Tracer {
    fn attach(server: &Server, folder: &Path) -> Self {
        let trace = folder.join("trace");
        let said = folder.join("said");
        let child = Command::new("strace")
            .args(["-f", "-y", "-s", "32", "-e", "trace=fsync,fdatasync,write,writev,sendto,sendmsg"])
            .arg("-o")
            .arg(&trace)
            .args(["-p", &server.pid().to_string()])
            .stderr(Stdio::from(fs::File::create(&said).unwrap()))
            .spawn()
            .expect("strace is installed by scripts/tools");
        // It attaches to every thread before it says so.
        eventually("strace is attached", WAIT_MAX, || Ok(fs::read_to_string(&said)?.contains(" attached")))
            .unwrap();
        Self { child, trace }
    }

    fn detach(mut self) -> String {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        self.child.wait().unwrap();
        fs::read_to_string(self.trace).unwrap()
    }
}

/// A call that another thread's interrupts is shown in two lines; what counts is where it ended.
fn what_happened(trace: &str) -> Vec<Seen> {
    let mut unfinished = std::collections::HashMap::new();
    let mut seen = Vec::new();
    for line in trace.lines() {
        let Some((thread, call)) = line.split_once(' ') else { continue };
        let whole = if let Some(begun) = call.trim().strip_suffix("<unfinished ...>") {
            unfinished.insert(thread, begun.to_owned());
            continue;
        } else if call.trim().starts_with("<...") {
            format!("{}{call}", unfinished.remove(thread).unwrap_or_default())
        } else {
            call.to_owned()
        };
        let synced = (whole.contains("fsync(") || whole.contains("fdatasync(")) && whole.ends_with("= 0");
        if synced && whole.contains(".vol>") {
            seen.push(Seen::BodySynced);
        } else if synced && whole.contains("rows.db-wal>") {
            seen.push(Seen::RowSynced);
        } else if whole.contains("201 Created") {
            seen.push(Seen::Answered);
        }
    }
    seen
}

#[test]
fn a_create_syncs_its_body_then_its_row_then_answers() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(env!("CARGO_BIN_EXE_quire"), &[]).unwrap();
    // The first create makes the volume, which takes syncs of its own.
    client::create(server.public, "the first", &[]).unwrap();
    let tracer = Tracer::attach(&server, folder.path());
    for number in 0..5 {
        client::create(server.public, format!("number {number}"), &[]).unwrap();
    }
    let trace = tracer.detach();
    let one = [Seen::BodySynced, Seen::RowSynced, Seen::Answered];
    assert_eq!(what_happened(&trace), one.repeat(5), "{trace}");
}
