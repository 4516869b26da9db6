//! The roles as commands, by hand, in containers that only have a link.

mod common;

use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{DRAY, alone};
use dray_lab::link::LinkOptions;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, placement};
use dray_traffic::{ForwardReport, ReceiveReport, Report, SendReport};
use rustix::process::{Pid, Signal, kill_process};

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
            let options = LinkOptions { mtu: 1500, addressed, switch_cpu: 0 };
            lab.link(LinkKind::VETH, &[[pair[0], pair[1]]], options).unwrap();
        }
        Self { lab, ids }
    }

    /// Starts `dray` in a host's network and waits until its ports are open.
    fn start(&self, host: usize, arguments: &str) -> Child {
        let arguments = arguments.split_whitespace().chain(["--json"]);
        let child = self.lab[self.ids[host]]
            .namespace()
            .enter(|| Command::new(DRAY).args(arguments).stdout(Stdio::piped()).spawn());
        let child = child.unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !common::runs_role(&child) {
            assert!(Instant::now() < deadline, "the role does not start");
            sleep(Duration::from_millis(5));
        }
        child
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
    let udp = ("udp:198.18.0.5:9000-198.18.0.6:9000", "udp:198.18.0.6:9000", 1);
    for (from, to, flows) in [("raw:eth0", "raw:eth0?ethertype=0x0800", 3), udp] {
        for options in ["batch=1&wait=block", "batch=1&wait=poll", "batch=32", "batch=32&wait=poll"]
        {
            let join = |uri: &str| {
                let separator = if uri.contains('?') { '&' } else { '?' };
                format!("{uri}{separator}{options}")
            };
            let receiver = hosts.start(1, &format!("receive --port {}", join(to)));
            let sender = hosts.start(
                0,
                &format!(
                    "send --size 300 --rate 10k --duration 0.3 --flows {flows} --port {}",
                    join(from)
                ),
            );
            let sent = sent(sender);
            let received = received(interrupted(receiver));
            assert!(sent.sent > 0 && sent.sent <= 3000, "{from} {options}");
            assert_eq!(received.received, sent.sent, "{from} {options}: {received:?}");
            assert_eq!(received.bytes, sent.sent * 300, "{from} {options}");
            let bad = [received.lost, received.duplicated, received.reordered, received.corrupt];
            assert_eq!(bad, [0; 4], "{from} {options}");
            let streams: Vec<_> = received.streams.iter().map(|s| s.received).collect();
            assert_eq!(streams, sent.streams, "{from} {options}");
        }
    }
}

/// Ctrl-C: the role takes what is queued and reports.
fn interrupted(child: Child) -> Child {
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    child
}

#[test]
fn forwarder_and_echo_give_every_frame_back() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(3, false);
    let echo = hosts.start(2, "echo --port raw:eth0?batch=64");
    let forwarder = hosts.start(1, "forward --both-ways --from raw:eth0?batch=64 --to raw:eth1");
    let receiver = hosts.start(0, "receive --port raw:eth0?batch=64");
    let sender = hosts.start(0, "send --rate 10k --duration 0.3 --port raw:eth0?batch=64");
    let sent = sent(sender).sent;
    let echoed = forwarded(interrupted(echo));
    let passed = forwarded(interrupted(forwarder));
    let received = received(interrupted(receiver));
    assert!(sent > 0);
    assert_eq!((received.received, received.lost), (sent, 0), "{received:?}");
    assert_eq!((passed.received, passed.transmitted), (2 * sent, 2 * sent));
    assert_eq!((echoed.received, echoed.transmitted), (sent, sent));
}

#[test]
fn a_role_ends_on_time_and_on_ctrl_c_while_frames_keep_coming() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, false);
    let sender = hosts.start(0, "send --rate 20k --port raw:eth0");
    let timed = hosts.start(1, "receive --duration 0.5 --port raw:eth0");
    assert!(received(timed).received > 0);
    let endless = hosts.start(1, "receive --port raw:eth0");
    sleep(Duration::from_millis(300));
    assert!(received(interrupted(endless)).received > 0);
    let sent = sent(interrupted(sender));
    assert!(!sent.sent_less_than_offered(), "who is ended early was offered less: {sent:?}");
}

#[test]
fn a_forwarder_drops_what_the_port_out_does_not_carry() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, true);
    let to = "udp:127.0.0.1:0-127.0.0.1:9";
    let forwarder = hosts.start(1, &format!("forward --from raw:eth0 --to {to}"));
    let socket = hosts.lab[hosts.ids[0]]
        .namespace()
        .enter(|| std::net::UdpSocket::bind("198.18.0.5:0"))
        .unwrap();
    socket.send_to(b"fits", "198.18.0.6:9").unwrap();
    // Two fragments, neither of which is a UDP datagram.
    socket.send_to(&[0; 2000], "198.18.0.6:9").unwrap();
    sleep(Duration::from_millis(200));
    let report = forwarded(interrupted(forwarder));
    assert_eq!((report.received, report.transmitted, report.refused), (3, 1, 2), "{report:?}");
}

#[test]
fn what_is_no_test_frame_is_foreign() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, true);
    let receiver = hosts.start(1, "receive --port raw:eth0");
    let socket = hosts.lab[hosts.ids[0]]
        .namespace()
        .enter(|| std::net::UdpSocket::bind("198.18.0.5:0"))
        .unwrap();
    for _ in 0..5 {
        socket.send_to(b"good day", "198.18.0.6:9").unwrap();
    }
    let received = received(interrupted(receiver));
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
