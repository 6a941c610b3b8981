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
    private,
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
    refuse_inside(to, stores)?;
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

/// A copy inside what it is a copy of would be lost with it, and a restore would carry it along.
fn refuse_inside(to: &Path, stores: &Stores) -> anyhow::Result<()> {
    let BodyStore::Local(bodies) = &stores.bodies;
    let copy = resolved(to).with_context(|| format!("{} cannot be looked at", to.display()))?;
    for (flag, folder) in [("--data", &stores.data), ("--bodies", bodies)] {
        // One that is not there has nothing inside.
        if folder.canonicalize().is_ok_and(|folder| copy.starts_with(folder)) {
            bail!("{} lies inside {flag} {}; name a folder outside of it", to.display(), folder.display());
        }
    }
    Ok(())
}

/// Where a path leads that may not be there yet: what is there of it is followed through links.
fn resolved(path: &Path) -> io::Result<PathBuf> {
    let whole = std::path::absolute(path)?;
    let there = whole.ancestors().find_map(|above| Some((above, above.canonicalize().ok()?)));
    Ok(match there {
        Some((above, real)) => real.join(whole.strip_prefix(above).unwrap_or(Path::new(""))),
        None => whole,
    })
}

/// A copy goes into a folder of its own: nothing is ever written over.
fn make_empty(to: &Path) -> anyhow::Result<()> {
    private::make_folders(to).with_context(|| format!("{} cannot be made", to.display()))?;
    let mut entries = fs::read_dir(to).with_context(|| format!("{} cannot be read", to.display()))?;
    if entries.next().is_some() {
        bail!("{} is not empty; name a folder that is, or one that is not there yet", to.display());
    }
    Ok(())
}
