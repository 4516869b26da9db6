//! Containers with ports of our switch: the CNI plugin as a runtime calls it, and what happens when
//! programs are killed.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

#[macro_use]
mod node;

mod hostile;
mod kinds;
mod manifests;
mod restart;
mod verbs;
