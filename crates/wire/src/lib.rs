//! Wire formats: plain structs for the contents, and functions that write and parse their bytes.
//!
//! A *frame* is an Ethernet frame from the destination MAC to the end of the payload, without the
//! frame check sequence. Every frame that dray generates is a valid IPv4/UDP datagram with a
//! [`test_frame`] header as its payload, so any switch, tap or dissector can read it.
//!
//! [`headers`] is for test frames, which all have the same kind of headers; the other modules parse
//! and write the formats that network functions meet: [`ethernet`], [`arp`], [`ip`], [`icmp`],
//! [`udp`], [`gtpu`].
#![deny(unsafe_code)]

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod fragment;
pub mod gtpu;
pub mod headers;
pub mod icmp;
pub mod ip;
mod mac;
pub mod router;
pub mod test_frame;
pub mod udp;

pub use headers::{Flow, HEADERS_LEN};
pub use mac::{MacAddr, ParseMacError};
pub use test_frame::{FRAME_MAX, FRAME_MIN, Stamp, Verdict};
