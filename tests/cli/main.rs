//! The command line: roles by hand, invalid requests, output on a terminal, recipes.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;
mod bad_input;
mod install;
mod mistakes;
mod pages;
mod readme;
mod recipes;
mod roles;
mod security;
mod terminal;
