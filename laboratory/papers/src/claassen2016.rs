//! Claims of Claassen et al. 2016.

use crate::figure::Quantity;
use crate::paper::{Claim, Content, Exhibit, Open, Paper};
use crate::pick::Condition::{Mtu, Pairs};
use crate::pick::Pick;
use crate::rule::Rule;

pub(super) const PAPER: Paper = Paper {
    name: "claassen2016",
    title: "Claassen, Koning, Grosso: Linux containers networking: performance and scalability of \
            kernel modules",
    conditions: "Xeon E5620, CoreOS, iperf3; ten repeats, standard error",
    exhibits: &[
        Exhibit {
            name: "Figure 1",
            shows: "veth pairs, and veth pairs on a bridge",
            content: Content::Drawing("links `veth` and `bridge`: [links](links.md)"),
        },
        Exhibit {
            name: "Figure 2",
            shows: "macvlan",
            content: Content::Drawing(
                "links `macvlan/bridge`, `/private`, `/vepa` and `/passthru`: [links](links.md)",
            ),
        },
        Exhibit {
            name: "Figure 3",
            shows: "the machines: three nodes on a 10 Gb/s switch",
            content: Content::Drawing(
                "two hosts on one machine, with a cable of 10 Gb/s: links `hosts/*` \
                 ([links](links.md))",
            ),
        },
        Exhibit {
            name: "Figure 4",
            shows: "the local setup: pairs of containers on one node",
            content: Content::Drawing(
                "`claassen2016-local-tcp`, `claassen2016-local-udp`, `--pairs`",
            ),
        },
        Exhibit {
            name: "Figure 5",
            shows: "the switched setup: each container of a pair on another node",
            content: Content::Drawing("`claassen2016-switched-tcp`, `claassen2016-switched-udp`"),
        },
        Exhibit {
            name: "Figure 6",
            shows: "local TCP, MTU 1500 and 9000",
            content: Content::Claims(FIG6),
        },
        Exhibit {
            name: "Figure 7",
            shows: "local UDP, MTU 1500 and 9000",
            content: Content::Claims(FIG7),
        },
        Exhibit {
            name: "Figure 8",
            shows: "switched TCP, MTU 1500 and 9000",
            content: Content::Claims(FIG8),
        },
        Exhibit {
            name: "Figure 9",
            shows: "switched UDP, MTU 1500 and 9000",
            content: Content::Claims(FIG9),
        },
    ],
    open: &[
        Open {
            question: "Why UDP is so slow: iperf3's own work, or missing offloads?",
            here: "`dray bench streams` and `claassen2016-local-*` measure both with one sender and \
                   receiver, with cycles for each byte; `make bench-tools` holds iperf3 against them \
                   ([streams](streams.md))",
        },
        Open {
            question: "ipvlan in L2 mode",
            here: "links `ipvlan/l2`, `/l3` and `/l3s`, functional in a virtual machine \
                   ([what works where](coverage.md)), not measured",
        },
        Open {
            question: "Overlay networks",
            here: "`dray bench tunnels`: VXLAN, GENEVE, GRE, IP in IP, WireGuard, dray's own VXLAN \
                   ([links](links.md)); the user plane function's GTP-U tunnels ([upf](upf.md))",
        },
        Open {
            question: "Open vSwitch with several threads",
            here: "links `ovs/kernel`, `ovs/userspace`, `ovs/afxdp` and `ovs-dpdk`: `dray bench \
                   --technique ovs --pairs 1,4,16`",
        },
    ],
};

const fn tcp(technique: &'static str) -> Pick {
    Pick::new("claassen2016-local-tcp", technique).of(Quantity::Payload)
}

const fn udp(technique: &'static str) -> Pick {
    Pick::new("claassen2016-local-udp", technique).of(Quantity::Payload)
}

const fn switched_tcp(technique: &'static str, pairs: usize, mtu: u32) -> Pick {
    let pick = Pick::new("claassen2016-switched-tcp", technique).of(Quantity::Payload);
    pick.with(Pairs(pairs)).with(Mtu(mtu))
}

const fn switched_udp(technique: &'static str, mtu: u32) -> Pick {
    Pick::new("claassen2016-switched-udp", technique).of(Quantity::Payload).with(Mtu(mtu))
}

const BRIDGE: Pick = tcp("bridge/tcp").with(Mtu(1500));
const MACVLAN: Pick = tcp("macvlan/bridge/tcp").with(Mtu(1500));
const IPVLAN: Pick = tcp("ipvlan/l3/tcp").with(Mtu(1500));
const BRIDGE_UDP: Pick = udp("bridge/udp").with(Mtu(1500));
const MACVLAN_UDP: Pick = udp("macvlan/bridge/udp").with(Mtu(1500));
const IN_WORDS: &str = "stated without a figure";

const fn slower(pairs: usize) -> Rule {
    slower_than(MACVLAN.with(Pairs(pairs)), BRIDGE.with(Pairs(pairs)))
}

/// Rule for a ratio of 2.5 to 3.
const fn slower_than(of: Pick, by: Pick) -> Rule {
    Rule::Ratio { of, by, low: 0.75 * 2.5, high: 1.25 * 3.0 }
}

/// A reason for links that carry the same: what a byte costs over each.
const COSTS_ALIKE: &[(Rule, &str)] = &[(
    Rule::Ratio {
        of: BRIDGE.with(Pairs(1)).of(Quantity::Cycles),
        by: MACVLAN.with(Pairs(1)).of(Quantity::Cycles),
        low: 0.6,
        high: 1.6,
    },
    "a byte costs about as many cycles over the bridge as over macvlan, so what is left of the \
     difference between the two is small beside the cost of TCP itself",
)];

/// A reason for UDP that carries less than TCP: the kernel passes on TCP's segments many at a time.
const FRAME_BY_FRAME: &[(Rule, &str)] = &[(
    Rule::Ratio {
        of: udp("macvlan/bridge/udp").with(Pairs(1)).with(Mtu(9000)),
        by: MACVLAN_UDP.with(Pairs(1)),
        low: 4.0,
        high: f64::INFINITY,
    },
    "a UDP packet costs about as much whatever its size, and with MTU 1500 a packet is small: with \
     MTU 9000 UDP carries four times as much or more",
)];

const fn same_by_mtu(technique: &'static str) -> Rule {
    Rule::Ratio {
        of: tcp(technique).with(Pairs(1)).with(Mtu(9000)),
        by: tcp(technique).with(Pairs(1)).with(Mtu(1500)),
        low: 0.9,
        high: 1.1,
    }
}

const FIG6: &[Claim] = &[
    Claim::new(
        "ipvlan in L3 mode is best, above macvlan, 1 pair",
        IN_WORDS,
        Rule::Order(&[IPVLAN.with(Pairs(1)), MACVLAN.with(Pairs(1))]),
    ),
    Claim::new(
        "veth on a bridge carries 2.5 to 3 times less than macvlan, 1 pair",
        "2.5 to 3 x",
        slower(1),
    )
    .because(COSTS_ALIKE),
    Claim::new("the same, 16 pairs", "2.5 to 3 x", slower(16)).because(COSTS_ALIKE),
    Claim::new(
        "veth on a bridge carries 2.5 to 3 times less than ipvlan",
        "2.5 to 3 x",
        slower_than(IPVLAN.with(Pairs(1)), BRIDGE.with(Pairs(1))),
    ),
    Claim::new(
        "MTU 1500 and 9000 behave alike: macvlan, 1 pair",
        "no significant difference",
        same_by_mtu("macvlan/bridge/tcp"),
    ),
    Claim::new(
        "the same: veth on a bridge, 1 pair",
        "no significant difference",
        same_by_mtu("bridge/tcp"),
    ),
    Claim::new(
        "it scales: 128 pairs together carry at least half of what one does, macvlan",
        IN_WORDS,
        Rule::Ratio {
            of: MACVLAN.with(Pairs(128)),
            by: MACVLAN.with(Pairs(1)),
            low: 0.5,
            high: f64::INFINITY,
        },
    ),
];

const FIG7: &[Claim] = &[
    Claim::new(
        "macvlan is best, above veth on a bridge, 1 pair",
        IN_WORDS,
        Rule::Order(&[MACVLAN_UDP.with(Pairs(1)), BRIDGE_UDP.with(Pairs(1))]),
    ),
    Claim::new(
        "macvlan is best, above ipvlan",
        IN_WORDS,
        Rule::Order(&[
            MACVLAN_UDP.with(Pairs(1)),
            udp("ipvlan/l3/udp").with(Mtu(1500)).with(Pairs(1)),
        ]),
    ),
    Claim::new(
        "macvlan carries 3.5 times less than with TCP, 1 pair",
        "3.5 x",
        Rule::Ratio {
            of: MACVLAN.with(Pairs(1)),
            by: MACVLAN_UDP.with(Pairs(1)),
            low: 0.75 * 3.5,
            high: 1.25 * 3.5,
        },
    )
    .because(FRAME_BY_FRAME),
    Claim::new(
        "the rate of veth on a bridge falls exponentially with exponentially more pairs, from 2 pairs on: \
         that of each pair, so the sum of 16 pairs stays within a factor of 2 of two pairs'",
        IN_WORDS,
        Rule::Ratio {
            of: BRIDGE_UDP.with(Pairs(16)),
            by: BRIDGE_UDP.with(Pairs(2)),
            low: 0.5,
            high: 2.0,
        },
    ),
];

const CABLE: &str = "two hosts on one machine, joined by a cable of 10 Gb/s";
const HOSTS_BRIDGE: &str = "hosts/bridge/tcp";
const HOSTS_MACVLAN: &str = "hosts/macvlan/tcp";
const HOSTS_IPVLAN: &str = "hosts/ipvlan-l3/tcp";
const HOSTS_BRIDGE_UDP: &str = "hosts/bridge/udp";
const HOSTS_MACVLAN_UDP: &str = "hosts/macvlan/udp";
const HOSTS_IPVLAN_UDP: &str = "hosts/ipvlan-l3/udp";

const FIG8: &[Claim] = &[
    Claim::new(
        "the modules carry the same: veth on a bridge and macvlan, 1 pair",
        IN_WORDS,
        Rule::Same {
            figures: &[switched_tcp(HOSTS_BRIDGE, 1, 1500), switched_tcp(HOSTS_MACVLAN, 1, 1500)],
            tolerance: 0.1,
        },
    )
    .instead(CABLE),
    Claim::new(
        "the same: ipvlan",
        IN_WORDS,
        Rule::Same {
            figures: &[switched_tcp(HOSTS_BRIDGE, 1, 1500), switched_tcp(HOSTS_IPVLAN, 1, 1500)],
            tolerance: 0.1,
        },
    )
    .instead(CABLE),
    Claim::new(
        "MTU 9000 carries more than MTU 1500, 1 pair",
        "2 Gb/s more",
        Rule::Order(&[switched_tcp(HOSTS_BRIDGE, 1, 9000), switched_tcp(HOSTS_BRIDGE, 1, 1500)]),
    )
    .instead(CABLE),
    Claim::new(
        "throughput falls exponentially with exponentially more pairs: that of each pair, so the sum \
         of 16 pairs stays within a factor of 2 of one pair's",
        IN_WORDS,
        Rule::Ratio {
            of: switched_tcp(HOSTS_BRIDGE, 16, 1500),
            by: switched_tcp(HOSTS_BRIDGE, 1, 1500),
            low: 0.5,
            high: 2.0,
        },
    )
    .instead(CABLE),
];

const FIG9: &[Claim] = &[
    Claim::new(
        "with MTU 1500 macvlan is above veth on a bridge, 1 pair",
        IN_WORDS,
        Rule::Order(&[
            switched_udp(HOSTS_MACVLAN_UDP, 1500).with(Pairs(1)),
            switched_udp(HOSTS_BRIDGE_UDP, 1500).with(Pairs(1)),
        ]),
    )
    .instead(CABLE),
    Claim::new(
        "the same: above ipvlan",
        IN_WORDS,
        Rule::Order(&[
            switched_udp(HOSTS_MACVLAN_UDP, 1500).with(Pairs(1)),
            switched_udp(HOSTS_IPVLAN_UDP, 1500).with(Pairs(1)),
        ]),
    )
    .instead(CABLE),
    Claim::new(
        "with MTU 9000 they are close: veth on a bridge and macvlan, 1 pair",
        IN_WORDS,
        Rule::Same {
            figures: &[
                switched_udp(HOSTS_BRIDGE_UDP, 9000).with(Pairs(1)),
                switched_udp(HOSTS_MACVLAN_UDP, 9000).with(Pairs(1)),
            ],
            tolerance: 0.1,
        },
    )
    .instead(CABLE),
    Claim::new(
        "throughput falls when fewer frames are sent: that of each pair, so the sum of 16 pairs stays \
         within a factor of 2 of one pair's, MTU 9000",
        IN_WORDS,
        Rule::Ratio {
            of: switched_udp(HOSTS_BRIDGE_UDP, 9000).with(Pairs(16)),
            by: switched_udp(HOSTS_BRIDGE_UDP, 9000).with(Pairs(1)),
            low: 0.5,
            high: 2.0,
        },
    )
    .instead(CABLE),
];
