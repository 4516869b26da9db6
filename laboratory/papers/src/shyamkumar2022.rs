//! Claims of Shyamkumar et al. 2022.

use dray_results::Way;

use crate::figure::Quantity;
use crate::paper::{Claim, Content, Exhibit, Open, Paper};
use crate::pick::Condition::{Offered, Size, To};
use crate::pick::Pick;
use crate::rule::Rule;

pub(super) const PAPER: Paper = Paper {
    name: "shyamkumar2022",
    title: "Shyamkumar, Raczynski, Cremins, Kubiak, Rajan: In-kernel fast path performance for \
            containers running telecom workloads",
    conditions: "Xeon Platinum 8260M, E810 and X710 cards, Linux 5.15; 512 B, 8000 flows, 2.4 Mpps \
                 offered, runs of 50 s, five repeats",
    exhibits: &[
        Exhibit {
            name: "Figure 1",
            shows: "a packet's path through an L2 bridge and a macvlan bridge",
            content: Content::Drawing("links `bridge` and `macvlan/bridge`: [links](links.md)"),
        },
        Exhibit {
            name: "Figure 2",
            shows: "steps of receiving with AF_XDP without copying",
            content: Content::Drawing("own AF_XDP ports: [AF_XDP](af-xdp.md)"),
        },
        Exhibit {
            name: "Figure 3",
            shows: "the 4G network",
            content: Content::Drawing("what `dray upf` takes part in: [upf](upf.md)"),
        },
        Exhibit {
            name: "Figure 4",
            shows: "flows that each core of the user plane function handles",
            content: Content::Drawing(
                "each direction has a worker of its own in `dray upf`; `shyamkumar2022-fig6` measures each \
                 direction alone, and both at the same time: [upf](upf.md)",
            ),
        },
        Exhibit {
            name: "Figure 5",
            shows: "the test setup: traffic generator and system under test",
            content: Content::Drawing("`dray upf-load` is the generator: [upf](upf.md)"),
        },
        Exhibit {
            name: "Figure 6",
            shows: "throughput of a user plane function in a container, for each core",
            content: Content::Claims(FIG6),
        },
    ],
    open: &[
        Open {
            question: "Softirq processing on cores without the application, which XDP_USE_NEED_WAKEUP \
                       should avoid",
            here: "`shyamkumar2022-needwakeup`; the claim of it is under figure 6",
        },
        Open {
            question: "Where the small loss between 1.1 and 2.4 Mpps comes from",
            here: "every lost frame has a place (`lost_at`), and the user plane function counts drops \
                   by reason ([measurement](measurement.md), [upf](upf.md)); the paper's card was not \
                   at hand",
        },
        Open {
            question: "Kubernetes with Multus and the SR-IOV CNI plugin",
            here: "a user plane function in a pod, on two functions from Multus and the SR-IOV CNI plugin: \
                   functional in a virtual machine ([how](sriov.md#in-pods)); rates need a card. Pods with Multus \
                   get ports of the switch, too ([containers](containers.md))",
        },
        Open {
            question: "Scalability while the profile stays",
            here: "`upf-scale`: 1 to 1,000,000 sessions, 2 to 128 rules ([upf](upf.md))",
        },
        Open {
            question: "The user plane function as micro-services",
            here: "a process for each function that any port joins: `dray upf`, `dray switch`, \
                   `dray forward` ([roles](roles.md)); not measured as a chain",
        },
        Open {
            question: "Fewer permissions for the application in the container",
            here: "a sandbox without capabilities ([security](../SECURITY.md)); what each technique \
                   needs: `liang2016-setup`",
        },
    ],
};

const FIG6_RUN: &str = "shyamkumar2022-fig6";

/// Uplink at 2.4 Mpps offered, as the paper did it.
const fn uplink(technique: &'static str) -> Pick {
    let pick = Pick::new(FIG6_RUN, technique).of(Quantity::BitsPerUpfCore);
    pick.with(To(Way::Uplink)).with(Offered(2.4e6))
}

/// Downlink in the same way.
const fn downlink(technique: &'static str) -> Pick {
    let pick = Pick::new(FIG6_RUN, technique).of(Quantity::BitsPerUpfCore);
    pick.with(To(Way::Downlink)).with(Offered(2.4e6))
}

/// Both directions at the same time, each at 2.4 Mpps offered.
const fn both(technique: &'static str) -> Pick {
    let pick = Pick::new(FIG6_RUN, technique).of(Quantity::Bits);
    pick.with(To(Way::Both)).with(Offered(4.8e6))
}

const fn loss(technique: &'static str, pps: f64) -> Pick {
    Pick::new(FIG6_RUN, technique).of(Quantity::Loss).with(To(Way::Uplink)).with(Offered(pps))
}

const fn softirq(technique: &'static str) -> Pick {
    Pick::new("shyamkumar2022-needwakeup", technique).of(Quantity::Softirq).with(Offered(100e3))
}

/// Frames of the size that the paper used, from end to end, without a user plane function: there is
/// none with a third party's driver.
const fn ends(technique: &'static str) -> Pick {
    Pick::new("af-xdp", technique).with(Size(512))
}

const BRIDGE: Pick = uplink("bridge/raw-mmsg");
const MACVLAN: Pick = uplink("macvlan/bridge/raw-mmsg");
const IPVLAN: Pick = uplink("ipvlan/l2/raw-mmsg");
const FUNCTION: Pick = uplink("sriov/raw-mmsg");
const ONE_HOST: &str = "all on one host: sender, user plane function and receiver share its cores";
const ZERO_COPY: Rule = Rule::Unmeasured(
    "needs a network card whose virtual functions' driver has XDP ([how](sriov.md)); `sriov/afxdp` \
     without copies is functional in a virtual machine, under this user plane function with 8000 \
     sessions",
);

const fn ten_times(of: Pick) -> Rule {
    Rule::Ratio { of, by: BRIDGE, low: 7.5, high: f64::INFINITY }
}

const FIG6: &[Claim] = &[
    Claim::new(
        "a bridge and the Linux stack carry about 1 Gb/s for each core",
        "20 cores for 20 Gb/s",
        Rule::Within { of: BRIDGE, low: 0.5e9, high: 2e9 },
    )
    .instead(ONE_HOST),
    Claim::new(
        "the same, downlink",
        "20 cores for 20 Gb/s",
        Rule::Within { of: downlink("bridge/raw-mmsg"), low: 0.5e9, high: 2e9 },
    )
    .instead(ONE_HOST),
    Claim::new(
        "rules of netfilter are the reason for the bridge's rate: it is above one whose frames pass rules",
        "stated without a figure",
        Rule::Order(&[BRIDGE, uplink("bridge-iptables/raw-mmsg")]),
    )
    .instead(ONE_HOST),
    Claim::new(
        "macvlan is above the bridge, which is the slowest",
        DRAWN,
        Rule::Order(&[MACVLAN, BRIDGE]),
    )
    .instead(ONE_HOST),
    Claim::new("ipvlan is above the bridge", DRAWN, Rule::Order(&[IPVLAN, BRIDGE]))
        .instead(ONE_HOST),
    Claim::new(
        "SR-IOV and the Linux stack are above the bridge",
        "1118 Mb/s for each core",
        Rule::Order(&[FUNCTION, BRIDGE]),
    )
    .instead(ONE_HOST),
    Claim::new(
        "SR-IOV and AF_XDP without copies carry close to 10 x the others",
        "close to 10 Gb/s for each core",
        ZERO_COPY,
    ),
    Claim::new(
        "the same by AF_XDP over veth pairs",
        "close to 10 Gb/s for each core",
        ten_times(uplink("veth/afxdp")),
    )
    .instead("a veth pair's driver copies every frame, in place of a card's, which does not"),
    Claim::new(
        "the same by shared memory",
        "close to 10 Gb/s for each core",
        ten_times(uplink("direct")),
    )
    .instead("memory shared with both neighbours, in place of a card and AF_XDP"),
    Claim::new(
        "AF_XDP without copies is at par with third-party poll-mode drivers",
        "stated without a figure",
        Rule::Unmeasured(
            "needs a network card whose virtual functions' driver has XDP ([how](sriov.md)); \
             `sriov/afxdp` and `sriov/dpdk` are functional in a virtual machine",
        ),
    ),
    Claim::new(
        "the same over veth pairs: at least 0.9 of what DPDK's AF_XDP driver carries",
        "stated without a figure",
        Rule::Ratio {
            of: ends("veth/afxdp"),
            by: ends("veth/dpdk-afxdp"),
            low: 0.9,
            high: f64::INFINITY,
        },
    )
    .instead("from end to end; a veth pair's driver copies every frame, in place of a card's"),
    Claim::new(
        "two cores carry 20 Gb/s, both directions at the same time",
        "2 cores and 2 virtual functions",
        Rule::Within { of: both("direct"), low: 19e9, high: f64::INFINITY },
    )
    .instead("memory shared with both neighbours, which share the cores, in place of cards"),
    Claim::new(
        "no loss at 1.1 Mpps for each core",
        "0",
        Rule::Within { of: loss("direct", 1.1e6), low: 0.0, high: 0.0 },
    )
    .instead("shared memory in place of a card"),
    Claim::new(
        "less than 0.1 % loss up to 2.4 Mpps for each core",
        "below 0.1 %",
        Rule::Within { of: loss("direct", 2.4e6), low: 0.0, high: 0.001 },
    )
    .instead("shared memory in place of a card"),
    Claim::new(
        "need-wakeup greatly reduces the time of soft interrupts, at 100 kpps",
        "close to 100 % of a core without it; with it not measured",
        Rule::Ratio {
            of: softirq("veth/afxdp-no-wakeup"),
            by: softirq("veth/afxdp"),
            low: 2.0,
            high: f64::INFINITY,
        },
    )
    .instead("a veth pair's driver in place of a card's")
    .because(&[(
        Rule::Within { of: softirq("veth/afxdp-no-wakeup"), low: 0.0, high: 0.3 },
        "without the flag, soft interrupts take a small part of a core here, so the driver of a veth \
         pair does not poll as that of the paper's card",
    )]),
];

const DRAWN: &str = "drawn only, lost in the text";
