//! Tests of servers against our own client.

use std::time::{Duration, Instant};

use crate::{FRAME_LIMIT, Frame, LinkState, Port, PortUri, scratch};

fn open(uri: &str) -> Port {
    uri.parse::<PortUri>().unwrap().open().unwrap()
}

fn eventually(what: &str, mut is_true: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_true() {
        assert!(start.elapsed() < Duration::from_secs(20), "{what}");
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn state(port: &Port) -> LinkState {
    port.link.as_ref().unwrap().status().state
}

fn wait_until_up(ports: &[&Port]) {
    for port in ports {
        eventually("they never connect", || state(port) == LinkState::Running);
    }
}

/// Returns the last reason for which a peer was disconnected.
fn end(port: &Port) -> String {
    let status = || port.link.as_ref().unwrap().status();
    eventually("no peer was disconnected", || status().last_end.is_some());
    status().last_end.unwrap()
}

fn frame(number: usize, len: usize) -> Vec<u8> {
    (0..len).map(|at| (number + at) as u8).collect()
}

/// Returns the frames that queue `queue` of the port receives without waiting.
fn received(port: &mut Port, queue: usize) -> Vec<Vec<u8>> {
    let (mut all, mut copy) = (Vec::new(), scratch());
    port.rx[queue]
        .receive(&mut |frames| {
            all.extend(frames.iter().map(|frame| frame.bytes(&mut copy).to_vec()));
            frames.len()
        })
        .unwrap();
    all
}

/// Passes one frame.
fn pass(from: &mut Port, to: &mut Port, queue: usize, frame: &[u8]) {
    assert_eq!(from.tx[queue].transmit(&[frame.into()]).unwrap(), 1);
    assert!(received(to, queue) == [frame], "{} bytes", frame.len());
}

/// A socket that no other test uses.
fn abstract_name(name: &str) -> String {
    format!("@dray-test-{name}-{}", std::process::id())
}

#[test]
fn frames_of_every_length_pass_both_ways() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("memif.sock").display().to_string();
    for socket in [file, abstract_name("lengths")] {
        for size in [2, 8, 512] {
            let mut server = open(&format!("memif:{socket}?role=server&wait=poll"));
            let mut client = open(&format!("memif:{socket}?size={size}&wait=poll"));
            wait_until_up(&[&server, &client]);
            let lens = [14, 60, 64, 1514, 2047, 2048, 2049, 4096, 9018, FRAME_LIMIT];
            for (number, len) in lens.into_iter().cycle().take(100).enumerate() {
                // A frame of more buffers than the ring has entries can never pass.
                if len.div_ceil(2048) > size {
                    continue;
                }
                let sent = frame(number, len);
                pass(&mut client, &mut server, 0, &sent);
                pass(&mut server, &mut client, 0, &sent);
            }
            assert_eq!(server.rx[0].dropped().unwrap(), 0);
        }
    }
}

#[test]
fn batches_keep_their_order_and_untaken_frames_stay() {
    let socket = abstract_name("batches");
    let mut server = open(&format!("memif:{socket}?role=server&wait=poll"));
    let mut client = open(&format!("memif:{socket}?size=256&wait=poll"));
    wait_until_up(&[&server, &client]);
    let sent: Vec<_> = (0..40).map(|number| frame(number, 64 + number * 97)).collect();
    let frames: Vec<Frame<'_>> = sent.iter().map(|frame| frame[..].into()).collect();
    for _ in 0..50 {
        for from_client in [true, false] {
            let (from, to) = match from_client {
                true => (&mut client, &mut server),
                false => (&mut server, &mut client),
            };
            assert_eq!(from.tx[0].transmit(&frames).unwrap(), 40);
            let (mut all, mut copy) = (Vec::new(), scratch());
            for taken in [1, 0, 3, 2].into_iter().cycle().take(100) {
                let mut take = |lent: &[Frame<'_>]| {
                    let lent = lent.iter().take(taken);
                    all.extend(lent.map(|frame| frame.bytes(&mut copy).to_vec()));
                    taken
                };
                to.rx[0].receive(&mut take).unwrap();
            }
            assert!(all == sent);
        }
    }
}

#[test]
fn full_ring_takes_no_frame() {
    let socket = abstract_name("full");
    let mut server = open(&format!("memif:{socket}?role=server&wait=poll"));
    let mut client = open(&format!("memif:{socket}?size=8&wait=poll"));
    wait_until_up(&[&server, &client]);
    let (short, long) = ([1; 100], [2; 9000]);
    let frames = [Frame::from(&short[..]); 20];
    assert_eq!(server.tx[0].transmit(&frames).unwrap(), 8);
    assert_eq!(server.tx[0].transmit(&frames).unwrap(), 0);
    assert_eq!(received(&mut client, 0).len(), 8);
    let frames = [short[..].into(), long[..].into(), short[..].into(), long[..].into()];
    assert_eq!(server.tx[0].transmit(&frames).unwrap(), 3, "a long frame takes five buffers");
    assert_eq!(received(&mut client, 0), [&short[..], &long, &short]);
    assert_eq!(server.rx[0].dropped().unwrap(), 0);
}

#[test]
fn client_may_use_fewer_queues_and_not_more() {
    let socket = abstract_name("queues");
    let mut server = open(&format!("memif:{socket}?role=server&queues=3&wait=poll"));
    for queues in [1, 2, 3] {
        let mut client = open(&format!("memif:{socket}?queues={queues}&wait=poll"));
        wait_until_up(&[&server, &client]);
        for queue in 0..queues {
            pass(&mut client, &mut server, queue, &frame(queue, 100));
            pass(&mut server, &mut client, queue, &frame(queue, 100));
        }
        let ready: Vec<_> = server.tx.iter().map(|tx| tx.is_ready()).collect();
        assert_eq!(ready, [true, queues > 1, queues > 2]);
        drop(client);
        eventually("it stays", || state(&server) == LinkState::Waiting);
    }
    let client = open(&format!("memif:{socket}?queues=4"));
    assert_eq!(end(&client), "server accepts at most 3 queues, not 4");
}

#[test]
fn sleeping_sides_are_woken() {
    let socket = abstract_name("sleep");
    let mut server = open(&format!("memif:{socket}?role=server&wait=poll"));
    let mut client = open(&format!("memif:{socket}?wait=poll"));
    wait_until_up(&[&server, &client]);
    for from_client in [true, false] {
        let (from, to) = match from_client {
            true => (&mut client, &mut server),
            false => (&mut server, &mut client),
        };
        let readable = |to: &Port| {
            let event = to.rx[0].event().unwrap();
            let mut fds = [rustix::event::PollFd::new(&event, rustix::event::PollFlags::IN)];
            let limit = rustix::time::Timespec { tv_sec: 0, tv_nsec: 0 };
            rustix::event::poll(&mut fds, Some(&limit)).unwrap() == 1
        };
        assert!(!to.rx[0].arm(true));
        assert!(!readable(to));
        from.tx[0].transmit(&[[1; 60][..].into()]).unwrap();
        assert!(readable(to));
        assert!(to.rx[0].arm(true), "there is a frame");
        to.rx[0].arm(false);
        assert_eq!(received(to, 0).len(), 1);
        // A side that polls wants no events.
        from.tx[0].transmit(&[[1; 60][..].into()]).unwrap();
        assert!(!readable(to));
        received(to, 0);
    }
}

#[test]
fn ids_share_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("memif.sock");
    let uri = |more: &str| format!("memif:{}?wait=poll{more}", path.display());
    let mut servers = [7, 8].map(|id| open(&uri(&format!("&role=server&id={id}"))));
    let message = |more: &str| {
        let uri = uri(&format!("&role=server{more}")).parse::<PortUri>().unwrap();
        uri.open().map(drop).unwrap_err().to_string()
    };
    assert!(message("&id=7").contains("for id 7; give another id"));
    assert!(message("&id=9&mode=0600").contains("give both the same mode"));
    // In the other order, so that each port gets its own client.
    let mut clients = [8, 7].map(|id| open(&uri(&format!("&id={id}"))));
    clients.reverse();
    for (number, (server, client)) in servers.iter_mut().zip(&mut clients).enumerate() {
        wait_until_up(&[server, client]);
        pass(client, server, 0, &frame(number, 100));
        pass(server, client, 0, &frame(number, 200));
    }
    let other = open(&uri("&id=9"));
    assert_eq!(end(&other), "server disconnected: no interface has id 9");
    let third = open(&uri("&id=8"));
    assert_eq!(end(&third), "server disconnected: id 8 has a client already");
    drop((other, third));
    // Without the first server, the other one goes on.
    let [first, mut second] = servers;
    drop(first);
    let [lost, mut client] = clients;
    assert_eq!(end(&lost), "the peer disconnected");
    pass(&mut client, &mut second, 0, &frame(3, 300));
    assert!(path.exists());
    drop(second);
    assert!(!path.exists(), "the socket goes with the last server");
    drop(open(&uri("&role=server&id=7&mode=0600")));
}

#[test]
fn next_client_is_served_when_the_last_one_has_gone() {
    let socket = abstract_name("next");
    let mut server = open(&format!("memif:{socket}?role=server&wait=poll"));
    for number in 0..20 {
        let mut client = open(&format!("memif:{socket}?wait=poll"));
        wait_until_up(&[&client]);
        wait_until_up(&[&server]);
        pass(&mut client, &mut server, 0, &frame(number, 100));
        pass(&mut server, &mut client, 0, &frame(number, 100));
    }
    let ends = server.link.as_ref().unwrap().status().ends;
    assert!(ends.keys().all(|end| end == "the peer disconnected"), "{ends:?}");
}

#[test]
fn secret_must_match() {
    let socket = abstract_name("secret");
    let server = open(&format!("memif:{socket}?role=server&secret=a-b_c"));
    for (query, why) in [("", "INIT: no secret"), ("?secret=a-b", "INIT: a wrong secret")] {
        let client = open(&format!("memif:{socket}{query}"));
        assert_eq!(end(&client), format!("server disconnected: {why}"));
        drop(client);
        eventually("no reason", || end(&server) == why);
    }
    let client = open(&format!("memif:{socket}?secret=a-b_c"));
    wait_until_up(&[&server, &client]);
}

#[test]
fn silent_clients_hold_up_no_other() {
    use crate::session::unix::connect;
    use dray_socket::SocketName;
    let socket = abstract_name("silent");
    let server = open(&format!("memif:{socket}?role=server"));
    let name = SocketName::parse(&socket).unwrap();
    let kind = rustix::net::SocketType::SEQPACKET;
    let _silent: Vec<_> = (0..100).map(|_| connect(&name, kind).unwrap()).collect();
    let start = Instant::now();
    let client = open(&format!("memif:{socket}"));
    wait_until_up(&[&server, &client]);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
}

#[test]
fn closing_does_not_wait_for_silent_client() {
    let socket = abstract_name("closing");
    let server = open(&format!("memif:{socket}?role=server"));
    let name = dray_socket::SocketName::parse(&socket).unwrap();
    let _silent = crate::session::unix::connect(&name, rustix::net::SocketType::SEQPACKET).unwrap();
    let start = Instant::now();
    drop(server);
    assert!(start.elapsed() < Duration::from_secs(4), "{:?}", start.elapsed());
    drop(open(&format!("memif:{socket}?role=server")));
}
