//! The server as a process of its own.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, ChildStderr, Command, ExitStatus, Stdio},
    sync::{Arc, Mutex, PoisonError, mpsc},
    thread,
    time::Duration,
};

use anyhow::{Context as _, bail};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::eventually;

/// How long a server may take to say where it listens.
const START_TIME_MAX: Duration = Duration::from_secs(30);

/// Flags that switch every limit off. The requests of a test come from one address, which limits of a source
/// would take for a flood; tests of the limits leave this out.
pub const NO_LIMITS: &[&str] = &[
    "--source-in-flight",
    "off",
    "--source-creates",
    "off",
    "--source-bytes",
    "off",
    "--service-creates",
    "off",
    "--service-bytes",
    "off",
    "--source-reads",
    "off",
    "--source-deletes",
    "off",
];

/// A running `quire serve`; killed when dropped.
#[derive(Debug)]
pub struct Server {
    child: Child,
    /// Where the public listener is.
    pub public: SocketAddr,
    /// Where the admin listener is.
    pub admin: SocketAddr,
    data: Folder,
    log: Arc<Mutex<String>>,
}

/// Where the data is.
#[derive(Debug)]
enum Folder {
    /// A folder that goes when the server goes.
    Own(TempDir),
    /// A folder of the test's.
    Theirs(PathBuf),
}

impl Folder {
    fn path(&self) -> &Path {
        match self {
            Self::Own(folder) => folder.path(),
            Self::Theirs(path) => path,
        }
    }
}

impl Server {
    /// Starts a server on free ports in a new folder that goes with it.
    ///
    /// # Errors
    /// If it does not come up; the error has its log.
    pub fn start(binary: &str, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::launch(binary, Folder::Own(TempDir::with_prefix("quire-test-")?), arguments)
    }

    /// Starts a server on free ports in a folder of the test's.
    ///
    /// # Errors
    /// If it does not come up; the error has its log.
    pub fn start_in(binary: &str, data: &Path, arguments: &[&str]) -> anyhow::Result<Self> {
        Self::launch(binary, Folder::Theirs(data.to_owned()), arguments)
    }

    fn launch(binary: &str, data: Folder, arguments: &[&str]) -> anyhow::Result<Self> {
        let mut command = Command::new(binary);
        command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--data"]);
        command.arg(data.path()).args(arguments);
        // What the test's own environment says must not reach the server.
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("QUIRE_"))
        {
            command.env_remove(name);
        }
        command.env("NO_COLOR", "1").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = command.spawn().with_context(|| format!("start {binary}"))?;
        let log = Arc::new(Mutex::new(String::new()));
        let (said, heard) = mpsc::channel();
        if let Some(stderr) = child.stderr.take() {
            let log = Arc::clone(&log);
            thread::spawn(move || follow(stderr, &log, &said));
        }
        let (mut public, mut admin) = (None, None);
        while public.is_none() || admin.is_none() {
            match heard.recv_timeout(START_TIME_MAX) {
                Ok(Said::Public(address)) => public = Some(address),
                Ok(Said::Admin(address)) => admin = Some(address),
                Err(_) => break,
            }
        }
        let (Some(public), Some(admin)) = (public, admin) else {
            // It may be gone already; then there is nothing to end.
            let _ = child.kill();
            let status = child.wait()?;
            bail!("the server did not come up ({status}): {}", read_log(&log));
        };
        Ok(Self { child, public, admin, data, log })
    }

    /// The data folder.
    #[must_use]
    pub fn data(&self) -> &Path {
        self.data.path()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// What it has logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        read_log(&self.log)
    }

    /// Sends a signal to this process and to no other.
    ///
    /// # Errors
    /// If it is gone.
    pub fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).context("signal")
    }

    /// Kills it, as a crash would, and waits until it is gone.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill")?;
        self.child.wait().map(|_| ()).context("wait")
    }

    /// Asks it to end, as an operator would.
    ///
    /// # Errors
    /// If it is gone.
    pub fn terminate(&self) -> anyhow::Result<()> {
        self.signal(Signal::TERM)
    }

    /// Waits for it to end.
    ///
    /// # Errors
    /// If it does not in time.
    pub fn ended(&mut self, time_max: Duration) -> anyhow::Result<ExitStatus> {
        let mut status = None;
        let child = &mut self.child;
        eventually("the server ends", time_max, || {
            status = child.try_wait()?;
            Ok(status.is_some())
        })?;
        status.context("no status")
    }

    /// Whether it still runs.
    ///
    /// # Errors
    /// If its state cannot be asked for.
    pub fn is_running(&mut self) -> anyhow::Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Its resident memory in bytes.
    ///
    /// # Errors
    /// If the kernel does not say.
    pub fn resident_bytes(&self) -> anyhow::Result<u64> {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS")?;
        let kilobytes: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
        Ok(kilobytes * 1_024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

enum Said {
    Public(SocketAddr),
    Admin(SocketAddr),
}

fn read_log(log: &Mutex<String>) -> String {
    log.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// Keeps what the server logs, and passes on where it listens.
fn follow(stderr: ChildStderr, log: &Mutex<String>, said: &mpsc::Sender<Said>) {
    for line in BufReader::new(stderr).lines().map_while(Result::ok) {
        if let Some(address) = address(&line) {
            let said_now = if line.contains("admin listening") {
                Some(Said::Admin(address))
            } else if line.contains("listening") {
                Some(Said::Public(address))
            } else {
                None
            };
            // After the start nobody listens any more.
            let _ = said_now.map(|now| said.send(now));
        }
        let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
        log.push_str(&line);
        log.push('\n');
    }
}

/// The address in a line for people (`address=IP:PORT`) or for machines (`"address":"IP:PORT"`).
fn address(line: &str) -> Option<SocketAddr> {
    let (_, rest) = line.split_once("address")?;
    rest.trim_start_matches(['=', '"', ':']).split([' ', '"', ',']).next()?.parse().ok()
}
