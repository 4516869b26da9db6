//! Datagrams at a VXLAN port, in messages that the kernel did not cut: it lends exactly the frames
//! of its network, and counts everything else. The first two bytes are the length of a message's
//! datagrams.
#![no_main]

use std::cell::RefCell;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use dray_port::{FRAME_LIMIT, Frame, Port, PortUri, scratch};
use dray_wire::ethernet::ETHERNET_LEN;
use dray_wire::vxlan::{VXLAN_LEN, header};
use libfuzzer_sys::fuzz_target;

const VNI: u32 = 7;
/// Maximum number of datagrams that the kernel takes in a message.
const DATAGRAMS_MAX: usize = 64;

thread_local! {
    static ENDS: RefCell<(Port, UdpSocket)> = RefCell::new(ends());
}

fn ends() -> (Port, UdpSocket) {
    let free = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    let local = free.local_addr().expect("an address");
    drop(free);
    let uri = format!("vxlan:{local}?vni={VNI}&learn=any&wait=poll");
    let port = uri.parse::<PortUri>().expect("valid").open().expect("a free address");
    // Replies go to the same UDP port of the sender's address: with the port's own address, to
    // itself.
    let socket = UdpSocket::bind(("127.0.0.2", local.port())).expect("a socket");
    socket.connect(local).expect("our own address");
    (port, socket)
}

fn set_size(socket: &UdpSocket, size: u16) {
    let size = libc::c_int::from(size);
    let (value, len) = ((&raw const size).cast(), size_of_val(&size) as u32);
    // SAFETY: the kernel reads as many bytes as an integer has.
    let set = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, len)
    };
    assert_eq!(set, 0);
}

/// Returns the frames in a message, and the number of datagrams without one.
fn model(message: &[u8], size: usize) -> (Vec<Vec<u8>>, u64) {
    let (mut frames, mut refused) = (Vec::new(), 0);
    for datagram in message.chunks(size) {
        match datagram.strip_prefix(&header(VNI)) {
            Some(frame) if (ETHERNET_LEN..=FRAME_LIMIT).contains(&frame.len()) => {
                frames.push(frame.to_vec());
            }
            _ => refused += 1,
        }
    }
    (frames, refused)
}

fuzz_target!(|input: &[u8]| {
    let Some((size, message)) = input.split_first_chunk() else { return };
    let size = u16::from_le_bytes(*size) % 200;
    // Most datagrams are to be of the right network.
    let mut message = message.to_vec();
    let datagram = if size == 0 { message.len().max(1) } else { size.into() };
    for part in message.chunks_mut(datagram).filter(|part| part.len() > VXLAN_LEN) {
        if part[VXLAN_LEN] & 1 == 0 {
            part[..VXLAN_LEN].copy_from_slice(&header(VNI));
        }
    }
    if message.is_empty() || message.len() > DATAGRAMS_MAX * datagram || message.len() > 60_000 {
        return;
    }
    ENDS.with_borrow_mut(|(port, socket)| {
        let rx = &mut port.rx[0];
        let before = rx.dropped().expect("a count");
        // A message of a single datagram is not cut.
        set_size(socket, if message.len() > datagram { size } else { 0 });
        assert_eq!(socket.send(&message).expect("room"), message.len());
        let (expected, refused) = model(&message, datagram);
        let (mut frames, mut room) = (Vec::new(), scratch());
        let take = &mut |lent: &[Frame<'_>]| {
            frames.extend(lent.iter().map(|frame| frame.bytes(&mut room).to_vec()));
            lent.len()
        };
        while rx.receive(take).expect("a working socket") > 0 {}
        assert_eq!(frames, expected);
        assert_eq!(rx.dropped().expect("a count") - before, refused);
        // Stations were learned from these frames: replies find their way.
        let replies: Vec<_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
        assert_eq!(port.tx[0].transmit(&replies).expect("a working socket"), replies.len());
    });
});
