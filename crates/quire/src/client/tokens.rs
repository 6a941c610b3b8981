//! What this user may delete: one file in the user's state directory.
//!
//! `quire/tokens.json` below `$XDG_STATE_HOME` or `~/.local/state` is readable by the user alone and changes by
//! rename, under a lock file, so that commands at the same time lose nothing of each other. A file that cannot
//! be understood is never written over.

use std::{
    env, fs,
    fs::{DirBuilder, File, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::Duration,
};

use anyhow::{Context as _, anyhow, bail};
use quire_core::{ports::Clock as _, time::Timestamp};
use quire_server::system::SystemClock;
use serde::{Deserialize, Serialize};

use super::link::Link;

/// The form of the file that this program reads and writes.
const VERSION: u32 = 1;
/// How long another command is waited for.
const LOCK_WAIT_MAX: Duration = Duration::from_secs(10);
/// How long a paste is kept here after it has expired: this machine's clock may be days ahead.
const KEPT_AFTER_EXPIRY_MS: i64 = 7 * 86_400_000;
/// Mode of the folder: the user alone.
const FOLDER_MODE: u32 = 0o700;
/// Mode of the files: the user alone.
const FILE_MODE: u32 = 0o600;

/// A paste that this user made. It carries a secret, so it has no `Debug`.
#[derive(Clone, Deserialize, PartialEq, Eq, Serialize)]
pub(crate) struct Remembered {
    /// The server it was posted to.
    pub(crate) server: String,
    /// Its id.
    pub(crate) id: String,
    /// Its link, as the server gave it; the server may have another name there than it was posted to by.
    pub(crate) url: String,
    /// When it expires.
    pub(crate) expires_at: String,
    /// What deletes it.
    pub(crate) delete_token: String,
}

impl Remembered {
    /// Whether a link means this paste. The server counts: a token goes to nobody else.
    fn is(&self, link: &Link) -> bool {
        self.id == link.id.as_str() && (self.server == link.server.as_str() || self.url == link.url())
    }
}

#[derive(Deserialize, Serialize)]
struct Contents {
    version: u32,
    pastes: Vec<Remembered>,
}

/// The tokens in one folder.
#[derive(Clone)]
pub(crate) struct Tokens {
    folder: PathBuf,
}

impl Tokens {
    /// The tokens of whoever runs the command.
    pub(crate) fn of_user() -> anyhow::Result<Self> {
        let absolute = |name| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")));
        let state = state.context("neither XDG_STATE_HOME nor HOME names a folder for the delete tokens")?;
        Ok(Self::in_folder(state.join("quire")))
    }

    /// The tokens kept in this folder.
    pub(crate) const fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Adds a paste.
    pub(crate) fn remember(&self, paste: Remembered) -> anyhow::Result<()> {
        self.change(|pastes| pastes.push(paste))
    }

    /// Drops a paste, if it is there.
    pub(crate) fn forget(&self, link: &Link) -> anyhow::Result<()> {
        self.change(|pastes| pastes.retain(|paste| !paste.is(link)))
    }

    /// The token that deletes this paste.
    pub(crate) fn find(&self, link: &Link) -> anyhow::Result<Option<String>> {
        Ok(self.read()?.into_iter().rfind(|paste| paste.is(link)).map(|paste| paste.delete_token))
    }

    fn file(&self) -> PathBuf {
        self.folder.join("tokens.json")
    }

    fn read(&self) -> anyhow::Result<Vec<Remembered>> {
        let file = self.file();
        let bytes = match fs::read(&file) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            outcome => outcome.with_context(|| format!("cannot read {}", file.display()))?,
        };
        // The parser's own message could repeat a token.
        let contents: Contents = serde_json::from_slice(&bytes)
            .map_err(|_| anyhow!("{} is damaged; move it away, keep it for its tokens", file.display()))?;
        if contents.version != VERSION {
            bail!("{} was written by another version of quire", file.display());
        }
        Ok(contents.pastes)
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Remembered>)) -> anyhow::Result<()> {
        self.make_folder().with_context(|| format!("cannot make {} private", self.folder.display()))?;
        let _lock = self.lock()?;
        let mut pastes = self.read()?;
        change(&mut pastes);
        let kept_from = SystemClock::new().wall().unix_ms().saturating_sub(KEPT_AFTER_EXPIRY_MS);
        let kept_from = Timestamp::from_unix_ms(kept_from).to_rfc3339();
        // Both are RFC 3339 in UTC with whole seconds, so their texts compare as their times do.
        pastes.retain(|paste| paste.expires_at > kept_from);
        self.replace(&Contents { version: VERSION, pastes })
            .with_context(|| format!("cannot write {}", self.file().display()))
    }

    fn make_folder(&self) -> io::Result<()> {
        DirBuilder::new().recursive(true).mode(FOLDER_MODE).create(&self.folder)?;
        fs::set_permissions(&self.folder, Permissions::from_mode(FOLDER_MODE))
    }

    /// Holds other commands off until it is dropped. A command that hangs must not hang this one too.
    fn lock(&self) -> anyhow::Result<File> {
        let path = self.folder.join("tokens.lock");
        let options = OpenOptions::new().write(true).create(true).truncate(false).mode(FILE_MODE).to_owned();
        let file = options.open(&path).with_context(|| format!("cannot open {}", path.display()))?;
        let (sender, receiver) = mpsc::channel();
        thread::spawn(move || {
            let locked = file.lock().map(|()| file);
            let _ = sender.send(locked);
        });
        let locked = receiver.recv_timeout(LOCK_WAIT_MAX);
        let locked =
            locked.with_context(|| format!("another command holds {} for too long", path.display()))?;
        locked.with_context(|| format!("cannot lock {}", path.display()))
    }

    /// Writes the file anew: whole and synced under another name, then renamed.
    fn replace(&self, contents: &Contents) -> io::Result<()> {
        let new = self.folder.join("tokens.json.new");
        // What a killed command left behind may have another mode.
        match fs::remove_file(&new) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        let mut file = OpenOptions::new().write(true).create_new(true).mode(FILE_MODE).open(&new)?;
        serde_json::to_writer_pretty(&mut file, contents)?;
        file.write_all(b"\n")?;
        file.sync_all()?;
        fs::rename(&new, self.file())?;
        sync_folder(&self.folder)
    }
}

fn sync_folder(folder: &Path) -> io::Result<()> {
    File::open(folder)?.sync_all()
}

#[cfg(test)]
mod tests;
