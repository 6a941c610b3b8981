//! Compares rows and bodies, beside a running server too (contract O6). It changes nothing.
//!
//! Pass one takes every row and reads its body; pass two takes every body and looks for its row. Both are
//! read in pages, so that neither store is held. What a concurrent delete or create makes look wrong is
//! looked at once more before it is reported.

use std::time::Duration;

use crate::{
    paste::{Id, Row},
    ports::{BodiesAudit, Fault, PortError, RowsAudit},
};

/// Rows or bodies asked for at a time.
pub const PAGE_LEN: usize = 1_000;

/// Something that does not fit.
#[derive(Clone, Debug)]
pub enum Finding {
    /// A row without its body.
    Missing(Id),
    /// A row whose body is not the one that was stored.
    Corrupt(Id),
    /// A body without a row.
    Orphan {
        /// The id the body was written under.
        id: Id,
        /// Its length.
        size_bytes: u32,
        /// How long ago it was written, by the body store's clock.
        age: Duration,
    },
}

/// What was looked at and what was found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Rows whose bodies were read.
    pub rows: u64,
    /// Bytes of the bodies that were found whole.
    pub body_bytes: u64,
    /// Rows without a body.
    pub missing: u64,
    /// Rows with a wrong body.
    pub corrupt: u64,
    /// Bodies without a row.
    pub orphans: u64,
    /// Bytes of those.
    pub orphan_bytes: u64,
}

impl Totals {
    /// Whether every row has its body. Orphans are no fault: a create in progress makes one.
    #[must_use]
    pub const fn is_clean(&self) -> bool {
        self.missing == 0 && self.corrupt == 0
    }
}

/// Compares the two stores and reports each finding as it is made.
///
/// # Errors
/// A store could not be read, so nothing can be said of the whole.
pub async fn verify(
    rows: &dyn RowsAudit,
    bodies: &dyn BodiesAudit,
    report: &mut (dyn FnMut(Finding) + Send),
) -> Result<Totals, PortError> {
    let mut totals = Totals::default();
    check_rows(rows, bodies, &mut totals, report).await?;
    find_orphans(rows, bodies, &mut totals, report).await?;
    Ok(totals)
}

async fn check_rows(
    rows: &dyn RowsAudit,
    bodies: &dyn BodiesAudit,
    totals: &mut Totals,
    report: &mut (dyn FnMut(Finding) + Send),
) -> Result<(), PortError> {
    let mut after = None;
    loop {
        let page = rows.page(after, PAGE_LEN).await?;
        let Some(last) = page.last() else { return Ok(()) };
        after = Some(last.id);
        for row in page {
            totals.rows += 1;
            match check_row(rows, bodies, &row).await? {
                None => totals.body_bytes += u64::from(row.size_bytes),
                Some(finding) => {
                    match finding {
                        Finding::Missing(_) => totals.missing += 1,
                        _ => totals.corrupt += 1,
                    }
                    report(finding);
                }
            }
        }
    }
}

async fn check_row(
    rows: &dyn RowsAudit,
    bodies: &dyn BodiesAudit,
    row: &Row,
) -> Result<Option<Finding>, PortError> {
    let finding = match bodies.get(row.body()).await {
        Ok(Some(_)) => return Ok(None),
        Ok(None) => Finding::Missing(row.id),
        Err(error) if error.fault() == Fault::Corrupt => Finding::Corrupt(row.id),
        Err(error) => return Err(error),
    };
    // A delete since the page was read removes the row first, then the body.
    Ok(rows.find_any(row.id).await?.map(|_| finding))
}

async fn find_orphans(
    rows: &dyn RowsAudit,
    bodies: &dyn BodiesAudit,
    totals: &mut Totals,
    report: &mut (dyn FnMut(Finding) + Send),
) -> Result<(), PortError> {
    let mut from = None;
    loop {
        let page = bodies.page(from, PAGE_LEN).await?;
        for listed in page.bodies {
            let row = rows.find_any(listed.body.id).await?;
            // A row of the same id may belong to another body: a mint that collided left this one behind.
            if row.is_some_and(|row| row.locator == listed.body.locator) {
                continue;
            }
            // A delete since the listing has removed the body too.
            let body = match bodies.get(listed.body).await {
                Err(error) if error.fault() == Fault::Corrupt => None,
                other => other?,
            };
            if body.is_none() {
                continue;
            }
            totals.orphans += 1;
            totals.orphan_bytes += u64::from(listed.body.size_bytes);
            let size_bytes = listed.body.size_bytes;
            report(Finding::Orphan { id: listed.body.id, size_bytes, age: listed.age });
        }
        match page.next {
            Some(next) => from = Some(next),
            None => return Ok(()),
        }
    }
}
