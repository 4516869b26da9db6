//! AF_XDP ports and XDP links on real interfaces.

use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::common::hosts::Hosts;
use crate::common::veths::Veths;
use crate::common::{self, Started, alone};
use dray_bpf::{Mode, Pass, Redirect};
use dray_lab::LinkKind;
use dray_netdev::{Interface, Netdev};
use dray_port::{Frame, LinkState, Port, PortSnapshot, PortUri, scratch};
use dray_wire::test_frame::{self, FRAME_MIN, Stamp};
use dray_wire::{FRAME_MAX, Flow, MacAddr};

/// Upper bound for one exchange; far longer than any frame takes on a busy host.
const LIMIT: Duration = Duration::from_secs(20);

/// Creates a chain of hosts with addresses.
fn chain(count: usize, kind: LinkKind, mtu: u32) -> Hosts {
    Hosts::chain(count, kind, mtu, true)
}

/// Builds a frame of `size` bytes that differs from every other frame of that size.
fn frame(size: usize, sequence: u64) -> Vec<u8> {
    let mut frame = test_frame::build(&Flow::default(), size);
    test_frame::stamp(&mut frame, Stamp { stream: 0, sequence, ticks: 0 });
    frame
}

/// Appends the frames that have arrived to `frames`; returns true if there were any.
fn receive(port: &mut Port, frames: &mut Vec<Vec<u8>>) -> bool {
    let mut scratch = scratch();
    let take = &mut |lent: &[Frame<'_>]| {
        frames.extend(lent.iter().map(|frame| frame.bytes(&mut scratch).to_vec()));
        lent.len()
    };
    port.rx[0].receive(take).unwrap() > 0
}

/// Sends `frames` in batches of at most 16 and calls `pass` after each batch. At most 128 are under
/// way, for which every queue between has room. Returns the frames that arrived at `to`, once there
/// are as many as were sent.
fn exchange(
    from: &mut Port,
    to: &mut Port,
    frames: &[Vec<u8>],
    mut pass: impl FnMut(),
) -> Vec<Vec<u8>> {
    let (deadline, mut sent, mut received) = (Instant::now() + LIMIT, 0, Vec::new());
    while received.len() < frames.len() {
        assert!(Instant::now() < deadline, "{} of {} arrived", received.len(), frames.len());
        let room = (received.len() + 128).saturating_sub(sent).min(16);
        let some: Vec<Frame<'_>> =
            frames[sent..].iter().take(room).map(|frame| Frame::from(&frame[..])).collect();
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
fn all_frame_sizes_arrive_intact() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, LinkKind::VETH, 9000);
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
fn shared_umem_forwards_without_copy() {
    let _alone = alone();
    require_root!();
    let hosts = chain(3, LinkKind::VETH, 1500);
    let (mut a, mut c) = (hosts.open(0, "afxdp:eth0"), hosts.open(2, "afxdp:eth0"));
    let mut rx = hosts.open(1, "afxdp:eth0?umem=both&wait=poll");
    let mut tx = hosts.open(1, "afxdp:eth1?umem=both&wait=poll");
    // More frames than chunks, so that every chunk has to be reused.
    let frames: Vec<_> = (0..50_000).map(|n| frame(64 + n as usize % 1000, n)).collect();
    let received = exchange(&mut a, &mut c, &frames, || {
        while rx.rx[0].receive(&mut |lent| tx.tx[0].transmit(lent).unwrap()).unwrap() > 0 {}
    });
    assert!(received == frames, "in order and unharmed");
    assert_eq!(rx.rx[0].dropped().unwrap(), 0);
    // Both ports have the rings for the opposite direction as well.
    let received = exchange(&mut c, &mut a, &frames, || {
        while tx.rx[0].receive(&mut |lent| rx.tx[0].transmit(lent).unwrap()).unwrap() > 0 {}
    });
    assert!(received == frames, "in order and unharmed");
}

#[test]
fn unfiltered_frames_reach_the_kernel() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, LinkKind::VETH, 1500);
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
fn unsupported_options_are_rejected_with_reason() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, LinkKind::VETH, 1500);
    let _occupied = hosts.open(0, "afxdp:eth0");
    for (uri, parts) in [
        ("afxdp:nosuch", &["nosuch", "No such device", "ip link"][..]),
        ("afxdp:eth0?queue=1", &["queues 1 to 1", "the interface has 1"]),
        ("afxdp:eth0?queues=2", &["queues 0 to 1", "the interface has 1"]),
        ("afxdp:eth0?mode=zerocopy", &["does not support AF_XDP zero copy", "mode=copy"]),
        ("afxdp:lo?xdp=native", &["the driver cannot run XDP programs", "xdp=generic"]),
    ] {
        let message = hosts.try_open(1, uri).err().unwrap_or_else(|| panic!("{uri} was opened"));
        for part in parts {
            assert!(message.contains(part), "{uri}: {message}");
        }
        assert_eq!(message.lines().count(), 1, "{message}");
    }
    // The failed attempt leaves nothing behind.
    hosts.open(1, "afxdp:eth0?queue=0&mode=copy&xdp=native");

    let message = hosts.try_open(0, "afxdp:eth0").err().unwrap();
    assert!(message.contains("another AF_XDP socket uses this queue"), "{message}");
    let message = hosts.try_open(0, "afxdp:eth0?xdp=generic").err().unwrap();
    assert!(message.contains("different xdp=, udp= or defer="), "{message}");
    let args = ["receive", "--port", "afxdp:eth0", "--duration", "1"];
    let other = hosts.start(0, common::command().args(args).stderr(Stdio::piped()));
    let output = other.wait_with_output().unwrap();
    let message = String::from_utf8(output.stderr).unwrap();
    assert!(message.contains("another XDP program is attached"), "{message}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn sigkill_detaches_the_xdp_program() {
    let _alone = alone();
    require_root!();
    let hosts = chain(2, LinkKind::VETH, 1500);
    let args = ["receive", "--port", "afxdp:eth0?defer=50", "--duration", "60"];
    let mut victim = hosts.start_role(0, common::command().args(args).stdout(Stdio::null()));
    let message = hosts.try_open(0, "afxdp:eth0").err().unwrap();
    assert!(message.contains("another XDP program is attached"), "{message}");
    victim.kill().unwrap();
    victim.wait().unwrap();
    hosts.open(0, "afxdp:eth0?defer=20");
}

#[test]
fn xdp_redirect_links_carry_all_frames() {
    let _alone = alone();
    require_root!();
    for kind in [LinkKind::XDP_PAIRS, LinkKind::XDP_LEARNING] {
        let hosts = chain(2, kind, 9000);
        let (mut a, mut b) = (hosts.open(0, "raw:eth0"), hosts.open(1, "raw:eth0"));
        let frames: Vec<_> = (64..=9014).step_by(37).map(|size| frame(size, 0)).collect();
        for _ in 0..2 {
            let received = ours(exchange(&mut a, &mut b, &frames, || {}));
            assert!(received == frames, "{kind}");
            std::mem::swap(&mut a, &mut b);
        }
        // Checksums that are left to hardware are not lost on the way.
        let ping = |size: &str| {
            let mut ping = Command::new("ping");
            ping.args(["-c", "1", "-W", "2", "-s", size, "198.18.0.6"]).stdout(Stdio::null());
            hosts.start(0, &mut ping).wait().unwrap().success()
        };
        assert!(ping("56") && ping("8000"), "{kind}");
        let (mut from, mut to) = (
            hosts.open(0, "udp:198.18.0.5:9000-198.18.0.6:9000"),
            hosts.open(1, "udp:198.18.0.6:9000"),
        );
        let frames: Vec<_> = (64..=1500).step_by(9).map(|size| frame(size, 0)).collect();
        let received = exchange(&mut from, &mut to, &frames, || {});
        assert_eq!(received.len(), frames.len());
    }
}

/// Splits `port` into one port per queue.
fn split(port: Port) -> Vec<Port> {
    let halves = port.rx.into_iter().zip(port.tx);
    halves.map(|(rx, tx)| Port { rx: vec![rx], tx: vec![tx], link: None }).collect()
}

fn frames(count: u64) -> Vec<Vec<u8>> {
    (0..count).map(|n| frame(64 + n as usize % 1400, n)).collect()
}

#[test]
fn queues_receive_disjoint_frames() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(2, &[["a", "b"]]);
    let frames = frames(5000);
    // A veth does not report the queue to code behind its driver: there, all frames would belong to
    // the first queue.
    for options in ["", "&wakeup=0", "&busy_poll=20", "&defer=20"] {
        // One port with both queues, and two ports that share the interface's program.
        let mut both = split(veths.open(&format!("afxdp:a?queues=2{options}")));
        let mut one_each: Vec<_> =
            (0..2).map(|queue| veths.open(&format!("afxdp:b?queue={queue}{options}"))).collect();
        for queue in 0..2 {
            let (a, b) = (&mut both[queue], &mut one_each[queue]);
            assert!(exchange(a, b, &frames, || {}) == frames, "{options}: queue {queue} there");
            assert!(exchange(b, a, &frames, || {}) == frames, "{options}: queue {queue} back");
        }
        // One port is closed; the other continues.
        drop(one_each.remove(0));
        assert!(exchange(&mut both[1], &mut one_each[0], &frames[..100], || {}).len() == 100);
    }
    let _one = veths.open("afxdp:a?defer=20");
    let message = veths.try_open("afxdp:a?queue=1&defer=30").err().unwrap();
    assert!(message.contains("different xdp=, udp= or defer="), "{message}");
}

#[test]
fn shared_umem_outlives_its_ports() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"], ["c", "d"]]);
    let (mut left, mut right) = (veths.open("raw:a"), veths.open("raw:d"));
    let mut tx = veths.open("afxdp:c?umem=shared&wait=poll");
    let frames = frames(3000);
    // A closed port leaves its chunks to the next port, whatever was moved between them.
    for _ in 0..6 {
        let mut rx = veths.open("afxdp:b?umem=shared&wait=poll");
        let received = exchange(&mut left, &mut right, &frames, || {
            while rx.rx[0].receive(&mut |lent| tx.tx[0].transmit(lent).unwrap()).unwrap() > 0 {}
        });
        assert!(received == frames);
    }
    let mut rx = veths.open("afxdp:b?umem=shared&wait=block");
    veths.add("long", "longer", 1, 4000);
    veths.add("two", "more", 2, 1500);
    for (uri, part) in [
        ("afxdp:a?umem=shared&wakeup=0", "the same mode= and wakeup="),
        ("afxdp:a?umem=shared&mode=copy", "the same mode= and wakeup="),
        ("afxdp:a?umem=shared&chunk=4096", "chunk=2048"),
        ("afxdp:two?umem=shared&queues=2", ""),
        ("afxdp:long?umem=shared", "chunk=4096"),
    ] {
        let result = veths.try_open(uri);
        match part {
            "" => assert!(result.is_ok(), "{uri}"),
            part => {
                let message = result.err().unwrap();
                assert!(message.contains(part), "{uri}: {message}");
            }
        }
    }
    let full = veths.open("afxdp:two?umem=shared&queues=2");
    let message = veths.try_open("afxdp:d?umem=shared").err().unwrap();
    assert!(message.contains("all 4 queues that it has chunks for are open"), "{message}");
    drop(full);

    // An interface is removed. The kernel drops the UMEM with it if that interface registered it
    // first.
    assert_eq!(tx.link.as_ref().unwrap().status().state, LinkState::Running);
    veths.ip("link del dev c");
    assert_eq!(tx.link.as_ref().unwrap().status().state, LinkState::Waiting);
    let some = [Frame::from(&frames[0][..])];
    let results: Vec<_> = (0..3).map(|_| tx.tx[0].transmit(&some).is_ok()).collect();
    assert_eq!(
        results,
        [true, false, false],
        "a frame accepted before is not refused, later frames are"
    );
    assert_eq!(rx.link.as_ref().unwrap().status().state, LinkState::Running);
    veths.add("e", "f", 1, 1500);
    let (mut right, mut tx) = (veths.open("raw:f"), veths.open("afxdp:e?umem=shared&wait=poll"));
    rx.rx[0].set_wait(dray_port::Wait::Poll { pause_us: 0 });
    let received = exchange(&mut left, &mut right, &frames, || {
        while rx.rx[0].receive(&mut |lent| tx.tx[0].transmit(lent).unwrap()).unwrap() > 0 {}
    });
    assert!(received == frames);
    // A port whose interface is down accepts frames until it is full, and continues when the
    // interface is up again.
    veths.ip("link set dev e down");
    let taken: usize = (0..300).map(|_| tx.tx[0].transmit(&[some[0]; 16]).unwrap()).sum();
    assert_eq!(taken, 2048);
    veths.ip("link set dev e up");
    assert!(common::eventually(|| tx.tx[0].transmit(&some).unwrap() == 1));
}

#[test]
fn removed_interface_fails_receive() {
    let _alone = alone();
    require_root!();
    for uri in ["afxdp:b", "afxdp:b?wait=poll", "raw:b", "raw:b?wait=poll"] {
        let veths = Veths::new(1, &[["a", "b"]]);
        let mut port = veths.open(uri);
        assert_eq!(port.rx[0].receive(&mut |lent| lent.len()).unwrap(), 0);
        veths.ip("link del dev b");
        let mut refusal = String::new();
        let is_told = common::eventually(|| match port.rx[0].receive(&mut |lent| lent.len()) {
            Ok(_) => false,
            Err(error) => {
                refusal = error.to_string();
                true
            }
        });
        assert!(is_told, "{uri}");
        let expected = ["the interface b was removed", "Network is down"];
        assert!(
            refusal.starts_with(expected[usize::from(uri.starts_with("raw"))]),
            "{uri}: {refusal}"
        );
    }
}

#[test]
fn irq_deferral_is_reset_after_sigkill() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    let index = veths.index("b");
    let Some(netdev) = veths.0.enter(Netdev::open).unwrap() else {
        return common::skip("the kernel does not list NAPI instances (Linux 6.13)");
    };
    // NAPI instances exist while a program is attached; they inherit the interface's settings.
    let deferred = || -> Vec<u64> {
        let napis = netdev.napis(index).unwrap();
        napis.iter().map(|napi| napi.deferral.gro_flush_timeout_ns / 1000).collect()
    };
    let left = || {
        let _pass = veths.0.enter(|| Ok(Pass::attach(index).unwrap())).unwrap();
        deferred()
    };
    if left().is_empty() {
        return common::skip("the kernel does not report interrupt deferral (Linux 6.13)");
    }
    let kill = |uri: &str, meanwhile: &[u64]| {
        let mut role = common::command();
        role.args(["receive", "--port", uri, "--duration", "60"]).stdout(Stdio::null());
        let mut role = veths.0.enter(|| role.spawn()).unwrap();
        assert!(common::eventually(|| common::runs_role(&role)), "{uri}");
        assert_eq!(deferred(), meanwhile, "{uri}");
        role.kill().unwrap();
        role.wait().unwrap();
    };
    kill("afxdp:b?defer=50", &[50]);
    assert_eq!(left(), [0], "it goes with the program");
    // Without a NAPI instance, the setting is made on the interface and stays there.
    for next in ["afxdp:b?xdp=generic&defer=20", "afxdp:b?xdp=generic"] {
        kill("afxdp:b?xdp=generic&defer=50", &[]);
        assert_eq!(left(), [50]);
        drop(veths.open(next));
        assert_eq!(left(), [0], "{next}");
    }
    // Settings made by other programs stay.
    let sysfs = "mount -t sysfs sysfs /sys && cd /sys/class/net/b && echo 7000 > gro_flush_timeout";
    let mut shell = Command::new("unshare");
    shell.args(["--mount", "sh", "-c", sysfs]);
    assert!(veths.0.enter(|| shell.status()).unwrap().success());
    drop(veths.open("afxdp:b?defer=20"));
    drop(veths.open("afxdp:b?xdp=generic&defer=20"));
    assert_eq!(left(), [7]);
}

#[test]
fn open_port_disables_vlan_offload() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    let takes_off = || {
        let interface = veths.0.enter(|| Interface::find("b")).unwrap();
        interface.takes_vlan_tags_off().unwrap()
    };
    assert!(takes_off(), "a veth does from the beginning");
    let port = veths.open("afxdp:b");
    assert!(!takes_off());
    drop(port);
    assert!(takes_off());
}

#[test]
fn reused_interface_index_gets_new_umem() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    let _outlives_it = veths.open("afxdp:b");
    let index = veths.index("b");
    veths.ip("link del dev b");
    veths.ip(&format!("link add name b index {index} type veth peer name a"));
    for end in ["a", "b"] {
        veths.ip(&format!("link set dev {end} addrgenmode none up"));
    }
    let (mut a, mut b) = (veths.open("raw:a"), veths.open("afxdp:b"));
    let frames = frames(100);
    assert!(exchange(&mut a, &mut b, &frames, || {}) == frames);
}

/// Continues with `live` as another process does, after that of `port` was killed.
fn killed(veths: &Veths, uri: &str, port: Port, live: PortSnapshot) -> Port {
    dray_socket::borrow_files(true);
    let uri: PortUri = uri.parse().unwrap();
    let next = veths.0.enter(|| Ok(uri.resume(live).unwrap().0)).unwrap();
    drop(port);
    dray_socket::borrow_files(false);
    next
}

fn live(port: &Port) -> PortSnapshot {
    PortSnapshot::of_devices(port.rx[0].devices(), port.tx[0].frame_max()).unwrap()
}

#[test]
fn frames_lent_at_a_kill_are_lost_and_no_chunk_is() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    let uri = "afxdp:b?wait=poll";
    let (mut outside, mut port) = (veths.open("raw:a?wait=poll"), veths.open(uri));
    // More often than there are chunks, if each kill lost some.
    for round in 0..200 {
        let frames: Vec<_> = (0..32).map(|n| frame(64 + n as usize, 100 * round + n)).collect();
        for frame in &frames[..16] {
            assert_eq!(outside.tx[0].transmit(&[Frame::from(&frame[..])]).unwrap(), 1);
        }
        let (live, mut seen) = (live(&port), 0);
        let dies = || {
            let mut dies = |lent: &[Frame<'_>]| -> usize {
                seen = lent.len();
                resume_unwind(Box::new(()))
            };
            common::eventually(|| port.rx[0].receive(&mut dies).unwrap() > 0);
        };
        let died = catch_unwind(AssertUnwindSafe(dies)).is_err();
        assert!(died, "round {round}: no frame came, {:?} were dropped", port.rx[0].dropped());
        port = killed(&veths, uri, port, live);
        for frame in &frames[16..] {
            assert_eq!(outside.tx[0].transmit(&[Frame::from(&frame[..])]).unwrap(), 1);
        }
        let mut received = Vec::new();
        assert!(common::eventually(|| {
            receive(&mut port, &mut received);
            received.len() >= frames.len() - seen
        }));
        assert!(received == frames[seen..], "round {round}: {seen} were lent");
        assert!(exchange(&mut port, &mut outside, &frames, || {}) == frames);
    }
}

#[test]
fn wrong_state_of_another_process_is_refused() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(2, &[["a", "b"], ["c", "d"]]);
    let (mut outside, mut port) = (veths.open("afxdp:a"), veths.open("afxdp:b"));
    let (other, longer) = (veths.open("afxdp:d?queue=1"), veths.open("afxdp:c?chunk=4096"));
    let descriptors = |port: &Port| -> Vec<OwnedFd> {
        let devices = port.rx[0].devices();
        devices.into_iter().map(|fd| fd.try_clone_to_owned().unwrap()).collect()
    };
    let (own, others) = (descriptors(&port), descriptors(&other));
    let resume = |uri: &str, all: &[OwnedFd]| {
        let live = PortSnapshot::of_devices(all.iter().map(AsFd::as_fd), 1514).unwrap();
        let uri: PortUri = uri.parse().unwrap();
        let resumed = veths.0.enter(|| Ok(uri.resume(live).map(drop))).unwrap();
        resumed.unwrap_err().to_string()
    };
    let with = |all: &[OwnedFd], at: usize, wrong: &dyn AsFd| {
        let mut all: Vec<_> = all.iter().map(|fd| fd.try_clone().unwrap()).collect();
        all[at] = wrong.as_fd().try_clone_to_owned().unwrap();
        all
    };
    let null = File::open("/dev/null").unwrap();
    // While a port of this process has the program of an interface, those of others are not used.
    drop(other);
    for (uri, all, part) in [
        ("afxdp:b", with(&own, 0, &null), "it is a character device; give an AF_XDP socket"),
        ("afxdp:b", with(&own, 1, &null), "UMEM: not memory of a fixed size"),
        ("afxdp:b", with(&own, 2, &null), "UMEM: not memory of a fixed size"),
        ("afxdp:b", with(&own, 1, &own[2]), "not those of chunks of 2048"),
        ("afxdp:b", descriptors(&longer), "not those of chunks of 2048"),
        ("afxdp:b?queues=2", with(&own, 0, &own[0]), "there are 6; give 6 for each of 2 queues"),
        ("afxdp:b?queue=1", with(&own, 0, &own[0]), "UMEM: no socket of queue 1"),
        ("afxdp:nosuch", with(&own, 0, &own[0]), "No such device"),
        ("afxdp:d?queue=1", with(&others, 3, &null), "XDP program: link of an XDP program"),
        ("afxdp:d?queue=1", with(&others, 3, &own[3]), "it is attached to interface"),
        ("afxdp:d?queue=1", with(&others, 4, &null), "XDP program: "),
        ("afxdp:d?queue=1", with(&others, 5, &null), "XDP program: not memory of a fixed size"),
    ] {
        let error = resume(uri, &all);
        assert!(error.contains(part) && error.lines().count() == 1, "{uri}: {error}");
    }
    let error = resume("afxdp:b", &own[..5]);
    assert!(error.contains("there are 5; give 6"), "{error}");
    // The port has not noticed any of it.
    let frames = frames(100);
    assert!(exchange(&mut outside, &mut port, &frames, || {}) == frames);
}

#[test]
fn switch_forwards_between_afxdp_and_vhost() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).display().to_string();
    let (socket, control) = (path("c.sock"), path("control"));
    let ports = ["up=afxdp:b".to_owned(), format!("c=vhost:{socket}")];
    let mut switch = common::command();
    switch.args(["switch", "--port", &ports[0], "--port", &ports[1], "--control", &control]);
    let mut switch = Started(veths.0.enter(|| switch.stdout(Stdio::null()).spawn()).unwrap());
    assert!(common::eventually(|| common::serves(&control)));
    let mut container = veths.open(&format!("virtio:{socket}"));
    let is_up = |port: &Port| port.link.as_ref().unwrap().status().state == LinkState::Running;
    assert!(common::eventually(|| is_up(&container)));
    let mut outside = veths.open("afxdp:a");
    let frames = frames(20_000);
    assert!(exchange(&mut outside, &mut container, &frames, || {}) == frames, "in");
    assert!(exchange(&mut container, &mut outside, &frames, || {}) == frames, "out");
    // The interface is removed: nothing blocks, and the switch reports it.
    veths.ip("link del dev b");
    let some = [Frame::from(&frames[0][..])];
    (0..3000).for_each(|_| {
        container.tx[0].transmit(&some).unwrap();
    });
    let list = || common::success(&["switch", "ports", "--control", &control]);
    assert!(common::eventually(|| list().contains("the interface b was removed")), "{}", list());
    assert!(switch.0.try_wait().unwrap().is_none());
}

#[test]
fn xdp_attach_mode_is_the_same_everywhere() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["a", "b"]]);
    let (a, b) = (veths.index("a"), veths.index("b"));
    let pair = |indices: [u32; 2], modes: &[Mode]| {
        let result = veths.0.enter(|| Ok(Redirect::pair(indices, modes)));
        result.unwrap().map(|redirect| redirect.mode())
    };
    // The loopback driver does not support native XDP.
    assert!(pair([a, 1], &[Mode::Native]).is_err());
    assert_eq!(pair([a, b], &[Mode::Native]).unwrap(), Mode::Native);
    assert_eq!(pair([a, 1], &[Mode::Native, Mode::Generic]).unwrap(), Mode::Generic);
    assert_eq!(pair([a, b], &[Mode::Native, Mode::Generic]).unwrap(), Mode::Native);
}

#[test]
fn xdp_learning_follows_moved_station() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["v0", "p0"], ["v1", "p1"], ["v2", "p2"]]);
    let indices = ["v0", "v1", "v2"].map(|name| veths.index(name));
    let _passes = ["p0", "p1", "p2"]
        .map(|name| veths.0.enter(|| Ok(Pass::attach(veths.index(name)).unwrap())).unwrap());
    let age = Duration::from_secs(60);
    let redirect =
        veths.0.enter(|| Ok(Redirect::learning(&indices, &[Mode::Native], age).unwrap())).unwrap();
    let mut ports = ["p0", "p1", "p2"].map(|name| veths.open(&format!("raw:{name}?wait=poll")));
    let send = |ports: &mut [Port; 3], from: usize, src: u64, dst: u64| {
        let (src_mac, dst_mac) = (MacAddr::local(src), MacAddr::local(dst));
        let frame = test_frame::build(&Flow { src_mac, dst_mac, ..Flow::default() }, 100);
        assert_eq!(ports[from].tx[0].transmit(&[Frame::from(&frame[..])]).unwrap(), 1);
    };
    // Counts the frames that each port receives, from the first one that arrives until soon after:
    // a veth delivers before the sender continues, or later on a busy machine.
    let arrive = |ports: &mut [Port; 3], from: usize, src: u64, dst: u64| {
        send(ports, from, src, dst);
        let mut received = [0; 3];
        let mut count = |received: &mut [usize; 3]| {
            for (port, received) in ports.iter_mut().zip(received) {
                let mut frames = Vec::new();
                while receive(port, &mut frames) {}
                *received += frames.len();
            }
        };
        let deadline = Instant::now() + Duration::from_secs(1);
        while received == [0; 3] && Instant::now() < deadline {
            count(&mut received);
        }
        sleep(Duration::from_millis(5));
        count(&mut received);
        received
    };
    assert!(common::eventually(|| arrive(&mut ports, 0, 10, 11) == [0, 1, 1]), "not known yet");
    assert!(common::eventually(|| arrive(&mut ports, 1, 11, 10) == [1, 0, 0]), "0 has sent");
    assert!(common::eventually(|| arrive(&mut ports, 0, 10, 11) == [0, 1, 0]), "1 has sent");
    for _ in 0..20 {
        assert_eq!(arrive(&mut ports, 0, 10, 11), [0, 1, 0], "a third sees nothing of it");
    }
    // The station moves to another port.
    send(&mut ports, 2, 11, 10);
    assert!(common::eventually(|| arrive(&mut ports, 0, 10, 11) == [0, 0, 1]));
    assert_eq!(arrive(&mut ports, 2, 11, 11), [0, 0, 0], "nothing goes back where it came from");
    // One port invents stations without end: other ports' stations are still learned, and closing
    // is not delayed.
    (1000..21_000).for_each(|station| send(&mut ports, 2, station, 10));
    assert!(redirect.stations().unwrap() <= 16384 / 3 + 1, "{:?}", redirect.stations());
    assert_eq!(arrive(&mut ports, 1, 12, 11)[1], 0);
    assert!(common::eventually(|| arrive(&mut ports, 0, 10, 12) == [0, 1, 0]));
    let before = Instant::now();
    drop(redirect);
    assert!(before.elapsed() < Duration::from_secs(5));
}
