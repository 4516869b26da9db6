//! Claims of Ara et al. 2019.

use crate::figure::Quantity;
use crate::paper::{Claim, Content, Exhibit, Open, Paper};
use crate::pick::Condition::{Burst, Offered, Size};
use crate::pick::Pick;
use crate::rule::Rule;

pub(super) const PAPER: Paper = Paper {
    name: "ara2019",
    title: "Ara, Abeni, Cucinotta, Vitucci: On the use of kernel bypass mechanisms for \
            high-performance inter-container communications",
    conditions: "Xeon E5-2640 v4, Linux 4.15; one point: 60 s, the mean of 20 per-second rates after \
                 the first 20",
    exhibits: &[
        Exhibit {
            name: "Figure 1",
            shows: "approaches to networking between containers: the kernel, DPDK with vhost-user, \
                    SR-IOV",
            content: Content::Drawing(
                "(a) `bridge`, (b) `switch`, `testpmd`, `ovs-dpdk`, `vpp` and `snabb`, (c) `sriov`: \
                 [links](links.md)",
            ),
        },
        Exhibit {
            name: "Table 1",
            shows: "highest throughput of sockets over a bridge, 64 B, bursts of 64",
            content: Content::Claims(TABLE1),
        },
        Exhibit {
            name: "Figure 2a",
            shows: "receive rate against sending rate, 64 B, bursts of 16 (here: the ends are dray's virtio driver, \
                    not DPDK's)",
            content: Content::Claims(FIG2A),
        },
        Exhibit {
            name: "Figure 2b",
            shows: "receive rate against sending rate, 512 B, bursts of 16 (here: the ends are dray's virtio \
                    driver, not DPDK's)",
            content: Content::Claims(FIG2B),
        },
        Exhibit {
            name: "Figure 3",
            shows: "highest throughput by technique and packet size (here: the ends are dray's virtio driver, not \
                    DPDK's)",
            content: Content::Claims(FIG3),
        },
    ],
    open: &[
        Open {
            question: "Alternative bridging techniques for the sockets of table 1",
            here: "every link of the kernel with every kind of socket: `dray bench all` \
                   ([techniques](techniques.md), [what works where](coverage.md))",
        },
        Open {
            question: "The latency dimension",
            here: "`dray bench latency` and `rtt`: one-way and round-trip times against load \
                   ([measurement](measurement.md))",
        },
        Open {
            question: "Transmission through a real network",
            here: "ports on network cards ([ports](ports.md)), and links between two hosts on one machine \
                   (`claassen2016-switched-*`); two machines were not measured",
        },
        Open {
            question: "Netmap, VALE and NetVM",
            here: "netmap ports and the links `vale` and `netmap-pipe` ([netmap](netmap.md)), \
                   functional in a virtual machine, not measured; NetVM: nothing",
        },
        Open {
            question: "The effect on a realistic use case of network functions",
            here: "the user plane function of a 5G core ([upf](upf.md)): `shyamkumar2022-fig6`, \
                   `upf-scale`",
        },
    ],
};

const TABLE: &str = "ara2019-table1";

const fn socket(technique: &'static str) -> Pick {
    Pick::new(TABLE, technique).with(Size(64)).with(Burst(64))
}

const UDP: Pick = socket("bridge/udp");
const UDP_MMSG: Pick = socket("bridge/udp-mmsg");
const RAW: Pick = socket("bridge/raw");
const RAW_MMSG: Pick = socket("bridge/raw-mmsg");

/// Rule for a ratio that the paper's figures give: within a quarter of it.
const fn about(of: Pick, by: Pick, ratio: f64) -> Rule {
    Rule::Ratio { of, by, low: 0.75 * ratio, high: 1.25 * ratio }
}

const TABLE1: &[Claim] = &[
    Claim::new(
        "raw sockets in batches, raw, UDP in batches, UDP: each faster than the next",
        "594, 471, 276, 227 kpps",
        Rule::Order(&[RAW_MMSG, RAW, UDP_MMSG, UDP]),
    ),
    Claim::new(
        "bypassing the network stack raises the rate, in batches",
        "276 to 594 kpps: 2.15 x",
        about(RAW_MMSG, UDP_MMSG, 594.0 / 276.0),
    ),
    Claim::new(
        "batches raise the rate of UDP sockets",
        "227 to 276 kpps: 1.22 x",
        about(UDP_MMSG, UDP, 276.0 / 227.0),
    ),
    Claim::new(
        "batches raise the rate of raw sockets",
        "471 to 594 kpps: 1.26 x",
        about(RAW_MMSG, RAW, 594.0 / 471.0),
    ),
    Claim::new(
        "no kind of socket reaches 1 Mpps",
        "at most 594 kpps",
        Rule::Within { of: RAW_MMSG, low: 0.0, high: 1e6 },
    ),
    Claim::new(
        "the rate is lower with smaller bursts",
        "not stated",
        Rule::Order(&[
            RAW_MMSG,
            Pick::new(TABLE, "bridge/raw-mmsg").with(Size(64)).with(Burst(16)),
        ]),
    ),
];

const fn paced(technique: &'static str, size: usize) -> Pick {
    Pick::new("ara2019-fig2", technique).with(Size(size)).with(Burst(16))
}

/// The rate offered arrives up to a maximum. `direct` has no switch that could hold the sender
/// back.
const fn saturates(technique: &'static str, size: usize) -> Rule {
    Rule::Saturates { of: paced(technique, size), free: Some(paced("direct", size)) }
}

const fn sent_at_20_mpps(technique: &'static str) -> Pick {
    paced(technique, 64).with(Offered(20e6)).of(Quantity::Sent)
}

/// A sender at 20 Mpps sends all of it, so that frames that do not arrive were dropped on their
/// way.
const fn sends_all(technique: &'static str) -> Rule {
    let (of, by) = (sent_at_20_mpps(technique), sent_at_20_mpps("direct"));
    Rule::Ratio { of, by, low: 0.98, high: 1.02 }
}

/// At least nine tenths of the frames sent at 20 Mpps arrive.
const fn arrives(technique: &'static str) -> Rule {
    let of = paced(technique, 64).with(Offered(20e6));
    Rule::Ratio { of, by: sent_at_20_mpps(technique), low: 0.9, high: f64::INFINITY }
}

const HELD_BACK: &str = "nine tenths or more of the frames sent arrived: a full ring holds the sender back, and \
                         frames that it does not take are not sent";

const IN_WORDS: &str = "stated without a figure";
const FUNCTIONS: Rule = Rule::Unmeasured(
    "needs a network card with SR-IOV ([how](sriov.md)); `sriov/dpdk` is functional in a virtual \
     machine",
);

const fn steady(technique: &'static str) -> Rule {
    Rule::Within { of: at(technique, 64).of(Quantity::Deviation), low: 0.0, high: 0.025 }
}

const SHORT: &str = "within trials of 2 s at the highest rate, in place of 20 s";

const FIG2A: &[Claim] = &[
    Claim::new(
        "testpmd: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("testpmd/pairs", 64),
    ),
    Claim::new(
        "Snabb: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("snabb/pairs", 64),
    ),
    Claim::new(
        "VPP: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("vpp/learning", 64),
    ),
    Claim::new(
        "OVS with DPDK: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("ovs-dpdk/learning", 64),
    ),
    Claim::new(
        "dray's switch: the desired rate arrives up to a maximum",
        "no switch of the paper's",
        saturates("switch/learning", 64),
    ),
    Claim::new(
        "frames sent above the maximum are dropped on their way: testpmd",
        IN_WORDS,
        sends_all("testpmd/pairs"),
    )
    .because(&[(arrives("testpmd/pairs"), HELD_BACK)]),
    Claim::new("the same: Snabb", IN_WORDS, sends_all("snabb/pairs"))
        .because(&[(arrives("snabb/pairs"), HELD_BACK)]),
    Claim::new("the same: VPP", IN_WORDS, sends_all("vpp/learning"))
        .because(&[(arrives("vpp/learning"), HELD_BACK)]),
    Claim::new("the same: OVS with DPDK", IN_WORDS, sends_all("ovs-dpdk/learning"))
        .because(&[(arrives("ovs-dpdk/learning"), HELD_BACK)]),
    Claim::new("SR-IOV: the same", IN_WORDS, FUNCTIONS),
    Claim::new(
        "runs are steady, the standard deviation of their per-second rates is below 2.5 %: testpmd",
        "below 2.5 %, about 0.5 % on average",
        steady("testpmd/pairs"),
    )
    .instead(SHORT),
    Claim::new("the same: Snabb", "below 2.5 %", steady("snabb/pairs")).instead(SHORT),
    Claim::new("the same: VPP", "below 2.5 %", steady("vpp/learning")).instead(SHORT),
    Claim::new("the same: OVS with DPDK", "below 2.5 %", steady("ovs-dpdk/learning"))
        .instead(SHORT),
];

const FIG2B: &[Claim] = &[
    Claim::new(
        "testpmd: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("testpmd/pairs", 512),
    ),
    Claim::new(
        "Snabb: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("snabb/pairs", 512),
    ),
    Claim::new(
        "VPP: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("vpp/learning", 512),
    ),
    Claim::new(
        "OVS with DPDK: the desired rate arrives up to a maximum",
        IN_WORDS,
        saturates("ovs-dpdk/learning", 512),
    ),
    Claim::new(
        "dray's switch: the desired rate arrives up to a maximum",
        "no switch of the paper's",
        saturates("switch/learning", 512),
    ),
    Claim::new("SR-IOV: the same", IN_WORDS, FUNCTIONS),
];

const fn at(technique: &'static str, size: usize) -> Pick {
    Pick::new("ara2019-fig3", technique).with(Size(size)).with(Burst(16))
}

const fn burst(technique: &'static str, frames: usize) -> Pick {
    Pick::new("ara2019-fig3", technique).with(Size(64)).with(Burst(frames))
}

const TESTPMD: Pick = at("testpmd/pairs", 64);
const SNABB: Pick = at("snabb/pairs", 64);
const VPP: Pick = at("vpp/learning", 64);
const OVS: Pick = at("ovs-dpdk/learning", 64);

/// The first is at most as fast as the second, but for what runs differ by.
const fn not_above(of: Pick, by: Pick) -> Rule {
    Rule::Ratio { of, by, low: 0.0, high: 1.025 }
}

const fn over_5_mpps(of: Pick) -> Rule {
    Rule::Within { of, low: 5e6, high: f64::INFINITY }
}

const FIG3: &[Claim] = &[
    Claim::new(
        "every DPDK technique carries over 5 Mpps at 64 B: testpmd",
        "over 5 Mpps",
        over_5_mpps(TESTPMD),
    ),
    Claim::new("the same: Snabb", "over 5 Mpps", over_5_mpps(SNABB)),
    Claim::new("the same: VPP", "over 5 Mpps", over_5_mpps(VPP)),
    Claim::new("the same: OVS with DPDK", "over 5 Mpps", over_5_mpps(OVS)),
    Claim::new(
        "kernel bypass is far above sockets",
        "over 5 Mpps against 594 kpps: at least 8.4 x",
        Rule::Ratio { of: OVS, by: RAW_MMSG, low: 5000.0 / 594.0, high: f64::INFINITY },
    ),
    Claim::new("SR-IOV is the fastest, above testpmd", IN_WORDS, FUNCTIONS),
    Claim::new("testpmd is the second best, above Snabb", IN_WORDS, Rule::Order(&[TESTPMD, SNABB])),
    Claim::new("testpmd is above VPP", IN_WORDS, Rule::Order(&[TESTPMD, VPP])),
    Claim::new("testpmd is above OVS", IN_WORDS, Rule::Order(&[TESTPMD, OVS])),
    Claim::new(
        "Snabb is the best of the software switches, above VPP",
        IN_WORDS,
        Rule::Order(&[SNABB, VPP]),
    ),
    Claim::new("Snabb is above OVS", IN_WORDS, Rule::Order(&[SNABB, OVS])),
    Claim::new("VPP is above OVS below 512 B: 64 B", IN_WORDS, Rule::Order(&[VPP, OVS])),
    Claim::new(
        "the same, 128 B",
        IN_WORDS,
        Rule::Order(&[at("vpp/learning", 128), at("ovs-dpdk/learning", 128)]),
    ),
    Claim::new(
        "the same, 256 B",
        IN_WORDS,
        Rule::Order(&[at("vpp/learning", 256), at("ovs-dpdk/learning", 256)]),
    ),
    Claim::new(
        "from 512 B on, VPP is not above OVS: 512 B",
        IN_WORDS,
        not_above(at("vpp/learning", 512), at("ovs-dpdk/learning", 512)),
    ),
    Claim::new(
        "the same, 1500 B",
        IN_WORDS,
        not_above(at("vpp/learning", 1500), at("ovs-dpdk/learning", 1500)),
    ),
    Claim::new(
        "bursts of 16, 32 and 64 make no measurable difference: testpmd",
        "no difference; runs within 2.5 %",
        Rule::Same {
            figures: &[TESTPMD, burst("testpmd/pairs", 32), burst("testpmd/pairs", 64)],
            tolerance: 0.025,
        },
    ),
    Claim::new(
        "the same: OVS with DPDK",
        "no difference; runs within 2.5 %",
        Rule::Same {
            figures: &[OVS, burst("ovs-dpdk/learning", 32), burst("ovs-dpdk/learning", 64)],
            tolerance: 0.025,
        },
    ),
    Claim::new(
        "the same: Snabb",
        "no difference; runs within 2.5 %",
        Rule::Same {
            figures: &[SNABB, burst("snabb/pairs", 32), burst("snabb/pairs", 64)],
            tolerance: 0.025,
        },
    ),
    Claim::new(
        "the same: VPP",
        "no difference; runs within 2.5 %",
        Rule::Same {
            figures: &[VPP, burst("vpp/learning", 32), burst("vpp/learning", 64)],
            tolerance: 0.025,
        },
    ),
];
