//! Claims of Casoni et al. 2013, which are slides: a name of a table or figure is a slide's title.

use crate::figure::Quantity;
use crate::paper::{Claim, Content, Exhibit, Open, Paper};
use crate::pick::Condition::{Burst, Forwarders, Size};
use crate::pick::Pick;
use crate::rule::Rule;

pub(super) const PAPER: Paper = Paper {
    name: "casoni2013",
    title: "Casoni, Grazia, Patriciello: On the performance of Linux containers with netmap/VALE for \
            networks virtualization (slides)",
    conditions: "Machine not stated; frames of 64 B built before the measurement, no checks of content, \
                 time from the time-stamp counter",
    exhibits: &[
        Exhibit {
            name: "State of the art",
            shows: "throughput of veth and bridges through ordinary system calls, 64 B",
            content: Content::Claims(&[Claim::new(
                "veth and a bridge carry near 500 kpps",
                "near 500 kpps",
                Rule::Within {
                    of: Pick::new("ara2019-table1", "bridge/raw").with(Size(64)).with(Burst(64)),
                    low: 250e3,
                    high: 1e6,
                },
            )
            .instead("raw sockets, one system call a frame")]),
        },
        Exhibit {
            name: "LXC with Virtual Ethernet",
            shows: "containers on veth pairs and a bridge",
            content: Content::Drawing("links `veth` and `bridge`: [links](links.md)"),
        },
        Exhibit {
            name: "VALE",
            shows: "containers on a VALE switch",
            content: Content::Drawing("links `vale` and `netmap-pipe`: [netmap](netmap.md)"),
        },
        Exhibit {
            name: "Serial setup",
            shows: "a chain of forwarders between sender and receiver",
            content: Content::Drawing("`examples/casoni2013-chain.toml`: [labs](lab.md)"),
        },
        Exhibit {
            name: "Parallel setup",
            shows: "forwarders side by side between one sender and one receiver",
            content: Content::Drawing("`casoni2013-parallel`: [labs](lab.md)"),
        },
        Exhibit {
            name: "Incremental loss-free throughput - 1 forwarder (first slide)",
            shows: "received against sent rate through one forwarder; the text does not say which ways",
            content: Content::Claims(&[
                Claim::new(
                    "veth: all that is sent arrives up to a point of saturation",
                    DRAWN,
                    saturates(incremental("veth/raw-mmsg", 1)),
                ),
                Claim::new(
                    "veth and bridges: all that is sent arrives up to a point of saturation",
                    DRAWN,
                    saturates(incremental("bridge/raw-mmsg", 1)),
                ),
            ]),
        },
        Exhibit {
            name: "Incremental loss-free throughput - 1 forwarder (second slide)",
            shows: "the same with other ways, which the text does not name either",
            content: Content::Claims(&[Claim::new(
                "VALE: all that is sent arrives up to a point of saturation",
                DRAWN,
                saturates(incremental("vale/netmap", 1)),
            )]),
        },
        Exhibit {
            name: "Incremental loss-free throughput - 6 forwarders",
            shows: "received against sent rate through six forwarders",
            content: Content::Claims(&[
                Claim::new(
                    "veth: all that is sent arrives up to a point of saturation",
                    DRAWN,
                    saturates(incremental("veth/raw-mmsg", 6)),
                ),
                Claim::new(
                    "veth and bridges: all that is sent arrives up to a point of saturation",
                    DRAWN,
                    saturates(incremental("bridge/raw-mmsg", 6)),
                ),
                Claim::new(
                    "VALE: all that is sent arrives up to a point of saturation",
                    DRAWN,
                    saturates(incremental("vale/netmap", 6)),
                ),
            ]),
        },
        Exhibit {
            name: "Maximum serial loss-free throughput",
            shows: "highest rate without loss through 1 to 8 forwarders",
            content: Content::Claims(&[
                Claim::new(
                    MORE,
                    DRAWN,
                    Rule::Order(&[serial("vale/netmap", 1), serial("veth/raw-mmsg", 1)]),
                ),
                Claim::new(
                    "the same through 8 forwarders",
                    DRAWN,
                    Rule::Order(&[serial("vale/netmap", 8), serial("veth/raw-mmsg", 8)]),
                ),
                Claim::new(
                    "bridges cost throughput: veth as peer is above veth with bridges, 1 forwarder",
                    DRAWN,
                    Rule::Order(&[serial("veth/raw-mmsg", 1), serial("bridge/raw-mmsg", 1)]),
                ),
                Claim::new(
                    "the rate falls from 1 forwarder to 8, veth",
                    DRAWN,
                    Rule::Falls(
                        Pick::new("casoni2013-serial", "veth/raw-mmsg").of(Quantity::LossFree),
                    ),
                ),
            ]),
        },
        Exhibit {
            name: "Maximum parallel loss-free throughput",
            shows: "highest rate without loss through 2 to 4 forwarders side by side",
            content: Content::Claims(&[
                Claim::new(
                    MORE,
                    DRAWN,
                    Rule::Order(&[parallel("vale/netmap", 2), parallel("veth/raw-mmsg", 2)]),
                ),
                Claim::new(
                    "bridges cost throughput: veth as peer is above veth with bridges, 2 forwarders",
                    DRAWN,
                    Rule::Order(&[parallel("veth/raw-mmsg", 2), parallel("bridge/raw-mmsg", 2)]),
                ),
                Claim::new(
                    "the same, 4 forwarders",
                    DRAWN,
                    Rule::Order(&[parallel("veth/raw-mmsg", 4), parallel("bridge/raw-mmsg", 4)]),
                ),
            ]),
        },
        Exhibit {
            name: "Maximum sender load",
            shows: "sending rate with 1 to 8 forwarders behind",
            content: Content::Claims(&[
                Claim::new(
                    "a sender on VALE sends more than one on veth, 1 forwarder",
                    DRAWN,
                    Rule::Order(&[sent("vale/netmap", 1), sent("veth/raw-mmsg", 1)]),
                ),
                Claim::new(
                    "the same, 8 forwarders",
                    DRAWN,
                    Rule::Order(&[sent("vale/netmap", 8), sent("veth/raw-mmsg", 8)]),
                ),
                Claim::new(
                    "a sender on veth sends more than one on veth with bridges, 8 forwarders",
                    DRAWN,
                    Rule::Order(&[sent("veth/raw-mmsg", 8), sent("bridge/raw-mmsg", 8)]),
                ),
            ]),
        },
        Exhibit {
            name: "Adding Netmap/VALE support to ns-3",
            shows: "throughput of netmap, and of VALE between its ports, in the text",
            content: Content::Claims(&[
                Claim::new(
                    "netmap carries 10 Gb/s with frames of 64 B",
                    "10 Gb/s, the rate of the network: 14.9 Mpps",
                    Rule::Within {
                        of: vale(64).of(Quantity::Received),
                        low: 14.9e6,
                        high: f64::INFINITY,
                    },
                )
                .instead("ports of VALE in place of a card"),
                Claim::new(
                    "VALE carries up to 70 Gb/s between its ports",
                    "up to 70 Gb/s",
                    Rule::Within { of: vale(1500).of(Quantity::Bits), low: 35e9, high: 140e9 },
                ),
            ]),
        },
        Exhibit {
            name: "Preliminary results",
            shows: "two ns-3 instances, 64 B, on sockets and on netmap/VALE",
            content: Content::Claims(&[
                Claim::new(
                    "ns-3 on sockets carries 70 kpps",
                    "70 kpps",
                    Rule::Within { of: ns3("veth/ns3-fd"), low: 35e3, high: 140e3 },
                )
                .instead("two simulations on one machine of few cores"),
                Claim::new(
                    "ns-3 on netmap/VALE carries 36 x as much",
                    "2.5 Mpps against 70 kpps",
                    Rule::Ratio {
                        of: ns3("vale/ns3-netmap"),
                        by: ns3("veth/ns3-fd"),
                        low: 0.75 * 36.0,
                        high: f64::INFINITY,
                    },
                ),
                Claim::new(
                    "the same by shared memory through a switch",
                    "2.5 Mpps against 70 kpps",
                    Rule::Ratio {
                        of: ns3("switch/patch/ns3-virtio"),
                        by: ns3("veth/ns3-fd"),
                        low: 0.75 * 36.0,
                        high: f64::INFINITY,
                    },
                )
                .instead("dray's switch in place of VALE")
                .because(STACK),
                Claim::new(
                    "the same by memif through VPP",
                    "2.5 Mpps against 70 kpps",
                    Rule::Ratio {
                        of: ns3("vpp/memif/ns3-memif"),
                        by: ns3("veth/ns3-fd"),
                        low: 0.75 * 36.0,
                        high: f64::INFINITY,
                    },
                )
                .instead("VPP in place of VALE"),
            ]),
        },
    ],
    open: &[
        Open {
            question: "netmap/VALE with ns-3 (partially done there)",
            here: "the experiment `casoni2013-ns3`: a network device of ns-3 over any port of dray \
                   ([ns-3](ns-3.md))",
        },
        Open {
            question: "Benefits for NetBoxes that are connected to physical devices",
            here: "netmap and AF_XDP ports on network cards ([ports](ports.md)); two machines were not \
                   measured",
        },
        Open {
            question: "Layers 3 and 4 that work with bursts of packets",
            here: "the user plane function takes bursts through all of its stages ([upf](upf.md))",
        },
    ],
};

const DRAWN: &str = "drawn only, lost in the text";
const MORE: &str = "netmap/VALE has more throughput than veth";

const fn serial(technique: &'static str, forwarders: usize) -> Pick {
    let pick = Pick::new("casoni2013-serial", technique).of(Quantity::LossFree);
    pick.with(Forwarders("chain", forwarders))
}

const fn parallel(technique: &'static str, forwarders: usize) -> Pick {
    let pick = Pick::new("casoni2013-parallel", technique).of(Quantity::LossFree);
    pick.with(Forwarders("fan", forwarders))
}

const fn incremental(technique: &'static str, forwarders: usize) -> Pick {
    Pick::new("casoni2013-incremental", technique).with(Forwarders("chain", forwarders))
}

const fn saturates(of: Pick) -> Rule {
    Rule::Saturates { of, free: None }
}

const fn sent(technique: &'static str, forwarders: usize) -> Pick {
    let pick = Pick::new("casoni2013-sender-load", technique).of(Quantity::Sent);
    pick.with(Forwarders("chain", forwarders))
}

const fn vale(size: usize) -> Pick {
    Pick::new("all", "vale/netmap").with(Size(size))
}

/// A reason for a path that does not carry more: what it carries without ns-3's stack.
const STACK: &[(Rule, &str)] = &[(
    Rule::Ratio {
        of: ns3("switch/patch/ns3-virtio-bare"),
        by: ns3("switch/patch/ns3-virtio"),
        low: 2.0,
        high: f64::INFINITY,
    },
    "ns-3's stack is the limit: the same path carries more without it",
)];

const fn ns3(technique: &'static str) -> Pick {
    Pick::new("casoni2013-ns3", technique).with(Forwarders("chain", 0))
}
