//! Copying a body store that is in use, for `quire backup`.
//!
//! Promises that every record that was durable when the copy began is in it, provided a
//! [`RemovalHold`](super::RemovalHold) is held, and that the pair file comes last, so that a copy without one
//! is unfinished. Never writes to the source and never over an existing volume.

use std::{
    fs::File,
    io::{self, Read as _},
    path::Path,
};

use super::{OpenError, disk::sync_folder, name, pair};
use crate::private;

/// What was copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CopyTotals {
    /// How many files.
    pub volumes: u64,
    /// How long they are together.
    pub bytes: u64,
}

/// Copies the pair file and every volume in `from` to the folder `to`, each as long as it is when its turn
/// comes. The copy is durable on return.
///
/// # Errors
/// `from` is no body store, `to` holds a volume or a pair file already, or the file system says no. What was
/// copied until then stays.
pub fn copy_volumes(from: &Path, to: &Path) -> Result<CopyTotals, OpenError> {
    let pair_id = pair::read(from)?.ok_or_else(|| OpenError::NoPair { folder: from.to_owned() })?;
    if pair::read(to)?.is_some() || pair::has_volumes(to)? {
        return Err(OpenError::NotEmpty { folder: to.to_owned() });
    }
    let totals = copy_files(from, to).map_err(|error| OpenError::io("copying the volumes", to, error))?;
    pair::write(to, pair_id)?;
    Ok(totals)
}

fn copy_files(from: &Path, to: &Path) -> io::Result<CopyTotals> {
    private::make_folders(to)?;
    let mut totals = CopyTotals::default();
    for name in name::list(from)? {
        let source = match File::open(from.join(name.file_name())) {
            Ok(source) => source,
            // Made and taken back since the folder was listed, for want of space: nothing was ever in it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
            Err(error) => return Err(error),
        };
        // What is appended from here on belongs to pastes made after the copy began.
        let length = source.metadata()?.len();
        let mut copy =
            private::file_options().write(true).create_new(true).open(to.join(name.file_name()))?;
        totals.bytes += io::copy(&mut source.take(length), &mut copy)?;
        totals.volumes += 1;
        copy.sync_all()?;
    }
    sync_folder(to)?;
    Ok(totals)
}
