//! `quire verify`: compares rows and bodies and changes nothing (contract O6).

use std::{
    io::{self, Write},
    process::ExitCode,
    sync::Arc,
};

use anyhow::{Context as _, bail};
use clap::Args;
use quire_core::verify::{Finding, Totals, verify};
use quire_server::{
    bodies::volumes::{VolumeAudit, pair},
    config::stores::{BodyStore, RowStore, StoreArgs},
    rows::sqlite::SqliteAudit,
    system::SystemClock,
};

/// What `quire verify --help` ends with.
pub(crate) const NOTES: &str = "\
It prints a line for each finding, then totals:
  missing ID             a row whose body is not there
  corrupt ID             a row whose body is not the one that was stored
  orphan ID BYTES AGE    a body without a row; nobody can read it

Exit status: 0 if every row has its body, 1 if any is missing or corrupt, 2 if it could not check.";

/// Exit status when a row lacks its body.
const NOT_CLEAN: u8 = 1;
/// Exit status when nothing can be said of the stores.
const COULD_NOT_CHECK: u8 = 2;

/// The flags of `quire verify`.
#[derive(Args, Debug)]
pub(crate) struct VerifyArgs {
    #[command(flatten)]
    stores: StoreArgs,
}

/// Compares the stores.
pub(crate) fn run(args: &VerifyArgs) -> ExitCode {
    match compare(args) {
        Ok(totals) if totals.is_clean() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::from(NOT_CLEAN),
        Err(error) => {
            crate::tell(&format!("could not check: {}", crate::in_words(&error)));
            ExitCode::from(COULD_NOT_CHECK)
        }
    }
}

fn compare(args: &VerifyArgs) -> anyhow::Result<Totals> {
    let stores = args.stores.check()?;
    let (RowStore::Sqlite(rows_path), BodyStore::Local(bodies_path)) = (&stores.rows, &stores.bodies);
    let rows = SqliteAudit::open_read_only(rows_path)?;
    let bodies = VolumeAudit::open_read_only(bodies_path, Arc::new(SystemClock::new()))?;
    if Some(rows.pair_id()?) != pair::read(bodies_path)? {
        bail!("rows and bodies carry different pair ids; point --rows and --bodies at a pair");
    }

    let mut out = io::BufWriter::new(io::stdout());
    let mut printed = Ok(());
    let mut report = |finding| {
        if printed.is_ok() {
            printed = print(&mut out, &finding);
        }
    };
    // Both stores block while they read; there is nothing else to do.
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let totals = runtime.block_on(verify(&rows, &bodies, &mut report))?;
    printed.and_then(|()| print_totals(&mut out, &totals)).context("the findings could not be printed")?;
    Ok(totals)
}

fn print(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    match finding {
        Finding::Missing(id) => writeln!(out, "missing {}", id.as_str()),
        Finding::Corrupt(id) => writeln!(out, "corrupt {}", id.as_str()),
        Finding::Orphan { id, size_bytes, age } => {
            writeln!(out, "orphan {} {size_bytes} {}s", id.as_str(), age.as_secs())
        }
    }
}

fn print_totals(out: &mut impl Write, totals: &Totals) -> io::Result<()> {
    let Totals { rows, body_bytes, missing, corrupt, orphans, orphan_bytes } = totals;
    writeln!(
        out,
        "{rows} rows, {body_bytes} bytes in whole bodies, {missing} missing, {corrupt} corrupt, {orphans} orphans \
         ({orphan_bytes} bytes)"
    )?;
    out.flush()
}
