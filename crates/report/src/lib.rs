//! Reports of result files: one HTML page that opens offline, Markdown, CSV; and what changed between
//! two of them.
//!
//! A [`Report`] sorts runs by the host that they were measured on. What is drawn is decided by what a
//! run holds: each kind of chart is a file in `charts/`. Text from result files is escaped wherever it
//! goes, and the page's own policy forbids it to load or run anything else.
#![forbid(unsafe_code)]

mod chart;
mod charts;
mod compare;
mod escape;
mod figure;
mod host;
mod input;
mod number;
mod papers;
mod report;
#[cfg(test)]
mod sample;
mod scale;
mod summary;
mod technique;

pub use compare::{Change, Comparison, Counted, Figures, NothingInCommon, Verdict};
pub use input::{InputError, Run};
pub use report::Report;
