//! Traffic between the kernels of two network namespaces, whose stacks leave checksums and
//! segmentation to their interfaces.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::Duration;

use dray_lab::NetworkNamespace;

const LIMIT: Duration = Duration::from_secs(60);

/// Sends `len` bytes by TCP from one namespace to the address `to` of another, and checks each of
/// them.
pub fn transfer([from, at]: [&NetworkNamespace; 2], to: IpAddr, len: usize) {
    let listener = at.enter(|| TcpListener::bind(SocketAddr::new(to, 9000))).unwrap();
    let mut sender =
        from.enter(|| TcpStream::connect_timeout(&SocketAddr::new(to, 9000), LIMIT)).unwrap();
    let byte = |at: usize| (at / 3 + at / 65_536) as u8;
    let sending = std::thread::spawn(move || {
        let bytes: Vec<u8> = (0..len).map(byte).collect();
        sender.write_all(&bytes).unwrap();
    });
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(LIMIT)).unwrap();
    let mut bytes = Vec::new();
    receiver.read_to_end(&mut bytes).unwrap();
    sending.join().unwrap();
    assert_eq!(bytes.len(), len);
    assert!(bytes.iter().enumerate().all(|(at, seen)| *seen == byte(at)));
    assert_eq!(at.enter(|| Ok(checksum_errors())).unwrap(), 0);
}

/// Sends packets of `count` datagrams of 1000 bytes each, which the first namespace's kernel does
/// not cut, to the address `to` of the other, and checks that it gets each of them.
pub fn datagrams([from, at]: [&NetworkNamespace; 2], to: IpAddr, count: usize) {
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let receiver = at.enter(|| UdpSocket::bind(SocketAddr::new(to, 9000))).unwrap();
    let sender = from.enter(|| UdpSocket::bind(any)).unwrap();
    sender.connect(SocketAddr::new(to, 9000)).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    leave_together(&sender, 1000);
    let sent: Vec<u8> = (0..count * 1000).map(|at| (at / 1000 + at % 7) as u8).collect();
    for _ in 0..20 {
        assert_eq!(sender.send(&sent).unwrap(), sent.len());
        for expected in sent.chunks(1000) {
            let mut datagram = [0; 2000];
            let len = receiver.recv(&mut datagram).unwrap();
            assert_eq!(datagram[..len], *expected);
        }
    }
    assert_eq!(at.enter(|| Ok(checksum_errors())).unwrap(), 0);
}
/// Makes the kernel take several datagrams of `len` bytes at once (`UDP_SEGMENT`).
fn leave_together(socket: &UdpSocket, len: libc::c_int) {
    // SAFETY: the kernel reads one int.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::SOL_UDP,
            libc::UDP_SEGMENT,
            (&raw const len).cast(),
            size_of_val(&len) as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
}

/// Returns the number of segments and datagrams that the kernel has dropped for their checksum.
fn checksum_errors() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp").unwrap();
    let of = |protocol| {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(protocol));
        let (names, numbers) = (lines.next().unwrap(), lines.next().unwrap());
        let at = names.split(' ').position(|name| name == "InCsumErrors").unwrap();
        numbers.split(' ').nth(at).unwrap().parse::<u64>().unwrap()
    };
    let text = std::fs::read_to_string("/proc/thread-self/net/snmp6").unwrap();
    let v6 = text.lines().find_map(|line| line.strip_prefix("Udp6InCsumErrors")).unwrap();
    of("Tcp: ") + of("Udp: ") + v6.trim().parse::<u64>().unwrap()
}
