//! Kernels as user and data network, whose stacks leave checksums and segmentation to their
//! interfaces.

use std::net::Ipv4Addr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use dray_lab::NetworkNamespace;
use dray_port::{FRAME_LIMIT, Frame, Port, Wait, scratch};
use dray_wire::MacAddr;
use dray_wire::ethernet::{ETHERNET_LEN, Ethernet, ethertype};
use dray_wire::gtpu::{self, FIXED_LEN};
use dray_wire::ip::{Header, IPV4_LEN, protocol};

use crate::common::kernels::{datagrams, transfer};
use crate::common::veths::Veths;
use crate::common::{alone, eventually, serves};
use crate::fixture::Upf;

const CONFIG: &str = r#"
[n3]
mac = "02:00:00:00:03:01"
addresses = ["10.0.3.1"]
neighbours = [{ address = "10.0.3.2", mac = "02:00:00:00:03:02" }]
[n6]
mac = "02:00:00:00:06:01"
addresses = ["10.0.6.1", "fd00:6::1"]
routes = [ { to = "0.0.0.0/0", via = "10.0.6.2" }, { to = "2001:db8::/32", via = "fd00:6::2" } ]
[[sessions]]
seid = 1
ue = ["10.45.0.1", "2001:db8:45::/64"]
pdrs = [
    { id = 1, precedence = 1, from = "access", teid = 1, far = 1 },
    { id = 2, precedence = 1, from = "core", far = 2 },
]
fars = [
    { id = 1, action = "forward" },
    { id = 2, action = "forward", tunnel = { gnb = "10.0.3.2", teid = 2 } },
]
"#;

const GNB_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 2]);
const N3_MAC: MacAddr = MacAddr([2, 0, 0, 0, 3, 1]);
/// Address of the user's router, the other end of its interface.
const ROUTER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 45, 1]);
const USER_MAC: MacAddr = MacAddr([2, 0, 0, 0, 45, 2]);

/// A gNB: puts the packets of the user's interface into a tunnel, and takes them out.
fn serve(user: &mut Port, n3: &mut Port, stop: &AtomicBool) {
    let mut scratch = scratch();
    let mut message = vec![0; FRAME_LIMIT];
    while !stop.load(Relaxed) {
        let received = user.rx[0].receive(&mut |frames| {
            for frame in frames {
                let bytes = frame.bytes(&mut scratch);
                let kind = Ethernet::parse(bytes).unwrap().ethertype;
                if [ethertype::IPV4, ethertype::IPV6].contains(&kind) {
                    let len = tunnelled(&bytes[ETHERNET_LEN..], &mut message);
                    n3.tx[0].transmit(&[Frame::from(&message[..len])]).unwrap();
                }
            }
            frames.len()
        });
        received.unwrap();
        let received = n3.rx[0].receive(&mut |frames| {
            for frame in frames {
                let bytes = frame.bytes(&mut scratch);
                assert!(bytes.len() <= 1500 + ETHERNET_LEN, "{} bytes", bytes.len());
                if let Some(packet) = untunnelled(bytes) {
                    let ethertype =
                        if packet[0] >> 4 == 4 { ethertype::IPV4 } else { ethertype::IPV6 };
                    let head = Ethernet { dst: USER_MAC, src: ROUTER_MAC, ethertype };
                    head.write(message.first_chunk_mut().unwrap());
                    let len = ETHERNET_LEN + packet.len();
                    message[ETHERNET_LEN..len].copy_from_slice(packet);
                    user.tx[0].transmit(&[Frame::from(&message[..len])]).unwrap();
                }
            }
            frames.len()
        });
        received.unwrap();
    }
}

/// Writes a user's packet in a G-PDU to `out`; returns the length of the frame.
fn tunnelled(packet: &[u8], out: &mut [u8]) -> usize {
    let head = Ethernet { dst: N3_MAC, src: GNB_MAC, ethertype: ethertype::IPV4 };
    head.write(out.first_chunk_mut().unwrap());
    let udp_len = (8 + FIXED_LEN + packet.len()) as u16;
    let (src, dst) = (Ipv4Addr::new(10, 0, 3, 2), Ipv4Addr::new(10, 0, 3, 1));
    Header { src, dst, protocol: protocol::UDP, tos: 0, ttl: 64, payload_len: udp_len }
        .write(out[ETHERNET_LEN..].first_chunk_mut().unwrap());
    let udp = ETHERNET_LEN + IPV4_LEN;
    let port = 2152_u16.to_be_bytes();
    out[udp..udp + 8]
        .copy_from_slice(&[&port[..], &port, &udp_len.to_be_bytes(), &[0, 0]].concat());
    let start = udp + 8 + gtpu::write_gpdu(&mut out[udp + 8..], 1, None, packet.len());
    out[start..start + packet.len()].copy_from_slice(packet);
    start + packet.len()
}

/// Returns the user's packet in the G-PDU of a frame.
fn untunnelled(bytes: &[u8]) -> Option<&[u8]> {
    let kind = Ethernet::parse(bytes)?.ethertype;
    let message = bytes.get(ETHERNET_LEN + IPV4_LEN + 8..).filter(|_| kind == ethertype::IPV4)?;
    let header = gtpu::Header::parse(message, message.len()).ok()?;
    let is_packet = header.message == gtpu::message::G_PDU && header.teid == 2;
    is_packet.then(|| &message[header.len..header.len + header.payload_len])
}

/// The data network's kernel hands over packets of up to 64 KiB with partial checksums. The user
/// gets every byte, in packets that fit its link, with right checksums.
#[test]
fn kernel_in_the_data_network_exchanges_tcp_and_udp_with_user() {
    let _alone = alone();
    require_root!();
    let veths = Veths::new(1, &[["gnb", "n3"]]);
    let [user, server] = [(); 2].map(|()| NetworkNamespace::scratch().unwrap());
    let path = |of: &NetworkNamespace| {
        format!("/proc/{}/fd/{}", std::process::id(), of.as_fd().as_raw_fd())
    };
    veths.ip(&format!("link add n6 type veth peer name eth0 netns {}", path(&server)));
    veths.ip("link set n6 addrgenmode none up");
    let mut of_user = veths.open(&format!("tap:eth0?mtu=1400&netns={}", path(&user)));
    let run = |at: &NetworkNamespace, arguments: &str| {
        let mut ip = std::process::Command::new("ip");
        ip.args(arguments.split(' '));
        assert!(at.enter(|| ip.status()).unwrap().success(), "ip {arguments}");
    };
    for arguments in [
        "link set eth0 up",
        "address add 10.0.6.2/24 dev eth0",
        "address add fd00:6::2/64 dev eth0 nodad",
        "address add 2001:db8:6::2/128 dev eth0 nodad",
        "route add 10.45.0.0/16 via 10.0.6.1",
        "route add 2001:db8:45::/64 via fd00:6::1 src 2001:db8:6::2",
    ] {
        run(&server, arguments);
    }
    for arguments in [
        &format!("link set eth0 address {USER_MAC}"),
        "address add 10.45.0.1/24 dev eth0",
        "address add 2001:db8:45::1/64 dev eth0 nodad",
        &format!("neighbour add 10.45.0.254 lladdr {ROUTER_MAC} dev eth0"),
        &format!("neighbour add 2001:db8:45::fe lladdr {ROUTER_MAC} dev eth0"),
        "route add default via 10.45.0.254",
        "route add default via 2001:db8:45::fe",
    ] {
        run(&user, arguments);
    }
    let files = Upf::with_config(CONFIG);
    let _upf = veths.0.enter(|| files.start("upf", "raw:n3?batch=64", "raw:n6", &[])).unwrap();
    assert!(eventually(|| serves(files.at("upf.sock"))), "{}", files.said());
    let mut n3 = veths.open("raw:gnb?batch=64");
    for port in [&mut of_user, &mut n3] {
        port.rx[0].set_wait(Wait::Poll { pause_us: 0 });
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| serve(&mut of_user, &mut n3, &stop));
        let stop = Stop(&stop);
        let pings = |address: &str| {
            let mut ping = std::process::Command::new("ping");
            ping.args(["-q", "-c", "1", "-W", "1", address]);
            user.enter(|| ping.output()).unwrap().status.success()
        };
        for (server_at, user_at) in [("10.0.6.2", "10.45.0.1"), ("2001:db8:6::2", "2001:db8:45::1")]
        {
            assert!(eventually(|| pings(server_at)), "{server_at}: {}", files.ask(&["stats"]));
            let [server_at, user_at] = [server_at, user_at].map(|text| text.parse().unwrap());
            transfer([&server, &user], user_at, 4 << 20);
            transfer([&user, &server], server_at, 4 << 20);
            for count in [1, 45] {
                datagrams([&server, &user], user_at, count);
                datagrams([&user, &server], server_at, count);
            }
        }
        drop(stop);
    });
}

/// Ends the gNB, also if the test fails.
struct Stop<'s>(&'s AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}
