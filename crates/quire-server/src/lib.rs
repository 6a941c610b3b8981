//! The quire service: HTTP in front, the domain in the middle, stores behind.
//!
//! | module | what lives there |
//! | --- | --- |
//! | [`config`] | flags and variables, checked before anything is opened |
//! | [`rows`] | adapters of the `Rows` port |
//! | [`bodies`] | adapters of the `Bodies` port |
//! | [`cache`] | hot pastes and singleflight, as decorators of the ports |
//! | [`http`] | the public listener: routes, one file a call, the bounds on connections |
//!
//! Adapters and `http` know the domain and never each other; only `assemble` names concrete adapters.

pub mod bodies;
pub mod cache;
pub mod config;
pub mod http;
pub mod rows;
pub mod system;
