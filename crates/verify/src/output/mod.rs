//! What people read.

pub mod fold;
pub mod html;
pub mod report;
pub mod sheet;
pub mod table;
