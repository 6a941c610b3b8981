//! Fakes with a stated fault model, and the contract suites every adapter must pass.
