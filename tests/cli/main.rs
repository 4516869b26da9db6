//! The command line: roles by hand, invalid requests, output on a terminal.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
mod bad_input;
mod roles;
mod terminal;
