//! The `pair` file: which rows these bodies belong to (contract O5), and in which format they are kept.
//!
//! Promises that the file is whole or absent: it is written beside its place, synced and renamed. Never
//! decides whether rows and bodies fit together; whoever opens both compares.

use std::{
    fs,
    io::{self, Write as _},
    path::Path,
};

pub(super) use quire_core::pair::PairId;

use super::{OpenError, disk::sync_folder, name};
use crate::private;

const FILE_NAME: &str = "pair";
const FORMAT_NAME: &str = "quire bodies ";
const FORMAT_VERSION: u64 = 1;

/// The pair id of the bodies in `folder`; `None` if it has none yet, or does not exist.
///
/// # Errors
/// The file cannot be read, is not a pair file, or is of a newer format than this program's.
pub fn read(folder: &Path) -> Result<Option<PairId>, OpenError> {
    let text = match fs::read_to_string(folder.join(FILE_NAME)) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(OpenError::io("reading the pair file", folder, error)),
    };
    parse(&text).map(Some)
}

/// Gives the bodies in `folder` their pair id, making the folder if there is none. Durable on return, the
/// folder's own entry in its parent included.
///
/// # Errors
/// Whatever the file system says.
pub fn write(folder: &Path, pair: PairId) -> Result<(), OpenError> {
    try_write(folder, pair).map_err(|error| OpenError::io("writing the pair file", folder, error))
}

/// Whether there are volumes in `folder`: bodies without a pair id are a store that was damaged, not a new one.
///
/// # Errors
/// The folder exists and cannot be read.
pub fn has_volumes(folder: &Path) -> Result<bool, OpenError> {
    match name::list(folder) {
        Ok(names) => Ok(!names.is_empty()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(OpenError::io("listing the volumes", folder, error)),
    }
}

fn try_write(folder: &Path, pair: PairId) -> io::Result<()> {
    private::make_folders(folder)?;
    let beside = folder.join("pair.tmp");
    let mut file = private::file_options().write(true).create(true).truncate(true).open(&beside)?;
    file.write_all(format!("{FORMAT_NAME}{FORMAT_VERSION}\npair {}\n", pair.to_hex()).as_bytes())?;
    file.sync_all()?;
    fs::rename(&beside, folder.join(FILE_NAME))?;
    sync_folder(folder)?;
    // The folder may be new as well, and is only as durable as its entry in its parent. `bodies` alone has
    // the parent "", which is the current folder.
    match folder.parent() {
        Some(parent) if parent.as_os_str().is_empty() => sync_folder(Path::new(".")),
        Some(parent) => sync_folder(parent),
        None => Ok(()),
    }
}

fn parse(text: &str) -> Result<PairId, OpenError> {
    let mut lines = text.lines();
    let version = lines.next().and_then(|line| line.strip_prefix(FORMAT_NAME));
    match version.and_then(|version| version.parse::<u64>().ok()) {
        Some(FORMAT_VERSION) => {}
        Some(found) if found > FORMAT_VERSION => {
            return Err(OpenError::NewerFormat { found, known: FORMAT_VERSION });
        }
        _ => return Err(OpenError::NotAPairFile),
    }
    let pair = lines.next().and_then(|line| line.strip_prefix("pair ")).and_then(PairId::from_hex);
    pair.ok_or(OpenError::NotAPairFile)
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_pair_reads_back_and_a_new_folder_has_none() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("bodies");
        assert_eq!(read(&folder).unwrap(), None);
        assert!(!has_volumes(&folder).unwrap());
        let pair = PairId::from_bytes([0x0A; 16]);
        write(&folder, pair).unwrap();
        assert_eq!(read(&folder).unwrap(), Some(pair));
        let text = fs::read_to_string(folder.join("pair")).unwrap();
        assert_eq!(text, format!("quire bodies 1\npair {}\n", "0a".repeat(16)));
        assert!(!folder.join("pair.tmp").exists());
        assert!(!has_volumes(&folder).unwrap());
        File::create(folder.join("2026-12-30.000001.vol")).unwrap();
        assert!(has_volumes(&folder).unwrap());
    }

    #[test]
    fn a_newer_format_is_refused_by_name() {
        let newer = parse("quire bodies 2\nwhatever").unwrap_err();
        assert!(matches!(newer, OpenError::NewerFormat { found: 2, known: 1 }));
        assert!(newer.to_string().contains("newer"), "{newer}");
        for garbage in
            ["", "quire bodies 0\n", "quire bodies 1\n", "quire bodies 1\npair 0A\n", "other\npair 00\n"]
        {
            assert!(matches!(parse(garbage), Err(OpenError::NotAPairFile)), "{garbage:?}");
        }
    }
}
