//! A program on a route: its environment, its start, and an eye on it while it runs.
//!
//! [`choose`] picks the route and [`changes`] says what its environment differs in, both from plain data that the caller
//! read; neither touches the system. [`exec`] becomes the program. [`supervise()`] starts it as a child instead, where
//! somebody has to look whether it hangs ([`watch`]).
#![cfg(target_os = "linux")]
#![forbid(unsafe_code)]

mod environment;
mod log_filter;
mod python;
mod route;
mod start;
mod supervise;
pub mod watch;

pub use environment::{Action, Change, Surroundings, Variables, changes, convolutions, corrections};
pub use python::python_lacks_wave32;
pub use route::{Machine, RouteChoice, choose};
pub use start::{CANNOT_RUN, NOT_FOUND, exec, failure};
pub use supervise::{Ended, HUNG, die_by, supervise};
