//! Replies and error messages on the interface that packets come from.

use dray_port::{Frame, clock};
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::icmp::{self, Problem};
use dray_wire::ip::{Packet, protocol};

use super::super::reading;
use super::Forwarder;
use crate::counters::DropReason;
use crate::interface::Interface;

impl Forwarder {
    /// Sends a reply on the interface that packets come from.
    pub(crate) fn reply(&mut self, frame: &[u8]) {
        let sent = self.from.transmit(&self.tap, self.worker, &[Frame::from(frame)]);
        self.counters.made(1, sent);
    }

    /// Returns an error message, if there is one and the rate limit is not exceeded.
    pub(crate) fn error_message(
        &mut self,
        frame: impl FnOnce() -> Option<Vec<u8>>,
    ) -> Option<Vec<u8>> {
        let now = clock::ticks();
        self.error_limit.reserve(0, now, 0)?;
        let frame = frame()?;
        self.error_limit.reserve(frame.len() as u64, now, 0)?;
        self.counters.errors_sent += 1;
        Some(frame)
    }

    /// Sends a [`error_message`](Self::error_message), if there is one, as an
    /// [`reply`](Self::reply).
    pub(crate) fn send_error(&mut self, frame: impl FnOnce() -> Option<Vec<u8>>) {
        if let Some(frame) = self.error_message(frame) {
            self.reply(&frame);
        }
    }

    /// Reports the fate of a packet to the sender of the frame. `frame` copies the frame, and is
    /// called only if the message is sent.
    #[cold]
    pub(crate) fn report(&mut self, problem: Problem, frame: impl FnOnce() -> Vec<u8>) {
        let from = self.from.clone();
        self.send_error(|| {
            let frame = frame();
            let bytes = frame.get(ETHERNET_LEN..)?;
            let packet = Packet::parse(bytes, bytes.len()).ok()?;
            let own = from.address_for(packet.source())?;
            let message = icmp::error(own, &packet, bytes, problem)?;
            let to = Ethernet::parse(&frame)?.src;
            let is_right = from.is_other_station(to) && from.is_other_host(packet.source());
            is_right.then_some(())?;
            Some(from.frame(to, reading::ethertype(packet.version), &message))
        });
    }

    /// Processes a frame for us or for a group that concerns the network itself. A UDP packet to a
    /// port that is not open is answered with an error (RFC 1122, section 3.2.2.1; RFC 4443,
    /// section 3.1).
    #[cold]
    pub(crate) fn process_local(&mut self, frame: &[u8]) {
        match reply_to(&self.from, frame) {
            Ok(reply) => {
                self.consumed();
                if let Some(reply) = reply {
                    self.reply(&reply);
                }
            }
            Err(reason) => {
                self.dropped(reason, &Frame::from(frame));
                if reason == DropReason::NotForUs && is_for_port(frame) {
                    self.report(Problem::NoPort, || frame.to_vec());
                }
            }
        }
    }
}

/// Returns true if a frame contains a UDP packet and was sent to a single station. No error is sent
/// for a frame to a group (RFC 1122, section 3.2.2).
fn is_for_port(frame: &[u8]) -> bool {
    let bytes = frame.get(ETHERNET_LEN..).unwrap_or_default();
    let is_for_one = Ethernet::parse(frame).is_some_and(|header| !header.dst.is_group());
    is_for_one
        && Packet::parse(bytes, bytes.len()).is_ok_and(|packet| packet.protocol == protocol::UDP)
}

/// Returns the reply to a frame that is for us or for a group.
fn reply_to(own: &Interface, frame: &[u8]) -> Result<Option<Vec<u8>>, DropReason> {
    let ethernet = Ethernet::parse(frame).ok_or(DropReason::NotIp)?;
    let bytes = &frame[ETHERNET_LEN..];
    match ethernet.ethertype {
        // No reply may go to a group, or to ourselves.
        _ if !own.is_other_station(ethernet.src) => Err(DropReason::MartianSource),
        ethertype::ARP => own.process_arp(bytes),
        ethertype::IPV4 | ethertype::IPV6 => {
            let packet = Packet::parse(bytes, bytes.len()).map_err(|_| DropReason::OuterIp)?;
            match ethernet.ethertype == reading::ethertype(packet.version) {
                true => own.process_ip(&ethernet, &packet, bytes),
                false => Err(DropReason::OuterIp),
            }
        }
        _ => Err(DropReason::NotIp),
    }
}
