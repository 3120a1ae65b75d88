//! A report of one machine, for its owner to read and to share: what is there, what computes right, how fast.
//!
//! - [`schema`]: the report as data. `reports/schema.json` describes the same to others.
//! - [`verdict`]: what it says as a whole.
//! - [`sample`]: which problems are verified and timed, and how time is shared out.
//! - [`sensors`], [`kernel_log`]: what the kernel's files tell of temperatures, clocks and errors.
//! - [`redact`]: one pass over all strings takes out names, home folders, serials and addresses.
//! - [`page`], [`summary`]: the report for people. [`compare`]: its times beside the model's.
#![forbid(unsafe_code)]

pub mod compare;
pub mod kernel_log;
pub mod page;
pub mod redact;
pub mod sample;
pub mod schema;
pub mod sensors;
pub mod summary;
pub mod verdict;

pub use schema::Report;

/// Where reports are sent. The workspace names no repository yet; when its Cargo.toml does, this crate's takes
/// `repository.workspace = true`.
pub fn project_page() -> &'static str {
    let named = env!("CARGO_PKG_REPOSITORY");
    if named.is_empty() { "the project's page" } else { named }
}
