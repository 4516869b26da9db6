//! Links on the real kernel, created over netlink and by the lab.

use std::io;
use std::net::Ipv4Addr;
use std::process::Command;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::{self, DRAY, Traces, alone, eventually};
use dray_lab::link::{EndKind, missing};
use dray_lab::netlink::{Netlink, NewInterface};
use dray_lab::peer::SwitchKind;
use dray_lab::{Cancel, Lab, LabError, Link, LinkKind, NetworkNamespace, placement};
use dray_measure::{Endpoint, Technique};
use dray_port::{Frame, LinkState, Port, Wait, scratch};
use dray_wire::test_frame::{self, Stamp, Verdict};
use dray_wire::{FRAME_MIN, MacAddr};

#[test]
fn veth_and_bridge_connect_containers() {
    require_root!();
    let namespace = NetworkNamespace::scratch().unwrap();
    let netlink = Netlink::open(&namespace).unwrap();
    let end = |name, id| {
        let mac = Some(MacAddr::local(id));
        NewInterface { namespace: &namespace, name, mac, mtu: 9000 }
    };
    netlink.create_veth(end("a", 1), end("b", 2)).unwrap();
    assert_eq!(netlink.interface("b").unwrap().mac, MacAddr::local(2));
    netlink.create_bridge("br").unwrap();
    let index = |name| netlink.interface(name).unwrap().index;
    netlink.set_master(index("b"), index("br")).unwrap();
    for name in ["a", "b", "br"] {
        netlink.set_up(index(name)).unwrap();
    }
    netlink.add_address(index("a"), Ipv4Addr::new(198, 18, 0, 1), 30).unwrap();
    netlink.add_neighbour(index("a"), Ipv4Addr::new(198, 18, 0, 2), MacAddr::local(9)).unwrap();
    let error = netlink.create_bridge("br").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::AlreadyExists);
    netlink.delete(index("a")).unwrap();
    for gone in ["a", "b"] {
        assert_eq!(netlink.interface(gone).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
    let names: Vec<_> = netlink.interfaces().unwrap().into_iter().map(|i| i.name).collect();
    assert!(names.contains(&"br".to_owned()) && !names.contains(&"b".to_owned()), "{names:?}");
}

/// Pairs on one shared segment, with a port at each end.
struct Pairs {
    links: Vec<Link>,
    /// Ports of the first link's ends, then of the second's, and so on.
    ports: Vec<Port>,
    lab: Lab,
}

impl Pairs {
    /// Creates `count` pairs. Returns `None` if this kernel does not support such links.
    fn new(count: usize, kind: LinkKind, endpoint: Endpoint) -> Option<Self> {
        Self::join(Lab::new(DRAY.into(), Cancel::default()).unwrap(), count, kind, endpoint)
    }

    /// Creates `count` pairs in `lab`, on a segment of their own.
    fn join(mut lab: Lab, count: usize, kind: LinkKind, endpoint: Endpoint) -> Option<Self> {
        let cpus = placement::allowed();
        let mut start = |name: String| lab.start_container(&name, &cpus).unwrap();
        let pairs: Vec<_> =
            (0..count).map(|n| ["from", "to"].map(|end| start(format!("{end}-{n}")))).collect();
        lab.wait_until_up().unwrap();
        let options = endpoint.link_options(1500, cpus[0]);
        let links = match lab.link(kind, &pairs, options) {
            Err(LabError::NotInKernel { .. } | LabError::NoCard { .. }) => return None,
            links => links.unwrap(),
        };
        let ends = links.iter().flat_map(|Link { ends: [a, b], .. }| [(a, b), (b, a)]);
        let open = |(here, there)| {
            let uri = endpoint.port(here, there, 64, Wait::POLL);
            lab[here.container].namespace().enter(|| Ok(uri.open())).unwrap().unwrap()
        };
        let ports: Vec<Port> = ends.map(open).collect();
        let is_running = |port: &Port| {
            port.link.as_ref().is_none_or(|link| link.status().state == LinkState::Running)
        };
        assert!(eventually(|| ports.iter().all(is_running)), "{kind}");
        Some(Self { links, ports, lab })
    }

    /// Sends a frame from each end to the other, and returns the streams that arrived at each port.
    /// A pair's frame carries the number of the port that sends it. `heard` is the number of frames
    /// that should arrive at each port.
    fn exchange(&mut self, heard: usize) -> Vec<Vec<u16>> {
        for (index, port) in self.ports.iter_mut().enumerate() {
            let flow = self.links[index / 2].flow();
            let flow = if index % 2 == 0 { flow } else { flow.reversed() };
            let mut frame = test_frame::build(&flow, FRAME_MIN);
            test_frame::stamp(&mut frame, Stamp { stream: index as u16, sequence: 0, ticks: 0 });
            let deadline = Instant::now() + Duration::from_secs(10);
            while port.tx[0].transmit(&[Frame::from(&frame[..])]).unwrap() == 0 {
                assert!(Instant::now() < deadline, "port {index} takes nothing");
            }
        }
        let mut arrived = vec![Vec::new(); self.ports.len()];
        let mut receive_until = |deadline: Instant, enough: usize| {
            while Instant::now() < deadline && arrived.iter().any(|one| one.len() < enough) {
                for (port, arrived) in self.ports.iter_mut().zip(&mut arrived) {
                    arrived.extend(receive(port));
                }
                sleep(Duration::from_millis(1));
            }
        };
        // A busy machine delivers late.
        receive_until(Instant::now() + Duration::from_secs(2), heard);
        // Frames that should not arrive had as much time as the others.
        receive_until(Instant::now() + Duration::from_millis(300), usize::MAX);
        arrived
    }
}

/// Returns the streams of the test frames that have arrived.
fn receive(port: &mut Port) -> Vec<u16> {
    let (mut streams, mut scratch) = (Vec::new(), scratch());
    let take = &mut |lent: &[Frame<'_>]| {
        for frame in lent {
            if let Verdict::Intact(stamp) = test_frame::read(frame.bytes(&mut scratch)) {
                streams.push(stamp.stream);
            }
        }
        lent.len()
    };
    port.rx[0].receive(take).unwrap();
    streams
}

#[test]
fn pairs_reach_only_their_own_segment() {
    let _alone = alone();
    require_root!();
    check_pairs(|kind| !is_ovs(kind));
}

#[test]
fn pairs_of_ovs_reach_only_their_own_segment_with_dpdk() {
    let _alone = alone();
    require!(SwitchKind::Ovs);
    check_pairs(is_ovs);
}

fn is_ovs(kind: LinkKind) -> bool {
    kind.name.starts_with("ovs/")
}

fn check_pairs(is_chosen: impl Fn(LinkKind) -> bool) {
    let before = Traces::now();
    // A macvtap's device is looked up in the container's `/sys`, but here this process opens the
    // ports.
    let has_sockets = |kind: &LinkKind| kind.end() != EndKind::Machine;
    let kinds = LinkKind::ALL.into_iter().filter(has_sockets);
    let fitting = |kind| {
        let endpoints = [Endpoint::RAW_MMSG, Endpoint::VIRTIO, Endpoint::DGRAM_MMSG];
        (kind, Technique::by_link(&[kind], &endpoints)[0].endpoint)
    };
    let machines = [LinkKind::VETH, LinkKind::BRIDGE].map(|kind| (kind, Endpoint::TAP));
    let all = kinds.map(fitting).chain(machines);
    for (kind, endpoint) in all.filter(|(kind, _)| is_chosen(*kind)) {
        if kind.name.starts_with("bridge-") && !missing(vec![kind]).is_empty() {
            common::skip(&format!("the program that writes rules for {kind} is not installed"));
            continue;
        }
        let Some(mut pairs) = Pairs::new(3, kind, endpoint) else {
            assert!(common::may_lack(kind.name), "{kind} is tested nowhere else");
            continue;
        };
        let heard = |port: u16| if kind.isolates { Vec::new() } else { vec![port ^ 1] };
        let expected: Vec<_> = (0..6).map(heard).collect();
        let each = usize::from(!kind.isolates);
        let mut arrived = pairs.exchange(each);
        if kind.learns {
            // Frames to unknown stations are flooded.
            let learnt = eventually(|| {
                arrived = pairs.exchange(each);
                arrived == expected
            });
            assert!(learnt, "{kind}: {arrived:?}");
        }
        assert_eq!(arrived, expected, "{kind}");
    }
    assert!(eventually(|| before.changes().is_empty()), "{:?}", before.changes());
}

/// Frames inside a bridge pass the rules: each is counted by the rule that accepts it, and
/// connections are tracked.
#[test]
fn frames_in_a_filtered_bridge_pass_rules_with_tools() {
    let _alone = alone();
    require_root!();
    for (kind, words) in LinkKind::FILTERED
        .into_iter()
        .zip([["iptables", "-nvxL", "FORWARD"], ["nft", "list", "ruleset"]])
    {
        let mut pairs = Pairs::new(1, kind, Endpoint::RAW_MMSG).expect("a kernel with rules");
        assert_eq!(pairs.exchange(1), [[1], [0]], "{kind}");
        let rules = || {
            let output = Command::new(words[0]).args(&words[1..]).output()?;
            let tracked = std::fs::read_to_string("/proc/sys/net/netfilter/nf_conntrack_count")?;
            Ok((String::from_utf8_lossy(&output.stdout).into_owned(), tracked))
        };
        let (rules, tracked) = pairs.lab.host_namespace().enter(rules).unwrap();
        let line = match kind.name {
            "bridge-iptables" => rules.lines().find(|line| line.contains("RELATED,ESTABLISHED")),
            _ => rules.lines().find(|line| line.contains("ct state")),
        };
        // The second frame belongs to the flow of the first one.
        let line = line.unwrap_or_else(|| panic!("{kind}: {rules}")).to_owned();
        let count = line.split_whitespace().find_map(|word| word.parse::<u64>().ok());
        assert_eq!(count, Some(1), "{kind}: {line}");
        assert_eq!(tracked.trim(), "1", "{kind}");

        // The rules of one bridge leave frames of another one alone.
        let mut others = Pairs::join(pairs.lab, 1, kind, Endpoint::RAW_MMSG).unwrap();
        assert_eq!(others.exchange(1), [[1], [0]], "{kind} beside another");
        let mut plain = Pairs::join(others.lab, 1, LinkKind::BRIDGE, Endpoint::RAW_MMSG).unwrap();
        assert_eq!(plain.exchange(1), [[1], [0]], "a bridge beside {kind}");
    }
}
