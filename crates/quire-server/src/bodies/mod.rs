//! Adapters of the `Bodies` port, a folder each.

pub mod volumes;
