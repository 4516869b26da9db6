//! Containers with ports of our switch: the CNI plugin as a runtime calls it, and what happens when
//! programs are killed.

#[macro_use]
#[path = "../common/mod.rs"]
mod common;

#[macro_use]
mod node;
#[macro_use]
mod machine;

mod bandwidth;
mod bypass;
mod cri;
mod docker;
mod hostile;
mod kinds;
mod manifests_with_kubernetes;
mod podman;
mod restart;
mod verbs;
