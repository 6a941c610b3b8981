//! Adapters of the limiter ports, and what stands around the shared one.

mod breaker;
pub mod fallback;
pub mod memory;
pub mod metrics;
pub mod redis;
