//! A row between SQLite and the domain: one list of columns, one way to write them, one way to read them.

use quire_core::{
    paste::{Digest, Id, Locator, Row, Syntax, TokenHash},
    ports::NewRow,
    time::Timestamp,
};
use rusqlite::{Statement, named_params, types::Type};

/// The columns that [`read`] expects, in its order.
macro_rules! columns {
    () => {
        "id, created_at, expires_at, size_bytes, syntax, delete_token_hash, body_sha256, body_volume, \
         body_offset"
    };
}
pub(super) use columns;

/// Inserts nothing if the deadline has passed, so that there is no moment between the check and the insert.
pub(super) const INSERT: &str = concat!(
    "INSERT INTO pastes (",
    columns!(),
    ") SELECT :id, :now, :expires_at, :size_bytes, :syntax, :delete_token_hash, :body_sha256, :body_volume, \
     :body_offset WHERE :now <= :deadline"
);

/// Runs [`INSERT`]; returns how many rows went in.
pub(super) fn insert(
    statement: &mut Statement<'_>,
    row: &NewRow,
    now: Timestamp,
    expires_at: Timestamp,
) -> rusqlite::Result<usize> {
    statement.execute(named_params! {
        ":id": row.id.as_str(),
        ":now": now.unix_ms(),
        ":expires_at": expires_at.unix_ms(),
        ":size_bytes": row.size_bytes,
        ":syntax": row.syntax.as_ref().map(Syntax::as_str),
        ":delete_token_hash": row.delete_token_hash.0.0,
        ":body_sha256": row.body_sha256.0,
        ":body_volume": row.locator.map(|locator| locator.volume),
        ":body_offset": row.locator.map(|locator| locator.offset),
        ":deadline": row.deadline.unix_ms(),
    })
}

/// Reads the columns of [`columns`]. What quire would not have written is an error.
pub(super) fn read(row: &rusqlite::Row<'_>) -> rusqlite::Result<Row> {
    let malformed =
        |column: usize, name: &str, kind| rusqlite::Error::InvalidColumnType(column, name.to_owned(), kind);
    let id = Id::parse(row.get_ref(0)?.as_str()?.as_bytes()).ok_or_else(|| malformed(0, "id", Type::Text))?;
    let syntax = match row.get_ref(4)?.as_str_or_null()? {
        None => None,
        Some(label) => {
            Some(Syntax::parse(label.as_bytes()).ok_or_else(|| malformed(4, "syntax", Type::Text))?)
        }
    };
    let locator = match (row.get(7)?, row.get(8)?) {
        (Some(volume), Some(offset)) => Some(Locator { volume, offset }),
        (None, None) => None,
        _ => return Err(malformed(7, "body_volume", Type::Null)),
    };
    Ok(Row {
        id,
        created_at: Timestamp::from_unix_ms(row.get(1)?),
        expires_at: Timestamp::from_unix_ms(row.get(2)?),
        size_bytes: row.get(3)?,
        syntax,
        delete_token_hash: TokenHash(Digest(row.get(5)?)),
        body_sha256: Digest(row.get(6)?),
        locator,
    })
}
