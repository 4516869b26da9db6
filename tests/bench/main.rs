//! Everything that measures: rows of `dray bench`, searches, interrupted runs, the selfcheck.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
mod baseline;
mod liang2016;
mod papers;
mod resume;
mod rows;
mod selfcheck;
mod streams;
