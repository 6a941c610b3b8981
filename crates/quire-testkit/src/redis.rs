//! Redis or Valkey as a process of its own: on a free port of loopback, keeping nothing on disk.
//!
//! It is signalled by its process id and by nothing else, so that whatever else runs here stays alone. A
//! program that is not installed is an error and never a reason to skip: `scripts/tools` installs it.

use std::{
    env,
    io::{Read as _, Write as _},
    net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context as _, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::eventually;

/// How long it may take to answer its first call.
const START_TIME_MAX: Duration = Duration::from_secs(20);
/// How long it may take to answer a command of a test.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(10);
/// Between our looking for a free port and its taking it, somebody else may.
const START_ATTEMPTS: usize = 5;

/// Which program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Redis.
    Redis,
    /// Valkey.
    Valkey,
}

impl Program {
    const fn file_name(self) -> &'static str {
        match self {
            Self::Redis => "redis-server",
            Self::Valkey => "valkey-server",
        }
    }

    /// Where it is: among the project's own tools, or on the path.
    ///
    /// # Errors
    /// If it is nowhere.
    pub fn find(self) -> anyhow::Result<PathBuf> {
        let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin");
        let path = env::var_os("PATH").unwrap_or_default();
        let mut places = std::iter::once(tools).chain(env::split_paths(&path));
        places
            .find_map(|place| Some(place.join(self.file_name())).filter(|file| file.is_file()))
            .with_context(|| format!("{} is not installed; run scripts/tools", self.file_name()))
    }
}

/// A running server; killed when dropped.
#[derive(Debug)]
pub struct Store {
    binary: PathBuf,
    folder: TempDir,
    address: SocketAddr,
    child: Child,
}

impl Store {
    /// Starts one on a free port.
    ///
    /// # Errors
    /// If it is not installed or does not come up.
    pub fn start(program: Program) -> anyhow::Result<Self> {
        let binary = program.find()?;
        let mut last = None;
        for _ in 0..START_ATTEMPTS {
            let folder = TempDir::with_prefix("quire-store-")?;
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
            let address = free.local_addr()?;
            drop(free);
            let child = launch(&binary, folder.path(), address)?;
            let mut store = Self { binary: binary.clone(), folder, address, child };
            match store.wait_until_up() {
                Ok(()) => return Ok(store),
                Err(error) => last = Some(error),
            }
        }
        Err(last.context("no attempt was made")?)
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as quire is told it.
    #[must_use]
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Kills it, as a crash would; its keys are gone.
    ///
    /// # Errors
    /// If it cannot be waited for.
    pub fn kill(&mut self) -> anyhow::Result<()> {
        self.child.kill().context("kill")?;
        self.child.wait().map(|_| ()).context("wait")
    }

    /// Starts it again on the same port after [`kill`](Self::kill).
    ///
    /// # Errors
    /// If it does not come up.
    pub fn start_again(&mut self) -> anyhow::Result<()> {
        self.child = launch(&self.binary, self.folder.path(), self.address)?;
        self.wait_until_up()
    }

    /// Stops its process without its knowing: connections stay, nothing answers.
    ///
    /// # Errors
    /// If it is gone.
    pub fn freeze(&self) -> anyhow::Result<()> {
        self.signal(Signal::STOP)
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it is gone.
    pub fn thaw(&self) -> anyhow::Result<()> {
        self.signal(Signal::CONT)
    }

    /// Removes every key.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn flush(&self) -> anyhow::Result<()> {
        let answer = self.command("FLUSHALL")?;
        ensure!(answer.starts_with("+OK"), "FLUSHALL: {answer}");
        Ok(())
    }

    /// Sends a command of plain words over a connection of its own; gives the beginning of the answer as it
    /// came.
    ///
    /// # Errors
    /// If it does not answer.
    pub fn command(&self, words: &str) -> anyhow::Result<String> {
        let mut stream = TcpStream::connect_timeout(&self.address, ANSWER_TIME_MAX)?;
        stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
        stream.write_all(format!("{words}\r\n").as_bytes())?;
        let mut answer = [0; 4_096];
        let count = stream.read(&mut answer).context("no answer")?;
        Ok(String::from_utf8_lossy(answer.get(..count).unwrap_or_default()).into_owned())
    }

    fn signal(&self, signal: Signal) -> anyhow::Result<()> {
        let pid = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw).context("no process id")?;
        kill_process(pid, signal).context("signal")
    }

    fn wait_until_up(&mut self) -> anyhow::Result<()> {
        let mut ended = None;
        eventually("the store answers", START_TIME_MAX, || {
            ended = self.child.try_wait()?;
            let answers = self.command("PING").is_ok_and(|answer| answer.starts_with("+PONG"));
            Ok(ended.is_some() || answers)
        })?;
        match ended {
            None => Ok(()),
            Some(status) => bail!("the store ended at once: {status}"),
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // It may be gone already; then there is nothing to end.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn launch(binary: &Path, folder: &Path, address: SocketAddr) -> anyhow::Result<Child> {
    let port = address.port().to_string();
    Command::new(binary)
        .args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"])
        .args(["--daemonize", "no", "--dir"])
        .arg(folder)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .with_context(|| format!("start {}", binary.display()))
}
