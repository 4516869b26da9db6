//! Packets of up to 64 KiB, which their sender's kernel has not cut into segments: whole between
//! ports that carry them, finished by the switch for others; and the kernel accepts all of them.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use dray_lab::NetworkNamespace;
use dray_lab::peer::find_ns3;
use dray_switch::{DropReason, Switch};
use dray_testvm::{RunningVm, VhostUser, Vm};
use dray_wire::MacAddr;

use crate::common::kernels;
use crate::common::veths::Veths;
use crate::common::{self, DRAY, Started, alone};
use crate::ends::{self, counters, switch};

/// Two network namespaces, each with an interface that leads to a port of a switch.
pub(crate) struct Hosts {
    /// One for both, or one for each, which are joined.
    switches: Vec<Switch>,
    pub(crate) names: [NetworkNamespace; 2],
    /// Ends of the veth pairs `v1` and `v2` at which the `raw:` ports are.
    veths: Veths,
}

impl Hosts {
    /// Creates them with ports of these kinds and with these keys: `tap?offload=0`.
    pub(crate) fn new(ports: [&str; 2]) -> Self {
        Self::on(vec![switch("mode = 'learning'")], ports)
    }

    fn on(switches: Vec<Switch>, ports: [&str; 2]) -> Self {
        let hosts = Self::without_ports(switches);
        let Self { switches, names, veths } = &hosts;
        for (number, (name, port)) in (1..).zip(names.iter().zip(ports)) {
            let path = format!("/proc/{}/fd/{}", std::process::id(), name.as_fd().as_raw_fd());
            let (kind, keys) = port.split_once('?').unwrap_or((port, ""));
            let switch = switches.iter().take(number).next_back().unwrap();
            let add = |uri: &str| ends::add(switch, &format!("p{number}={uri}"));
            if kind == "raw" {
                hosts.wire(number);
                let add = || {
                    add(&format!("raw:v{number}?{keys}"));
                    Ok(())
                };
                veths.0.enter(add).unwrap();
            } else {
                add(&format!("tap:eth0?netns={path}&{keys}"));
            }
            hosts.set_up(number);
        }
        hosts
    }

    fn without_ports(switches: Vec<Switch>) -> Self {
        let names = [(); 2].map(|()| NetworkNamespace::scratch().unwrap());
        Self { switches, names, veths: Veths::new(1, &[]) }
    }

    /// Starts a program that is to forward frames between `v1` and `v2`, the other ends of the
    /// interfaces.
    fn joined_by(mut program: Command) -> (Self, Started) {
        let hosts = Self::without_ports(Vec::new());
        for number in [1, 2] {
            hosts.wire(number);
            hosts.set_up(number);
        }
        let program = hosts.veths.0.enter(|| program.spawn()).unwrap();
        (hosts, Started(program))
    }

    fn names(&self) -> [&NetworkNamespace; 2] {
        self.names.each_ref()
    }

    /// Joins the host with this number, from 1 on, by a veth pair.
    fn wire(&self, number: usize) {
        let name = self.names[number - 1].as_fd().as_raw_fd();
        let path = format!("/proc/{}/fd/{name}", std::process::id());
        self.veths.ip(&format!("link add v{number} type veth peer name eth0 netns {path}"));
        self.veths.ip(&format!("link set v{number} addrgenmode none up"));
    }

    fn set_up(&self, number: usize) {
        self.run(number, "ip link set eth0 up");
        self.run(number, &format!("ip address add 10.0.0.{number}/24 dev eth0"));
        self.run(number, &format!("ip address add fd00::{number}/64 dev eth0 nodad"));
    }

    /// Runs a command at the host with this number.
    fn run(&self, number: usize, command: &str) {
        let mut words = command.split(' ');
        let mut program = Command::new(words.next().unwrap());
        program.args(words);
        let status = self.names[number - 1].enter(|| program.status()).unwrap();
        assert!(status.success(), "{command}");
    }

    /// Sends `len` bytes by TCP from the first to the second, and checks each of them. Returns the
    /// mean length of the frames that leave the first.
    fn stream(&self, to: IpAddr, len: usize) -> u64 {
        let before = counters(&self.switches[0], "p1");
        kernels::transfer(self.names(), to, len);
        let after = counters(&self.switches[0], "p1");
        let frames = after.rx_frames - before.rx_frames;
        (after.rx_bytes - before.rx_bytes) / frames.max(1)
    }
}

#[test]
fn kernel_accepts_packets_with_and_without_offloads_with_time() {
    let _alone = alone();
    require_root!();
    for (ports, is_long) in [
        (["tap?offload=1", "tap?offload=1"], true),
        (["tap?offload=1", "tap?offload=0"], true),
        (["tap?offload=0", "tap?offload=1"], false),
        (["tap?queues=2", "tap?queues=2"], true),
        (["raw", "raw"], true),
        (["raw?batch=64&queues=2", "tap"], true),
        (["tap", "raw?batch=64&wait=poll"], true),
        (["raw", "tap?offload=0"], true),
        (["raw?ring=1&batch=64", "tap"], true),
        (["tap", "raw?ring=1"], true),
        (["raw?offload=0", "raw?offload=0"], false),
        (["raw?offload=0&batch=64", "tap"], false),
    ] {
        let hosts = Hosts::new(ports);
        for to in ["10.0.0.2", "fd00::2"] {
            let mean = hosts.stream(to.parse().unwrap(), 20 << 20);
            assert_eq!(mean > 4000, is_long, "{ports:?} {to}: {mean} bytes per frame");
            kernels::datagrams(hosts.names(), to.parse().unwrap(), 45);
        }
        // Sent frames are segments where the receiver takes no others.
        let [first, second] = ["p1", "p2"].map(|port| counters(&hosts.switches[0], port));
        let is_cut = second.tx_frames > 2 * first.rx_frames;
        let takes_none = ["tap?offload=0", "raw?ring=1"].contains(&ports[1]);
        assert_eq!(is_cut, is_long && takes_none, "{first:?} {second:?}");
    }
}

/// A packet socket gets packets as the kernel at the other end of the veth pair sends them: of up
/// to 64 KiB, with partial checksums.
#[test]
fn readers_of_packet_sockets_get_finished_frames() {
    let _alone = alone();
    require_root!();
    for [from, to] in [
        ["raw:v1", "raw:v2"],
        ["raw:v1?batch=64&wait=poll", "raw:v2?batch=64"],
        ["raw:v1?queues=2", "raw:v2"],
        ["raw:v1?ring=1", "raw:v2?ring=1&batch=64&queues=2"],
        ["impair:delay=10:raw:v1", "raw:v2"],
        ["afxdp:v1", "afxdp:v2"],
    ] {
        let mut forward = common::command();
        forward.args(["forward", "--from", from, "--to", to, "--both-ways"]);
        forward.stdout(Stdio::null()).stderr(Stdio::null());
        exchange(forward, &format!("{from} {to}"));
    }
}

/// A program in C over libdray gets finished checksums and segments, too.
#[test]
fn libdray_program_gets_finished_frames_of_packet_sockets() {
    let _alone = alone();
    require_root!();
    let dir = tempfile::tempdir().unwrap();
    let library = libdray();
    std::os::unix::fs::symlink(&library, dir.path().join("libdray.so")).unwrap();
    std::os::unix::fs::symlink(&library, dir.path().join("libdray.so.0")).unwrap();
    let program = dir.path().join("forward");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/capi");
    let compiled = Command::new("cc")
        .args(["-O2", "-I"])
        .args([source.join("include"), source.join("examples/forward.c")])
        .arg(format!("-L{0}", dir.path().display()))
        .arg(format!("-Wl,-rpath,{0}", dir.path().display()))
        .args(["-ldray", "-o"])
        .arg(&program)
        .status();
    assert!(compiled.unwrap().success());
    let mut forward = Command::new(program);
    forward.args(["raw:v1?batch=64", "raw:v2?batch=64"]);
    exchange(forward, "libdray");
}

/// A simulation of ns-3, in which a bridge joins two of our devices, gets finished checksums and
/// segments, too.
#[test]
fn packet_sockets_finish_frames_with_tools() {
    let _alone = alone();
    require_root!();
    let Some(program) = find_ns3() else {
        common::skip("no ns-3 program: make ns-3, see docs/ns-3.md");
        return;
    };
    let mut bridge = Command::new(program.with_file_name("dray-ns3-bridge"));
    bridge.args(["raw:v1", "raw:v2"]).stdout(Stdio::null());
    exchange(bridge, "ns-3");
}

/// Returns the library's file, which `make test` has built and names; otherwise cargo builds it.
fn libdray() -> PathBuf {
    if let Some(built) = std::env::var_os("LIBDRAY") {
        return built.into();
    }
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../dataplane/capi/Cargo.toml");
    let built = Command::new(env!("CARGO"))
        .args(["build", "--quiet", "--locked", "--lib", "--manifest-path"])
        .arg(manifest)
        .status();
    assert!(built.unwrap().success());
    Path::new(DRAY).with_file_name("libdray.so")
}

/// Exchanges TCP and UDP between two kernels through a program that forwards frames.
fn exchange(forward: Command, name: &str) {
    let (hosts, _forward) = Hosts::joined_by(forward);
    let pings = || {
        let mut ping = Command::new("ping");
        ping.args(["-q", "-c", "1", "-W", "1", "10.0.0.2"]).stdout(Stdio::null());
        hosts.names[0].enter(|| ping.status()).unwrap().success()
    };
    assert!(common::eventually(pings), "{name}");
    for to in ["10.0.0.2", "fd00::2"] {
        kernels::transfer(hosts.names(), to.parse().unwrap(), 10 << 20);
        kernels::datagrams(hosts.names(), to.parse().unwrap(), 45);
        // One datagram: its checksum alone is partial.
        kernels::datagrams(hosts.names(), to.parse().unwrap(), 1);
    }
}

/// A kernel with a VXLAN interface leaves segments and checksums of the inner packets to hardware.
#[test]
fn segments_in_tunnels_reach_the_other_kernel() {
    let _alone = alone();
    require_root!();
    let mut forward = common::command();
    forward.args(["forward", "--from", "raw:v1", "--to", "raw:v2", "--both-ways"]);
    forward.stdout(Stdio::null()).stderr(Stdio::null());
    let (joined, _forward) = Hosts::joined_by(forward);
    for hosts in [Hosts::new(["raw", "raw"]), Hosts::new(["raw", "tap"]), joined] {
        for (underlay, id, keys) in [("10.0.0.", 4, ""), ("fd00::", 6, " udp6zerocsumrx")] {
            for (number, other) in [(1, 2), (2, 1)] {
                let ends = format!("local {underlay}{number} remote {underlay}{other} dev eth0");
                hosts.run(
                    number,
                    &format!("ip link add vx{id} type vxlan id {id} {ends} dstport 478{id}{keys}"),
                );
                hosts.run(number, &format!("ip link set vx{id} up"));
                hosts.run(number, &format!("ip address add 10.{id}.0.{number}/24 dev vx{id}"));
                let v6 = format!("ip address add fd0{id}::{number}/64 dev vx{id} nodad");
                hosts.run(number, &v6);
            }
            for to in [format!("10.{id}.0.2"), format!("fd0{id}::2")] {
                kernels::transfer(hosts.names(), to.parse().unwrap(), 4 << 20);
                kernels::datagrams(hosts.names(), to.parse().unwrap(), 40);
            }
        }
        for switch in &hosts.switches {
            let malformed = counters(switch, "p1").drops.get(DropReason::Malformed);
            assert_eq!(malformed, 0);
        }
    }
}

/// Bits per second of one stream of TCP in 4 s to a host behind a queue of 200 Mbit/s that drops
/// what exceeds 100 ms.
fn congested_rate(ports: [&str; 2], ecn: bool) -> (f64, u64) {
    let hosts = Hosts::new(ports);
    for number in [1, 2] {
        let ecn = u8::from(ecn);
        hosts.run(number, &format!("sysctl -q net.ipv4.tcp_ecn={ecn}"));
    }
    // The host's answers take the other way: the queue is at the port's end of the veth pair.
    hosts.veths.run("tc qdisc add dev v2 root tbf rate 200mbit burst 100kb limit 400kb");
    let listener = hosts.names[1].enter(|| TcpListener::bind("10.0.0.2:9000")).unwrap();
    let mut sender = hosts.names[0].enter(|| TcpStream::connect("10.0.0.2:9000")).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    let sending = std::thread::spawn(move || {
        let bytes = vec![7; 1 << 16];
        while sender.write_all(&bytes).is_ok() {}
    });
    let (begin, mut len, mut bytes) = (Instant::now(), 0, vec![0; 1 << 16]);
    while begin.elapsed() < Duration::from_secs(4) {
        len += receiver.read(&mut bytes).unwrap();
    }
    let rate = len as f64 * 8.0 / begin.elapsed().as_secs_f64();
    drop(receiver);
    sending.join().unwrap();
    (rate, counters(&hosts.switches[0], "p1").drops.get(DropReason::Malformed))
}

/// After each loss, a sender with ECN sets the flag CWR. A packet with it that is lost in turn
/// costs the flow most of its rate.
#[test]
fn ecn_costs_no_throughput_behind_a_full_queue() {
    let _alone = alone();
    require_root!();
    for ports in [["raw", "raw"], ["tap", "raw"]] {
        // The best of three: a busy machine delays any of them.
        let is_right = |_| {
            let [(with, malformed), (without, _)] =
                [true, false].map(|ecn| congested_rate(ports, ecn));
            println!("{ports:?}: {with:.3e} bit/s with ECN, {without:.3e} without");
            assert_eq!(malformed, 0, "{ports:?}");
            with >= 0.95 * without
        };
        assert!((0..3).any(is_right), "{ports:?}");
    }
}

#[test]
fn joined_switches_carry_packets_whole() {
    let _alone = alone();
    require_root!();
    let folder = tempfile::tempdir().unwrap();
    let features = [
        "csum",
        "host_tso4",
        "host_tso6",
        "host_ecn",
        "guest_csum",
        "guest_tso4",
        "guest_tso6",
        "guest_ecn",
    ];
    for (number, keys, is_long) in [
        (0, "", true),
        (1, "packed=1&queues=2", true),
        (2, "offload=0", false),
        (3, "size=32", false),
    ] {
        let socket = folder.path().join(number.to_string());
        let switches: Vec<_> = ["vhost:", "virtio:"]
            .iter()
            .map(|scheme| {
                let switch = switch("mode = 'learning'");
                let keys = if *scheme == "virtio:" { keys } else { "queues=2" };
                ends::add(&switch, &format!("other={scheme}{}?{keys}", socket.display()));
                switch
            })
            .collect();
        let hosts = Hosts::on(switches, ["tap", "tap"]);
        hosts.switches.iter().for_each(ends::wait_until_running);
        for to in ["10.0.0.2", "fd00::2"] {
            hosts.stream(to.parse().unwrap(), 20 << 20);
        }
        for switch in &hosts.switches {
            let other = ends::status(switch, "other");
            let negotiated = |name: &&str| other.features.iter().any(|feature| feature == *name);
            assert!(features.iter().all(|name| negotiated(name) == is_long), "{keys}: {other:?}");
            let malformed = other.counters.drops.get(DropReason::Malformed);
            assert_eq!(malformed, 0, "{keys}: {other:?}");
        }
        let sent = counters(&hosts.switches[0], "other");
        let mean = sent.tx_bytes / sent.tx_frames;
        assert_eq!(mean > 4000, is_long, "{keys}: {mean} bytes per frame");
    }
}

/// Starts a guest, 10.0.0.NUMBER, with one network card.
fn guest(number: u8, socket: &Path, script: &str) -> RunningVm {
    let set_up = format!(
        "set -e
         modprobe af_packet 2> /dev/null || true
         /busybox ip link set lo up
         /busybox ip address add 10.0.0.{number}/24 dev eth0
         /busybox ip link set eth0 up"
    );
    Vm::new(&format!("guest {number}"))
        .memory_mib(512)
        .vhost_user(VhostUser::reconnect(socket, MacAddr::local(number.into())))
        .script(&format!("{set_up}\n{script}\n"))
        .start()
        .unwrap()
}

/// Returns the lengths of the frames that tshark has captured in a guest.
fn captured(output: &str) -> Vec<u64> {
    output.lines().filter_map(|line| line.strip_prefix("captured ")?.parse().ok()).collect()
}

#[test]
fn guests_exchange_long_segments_with_vm() {
    let _alone = alone();
    if let Err(why) = Vm::check() {
        return common::skip(&why.to_string());
    }
    if Command::new("tshark").arg("--version").output().is_err() {
        return common::skip("tshark is not installed: apt install tshark");
    }
    let folder = tempfile::tempdir().unwrap();
    let sockets = ["1", "2"].map(|name| folder.path().join(name));
    let switch = switch("mode = 'learning'");
    for (name, socket) in ["one", "two"].iter().zip(&sockets) {
        ends::add(&switch, &format!("{name}=vhost:{}", socket.display()));
    }
    let limit = Duration::from_secs(240);
    // The capture is on the sender: its kernel merges segments that it receives.
    let receive = format!(
        "{DRAY} receive --port tcp:0.0.0.0:9000 & echo listening; wait; cat /proc/net/snmp"
    );
    let mut receiver = guest(1, &sockets[0], &receive);
    receiver.wait_until_output("listening\n", limit).unwrap();
    let send = format!(
        "tshark -q -i eth0 -f 'tcp dst port 9000' -a packets:40 -w /tmp/out.pcap &
         for i in $(seq 600); do test -s /tmp/out.pcap && break; sleep 0.2; done
         {DRAY} send --port tcp:10.0.0.1:9000 --duration 4
         wait
         tshark -r /tmp/out.pcap -T fields -e frame.len | sed 's/^/captured /'"
    );
    let sender = guest(2, &sockets[1], &send).wait(limit).unwrap();
    let status = ["one", "two"].map(|name| ends::status(&switch, name));
    assert_eq!(sender.status, 0, "{sender:?} {status:?}");
    let long = captured(&sender.output).iter().filter(|len| **len > 1514).count();
    assert!(long > 10, "{sender:?}");
    let [one, two] = status;
    for feature in ["csum", "host_tso4", "guest_csum", "guest_tso4", "mrg_rxbuf"] {
        assert!(one.features.iter().any(|name| name == feature), "{feature}: {one:?}");
    }
    // The switch has cut nothing, and dropped nothing.
    let mean = two.counters.rx_bytes / two.counters.rx_frames;
    assert!(mean > 3000, "{mean} bytes per frame: {two:?}");
    assert!(one.counters.tx_frames <= two.counters.rx_frames, "{one:?} {two:?}");
}
