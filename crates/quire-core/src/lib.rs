//! What a paste is, and the order in which things happen to it.
//!
//! This crate is the domain of quire. It has no runtime, no driver and does no I/O: whatever touches the
//! world goes through a trait in [`ports`], and an adapter elsewhere implements it.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`admission`] | token-bucket arithmetic: who may create, read or delete how much |
//! | [`pair`] | the id that rows and bodies of one store share |
//! | [`paste`] | validated types: ids, tokens, TTLs, labels, text, rows |
//! | [`plan`] | what a plan needs, and what the budgets bound |
//! | [`time`] | points in time as the stores keep them |
//! | [`ports`] | the contracts of the row store, the body store, the clock and the generator |
//! | [`service`] | create, read, delete: the only place where the order of effects is decided |
//! | [`source`] | which source a request counts against |
//! | [`verify`] | compares rows and bodies, a bounded step at a time |
//! | [`testing`] | (feature `testing`) fakes with a stated fault model, contract suites for adapters |
//!
//! # Invariants
//!
//! - A live row always has its body: the body is durable before the row is committed (contract O1), and
//!   the row is gone before the body is removed (O3).
//! - Nothing here reads a clock or a random number but through a port.
//! - Whether a paste has expired is decided by the row store alone (R3).
//! - Ids, tokens and bodies never appear in `Debug` output, so that no log line can leak them (P3).

pub mod admission;
pub mod pair;
pub mod paste;
pub mod plan;
pub mod ports;
pub mod service;
pub mod source;
#[cfg(feature = "testing")]
pub mod testing;
pub mod time;
pub mod verify;
