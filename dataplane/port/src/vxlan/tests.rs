use std::net::{TcpListener, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::atomic::Ordering::Relaxed;

use dray_shm::SharedWords;
use dray_wire::{FRAME_MAX, Flow, MacAddr, test_frame};

use crate::{BATCH_MAX, Frame, Port, PortSnapshot, PortUri, Wait, scratch};

/// Returns the number of a UDP port that is free on the loopback addresses that tests use.
fn free_port() -> u16 {
    UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

fn uri(port: u16, host: u8, remotes: &[u8], keys: &str) -> PortUri {
    let remotes: Vec<_> = remotes.iter().map(|host| format!("127.0.0.{host}:{port}")).collect();
    let remotes = remotes.join("+");
    format!("vxlan:127.0.0.{host}:{port}?vni=5&remote={remotes}{keys}").parse().unwrap()
}

fn open(uri: &PortUri) -> Port {
    let mut port = uri.open().unwrap();
    port.rx[0].set_wait(Wait::Poll { pause_us: 0 });
    port
}

/// Returns all frames that have arrived: loopback delivers them during the call that sends them.
fn received(port: &mut Port) -> Vec<Vec<u8>> {
    let (mut frames, mut room) = (Vec::new(), scratch());
    let take = &mut |lent: &[Frame<'_>]| {
        frames.extend(lent.iter().map(|frame| frame.bytes(&mut room).to_vec()));
        lent.len()
    };
    while port.rx[0].receive(take).unwrap() > 0 {}
    frames
}

fn transmit(port: &mut Port, frames: &[Vec<u8>]) {
    let lent: Vec<_> = frames.iter().map(|frame| Frame::from(&frame[..])).collect();
    assert_eq!(port.tx[0].transmit(&lent).unwrap(), lent.len());
}

/// Frames of some flows and lengths, each with a number of its own.
fn mixture(flows: u16, lens: &[usize]) -> Vec<Vec<u8>> {
    let frame = |number: u16| {
        let flow = Flow::default().nth(number % flows);
        let mut frame = test_frame::build(&flow, lens[usize::from(number) % lens.len()]);
        frame[42..44].copy_from_slice(&number.to_be_bytes());
        frame
    };
    (0..BATCH_MAX as u16).map(frame).collect()
}

#[test]
fn batches_arrive_whole_and_flows_in_order() {
    let number = free_port();
    for keys in ["", "&gso=0", "&flows=1"] {
        let mut a = open(&uri(number, 1, &[2], keys));
        let mut b = open(&uri(number, 2, &[1], keys));
        for flows in [1, 3, 20] {
            for lens in [&[64][..], &[70, 70, 70, 64], &[1500], &[64, 590, 1514], &[FRAME_MAX]] {
                let sent = mixture(flows, lens);
                // Not more at a time than the receiving socket has room for.
                let mut arrived = Vec::new();
                let longest = lens.iter().max().unwrap();
                for part in sent.chunks((1 << 16) / longest) {
                    transmit(&mut a, part);
                    arrived.extend(received(&mut b));
                }
                assert_eq!(a.tx[0].dropped() + b.rx[0].dropped().unwrap(), 0);
                let of = |frames: &[Vec<u8>], flow: &[u8]| -> Vec<_> {
                    frames.iter().filter(|frame| frame[34..36] == *flow).cloned().collect()
                };
                assert_eq!(arrived.len(), sent.len(), "{keys} {flows} {lens:?}");
                for frame in &sent[..flows.into()] {
                    let flow = &frame[34..36];
                    assert!(of(&arrived, flow) == of(&sent, flow), "{keys} {flows} {lens:?}");
                }
            }
        }
    }
}

#[test]
fn frames_go_where_their_station_was_learned() {
    let number = free_port();
    let mut a = open(&uri(number, 1, &[2, 3], "&age=1000"));
    let mut b = open(&uri(number, 2, &[1, 3], ""));
    let mut c = open(&uri(number, 3, &[1, 2], ""));
    let frame = |from: u64, to: MacAddr| {
        let flow = Flow { src_mac: MacAddr::local(from), dst_mac: to, ..Flow::default() };
        test_frame::build(&flow, 64)
    };
    let to_station = frame(1, MacAddr::local(2));
    transmit(&mut a, std::slice::from_ref(&to_station));
    assert_eq!([&mut b, &mut c].map(|port| received(port).len()), [1, 1], "not known yet");
    let broadcast = frame(2, MacAddr([0xff; 6]));
    transmit(&mut b, std::slice::from_ref(&broadcast));
    assert_eq!([&mut a, &mut c].map(|port| received(port).len()), [1, 1]);
    for _ in 0..2 {
        transmit(&mut a, &[to_station.clone(), frame(1, MacAddr([0xff; 6])), to_station.clone()]);
        assert_eq!([&mut b, &mut c].map(|port| received(port).len()), [3, 1]);
        // Only what arrives from there teaches something.
        transmit(&mut a, std::slice::from_ref(&broadcast));
        assert_eq!([&mut b, &mut c].map(|port| received(port).len()), [1, 1]);
    }
    transmit(&mut c, &[broadcast]);
    assert_eq!([&mut a, &mut b].map(|port| received(port).len()), [1, 1]);
    transmit(&mut a, &[to_station]);
    assert_eq!([&mut b, &mut c].map(|port| received(port).len()), [0, 1], "it has moved");
}

#[test]
fn handed_sockets_are_checked() {
    let number = free_port();
    let uri_a = uri(number, 1, &[2], "&flows=2&mtu=1400");
    let mut a = uri_a.open_with(uri_a.prepare().unwrap()).unwrap();
    assert_eq!(a.tx[0].frame_max(), 1414);
    let mut b = open(&uri(number, 2, &[1], ""));
    transmit(&mut a, &mixture(3, &[64])[..64]);
    assert_eq!(received(&mut b).len(), 64);
    drop(a);

    let error =
        |descriptors: Vec<OwnedFd>| uri_a.open_with(descriptors).map(drop).unwrap_err().to_string();
    let udp = |address: &str| OwnedFd::from(UdpSocket::bind(address).unwrap());
    let local = udp(&format!("127.0.0.1:{number}"));
    let local = || local.try_clone().unwrap();
    for (descriptors, part) in [
        (vec![], "there are 0; give 3"),
        (
            vec![udp("127.0.0.1:0"), udp("127.0.0.1:0"), udp("127.0.0.1:0")],
            "number 1 is a datagram",
        ),
        (vec![local(), udp("127.0.0.1:0"), udp("127.0.0.2:0")], "number 3 is a datagram"),
        (vec![local(), udp("127.0.0.1:0"), udp("[::1]:0")], "number 3 is a datagram"),
        (
            vec![local(), TcpListener::bind("127.0.0.1:0").unwrap().into(), udp("127.0.0.1:0")],
            "number 2 is a stream socket",
        ),
    ] {
        let message = error(descriptors);
        assert!(message.contains(part) && message.contains("file descriptor"), "{message}");
    }
}

#[test]
fn next_process_continues_whatever_the_memory_says() {
    let number = free_port();
    let uri_a = uri(number, 1, &[2, 3], "&learn=any&flows=2&mtu=1400");
    let mut a = open(&uri_a);
    let mut b = open(&uri(number, 2, &[1], ""));
    let live = |port: &Port| PortSnapshot::of_devices(port.rx[0].devices(), 0).unwrap();
    let resume = |live: PortSnapshot| uri_a.resume(live).map(|(port, _)| port);
    transmit(&mut b, &mixture(3, &[64])[..10]);
    assert_eq!(received(&mut a).len(), 10);
    let next = resume(live(&a)).unwrap();
    assert_eq!(next.tx[0].frame_max(), 1414);
    let memory = || a.rx[0].devices()[3].try_clone_to_owned().unwrap();
    let memory = SharedWords::of(memory()).unwrap();
    let values = [u64::MAX, 0, 1, 1 << 32, 0x0123_4567_89ab_cdef];
    for value in values {
        memory.words().iter().for_each(|word| word.store(value, Relaxed));
        let mut next = resume(live(&a)).unwrap();
        assert!((14..=FRAME_MAX).contains(&next.tx[0].frame_max()));
        let bytes = vec![2; next.tx[0].frame_max().max(60)];
        let frames = [60, bytes.len()].map(|len| Frame::from(&bytes[..len]));
        assert_eq!(next.tx[0].transmit(&frames).unwrap(), 2);
        received(&mut b);
        transmit(&mut b, &mixture(3, &[64])[..10]);
        next.rx[0].set_wait(Wait::Poll { pause_us: 0 });
        assert_eq!(received(&mut next).len(), 10);
    }
    let part = |count: usize| {
        let devices = a.rx[0].devices();
        resume(PortSnapshot::of_devices(devices.into_iter().take(count), 0).unwrap()).map(drop)
    };
    for (count, part_of) in [(0, "there are none"), (2, "there are 1; give 3")] {
        let error = part(count).unwrap_err().to_string();
        assert!(error.contains(part_of), "{error}");
    }
}

#[test]
fn draining_port_lends_only_what_it_has_read() {
    let number = free_port();
    let mut a = open(&uri(number, 1, &[2], ""));
    let mut b = open(&uri(number, 2, &[1], ""));
    let sent = mixture(3, &[64]);
    (0..4).for_each(|_| transmit(&mut b, &sent));
    let mut taken = 0;
    assert_eq!(a.rx[0].receive(&mut |_| 0).unwrap(), BATCH_MAX);
    assert!(a.rx[0].drain(true));
    transmit(&mut b, &sent);
    let mut receive = |port: &mut Port| {
        while port.rx[0].receive(&mut |lent| lent.len()).unwrap() > 0 {
            taken += 1;
        }
        taken
    };
    let batches = receive(&mut a);
    assert!((1..=4).contains(&batches) && !a.rx[0].drain(true), "{batches}");
    assert!(!a.rx[0].drain(false));
    assert!(receive(&mut a) > batches);
}
