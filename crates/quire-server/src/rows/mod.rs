//! Adapters of the `Rows` port, a folder each with its SQL beside it.

pub mod sqlite;
