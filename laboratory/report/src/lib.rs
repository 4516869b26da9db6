//! Reports of results: tables for a terminal; one HTML page that opens offline, Markdown, CSV, text
//! or a picture; and comparisons of two result files.
//!
//! A [`Report`] groups runs by the host that they were measured on. The contents of a run decide
//! which charts are drawn; each kind of chart is a file in `charts/`. Text from result files is
//! escaped wherever it is inserted, and the page's content security policy forbids loading or
//! running anything else.
#![forbid(unsafe_code)]

mod chart;
mod charts;
mod compare;
mod distinct;
pub mod escape;
mod figure;
pub mod host;
mod input;
pub mod number;
mod overview;
mod papers;
mod report;
#[cfg(test)]
mod sample;
mod scale;
mod summary;
pub mod table;
mod technique;
mod template;

pub use compare::{Change, Comparison, Counted, Figures, Judgement, NothingInCommon};
pub use distinct::distinct;
pub use input::{InputError, Run};
pub use report::Report;
