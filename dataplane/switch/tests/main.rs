//! The switch between ports in memory and over shared memory. One program for all: each program is
//! compiled and linked by itself.

mod bench;
mod documentation;
mod ends;
mod forwarding;
mod inline;
mod learning;
mod limits;
mod offload;
mod ports;
mod vlan;
