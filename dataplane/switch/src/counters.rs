//! Counters of each port: frames, bytes, and drops by reason.

use dray_capture::Side;

dray_datapath::counters! {
    /// Reason for dropping a frame, and the port that counts the drop: the one that received the
    /// frame (rx) or the one that was to transmit it (tx).
    reasons {
        /// tx: the peer posted no free buffer, or the queue was full.
        ReceiverFull = "receiver_full",
        /// tx: no peer is connected, or it has not made its rings ready.
        ReceiverNotReady = "receiver_not_ready",
        /// tx: longer than this port's peer accepts, or longer than a frame may be once its VLAN
        /// tag is added.
        TooLong = "too_long",
        /// tx: it leaves without the tag of its VLAN, so a tag in its payload would become the
        /// outer tag.
        DoubleTag = "double_tag",
        /// tx: the kernel refused this one frame: the sender has unmapped the memory that it was
        /// in, or the interface does not accept such a frame.
        Undeliverable = "undeliverable",
        /// rx: the kernel had no room for it, because the switch had not received those before it.
        Missed = "missed",
        /// rx: shorter than an Ethernet header.
        TooShort = "too_short",
        /// rx: the peer handed over an invalid frame, such as one with a virtio-net header that
        /// uses a feature that was not negotiated.
        Malformed = "malformed",
        /// rx: there is no other port to send the frame to.
        NoReceiver = "no_receiver",
        /// rx: the destination is behind the port that received the frame.
        Hairpin = "hairpin",
        /// rx: the port that received the frame or the port of its destination is not a member of
        /// the VLAN.
        VlanNotAllowed = "vlan_not_allowed",
        /// rx: the destination's port is in the same isolation group.
        Isolated = "isolated",
        /// rx: the source is not the address of a station: a group address, or zero.
        InvalidSource = "invalid_source",
        /// rx: the destination is a reserved address (01:80:c2:00:00:00 to 0f), to which a bridge
        /// relays nothing.
        Reserved = "reserved",
        /// rx: the source address is pinned to another port, or the port may only send from its own
        /// addresses.
        Spoofed = "spoofed",
        /// rx: the frame would be flooded, but the port has reached its `storm` limit.
        Storm = "storm",
        /// rx: so far beyond the rate that the port's peer may send that it would wait for too
        /// long.
        PolicedIn = "policed_in",
        /// tx: so far beyond the rate that the port's peer may be sent that it would wait for too
        /// long.
        PolicedOut = "policed_out",
    }

    /// Counters of a port, as the switch sees them: `rx` counts what the port's peer sent.
    numbers {
        /// Frames received, including those dropped later.
        rx_frames,
        /// Bytes received, from destination MAC to end of payload.
        rx_bytes,
        /// Frames transmitted.
        tx_frames,
        /// Bytes transmitted, from destination MAC to end of payload.
        tx_bytes,
        /// Source addresses not learned because the port has used up its share or the table is
        /// full. Their frames were still forwarded.
        addresses_refused,
        /// Source addresses not learned because the port has reached its `storm` limit. Their
        /// frames were still forwarded.
        addresses_limited,
        /// Frames received that waited for the rate that the port's peer may send.
        delayed_in,
        /// Frames that waited for the rate that the port's peer may be sent, before they were
        /// transmitted.
        delayed_out,
    }
}

impl DropReason {
    /// Returns the side of the port that counts a drop for this reason.
    pub(crate) fn side(self) -> Side {
        if self.meaning().starts_with("tx:") { Side::Out } else { Side::In }
    }
}
