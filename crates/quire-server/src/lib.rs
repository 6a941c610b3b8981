//! The quire service: HTTP in front, the domain in the middle, stores behind.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`config`] | flags and variables, checked before anything is opened |
//! | [`assemble`] | flags -> adapters -> service -> listeners, and the end of a server |
//! | [`rows`] | adapters of the `Rows` port |
//! | [`bodies`] | adapters of the `Bodies` port |
//! | [`data_folder`] | the lock of one box's folder, and whether its rows and bodies belong together |
//! | [`cache`] | hot pastes and singleflight, as decorators of the ports |
//! | [`metrics`] | counting what the stores do, as decorators of the ports |
//! | [`http`] | the public listener: routes, one file a call, the bounds on connections |
//! | [`admin`] | the second listener: metrics and health |
//! | [`announce`] | what is said of the limits at start-up |
//! | [`disk`] | free disk space against the reserve |
//! | [`private`] | files and folders that only their owner may read |
//! | [`logging`] | where log lines go |
//! | [`system`] | the machine's clocks and random generator |
//!
//! Adapters and `http` know the domain and never each other; only `assemble` names concrete adapters.

pub mod admin;
pub mod announce;
pub mod assemble;
pub mod bodies;
pub mod cache;
pub mod config;
pub mod data_folder;
pub mod disk;
pub mod http;
pub mod limits;
pub mod logging;
pub mod metrics;
pub mod private;
pub mod rows;
pub mod system;
