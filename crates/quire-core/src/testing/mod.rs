//! Fakes with a stated fault model, and the contract suites that every adapter must pass.
//!
//! # Fault model
//!
//! A [`World`](world::World) is what survives a process: rows, bodies and the clock. A test names which call
//! of which port goes wrong and how ([`faults`]):
//!
//! | fault | the effect | what the caller gets |
//! | --- | --- | --- |
//! | refused | does not happen | `Unavailable` |
//! | full | does not happen | `Overloaded` |
//! | slow | happens when the test opens the gate | the answer, then |
//! | answer lost | happens, or does not, as the test says | `UnknownOutcome` |
//! | process gone | happens, or does not, as the test says | nothing, ever: the future is dropped |
//!
//! "Slow" is a gate, never a sleep. Futures are polled by hand ([`exec`]), so that a test sees every point
//! at which a process can stop.

pub mod bodies_contract;
pub mod exec;
pub mod faults;
pub mod rows_contract;
pub mod world;
