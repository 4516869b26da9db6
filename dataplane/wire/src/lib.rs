//! Wire formats: plain structs for the contents, and functions that write and parse their bytes.
//!
//! A *frame* is an Ethernet frame from the destination MAC to the end of the payload, without the
//! frame check sequence. Every frame that dray generates is a valid IPv4/UDP datagram with a
//! [`test_frame`] header as its payload, so any switch, tap or dissector can read it.
//!
//! [`ethernet`], [`arp`], [`ip`], [`icmp`], [`udp`], [`gtpu`] and [`vxlan`] parse and write one
//! format each; [`flow`] combines those of a test frame.
#![deny(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod flow;
pub mod fragment;
pub mod gtpu;
pub mod icmp;
pub mod ip;
mod mac;
pub mod offload;
pub mod router;
pub mod test_frame;
pub mod udp;
pub mod vxlan;

pub use ethernet::FRAME_MAX;
pub use flow::{Flow, HEADERS_LEN};
pub use mac::{MacAddr, ParseMacError};
pub use test_frame::{FRAME_MIN, Stamp, Verdict};
