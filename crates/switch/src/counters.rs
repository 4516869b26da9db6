//! What is counted for each port: frames, bytes, and why frames were dropped.

dray_daemon::counters! {
    /// Why a frame was dropped, and at which port it is counted: at the one it came from (rx) or
    /// at the one it was for (tx).
    reasons {
        /// tx: the peer gave no buffer to put it in, or the queue was full.
        ReceiverFull = "receiver_full",
        /// tx: no peer is connected, or it has not made its rings ready.
        ReceiverNotReady = "receiver_not_ready",
        /// tx: longer than this port's peer takes, or than a frame may be once it has its VLAN's tag.
        TooLong = "too_long",
        /// tx: it leaves without the tag of its VLAN, and a tag in its payload would take that tag's
        /// place.
        DoubleTag = "double_tag",
        /// tx: the kernel did not take this one frame: its sender has taken back the memory that it
        /// was in, or the interface takes no such frame.
        Undeliverable = "undeliverable",
        /// rx: shorter than an Ethernet header.
        TooShort = "too_short",
        /// rx: what the peer handed over is no frame, such as a virtio-net header that asks for what was
        /// not negotiated.
        Malformed = "malformed",
        /// rx: there is no other port that it could go to.
        NoReceiver = "no_receiver",
        /// rx: its destination is behind the port it came from.
        Hairpin = "hairpin",
        /// rx: the port is not a member of the frame's VLAN, or the destination's port is not.
        VlanNotAllowed = "vlan_not_allowed",
        /// rx: the destination's port is in the same isolation group.
        Isolated = "isolated",
        /// rx: its source address is pinned to another port, or this port may send from its own
        /// addresses only.
        Spoofed = "spoofed",
        /// rx: to be flooded, and the port has flooded all that `storm` allows.
        Storm = "storm",
        /// rx: beyond what the port's peer may send.
        PolicedIn = "policed_in",
        /// tx: beyond what the port's peer is to be sent.
        PolicedOut = "policed_out",
    }

    /// A port's counters, as the switch sees them: `rx` is what the port's peer sent.
    numbers {
        /// Frames received, whatever became of them.
        rx_frames,
        /// Their bytes, from destination MAC to end of payload.
        rx_bytes,
        /// Frames transmitted.
        tx_frames,
        /// Their bytes.
        tx_bytes,
        /// Source addresses that were not learned, because the port has used up its share or the table
        /// is full. Their frames went on.
        addresses_refused,
        /// Source addresses that were not learned, because the port has learned all that `storm`
        /// allows. Their frames went on.
        addresses_limited,
    }
}
