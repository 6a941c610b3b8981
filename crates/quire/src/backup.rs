//! `quire backup`: copies rows and bodies beside a running server (contract O7).
//!
//! In this order: hold back the removal of bodies, copy the rows as they are at one moment, copy the bodies.
//! Every row of that moment has its body until the hold ends, so the copy has it too. Bodies written since
//! are orphans in the copy and harm nobody.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context as _, bail};
use clap::Args;
use quire_server::{
    bodies::volumes::{RemovalHold, copy_volumes},
    config::stores::{BodyStore, RowStore, StoreArgs, Stores},
    rows::sqlite,
};

/// The flags of `quire backup`.
#[derive(Args, Debug)]
pub(crate) struct BackupArgs {
    /// Folder to make the copy in; it must be empty or not there yet
    #[arg(value_name = "DIR")]
    to: PathBuf,

    #[command(flatten)]
    stores: StoreArgs,
}

/// Copies the stores.
pub(crate) fn run(args: &BackupArgs) -> anyhow::Result<ExitCode> {
    let stores = args.stores.check().context("the settings are wrong, nothing was copied")?;
    backup(&stores, &args.to)?;
    Ok(ExitCode::SUCCESS)
}

fn backup(stores: &Stores, to: &Path) -> anyhow::Result<()> {
    let Stores { rows: RowStore::Sqlite(rows), bodies: BodyStore::Local(bodies), .. } = stores;
    if !bodies.is_dir() {
        bail!("{} is no body store; name the server's folder with --data", bodies.display());
    }
    make_empty(to)?;
    let unfinished = || format!("the copy in {} is unfinished and cannot be served; remove it", to.display());

    let hold = RemovalHold::take(bodies).with_context(unfinished)?;
    sqlite::backup_to(rows, &to.join("rows.db")).with_context(unfinished)?;
    let copied = copy_volumes(bodies, &to.join("bodies")).with_context(unfinished)?;
    drop(hold);

    let (volumes, bytes) = (copied.volumes, copied.bytes);
    let done =
        writeln!(io::stdout(), "copied the rows and {volumes} volumes ({bytes} bytes) to {}", to.display());
    done.context("the copy is whole, but that could not be printed")
}

/// A copy goes into a folder of its own: nothing is ever written over.
fn make_empty(to: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let mut entries = fs::read_dir(to).with_context(|| format!("{} cannot be read", to.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty; name a folder that is, or one that is not there yet", to.display());
    }
    Ok(())
}
