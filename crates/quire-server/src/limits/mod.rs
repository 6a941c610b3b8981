//! Adapters of the limiter ports.

pub mod memory;
pub mod redis;
