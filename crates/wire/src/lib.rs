//! Wire formats: plain structs with the meaning, and functions that write and read their bytes.
//!
//! A *frame* is an Ethernet frame from the destination MAC to the end of the payload, without the
//! frame check sequence. Every frame that dray generates is a valid IPv4/UDP datagram with a
//! [`test_frame`] header as its payload, so any switch, tap or dissector can read it.
#![forbid(unsafe_code)]

pub mod checksum;
pub mod headers;
mod mac;
pub mod test_frame;

pub use headers::{Flow, HEADERS_LEN};
pub use mac::{MacAddr, ParseMacError};
pub use test_frame::{FRAME_MAX, FRAME_MIN, Stamp, Verdict};
