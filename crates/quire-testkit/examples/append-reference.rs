//! What the disk can do at best for one paste after another: append a body and a row to two files and sync
//! each. The benchmark compares a create on one connection with it.
//!
//! `append-reference FOLDER SECONDS` prints how many pairs it appended in a second, then how many bytes it
//! wrote in all.

#![expect(clippy::print_stdout, reason = "its output is its result")]

use std::{
    env,
    fs::{File, OpenOptions},
    io::Write as _,
    path::Path,
    time::{Duration, Instant},
};

use anyhow::Context as _;

/// Bytes of a body, as in the plan.
const BODY_BYTES: usize = 10_000;
/// Bytes that a row costs a write-ahead log at least.
const ROW_BYTES: usize = 400;

fn main() -> anyhow::Result<()> {
    let mut arguments = env::args_os().skip(1);
    let folder = arguments.next().context("the first argument is a folder")?;
    let seconds = arguments.next().context("the second argument is a number of seconds")?;
    let seconds: u64 =
        seconds.to_string_lossy().parse().context("the second argument is a number of seconds")?;

    let mut bodies = append(&Path::new(&folder).join("reference-bodies"))?;
    let mut rows = append(&Path::new(&folder).join("reference-rows"))?;
    let mut body = noise(BODY_BYTES);
    let row = noise(ROW_BYTES);

    let (began, mut pairs) = (Instant::now(), 0_u64);
    while began.elapsed() < Duration::from_secs(seconds) {
        // No two bodies alike, as in the load that it is compared with.
        for (slot, byte) in body.iter_mut().zip(pairs.to_le_bytes()) {
            *slot = byte;
        }
        bodies.write_all(&body)?;
        bodies.sync_data()?;
        rows.write_all(&row)?;
        rows.sync_data()?;
        pairs += 1;
    }
    let elapsed_ms = u64::try_from(began.elapsed().as_millis())?.max(1);
    let bytes = pairs * u64::try_from(BODY_BYTES + ROW_BYTES)?;
    println!("{} {bytes}", pairs * 1_000 / elapsed_ms);
    Ok(())
}

fn append(path: &Path) -> anyhow::Result<File> {
    let opened = OpenOptions::new().create(true).append(true).open(path);
    opened.with_context(|| format!("cannot open {}", path.display()))
}

/// Bytes that do not repeat, so that no layer below can make them fewer.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9E37_79B9_7F4A_7C15_u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    std::iter::repeat_with(next).flatten().take(length).collect()
}
