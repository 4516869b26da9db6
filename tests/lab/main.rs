//! The laboratory: links, labs by hand, container engines, third-party switches, cleanup.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
#[macro_use]
#[expect(dead_code, reason = "the tests of reports use all of it")]
#[path = "../report/browser.rs"]
mod browser;
mod cleanup;
mod control;
mod links;
mod missing;
mod results;
mod standing;
mod top;
mod up;
mod with_dpdk;
mod with_engines;
mod with_tools;
