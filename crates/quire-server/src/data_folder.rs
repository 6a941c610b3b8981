//! The data folder of one box: there is one, it is ours alone, and rows and bodies in it belong together.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use quire_core::{
    pair::PairId,
    ports::{Entropy, PortError},
};

use crate::private;

/// Why a data folder cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DataFolderError {
    /// Another server holds the lock.
    #[error(
        "{flag} {}: another quire server is using this folder; stop it first, or give this one a folder of its own",
        .folder.display()
    )]
    InUse {
        /// Which flag named it.
        flag: &'static str,
        /// Where.
        folder: PathBuf,
    },
    /// The folder cannot be made, or not be locked.
    #[error(
        "{flag} {}: {source}; check that the folder exists and belongs to the user quire runs as",
        .folder.display()
    )]
    Unusable {
        /// Which flag named it.
        flag: &'static str,
        /// Where.
        folder: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// Rows and bodies were not made together.
    #[error(
        "rows and bodies do not belong together: {0}. Restore both from the same backup, or point --rows and \
         --bodies at a pair; to start empty, move both aside"
    )]
    Mismatch(&'static str),
    /// No randomness for a new pair id.
    #[error("no random numbers from the operating system: {0}")]
    Entropy(#[source] PortError),
}

/// Holds the folder's lock until dropped; the operating system also releases it when the process ends in
/// any other way.
#[derive(Debug)]
pub struct DataFolder {
    _lock: File,
}

impl DataFolder {
    /// Makes the folder if it is not there, locks it, and makes sure that files can be made in it: one that was
    /// found out only by the first create would have been "serving" until then. `flag` is what named it.
    ///
    /// # Errors
    /// It is in use, or it cannot be used.
    pub fn lock(flag: &'static str, path: &Path) -> Result<Self, DataFolderError> {
        let unusable = |source| DataFolderError::Unusable { flag, folder: path.to_owned(), source };
        make_durably(path).map_err(unusable)?;
        let lock = private::file_options().create(true).truncate(false).write(true).open(path.join("lock"));
        let lock = lock.map_err(unusable)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DataFolderError::InUse { flag, folder: path.to_owned() });
            }
            Err(TryLockError::Error(error)) => return Err(unusable(error)),
        }
        check_writable(path).map_err(unusable)?;
        Ok(Self { _lock: lock })
    }
}

/// Makes sure that files can be made in this folder and removed from it.
///
/// # Errors
/// What the operating system says.
pub fn check_writable(folder: &Path) -> io::Result<()> {
    let probe = folder.join("probe.tmp");
    private::file_options().create(true).truncate(true).write(true).open(&probe)?;
    fs::remove_file(probe)
}

/// Makes a folder that is still there after a power cut: its own entry is synced, and its parents'.
fn make_durably(path: &Path) -> io::Result<()> {
    if path.is_dir() {
        return Ok(());
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !parent.is_dir() {
        make_durably(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    File::open(path)?.sync_all()?;
    fs::File::open(parent)?.sync_all()
}

/// Which pair id the two stores shall carry from now on, or that they do not belong together (contract O5).
///
/// The body store's id is written first. So rows without an id beside bodies with one are an interrupted
/// first start, as long as there is no body yet; any other half is a store that was emptied or exchanged.
///
/// # Errors
/// They do not belong together, or there is no randomness for a new id.
pub fn pair_id(
    rows: Option<PairId>,
    bodies: Option<PairId>,
    bodies_exist: bool,
    entropy: &dyn Entropy,
) -> Result<PairId, DataFolderError> {
    match (rows, bodies) {
        (Some(of_rows), Some(of_bodies)) if of_rows == of_bodies => Ok(of_rows),
        (Some(_), Some(_)) => Err(DataFolderError::Mismatch("they carry different pair ids")),
        (Some(_), None) => Err(DataFolderError::Mismatch("there are rows, but the body store is empty")),
        (None, _) if bodies_exist => {
            Err(DataFolderError::Mismatch("there are bodies, but the row store is empty"))
        }
        (None, Some(of_bodies)) => Ok(of_bodies),
        (None, None) => PairId::random(entropy).map_err(DataFolderError::Entropy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::SystemEntropy;

    #[test]
    fn a_second_server_is_refused_until_the_first_is_gone() {
        let temp = tempfile::tempdir().unwrap();
        let path = temp.path().join("a/b/data");
        let first = DataFolder::lock("--data", &path).unwrap();
        let refused = DataFolder::lock("--bodies", &path).unwrap_err();
        assert!(matches!(refused, DataFolderError::InUse { .. }));
        assert!(refused.to_string().starts_with("--bodies "), "the flag that was given: {refused}");
        assert!(refused.to_string().contains("another quire server"));
        drop(first);
        DataFolder::lock("--data", &path).unwrap();
        assert!(!path.join("probe.tmp").exists());
    }

    #[test]
    fn a_folder_that_cannot_be_made_is_named() {
        let temp = tempfile::tempdir().unwrap();
        let file = temp.path().join("file");
        fs::write(&file, "").unwrap();
        for flag in ["--data", "--bodies"] {
            let refused = DataFolder::lock(flag, &file.join("data")).unwrap_err();
            assert!(refused.to_string().starts_with(flag), "{refused}");
        }
    }

    #[test]
    fn stores_that_were_not_made_together_are_refused() {
        let decide = |rows, bodies, exist| pair_id(rows, bodies, exist, &SystemEntropy);
        let [a, b] = [1, 2].map(|byte| Some(PairId::from_bytes([byte; 16])));
        assert_eq!(decide(a, a, true).ok(), a);
        assert_eq!(decide(None, a, false).ok(), a, "an interrupted first start");
        for (rows, bodies, exist) in [
            (a, b, true),
            (a, b, false),
            (a, None, false),
            (a, None, true),
            (None, a, true),
            (None, None, true),
        ] {
            let refused = decide(rows, bodies, exist).unwrap_err();
            assert!(matches!(refused, DataFolderError::Mismatch(_)), "{rows:?} {bodies:?} {exist}");
        }
    }

    #[test]
    fn a_new_pair_gets_an_id_of_its_own() {
        let new = || pair_id(None, None, false, &SystemEntropy).unwrap();
        assert_ne!(new(), new());
    }
}
