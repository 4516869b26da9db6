//! The roles as commands, by hand, in containers that only have a link.

mod common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use common::{DRAY, alone};
use dray_lab::link::LinkOptions;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, placement};
use dray_traffic::{ForwardReport, ReceiveReport, Report, SendReport};

struct Hosts {
    lab: Lab,
    ids: Vec<ContainerId>,
}

impl Hosts {
    /// A chain of hosts: each has its predecessor on one interface and its successor on the next.
    fn chain(count: usize, addressed: bool) -> Self {
        let mut lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
        let ids: Vec<_> = (0..count)
            .map(|n| lab.start_container(&format!("host-{n}"), &placement::allowed()).unwrap())
            .collect();
        lab.wait_until_up().unwrap();
        for pair in ids.windows(2) {
            let options = LinkOptions { mtu: 1500, addressed };
            lab.link(LinkKind::Veth, pair[0], pair[1], options).unwrap();
        }
        Self { lab, ids }
    }

    /// Starts `dray` in a host's network and waits until it had time to open its ports.
    fn start(&self, host: usize, arguments: &str) -> Child {
        let arguments = arguments.split_whitespace().chain(["--json"]);
        let child = self.lab[self.ids[host]]
            .namespace()
            .enter(|| Command::new(DRAY).args(arguments).stdout(Stdio::piped()).spawn());
        sleep(Duration::from_millis(300));
        child.unwrap()
    }
}

fn report(child: Child) -> Report {
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success());
    serde_json::from_slice(&output.stdout).unwrap()
}

fn sent(child: Child) -> SendReport {
    let Report::Send(report) = report(child) else { panic!("not a sender's report") };
    report
}

fn received(child: Child) -> ReceiveReport {
    let Report::Receive(report) = report(child) else { panic!("not a receiver's report") };
    report
}

fn forwarded(child: Child) -> ForwardReport {
    let Report::Forward(report) = report(child) else { panic!("not a forwarder's report") };
    report
}

#[test]
fn sender_to_receiver_over_every_kind_of_socket() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, true);
    let udp = ("udp:198.18.0.5:9000-198.18.0.6:9000", "udp:198.18.0.6:9000");
    for (from, to) in [("raw:eth0", "raw:eth0?ethertype=0x0800"), udp] {
        for options in ["batch=1&wait=block", "batch=1&wait=poll", "batch=32", "batch=32&wait=poll"]
        {
            let join = |uri: &str| {
                let separator = if uri.contains('?') { '&' } else { '?' };
                format!("{uri}{separator}{options}")
            };
            let receiver = hosts.start(1, &format!("receive --duration 1.2 --port {}", join(to)));
            let sender = hosts.start(
                0,
                &format!(
                    "send --size 300 --rate 10k --duration 0.3 --flows 3 --port {}",
                    join(from)
                ),
            );
            let (sent, received) = (sent(sender), received(receiver));
            assert_eq!(sent.sent, 3000, "{from} {options}");
            assert_eq!(received.received, 3000, "{from} {options}: {received:?}");
            assert_eq!(received.bytes, 3000 * 300, "{from} {options}");
            let bad = [received.lost, received.duplicated, received.reordered, received.corrupt];
            assert_eq!(bad, [0; 4], "{from} {options}");
            let streams: Vec<_> = received.streams.iter().map(|s| (s.stream, s.received)).collect();
            assert_eq!(streams, [(0, 1000), (1, 1000), (2, 1000)], "{from} {options}");
        }
    }
}

#[test]
fn forwarder_and_echo_give_every_frame_back() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(3, false);
    let echo = hosts.start(2, "echo --duration 2 --port raw:eth0?batch=64");
    let forwarder =
        hosts.start(1, "forward --both-ways --duration 2 --from raw:eth0?batch=64 --to raw:eth1");
    let receiver = hosts.start(0, "receive --duration 1 --port raw:eth0?batch=64");
    let sender = hosts.start(0, "send --rate 10k --duration 0.3 --port raw:eth0?batch=64");
    assert_eq!(sent(sender).sent, 3000);
    let received = received(receiver);
    assert_eq!((received.received, received.lost), (3000, 0), "{received:?}");
    let forwarded_frames = forwarded(forwarder);
    assert_eq!((forwarded_frames.received, forwarded_frames.transmitted), (6000, 6000));
    let echoed = forwarded(echo);
    assert_eq!((echoed.received, echoed.transmitted), (3000, 3000));
}

#[test]
fn what_is_no_test_frame_is_foreign() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, true);
    let receiver = hosts.start(1, "receive --duration 0.8 --port raw:eth0");
    let socket = hosts.lab[hosts.ids[0]]
        .namespace()
        .enter(|| std::net::UdpSocket::bind("198.18.0.5:0"))
        .unwrap();
    for _ in 0..5 {
        socket.send_to(b"good day", "198.18.0.6:9").unwrap();
    }
    let received = received(receiver);
    assert_eq!((received.foreign, received.received, received.corrupt), (5, 0, 0));
}

#[test]
fn a_frame_above_the_mtu_is_refused_before_anything_is_sent() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, false);
    let output = hosts.lab[hosts.ids[0]]
        .namespace()
        .enter(|| {
            Command::new(DRAY).args(["send", "--port", "raw:eth0", "--size", "1515"]).output()
        })
        .unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("1515") && message.contains("1514"), "{message}");
}
