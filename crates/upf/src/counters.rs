//! What a direction counts: packets, bytes, and why packets were dropped.

dray_daemon::counters! {
    /// Why a packet was dropped.
    reasons {
        /// A frame for another Ethernet address, or on N3 a packet for another IP address.
        OtherHost = "other_host",
        /// Neither IP nor ARP, or cut short.
        NotIp = "not_ip",
        /// N3: the outer IP header is wrong.
        OuterIp = "outer_ip",
        /// N3: a fragment of an outer packet that is invalid: it overlaps another one, does not fit, or
        /// is of no packet for us.
        OuterFragment = "outer_fragment",
        /// The source can be no other host's: an IP address that is unspecified, of loopback, of a group,
        /// reserved or our own, or an Ethernet address of a group or our own.
        MartianSource = "martian_source",
        /// The destination can be no host's: an IP address that is unspecified, of loopback or reserved.
        MartianDestination = "martian_destination",
        /// An ARP or neighbour discovery message that is not valid.
        InvalidMessage = "invalid_message",
        /// An answer about a neighbour that was not asked, whose Ethernet address is in the configuration, or
        /// who has another Ethernet address and still answers.
        NeighbourRefused = "neighbour_refused",
        /// N3: the other fragments of the outer packet did not come in time.
        FragmentTimeout = "fragment_timeout",
        /// N3: fragments of too many outer packets wait for others, of its source or of all.
        FragmentFull = "fragment_full",
        /// An IP packet for an address of our own, and not one that we answer.
        NotForUs = "not_for_us",
        /// N3: the UDP header is wrong.
        OuterUdp = "outer_udp",
        /// N3: the GTP-U header is wrong, or the message is of a type that is not known.
        Gtpu = "gtpu",
        /// N3: an extension header is wrong.
        GtpuExtension = "gtpu_extension",
        /// N3: an extension header that had to be understood was not.
        GtpuUnknownExtension = "gtpu_unknown_extension",
        /// N3: there is no tunnel of this TEID.
        UnknownTeid = "unknown_teid",
        /// N3: not from the gNB that the session of its tunnel sends to; or an error indication about a
        /// tunnel that its sender does not have.
        WrongGnb = "wrong_gnb",
        /// N3: more messages of its kind than are dealt with.
        Limited = "limited",
        /// N3: a user's packet to an address of our own, such as a tunnel in a tunnel.
        OwnAddress = "own_address",
        /// The user's IP header is wrong.
        InnerIp = "inner_ip",
        /// N3: the user's packet does not come from one of the user's own addresses.
        Spoofed = "spoofed",
        /// N3: a user's router solicitation that is not answered: it is not valid, the user has no IPv6
        /// prefix, or was answered just before.
        Solicitation = "solicitation",
        /// N3: anything else that a user sends to or from a link-local address, or to a group on its link.
        LinkLocal = "link_local",
        /// N6: no session has this address.
        NoSession = "no_session",
        /// To a group, by its IP address or by its frame's, and nothing that we answer.
        Group = "group",
        /// No rule of the session is for this packet.
        NoRule = "no_rule",
        /// A forwarding action rule says so.
        Rule = "rule",
        /// A gate is closed.
        GateClosed = "gate_closed",
        /// More than the maximum bit rate.
        Policed = "policed",
        /// A quota is used up.
        Quota = "quota",
        /// There is no room to keep the packet: too many wait.
        BufferFull = "buffer_full",
        /// There is no room to keep the packet: too many of its session wait.
        BufferSession = "buffer_session",
        /// The packet was kept, and its session did not forward it in time.
        BufferExpired = "buffer_expired",
        /// The packet was kept and its session is gone.
        SessionGone = "session_gone",
        /// N3: the outer header says that there was congestion, which the user's packet cannot be marked
        /// with (RFC 6040).
        Congestion = "congestion",
        /// It has been through too many routers.
        TtlExpired = "ttl_expired",
        /// Longer than the next link takes.
        TooBig = "too_big",
        /// There is no route to its destination.
        NoRoute = "no_route",
        /// The next hop's Ethernet address is not known.
        NoNeighbour = "no_neighbour",
        /// The port out did not take it.
        PortFull = "port_full",
    }

    /// Of one direction.
    numbers {
        /// Frames received, whatever became of them.
        rx_packets,
        /// Their bytes, from destination MAC to end of payload.
        rx_bytes,
        /// Users' packets forwarded.
        tx_packets,
        /// Bytes of their frames.
        tx_bytes,
        /// Messages received that are about the network itself, and were dealt with: ARP, neighbour
        /// discovery, echo requests, end markers, error indications.
        control,
        /// Packets kept for later; each is counted again when it is forwarded or dropped.
        buffered,
        /// Outer packets reassembled from fragments.
        reassembled,
        /// Users' packets that were too long for the next link, and went on in fragments.
        fragmented,
        /// Router advertisements sent to users who asked for a router.
        router_advertisements,
        /// End markers received.
        end_markers,
        /// Error indications received.
        error_indications,
        /// Messages sent about packets that could not go on, to who sent those: ICMP errors, error
        /// indications, lists of extension headers that are understood.
        complaints,
    }
}
