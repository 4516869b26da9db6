//! VXLAN ports: with the kernel's vxlan interfaces and with each other, over IPv4 and IPv6.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, AsRawFd};
use std::process::{Command, Stdio};
use std::time::Duration;

use dray_lab::NetworkNamespace;
use dray_netdev::Interface;
use dray_port::{Frame, Port, PortUri, Wait};
use dray_switch::{DropReason, Switch};
use dray_wire::vxlan;
use tempfile::TempDir;

use crate::common::{self, Started, alone};
use crate::ends::{self, Frames, arrived, counters, drops, pass, plug, reach, send_one, switch};

const VNI: u32 = 7;

/// Hosts that are joined by a bridge. Host N has the addresses 10.9.0.N and fd09::N.
struct Underlay {
    /// Keeps the bridge.
    _bridge: NetworkNamespace,
    hosts: Vec<NetworkNamespace>,
}

fn path(namespace: &NetworkNamespace) -> String {
    format!("/proc/{}/fd/{}", std::process::id(), namespace.as_fd().as_raw_fd())
}

fn run(namespace: &NetworkNamespace, line: &str) {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command.args(words).stdout(Stdio::null());
    assert!(namespace.enter(|| command.status()).unwrap().success(), "{line}");
}

impl Underlay {
    fn new(count: usize, mtu: usize) -> Self {
        let bridge = NetworkNamespace::scratch().unwrap();
        run(&bridge, "ip link add br0 mtu 9200 type bridge");
        run(&bridge, "ip link set br0 addrgenmode none up");
        let hosts: Vec<_> = (1..=count).map(|_| NetworkNamespace::scratch().unwrap()).collect();
        for (number, host) in (1..).zip(&hosts) {
            let veth = format!("name n{number} mtu {mtu} type veth peer name u0 mtu {mtu}");
            run(&bridge, &format!("ip link add {veth}"));
            run(&bridge, &format!("ip link set u0 netns {}", path(host)));
            run(&bridge, &format!("ip link set n{number} addrgenmode none master br0 up"));
            run(host, "ip link set u0 up");
            run(host, &format!("ip address add 10.9.0.{number}/24 dev u0"));
            run(host, &format!("ip address add fd09::{number}/64 dev u0 nodad"));
        }
        let underlay = Self { _bridge: bridge, hosts };
        // The bridge forwards a moment after its ports are up.
        for (number, _) in (2..).zip(&underlay.hosts[1..]) {
            let ping = format!("ping -q -c 1 -W 1 10.9.0.{number}");
            let answers = || {
                let mut command = Command::new("sh");
                command.args(["-c", &ping]).stdout(Stdio::null());
                underlay.host(1).enter(|| command.status()).unwrap().success()
            };
            assert!(common::eventually(answers), "{ping}");
        }
        underlay
    }

    fn host(&self, number: usize) -> &NetworkNamespace {
        &self.hosts[number - 1]
    }

    /// Makes a vxlan interface of the kernel on a host.
    fn kernel(&self, number: usize, network: &str, others: &[usize]) {
        let host = self.host(number);
        let (local, first) = (at(network, number), at(network, others[0]));
        let settings = format!("id {VNI} local {local} remote {first} dstport 4789");
        run(host, &format!("ip link add vx0 type vxlan {settings}"));
        for other in &others[1..] {
            let to = at(network, *other);
            run(host, &format!("bridge fdb append 00:00:00:00:00:00 dev vx0 dst {to}"));
        }
        // The kernel is to send nothing of its own.
        host.enter(|| std::fs::write("/proc/sys/net/ipv6/conf/vx0/disable_ipv6", "1")).unwrap();
        run(host, "ip link set vx0 up");
    }

    /// Returns the URI of a VXLAN port on a host, with the other hosts as its remotes.
    fn uri(&self, number: usize, network: &str, others: &[usize], keys: &str) -> String {
        let remotes: Vec<_> = others.iter().map(|other| at(network, *other)).collect();
        let (local, netns) = (at(network, number), path(self.host(number)));
        let remotes = remotes.join("+");
        format!("vxlan:{local}?vni={VNI}&remote={remotes}&netns={netns}{keys}")
    }
}

/// Returns the address of a host.
fn at(network: &str, number: usize) -> String {
    format!("{network}{number}")
}

const NETWORKS: [&str; 2] = ["10.9.0.", "fd09::"];

/// A switch with a VXLAN port, and a test port as its other port.
struct Node {
    switch: Switch,
    port: Port,
    _folder: TempDir,
}

impl Node {
    fn new(uri: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("a");
        let switch = switch("mode = 'learning'");
        ends::add(&switch, &format!("a=vhost:{}", socket.display()));
        ends::add(&switch, &format!("v={uri}"));
        let port = plug(&socket, "");
        Self { switch, port, _folder: folder }
    }
}

/// Waits until exactly `expected` frames from other hosts are counted.
#[track_caller]
fn settle(switch: &Switch, expected: u64) {
    let received = || counters(switch, "v").rx_frames;
    ends::eventually("all counted", || received() >= expected);
    std::thread::sleep(Duration::from_millis(20));
    assert_eq!(received(), expected);
}

fn open_in(namespace: &NetworkNamespace, uri: &str) -> Result<Port, String> {
    let uri: PortUri = uri.parse().unwrap();
    let mut port =
        namespace.enter(|| Ok(uri.open())).unwrap().map_err(|error| error.to_string())?;
    port.rx[0].set_wait(Wait::Poll { pause_us: 0 });
    Ok(port)
}

#[test]
fn kernel_and_switch_exchange_frames() {
    let _alone = alone();
    require_root!();
    for network in NETWORKS {
        for keys in ["", "&gso=0", "&learn=any&flows=1"] {
            let underlay = Underlay::new(2, 1600);
            underlay.kernel(2, network, &[1]);
            let mut node = Node::new(&underlay.uri(1, network, &[2], keys));
            let mut kernel = open_in(underlay.host(2), "raw:vx0?batch=64").unwrap();
            let frames = Frames::between(1, 2);
            reach((&mut node.port.tx, &mut kernel.rx), &frames);
            pass((&mut node.port.tx, &mut kernel.rx), &frames, &frames, 10_000);
            let back = frames.clone().swapped();
            pass((&mut kernel.tx, &mut node.port.rx), &back, &back, 10_000);
            // The kernel's interface sends nothing of its own.
            settle(&node.switch, 10_000);
            let counters = counters(&node.switch, "v");
            assert_eq!(counters.drops.iter().map(|(_, frames)| frames).sum::<u64>(), 0);
        }
    }
}

#[test]
fn container_pings_through_the_kernel() {
    let _alone = alone();
    require_root!();
    for network in NETWORKS {
        let underlay = Underlay::new(2, 1500);
        underlay.kernel(2, network, &[1]);
        run(underlay.host(2), "ip address add 10.0.0.2/24 dev vx0");
        let station = NetworkNamespace::scratch().unwrap();
        let switch = switch("mode = 'learning'");
        ends::add(&switch, &format!("t=tap:eth0?mtu=1430&netns={}", path(&station)));
        ends::add(&switch, &format!("v={}", underlay.uri(1, network, &[2], "")));
        run(&station, "ip address add 10.0.0.1/24 dev eth0");
        run(&station, "ping -q -c 5 -i 0.02 -W 5 10.0.0.2");
        // Just as long as the MTU, without fragments.
        run(&station, "ping -q -c 5 -i 0.02 -W 5 -M do -s 1402 10.0.0.2");
        run(underlay.host(2), "ping -q -c 5 -i 0.02 -W 5 10.0.0.1");
        // No card is on the way that would compute checksums and cut segments.
        underlay.host(2).enter(|| Interface::find("vx0")?.compute_checksums()).unwrap();
        stream(&station, underlay.host(2), "10.0.0.2:9000");
        stream(underlay.host(2), &station, "10.0.0.1:9000");
    }
}

/// Sends 4 MiB by TCP from one namespace to an address of another, and checks each byte.
fn stream(from: &NetworkNamespace, to: &NetworkNamespace, address: &str) {
    const LIMIT: Duration = Duration::from_secs(60);
    let bytes: Vec<u8> = (0..4 << 20).map(|at: u32| (at / 3 + at / 65_536) as u8).collect();
    let address: SocketAddr = address.parse().unwrap();
    let listener = to.enter(|| TcpListener::bind(address)).unwrap();
    let mut sender = from.enter(|| TcpStream::connect_timeout(&address, LIMIT)).unwrap();
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    let received = std::thread::scope(|scope| {
        scope.spawn(|| {
            sender.write_all(&bytes).unwrap();
            sender.shutdown(Shutdown::Write).unwrap();
        });
        let mut received = Vec::new();
        receiver.read_to_end(&mut received).unwrap();
        received
    });
    assert!(received == bytes, "{} of {} bytes are right", received.len(), bytes.len());
}

#[test]
fn three_hosts_learn_and_never_forward_between_remotes() {
    let _alone = alone();
    require_root!();
    for network in NETWORKS {
        let underlay = Underlay::new(3, 1600);
        let mut one = Node::new(&underlay.uri(1, network, &[2, 3], ""));
        let mut two = Node::new(&underlay.uri(2, network, &[1, 3], ""));
        underlay.kernel(3, network, &[1, 2]);
        let mut three = open_in(underlay.host(3), "raw:vx0").unwrap();

        // Each broadcast arrives once at both others: no host passes it on.
        let broadcast = Frames::broadcast(1);
        reach((&mut one.port.tx, &mut two.port.rx), &broadcast);
        reach((&mut one.port.tx, &mut three.rx), &broadcast);
        pass((&mut one.port.tx, &mut two.port.rx), &broadcast, &broadcast, 1000);
        let sent = send_one(three.tx[0].as_mut(), &Frames::broadcast(3));
        for port in [&mut one.port, &mut two.port] {
            let mut seen = 0;
            ends::eventually("broadcast of the kernel", || {
                seen += arrived(port, &sent).len();
                seen > 0
            });
            std::thread::sleep(Duration::from_millis(20));
            assert_eq!(seen + arrived(port, &sent).len(), 1);
        }
        // The kernel receives a broadcast once.
        let sent = send_one(two.port.tx[0].as_mut(), &Frames::broadcast(2));
        let mut seen = Vec::new();
        ends::eventually("broadcast of two", || {
            seen.extend(arrived(&mut three, &sent));
            !seen.is_empty()
        });
        assert_eq!(seen.len(), 1);

        // All stations are known now: two sees nothing of what one and three exchange.
        std::thread::sleep(Duration::from_millis(20));
        let before = counters(&two.switch, "v").rx_frames;
        let frames = Frames::between(1, 3);
        pass((&mut one.port.tx, &mut three.rx), &frames, &frames, 1000);
        let back = frames.clone().swapped();
        pass((&mut three.tx, &mut one.port.rx), &back, &back, 1000);
        let known = Frames::between(1, 2);
        pass((&mut one.port.tx, &mut two.port.rx), &known, &known, 1000);
        settle(&two.switch, before + 1000);
        for node in [&one, &two] {
            assert_eq!(drops(&node.switch, "v", DropReason::Malformed), 0);
            assert_eq!(drops(&node.switch, "v", DropReason::Undeliverable), 0);
        }
    }
}

/// Sends `bytes` as datagrams of `size` bytes, in one message.
fn send_cut(socket: &UdpSocket, size: u16, bytes: &[u8]) {
    let size = libc::c_int::from(size);
    // SAFETY: the kernel reads as many bytes as an integer has.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const size).cast(),
            size_of_val(&size) as u32,
        )
    };
    assert_eq!(set, 0, "{}", io::Error::last_os_error());
    socket.send(bytes).unwrap();
}

#[test]
fn hostile_datagrams_are_counted_and_dropped() {
    let _alone = alone();
    require_root!();
    for network in NETWORKS {
        let underlay = Underlay::new(3, 1600);
        let mut node = Node::new(&underlay.uri(1, network, &[2], ""));
        let peer = |number: usize| {
            let [local, remote] = [(number, 0), (1, 4789)]
                .map(|(host, port)| SocketAddr::new(at(network, host).parse().unwrap(), port));
            underlay.host(number).enter(|| {
                let socket = UdpSocket::bind(local)?;
                socket.connect(remote)?;
                Ok(socket)
            })
        };
        let [known, unknown] = [2, 3].map(|number| peer(number).unwrap());
        let frames = Frames::between(2, 1);
        let valid = |number| [&vxlan::header(VNI)[..], &frames.make(number)].concat();
        let mut bad = vec![
            Vec::new(),
            vec![8],
            vxlan::header(VNI).to_vec(),
            [&vxlan::header(VNI)[..], &[0; 13]].concat(),
            [&vxlan::header(VNI + 1)[..], &[0; 60]].concat(),
            [&vxlan::header(0)[..], &[0; 60]].concat(),
            vec![0; 100],
            vec![0xff; 100],
        ];
        for at in [0, 1, 2, 3, 7] {
            let mut changed = valid(0);
            changed[at] ^= 0x80;
            bad.push(changed);
        }
        bad.iter().for_each(|datagram| assert_eq!(known.send(datagram).unwrap(), datagram.len()));
        assert_eq!(unknown.send(&valid(0)).unwrap(), valid(0).len());
        // Several in one message: a good one between bad ones; and from an unknown host.
        let good = &valid(0)[..8 + 60];
        let train = [&[0; 68][..], good, &[0xff; 68], &[0; 9]].concat();
        send_cut(&known, 68, &train);
        send_cut(&unknown, 68, &[good, good, good].concat());
        let expected = bad.len() as u64 + 1 + 3 + 3;
        ends::eventually("all counted", || {
            drops(&node.switch, "v", DropReason::Malformed) >= expected
        });
        assert_eq!(drops(&node.switch, "v", DropReason::Malformed), expected);
        settle(&node.switch, 1);
        assert_eq!(arrived(&mut node.port, &frames).len(), 1);
        // Larger datagrams than any port carries.
        let known = peer(2).unwrap();
        let long = [&valid(0)[..], &vec![0; 20_000]].concat();
        assert_eq!(known.send(&long).unwrap(), long.len());
        known.send(&valid(1)).unwrap();
        ends::eventually("the next good one", || counters(&node.switch, "v").rx_frames == 2);
        assert_eq!(drops(&node.switch, "v", DropReason::Malformed), expected + 1);
        assert_eq!(counters(&node.switch, "v").tx_frames, 0);
    }
}

#[test]
fn invalid_settings_are_refused_with_a_reason() {
    let _alone = alone();
    require_root!();
    let underlay = Underlay::new(2, 1500);
    let host = underlay.host(1);
    let _other = host.enter(|| UdpSocket::bind("10.9.0.1:4790")).unwrap();
    underlay.kernel(2, "10.9.0.", &[1]);
    for (host, uri, parts) in [
        (1, "vxlan:10.9.0.77?vni=7&remote=10.9.0.2", ["bind", "one of this namespace's own"]),
        (1, "vxlan:10.9.0.1:4790?vni=7&remote=10.9.0.2", ["in use", "a vxlan interface"]),
        (2, "vxlan:10.9.0.2?vni=7&remote=10.9.0.1", ["in use", "a vxlan interface"]),
        (1, "vxlan:10.9.0.1?vni=7&remote=10.8.0.1", ["remote: 10.8.0.1", "unreachable"]),
        (1, "vxlan:10.9.0.1?vni=7&remote=10.9.0.2&mtu=1451", ["mtu: 1451", "at most 1450"]),
        (1, "vxlan:fd09::1?vni=7&remote=fd09::2&mtu=1431", ["1500 bytes", "at most 1430"]),
        (1, "vxlan:10.9.0.1?vni=7&learn=any&netns=/nowhere", ["network namespace", "No such file"]),
    ] {
        let error = open_in(underlay.host(host), uri).map(drop).unwrap_err();
        for part in parts {
            assert!(error.contains(part), "{uri}: {error}");
        }
    }
    for (uri, longest) in [
        ("vxlan:10.9.0.1?vni=7&remote=10.9.0.2", 1464),
        ("vxlan:fd09::1?vni=7&remote=fd09::2", 1444),
        ("vxlan:10.9.0.1?vni=7&remote=10.9.0.2&mtu=1400", 1414),
        ("vxlan:10.9.0.1?vni=7&learn=any&remote=10.9.0.2", 1464),
    ] {
        let mut port = open_in(host, uri).unwrap();
        assert_eq!(port.tx[0].frame_max(), longest, "{uri}");
        let long = vec![2; 9018];
        // Also if nobody asks whether the frame fits.
        let frames = [1600, 9018, 60].map(|len| Frame::from(&long[..len]));
        assert_eq!(port.tx[0].transmit(&frames).unwrap(), 3);
        assert_eq!(port.tx[0].dropped(), 2, "{uri}");
    }
}

#[test]
fn remotes_that_are_not_listed_are_learned_only_on_demand() {
    let _alone = alone();
    require_root!();
    let underlay = Underlay::new(3, 1600);
    let netns = path(underlay.host(1));
    let mut hub = Node::new(&format!("vxlan:10.9.0.1?vni={VNI}&learn=any&mtu=1550&netns={netns}"));
    let mut spoke = Node::new(&underlay.uri(2, "10.9.0.", &[1], ""));
    underlay.kernel(3, "10.9.0.", &[1]);
    let mut kernel = open_in(underlay.host(3), "raw:vx0").unwrap();
    // No host is known yet: there is nowhere to flood to.
    send_one(hub.port.tx[0].as_mut(), &Frames::broadcast(1));
    ends::eventually("dropped", || drops(&hub.switch, "v", DropReason::Undeliverable) == 1);
    for (number, port) in [(2, &mut spoke.port), (3, &mut kernel)] {
        let frames = Frames::between(number, 1);
        reach((&mut port.tx, &mut hub.port.rx), &frames);
        pass((&mut port.tx, &mut hub.port.rx), &frames, &frames, 1000);
        let back = frames.clone().swapped();
        pass((&mut hub.port.tx, &mut port.rx), &back, &back, 1000);
    }
    assert_eq!(drops(&spoke.switch, "v", DropReason::Malformed), 0);
}

#[test]
fn sandboxed_switch_takes_a_port_of_another_namespace() {
    let _alone = alone();
    require_root!();
    let underlay = Underlay::new(2, 1600);
    underlay.kernel(2, "10.9.0.", &[1]);
    let folder = tempfile::tempdir().unwrap();
    let name = |name: &str| folder.path().join(name).display().to_string();
    let (control, socket) = (name("control"), name("a"));
    let mut command = common::command();
    command.args(["switch", "--control", &control, "--port", &format!("a=vhost:{socket}")]);
    let _switch = Started(command.stderr(Stdio::null()).stdout(Stdio::null()).spawn().unwrap());
    assert!(common::eventually(|| common::serves(&control)));
    let uri = "vxlan:10.9.0.1?vni=7&remote=10.9.0.2";
    let add = |more: &[&str]| {
        let words = ["switch", "add-port", "v", uri, "--control", &control];
        let output = common::dray(&[&words[..], more].concat());
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (success, error) = add(&[]);
    assert!(!success && error.contains("sandbox"), "{error}");
    let (success, error) = add(&["--netns", &path(underlay.host(1))]);
    assert!(success, "{error}");
    let mut port = plug(folder.path().join("a").as_path(), "");
    let mut kernel = open_in(underlay.host(2), "raw:vx0").unwrap();
    let frames = Frames::between(1, 2);
    reach((&mut port.tx, &mut kernel.rx), &frames);
    pass((&mut port.tx, &mut kernel.rx), &frames, &frames, 1000);
    let back = frames.clone().swapped();
    pass((&mut kernel.tx, &mut port.rx), &back, &back, 1000);
}
