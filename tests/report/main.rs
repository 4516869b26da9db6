//! Reports and comparisons, as files and in a real browser.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
#[macro_use]
mod browser;
mod charts_with_browser;
mod files;
mod pages_with_browser;
