//! The public listener.

pub mod wire;
