//! Counters of a direction: packets, bytes, and drop reasons.

dray_datapath::counters! {
    /// Why a packet was dropped.
    reasons {
        /// The kernel dropped the frame because its receive queue was full.
        Missed = "missed",
        /// The peer passed an invalid frame, or one longer than a port can receive.
        Malformed = "malformed",
        /// The frame is for another Ethernet address, or on N3 the packet is for another IP
        /// address.
        OtherHost = "other_host",
        /// The frame is neither IP nor ARP, or is truncated.
        NotIp = "not_ip",
        /// N3, or a message to the UPF itself: the outer IP header is invalid, or has an
        /// IPv4-mapped address (RFC 6890).
        OuterIp = "outer_ip",
        /// N3: invalid fragment of an outer packet: it overlaps another fragment, does not fit, or
        /// belongs to a packet that is not for us.
        OuterFragment = "outer_fragment",
        /// The source cannot be another host: the IP address is unspecified, loopback, multicast,
        /// reserved, our own, or on N6 link-local; or the Ethernet address is a group address or
        /// our own.
        MartianSource = "martian_source",
        /// The destination cannot be a host: the IP address is unspecified, loopback or reserved.
        MartianDestination = "martian_destination",
        /// Invalid ARP or neighbour discovery message (RFC 4861, section 7.1).
        InvalidMessage = "invalid_message",
        /// A neighbour's reply without a pending solicitation, or with an Ethernet address other
        /// than the configured one or the known one that still replies.
        NeighbourRefused = "neighbour_refused",
        /// N3: a copy of a fragment that has arrived already.
        FragmentCopy = "fragment_copy",
        /// N3: the remaining fragments of the outer packet did not arrive in time.
        FragmentTimeout = "fragment_timeout",
        /// N3: too many incomplete outer packets, from this source or in total.
        FragmentFull = "fragment_full",
        /// An IP packet to one of our own addresses that we do not reply to.
        NotForUs = "not_for_us",
        /// N3: the UDP header is invalid.
        OuterUdp = "outer_udp",
        /// N3: the GTP-U header is invalid, or the message type is unknown.
        Gtpu = "gtpu",
        /// N3: a GTP-U extension header is invalid.
        GtpuExtension = "gtpu_extension",
        /// N3: an unknown GTP-U extension header whose comprehension is required.
        GtpuUnknownExtension = "gtpu_unknown_extension",
        /// N3: no session has a tunnel with this TEID.
        UnknownTeid = "unknown_teid",
        /// N3: not from a gNB that the session of the tunnel sends to; or an error indication about
        /// a tunnel that its sender does not have.
        WrongGnb = "wrong_gnb",
        /// The rate limit for messages of this kind is exceeded: 1000 error indications a second at
        /// one worker. Or a reply of a neighbour that came while another thread changed the
        /// neighbours.
        Limited = "limited",
        /// N3: a user's packet to one of our own addresses, such as a tunnel in a tunnel.
        OwnAddress = "own_address",
        /// The user's IP header is invalid, or has an IPv4-mapped address (RFC 6890).
        InnerIp = "inner_ip",
        /// N3: the source of the user's packet is not one of the user's own addresses.
        Spoofed = "spoofed",
        /// N3: a user's router solicitation that gets no reply: it is invalid, the user has no IPv6
        /// prefix, or it follows too soon after the last one.
        Solicitation = "solicitation",
        /// N3: any other user's packet to or from a link-local address, or to a group on the user's
        /// link.
        LinkLocal = "link_local",
        /// N6: no session has the destination address.
        NoSession = "no_session",
        /// A packet or frame to a group address that we do not reply to.
        Group = "group",
        /// No rule of the session matches the packet.
        NoRule = "no_rule",
        /// Dropped by a forwarding action rule.
        Rule = "rule",
        /// A gate is closed.
        GateClosed = "gate_closed",
        /// The maximum bit rate is exceeded, and the packet would have to wait for too long.
        Policed = "policed",
        /// A quota is used up.
        Quota = "quota",
        /// The packet cannot be buffered: too many packets are buffered.
        BufferFull = "buffer_full",
        /// The packet cannot be buffered: too many packets of its session are buffered.
        BufferSession = "buffer_session",
        /// The packet was buffered, and its session did not forward it in time.
        BufferExpired = "buffer_expired",
        /// The packet was buffered, and its session was removed.
        SessionGone = "session_gone",
        /// N3: the outer header signals congestion, and the user's packet cannot be marked with it
        /// (RFC 6040).
        Congestion = "congestion",
        /// The packet's time to live has expired.
        TtlExpired = "ttl_expired",
        /// The packet is longer than the MTU of the next link, or than the buffers of the port's
        /// peer.
        TooBig = "too_big",
        /// There is no route to the destination.
        NoRoute = "no_route",
        /// The Ethernet address of the next hop stayed unknown for too long, or the packet made
        /// room for a newer one.
        NoNeighbour = "no_neighbour",
        /// The egress port had no room for the packet.
        PortFull = "port_full",
        /// The kernel refused this one packet at the egress interface.
        Undeliverable = "undeliverable",
        /// The packet was buffered or being processed when the previous process ended.
        Restart = "restart",
    }

    /// Counters of one direction. Every frame that arrives is accounted for:
    /// `rx_packets = tx_packets + buffered + consumed + drops`.
    numbers {
        /// Frames that arrived, including those dropped, also by the kernel (`missed`).
        rx_packets,
        /// Bytes of those that were received, from destination MAC to end of payload.
        rx_bytes,
        /// Users' packets forwarded. One that is fragmented for the next link counts once.
        tx_packets,
        /// Bytes of the forwarded frames.
        tx_bytes,
        /// Packets that waited for a maximum bit rate.
        delayed,
        /// Frames that end here: control messages, and of a packet reassembled from fragments all
        /// fragments but one.
        consumed,
        /// Control messages among them: ARP, neighbour discovery and other messages of a link, echo
        /// requests, end markers, error indications.
        control,
        /// Packets that wait now: for their session, for the Ethernet address of their next hop,
        /// for the egress port, or as fragments for the others of their packet.
        buffered,
        /// Packets that had to wait for their session or their next hop so far.
        buffering,
        /// Packets that this program itself has made and transmitted: replies, errors, neighbour
        /// solicitations, advertisements, end markers. They are in no other number.
        generated,
        /// Such packets that could not be transmitted.
        generated_dropped,
        /// Outer packets reassembled from fragments.
        reassembled,
        /// Users' packets that exceeded the MTU of the next link and were fragmented.
        fragmented,
        /// Router advertisements sent to users in reply to solicitations.
        router_advertisements,
        /// End markers received.
        end_markers,
        /// Error indications received.
        error_indications,
        /// Errors sent to the senders of packets that could not be forwarded: ICMP errors, and on
        /// N3 error indications and lists of supported extension headers.
        #[serde(default)]
        errors_sent,
    }
}

impl Counters {
    /// Counts frames that `lost` in transmission have not left, of `frames` that were made here.
    pub(crate) fn made(&mut self, frames: usize, sent: Sent) {
        self.generated += (sent.taken - sent.lost) as u64;
        self.generated_dropped += (frames - sent.taken + sent.lost) as u64;
    }

    /// Makes them those of a process that has ended: what was on its way is lost.
    pub(crate) fn end(&mut self) {
        self.buffered = 0;
        let done = self.tx_packets + self.consumed + self.drops.total();
        // The process may have been killed while it published.
        self.rx_packets = self.rx_packets.max(done);
        self.drops.add(DropReason::Restart, self.rx_packets - done);
    }
}

/// Result of a transmission.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sent {
    /// Number of frames that the port took, from the first one on.
    pub(crate) taken: usize,
    /// Number of those that the peer or the kernel can never take, and of these that are too long.
    pub(crate) lost: usize,
    pub(crate) too_long: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn packets_of_ended_process_are_dropped() {
        let mut counters = Counters {
            rx_packets: 10,
            tx_packets: 5,
            consumed: 1,
            buffered: 3,
            ..Counters::default()
        };
        counters.drops.add(DropReason::NoRoute, 1);
        counters.end();
        assert_eq!((counters.buffered, counters.drops.get(DropReason::Restart)), (0, 3));
        // It was killed when it had published only some of its numbers.
        counters.tx_packets += 2;
        counters.end();
        assert_eq!((counters.rx_packets, counters.drops.total()), (12, 4));
    }
}
