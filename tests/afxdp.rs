//! AF_XDP ports and XDP links, on real interfaces.

mod common;

use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use common::{DRAY, alone};
use dray_lab::link::LinkOptions;
use dray_lab::peer::Wiring;
use dray_lab::{Cancel, ContainerId, Lab, LinkKind, placement};
use dray_port::{Frame, Port, PortUri, scratch};
use dray_wire::test_frame::{self, FRAME_MIN, Stamp};
use dray_wire::{FRAME_MAX, Flow};

/// Much longer than any frame takes on a busy host.
const LIMIT: Duration = Duration::from_secs(20);

struct Hosts {
    lab: Lab,
    ids: Vec<ContainerId>,
}

impl Hosts {
    /// A chain of hosts: each has its predecessor on one interface and its successor on the next.
    fn chain(count: usize, kind: LinkKind, mtu: u32) -> Self {
        let mut lab = Lab::new(DRAY.into(), Cancel::default()).unwrap();
        let ids: Vec<_> = (0..count)
            .map(|n| lab.start_container(&format!("host-{n}"), &placement::allowed()).unwrap())
            .collect();
        lab.wait_until_up().unwrap();
        for pair in ids.windows(2) {
            let options = LinkOptions { mtu, addressed: true, switch_cpu: 0 };
            lab.link(kind, pair[0], pair[1], options).unwrap();
        }
        Self { lab, ids }
    }

    fn try_open(&self, host: usize, uri: &str) -> Result<Port, String> {
        let uri: PortUri = uri.parse().unwrap();
        let port = self.lab[self.ids[host]].namespace().enter(|| Ok(uri.open()));
        port.unwrap().map_err(|error| error.to_string())
    }

    fn open(&self, host: usize, uri: &str) -> Port {
        self.try_open(host, uri).unwrap()
    }

    /// Starts a command in a host's network.
    fn start(&self, host: usize, command: &mut Command) -> std::process::Child {
        self.lab[self.ids[host]].namespace().enter(|| command.spawn()).unwrap()
    }
}

/// A frame of `size` bytes that is unlike any other of that size.
fn frame(size: usize, sequence: u64) -> Vec<u8> {
    let mut frame = test_frame::build(&Flow::default(), size);
    test_frame::stamp(&mut frame, Stamp { stream: 0, sequence, ticks: 0 });
    frame
}

/// Receives into `frames` what has come; whether there was anything.
fn receive(port: &mut Port, frames: &mut Vec<Vec<u8>>) -> bool {
    let mut scratch = scratch();
    let take = &mut |lent: &[Frame<'_>]| {
        frames.extend(lent.iter().map(|frame| frame.bytes(&mut scratch).to_vec()));
        lent.len()
    };
    port.rx[0].receive(take).unwrap() > 0
}

/// Sends `frames` in turns of at most 16 and has `pass` do something after each; what has arrived at
/// `to` when as many are there.
fn exchange(
    from: &mut Port,
    to: &mut Port,
    frames: &[Vec<u8>],
    mut pass: impl FnMut(),
) -> Vec<Vec<u8>> {
    let (deadline, mut sent, mut received) = (Instant::now() + LIMIT, 0, Vec::new());
    while received.len() < frames.len() {
        assert!(Instant::now() < deadline, "{} of {} arrived", received.len(), frames.len());
        let some: Vec<Frame<'_>> =
            frames[sent..].iter().take(16).map(|frame| Frame::from(&frame[..])).collect();
        sent += from.tx[0].transmit(&some).unwrap();
        pass();
        while received.len() < sent && receive(to, &mut received) {}
    }
    received
}

fn ours(received: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    let is_ours = |frame: &Vec<u8>| test_frame::read(frame) != test_frame::Verdict::Foreign;
    received.into_iter().filter(is_ours).collect()
}

#[test]
fn frames_of_every_size_pass_unharmed() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, LinkKind::Veth, 9000);
    let frames: Vec<_> = (FRAME_MIN..=FRAME_MAX).map(|size| frame(size, size as u64)).collect();
    for options in ["xdp=native", "xdp=native&chunk=4096", "xdp=generic"] {
        let uri = format!("afxdp:eth0?{options}");
        let (mut a, mut b) = (hosts.open(0, &uri), hosts.open(1, &uri));
        for (from, to) in [(&mut a, &mut b)] {
            let received = ours(exchange(from, to, &frames, || {}));
            for (received, sent) in received.iter().zip(&frames) {
                assert!(received == sent, "{uri}: {} as {}", sent.len(), received.len());
            }
            assert_eq!(received.len(), frames.len());
        }
        assert!(received_nothing_else(&mut b), "{uri}");
        let features = b.link.as_ref().unwrap().status().features;
        assert_eq!(features[0], format!("xdp {}", &options[4..].split('&').next().unwrap()));
        assert_eq!(features[1], "copy");
    }
}

fn received_nothing_else(port: &mut Port) -> bool {
    !receive(port, &mut Vec::new())
}

#[test]
fn a_frame_is_passed_on_from_where_it_lies() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(3, LinkKind::Veth, 1500);
    let (mut a, mut c) = (hosts.open(0, "afxdp:eth0"), hosts.open(2, "afxdp:eth0"));
    let mut rx = hosts.open(1, "afxdp:eth0?umem=both&wait=poll");
    let mut tx = hosts.open(1, "afxdp:eth1?umem=both&wait=poll");
    // More than there are chunks, so that each has to come back.
    let frames: Vec<_> = (0..50_000).map(|n| frame(64 + n as usize % 1000, n)).collect();
    let received = exchange(&mut a, &mut c, &frames, || {
        while rx.rx[0].receive(&mut |lent| tx.tx[0].transmit(lent).unwrap()).unwrap() > 0 {}
    });
    assert!(received == frames, "in order and unharmed");
    assert_eq!(rx.rx[0].dropped().unwrap(), 0);
    // Both have what they need for the way back as well.
    let received = exchange(&mut c, &mut a, &frames, || {
        while tx.rx[0].receive(&mut |lent| rx.tx[0].transmit(lent).unwrap()).unwrap() > 0 {}
    });
    assert!(received == frames, "in order and unharmed");
}

#[test]
fn what_is_not_for_the_sockets_goes_on_to_the_kernel() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, LinkKind::Veth, 1500);
    let mut filtered = hosts.open(1, "afxdp:eth0?udp=1+9&wait=poll");
    let ping = || {
        let mut ping = Command::new("ping");
        let ping = ping.args(["-c", "1", "-W", "2", "198.18.0.6"]).stdout(Stdio::null());
        hosts.start(0, ping).wait().unwrap().success()
    };
    assert!(ping());
    let mut sender = hosts.open(0, "afxdp:eth0");
    let flow = Flow::default();
    let frames: Vec<_> = [flow.dst_port, 9, 10]
        .map(|dst_port| test_frame::build(&Flow { dst_port, ..flow }, 100))
        .into();
    assert_ne!(flow.dst_port, 9);
    let frames_of: Vec<_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
    assert_eq!(sender.tx[0].transmit(&frames_of).unwrap(), 3);
    let mut received = Vec::new();
    let deadline = Instant::now() + LIMIT;
    while received.is_empty() && Instant::now() < deadline {
        receive(&mut filtered, &mut received);
    }
    receive(&mut filtered, &mut received);
    assert_eq!(received, [frames[1].clone()]);
    drop((filtered, sender));
    let everything = hosts.open(1, "afxdp:eth0");
    assert!(!ping());
    drop(everything);
    assert!(ping());
}

#[test]
fn what_cannot_be_had_is_named() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, LinkKind::Veth, 1500);
    let _occupied = hosts.open(0, "afxdp:eth0");
    for (uri, parts) in [
        ("afxdp:nosuch", &["nosuch", "No such device", "ip link"][..]),
        ("afxdp:eth0?queue=1", &["queues 1 to 1", "the interface has 1"]),
        ("afxdp:eth0?queues=2", &["queues 0 to 1", "the interface has 1"]),
        ("afxdp:eth0?mode=zerocopy", &["no zero copy mode", "mode=copy"]),
        ("afxdp:lo?xdp=native", &["the driver cannot run XDP programs", "xdp=generic"]),
    ] {
        let message = hosts.try_open(1, uri).err().unwrap_or_else(|| panic!("{uri} was opened"));
        for part in parts {
            assert!(message.contains(part), "{uri}: {message}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    // Nothing of it is left.
    hosts.open(1, "afxdp:eth0?queue=0&mode=copy&xdp=native");

    let message = hosts.try_open(0, "afxdp:eth0").err().unwrap();
    assert!(message.contains("another AF_XDP socket has this queue"), "{message}");
    let message = hosts.try_open(0, "afxdp:eth0?xdp=generic").err().unwrap();
    assert!(message.contains("another xdp= or udp="), "{message}");
    let args = ["receive", "--port", "afxdp:eth0", "--duration", "1"];
    let other = hosts.start(0, Command::new(DRAY).args(args).stderr(Stdio::piped()));
    let output = other.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("another XDP program is attached"), "{message}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn a_killed_process_leaves_the_interface_as_it_was() {
    let _alone = alone();
    require_root!();
    let hosts = Hosts::chain(2, LinkKind::Veth, 1500);
    let args = ["receive", "--port", "afxdp:eth0?defer=50", "--duration", "60"];
    let mut victim = hosts.start(0, Command::new(DRAY).args(args).stdout(Stdio::null()));
    let deadline = Instant::now() + LIMIT;
    while !common::runs_role(&victim) {
        assert!(Instant::now() < deadline, "the role does not start");
        sleep(Duration::from_millis(5));
    }
    let message = hosts.try_open(0, "afxdp:eth0").err().unwrap();
    assert!(message.contains("another XDP program is attached"), "{message}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    hosts.open(0, "afxdp:eth0?defer=20");
}

#[test]
fn links_of_programs_carry_what_sockets_send() {
    let _alone = alone();
    require_root!();
    for wiring in [Wiring::Pairs, Wiring::Learning] {
        let hosts = Hosts::chain(2, LinkKind::Xdp(wiring), 9000);
        let (mut a, mut b) = (hosts.open(0, "raw:eth0"), hosts.open(1, "raw:eth0"));
        let frames: Vec<_> = (64..=9014).step_by(37).map(|size| frame(size, 0)).collect();
        for _ in 0..2 {
            let received = ours(exchange(&mut a, &mut b, &frames, || {}));
            assert!(received == frames, "{wiring:?}");
            std::mem::swap(&mut a, &mut b);
        }
        // Sums that are left to hardware are not lost on the way.
        let ping = |size: &str| {
            let mut ping = Command::new("ping");
            ping.args(["-c", "1", "-W", "2", "-s", size, "198.18.0.6"]).stdout(Stdio::null());
            hosts.start(0, &mut ping).wait().unwrap().success()
        };
        assert!(ping("56") && ping("8000"), "{wiring:?}");
        let (mut from, mut to) = (
            hosts.open(0, "udp:198.18.0.5:9000-198.18.0.6:9000"),
            hosts.open(1, "udp:198.18.0.6:9000"),
        );
        let frames: Vec<_> = (64..=1500).step_by(9).map(|size| frame(size, 0)).collect();
        let received = exchange(&mut from, &mut to, &frames, || {});
        assert_eq!(received.len(), frames.len());
    }
}
