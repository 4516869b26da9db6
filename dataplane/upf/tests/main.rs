//! The user plane function between ports in memory. One program for all: each program is compiled
//! and linked by itself.

mod any_bytes;
mod control;
mod documentation;
mod ends;
mod failure;
mod full;
mod interop;
mod malformed;
mod path;
mod workers;
