//! Claims of Liang and Tan 2016, which are slides: a name of a table or figure is a slide's title.

use dray_results::Neighbour;

use crate::figure::Quantity;
use crate::paper::{Claim, Content, Exhibit, Open, Paper};
use crate::pick::Condition::{Beside, Burst, Share, Size, Topology};
use crate::pick::Pick;
use crate::rule::Rule;

pub(super) const PAPER: Paper = Paper {
    name: "liang2016",
    title: "Liang, Tan: Scalable high-performance user space networking for containers (slides)",
    conditions: "Machine not stated",
    exhibits: &[
        Exhibit {
            name: "NFV and Container",
            shows: "network functions in containers",
            content: Content::Drawing("`dray upf` in containers: [upf](upf.md)"),
        },
        Exhibit {
            name: "I/O Virtualization Model for NFVi",
            shows: "models of I/O virtualization",
            content: Content::Drawing("[techniques](techniques.md)"),
        },
        Exhibit {
            name: "Accelerate Container-based VNF",
            shows: "kinds of network functions, and challenges",
            content: Content::Drawing("isolation: [hostile peers](hostile-peers.md)"),
        },
        Exhibit {
            name: "DPDK SR-IOV PMD for Container",
            shows: "a virtual function with a driver in user space",
            content: Content::Drawing(
                "link `sriov`; DPDK's driver behind an IOMMU, `sriov/dpdk`: [virtual functions](sriov.md)",
            ),
        },
        Exhibit {
            name: "Setup Userland SR-IOV with DPDK",
            shows: "command lines (listing)",
            content: Content::Drawing(
                "its steps, with DPDK's driver in a container behind an IOMMU: `tests/vm/functions.rs`",
            ),
        },
        Exhibit {
            name: "Deterministic CPU environment",
            shows: "isolated CPUs and affinity (listing)",
            content: Content::Drawing(
                "roles on isolated CPUs first: [measurement](measurement.md)",
            ),
        },
        Exhibit {
            name: "Deterministic cache environment (table)",
            shows: "cache allocation beside a noisy neighbour, DPDK IP pipeline, 64 B, 16 million flows",
            content: Content::Claims(&[
                Claim::new(
                    "confining a noisy neighbour's cache raises throughput",
                    "9.8 to 15 Mpps: 1.53 x",
                    Rule::Ratio {
                        of: beside(Neighbour::Confined),
                        by: beside(Neighbour::Noisy),
                        low: 1.15,
                        high: 1.9,
                    },
                )
                .instead(TWO_ROLES),
                Claim::new(
                    "a noisy neighbour costs throughput",
                    "9.8 Mpps beside one",
                    Rule::Order(&[beside(Neighbour::Quiet), beside(Neighbour::Noisy)]),
                )
                .instead(TWO_ROLES),
                Claim::new(
                    "confining it leaves the application more of the cache",
                    "4.5 to 13.75 MB",
                    Rule::Unmeasured(
                        "dray does not read how much of a cache a program occupies; it needs a processor \
                         with cache monitoring, which this virtual machine does not have",
                    ),
                ),
            ]),
        },
        Exhibit {
            name: "Userland SR-IOV in Container",
            shows: "virtual functions: pros and cons",
            content: Content::Claims(&[Claim::new(
                "line rate even with small packets, low latency",
                "not stated",
                Rule::Unmeasured(
                    "needs a network card with SR-IOV ([how](sriov.md)); `sriov/dpdk` is functional in \
                     a virtual machine",
                ),
            )]),
        },
        Exhibit {
            name: "DPDK virtio_user for Container",
            shows: "virtio as a channel between processes",
            content: Content::Drawing("ports `virtio:` and `vhost:`: [ports](ports.md)"),
        },
        Exhibit {
            name: "virtio approach for IPC",
            shows: "virtio devices of guests, and of processes",
            content: Content::Drawing(
                "QEMU guests and containers on one switch: [switch](switch.md)",
            ),
        },
        Exhibit {
            name: "virtio_user intro (1)",
            shows: "virtio-user and the vhost-user adapter",
            content: Content::Drawing("own driver and device: [ports](ports.md)"),
        },
        Exhibit {
            name: "virtio_user intro (2)",
            shows: "translation of addresses",
            content: Content::Drawing(
                "regions checked once, when a peer shares them: [security](../SECURITY.md)",
            ),
        },
        Exhibit {
            name: "Setup virtio_user with OVS-DPDK",
            shows: "command lines (listing)",
            content: Content::Drawing("tested as printed: [recipes](recipes.md)"),
        },
        Exhibit {
            name: "Performance evaluation: latency",
            shows: "latency of native Linux, SR-IOV and virtio-user",
            content: Content::Claims(&[
                Claim::new(
                    "native Linux is at the level of milliseconds, near its highest rate",
                    "ms level",
                    Rule::Within { of: one_way("bridge/udp", 0.9), low: 1e6, high: f64::INFINITY },
                ),
                Claim::new(
                    "the same, 99th percentile",
                    "ms level; which value is not stated",
                    Rule::Within { of: late("bridge/udp", 0.9), low: 1e6, high: f64::INFINITY },
                ),
                Claim::new(
                    "the same at 10 % of its highest rate",
                    "ms level",
                    Rule::Within { of: one_way("bridge/udp", 0.1), low: 1e6, high: f64::INFINITY },
                ),
                Claim::new(
                    "shared memory is at the level of microseconds, near its highest rate",
                    "us level",
                    Rule::Within { of: one_way("switch/learning", 0.9), low: 0.0, high: 1e6 },
                )
                .instead("dray's switch in place of one with DPDK"),
                Claim::new(
                    "the same, 99th percentile",
                    "us level; which value is not stated",
                    Rule::Within { of: late("switch/learning", 0.9), low: 0.0, high: 1e6 },
                )
                .instead("dray's switch in place of one with DPDK"),
                Claim::new(
                    "native Linux takes longer than shared memory, at 10 % of their highest rates",
                    "ms against us",
                    Rule::Order(&[one_way("bridge/udp", 0.1), one_way("switch/learning", 0.1)]),
                )
                .instead("each at 10 % of its own loss-free rate"),
                Claim::new(
                    "the same near their highest rates",
                    "ms against us",
                    Rule::Order(&[one_way("bridge/udp", 0.9), one_way("switch/learning", 0.9)]),
                )
                .instead("each at 90 % of its own loss-free rate"),
                Claim::new(
                    "the same near their highest rates, 99th percentile",
                    "ms against us; which value is not stated",
                    Rule::Order(&[late("bridge/udp", 0.9), late("switch/learning", 0.9)]),
                )
                .instead("each at 90 % of its own loss-free rate"),
                Claim::new(
                    "SR-IOV is at the level of microseconds",
                    "us level",
                    Rule::Unmeasured("needs a network card with SR-IOV ([how](sriov.md))"),
                ),
            ]),
        },
        Exhibit {
            name: "Performance evaluation: throughput",
            shows: "throughput of native Linux, SR-IOV and virtio-user",
            content: Content::Claims(&[Claim::new(
                "virtio-user is above native Linux",
                DRAWN,
                Rule::Order(&[
                    Pick::new("ara2019-fig3", "ovs-dpdk/learning").with(Size(64)).with(Burst(16)),
                    Pick::new("ara2019-table1", "bridge/udp-mmsg").with(Size(64)).with(Burst(64)),
                ]),
            )]),
        },
        Exhibit {
            name: "Run DPDK in Container Securely",
            shows: "privileges of DPDK in a container",
            content: Content::Claims(&[
                Claim::new(
                    "virtio needs no privileges in the container, as it needs no physical addresses",
                    "no --privileged",
                    Rule::Within {
                        of: needs("switch/patch", Quantity::Capabilities),
                        low: 0.0,
                        high: 0.0,
                    },
                ),
                Claim::new(
                    "DPDK's virtio needs huge pages, a file system of its own for each container",
                    "1024 MiB in the example",
                    Rule::Within {
                        of: needs("ovs-dpdk/learning", Quantity::HugePages),
                        low: 1.0,
                        high: f64::INFINITY,
                    },
                ),
                Claim::new(
                    "the same for dray's driver and switch",
                    "1024 MiB in the example",
                    Rule::Within {
                        of: needs("switch/patch", Quantity::HugePages),
                        low: 1.0,
                        high: f64::INFINITY,
                    },
                )
                .because(&[(
                    Rule::Within {
                        of: needs("switch/patch", Quantity::HugePages),
                        low: 0.0,
                        high: 0.0,
                    },
                    "dray's driver shares ordinary memory (memfd) with the switch: huge pages are \
                     DPDK's need, not virtio's",
                )]),
            ]),
        },
    ],
    open: &[
        Open {
            question: "A single file behind the memory",
            here: "dray's driver shares one memfd with its peer, and no huge pages ([ports](ports.md))",
        },
        Open {
            question: "The container's legacy network interface in DPDK",
            here: "AF_XDP and raw ports on any interface of the container ([af-xdp](af-xdp.md), \
                   [ports](ports.md))",
        },
        Open {
            question: "Interrupt mode of virtio, to scale",
            here: "ports that sleep until their peer rings (`wait=block`), and workers that sleep when idle \
                   ([switch](switch.md)); many silent ports: `switch-scale`",
        },
        Open {
            question: "The long path of a virtual function's interrupts to user space",
            here: "nothing: it needs a network card with SR-IOV",
        },
        Open {
            question: "Integration with popular orchestrators",
            here: "pods of Kubernetes: the CNI plugin `dray cni` and the resource driver `dray-k8s` \
                   ([containers](containers.md)); containers of Docker, Podman and LXC \
                   ([runtimes](runtimes.md))",
        },
    ],
};

const DRAWN: &str = "drawn only, lost in the text";

const fn beside(neighbour: Neighbour) -> Pick {
    Pick::new("liang2016-noisy-neighbour", "direct").with(Topology("chain")).with(Beside(neighbour))
}

/// A switch too would share the only CPU that the neighbour leaves on a machine with two, and its
/// rate would be that of the scheduler's turns.
const TWO_ROLES: &str = "sender and receiver on shared memory in place of DPDK's IP pipeline";

const fn one_way(technique: &'static str, share: f64) -> Pick {
    Pick::new("liang2016-latency", technique)
        .with(Topology("chain"))
        .of(Quantity::OneWay)
        .with(Share(share))
}

const fn late(technique: &'static str, share: f64) -> Pick {
    one_way(technique, share).of(Quantity::OneWay99)
}

const fn needs(technique: &'static str, of: Quantity) -> Pick {
    Pick::new("liang2016-setup", technique).of(of)
}
