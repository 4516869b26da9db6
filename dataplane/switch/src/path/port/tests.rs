use std::collections::HashMap;
use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;

use dray_port::{Frame, Loss, Lost, Receive, Take, Transmit, clock, scratch};
use dray_wire::offload::Offload;

use super::*;
use crate::config::SwitchConfig;
use crate::path::tally::Tally;

fn setting(flow: Flow) -> Setting {
    Setting::new(&SwitchConfig { flow, ..SwitchConfig::default() })
}

/// A queue with room for one frame, if the peer has started it.
struct Queue {
    started: bool,
    taken: Arc<Mutex<usize>>,
}

impl Transmit for Queue {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let taken = frames.len().min(usize::from(self.started));
        *lock(&self.taken) += taken;
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        FRAME_LIMIT
    }

    fn is_ready(&self) -> bool {
        self.started
    }
}

/// Lets workers 0 to 3 transmit two frames each; returns the frames taken by queue, and the
/// drop reasons.
fn transmitted(started: [bool; 2]) -> ([usize; 2], Vec<DropReason>) {
    let taken = [(); 2].map(|()| Arc::default());
    let queue = |(started, taken): (bool, &Arc<Mutex<usize>>)| -> Box<dyn Transmit> {
        Box::new(Queue { started, taken: taken.clone() })
    };
    let tx = started.into_iter().zip(&taken).map(queue).collect();
    let port = dray_port::Port { rx: Vec::new(), tx, link: None };
    let port =
        OpenPort::new(0, "a=null:".parse().unwrap(), port, &[], (4, &setting(Flow::Drop))).unwrap();
    let frame = Frame::from(&[0; 60][..]);
    let mut counters = Counters::default();
    for worker in 0..4 {
        let mut tally = Tally::new(1, worker, Arc::default());
        tally.deliver(&port, &[frame; 2]);
        counters += tally.of(0);
    }
    let dropped = counters.drops.iter().filter(|(_, frames)| *frames > 0);
    (taken.map(|taken| *lock(&taken)), dropped.map(|(reason, _)| reason).collect())
}

/// Port to the kernel. Each call returns the next of `results`: the number of frames taken, and
/// how many of these, the first ones, are lost.
struct Kernel {
    results: Vec<io::Result<(usize, usize)>>,
    lost: Lost,
}

impl Transmit for Kernel {
    fn transmit(&mut self, _: &[Frame<'_>]) -> io::Result<usize> {
        self.lost.begin();
        let (taken, lost) = self.results.remove(0)?;
        (0..lost).for_each(|index| self.lost.add(index, Loss::Undeliverable));
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        1514
    }

    fn lost(&self) -> &Lost {
        &self.lost
    }
}

#[test]
fn frame_refused_by_kernel_keeps_port_running() {
    let results = vec![
        Ok((4, 1)),
        Ok((2, 2)),
        Err(io::ErrorKind::NetworkDown.into()),
        Ok((1, 1)),
        Ok((4, 0)),
    ];
    let tx: Vec<Box<dyn Transmit>> = vec![Box::new(Kernel { results, lost: Lost::new() })];
    let port = dray_port::Port { rx: Vec::new(), tx, link: None };
    let port =
        OpenPort::new(0, "a=null:".parse().unwrap(), port, &[], (1, &setting(Flow::Drop))).unwrap();
    let mut tally = Tally::new(1, 0, Arc::default());
    let mut seen = Vec::new();
    for _ in 0..5 {
        let taken = tally.transmit(&port, &[Frame::from(&[0; 60][..]); 4]);
        let counters = tally.of(0);
        let drops = [DropReason::Undeliverable, DropReason::ReceiverNotReady]
            .map(|reason| counters.drops.get(reason));
        assert_eq!(counters.tx_bytes, 60 * counters.tx_frames);
        seen.push((taken, counters.tx_frames, drops, port.failure().is_some()));
    }
    let expected = [
        (4, 3, [1, 0], false),
        (2, 3, [3, 0], false),
        (4, 3, [3, 4], true),
        // No frame has passed.
        (1, 3, [4, 4], true),
        (4, 7, [4, 4], false),
    ];
    assert_eq!(seen, expected);
}

/// Port that refused two frames, and missed one less than this number. At 0 it cannot tell.
struct Losing(Arc<AtomicU64>);

impl Receive for Losing {
    fn receive(&mut self, _: &mut Take<'_>) -> io::Result<usize> {
        Ok(0)
    }

    fn missed(&self) -> io::Result<u64> {
        self.0.load(Relaxed).checked_sub(1).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn refused(&self) -> u64 {
        2
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

#[test]
fn frames_missed_are_not_malformed_and_stay_counted() {
    let missed = Arc::new(AtomicU64::new(4));
    let rx: Vec<Box<dyn Receive>> = vec![Box::new(Losing(missed.clone()))];
    let port = dray_port::Port { rx, tx: Vec::new(), link: None };
    let port = OpenPort::new(0, "a=null:".parse().unwrap(), port, &[0], (1, &setting(Flow::Drop)))
        .unwrap();
    let drops = || {
        let drops = port.counted().drops;
        [DropReason::Missed, DropReason::Malformed].map(|reason| drops.get(reason))
    };
    assert_eq!(drops(), [3, 2]);
    // The interface is removed.
    missed.store(0, Relaxed);
    assert_eq!(drops(), [3, 2]);
    // Other keys do not change what was counted.
    port.count_from(None);
    missed.store(4, Relaxed);
    assert_eq!(drops(), [3, 2]);
}

#[test]
fn first_queue_replaces_queue_not_started() {
    assert_eq!(transmitted([true, true]), ([2, 2], vec![DropReason::ReceiverFull]));
    assert_eq!(transmitted([true, false]), ([4, 0], vec![DropReason::ReceiverFull]));
    assert_eq!(transmitted([false, false]), ([0, 0], vec![DropReason::ReceiverNotReady]));
}

/// Length of a segment's payload, and the number of segments of a packet.
const SEGMENT: usize = 1448;
const SEGMENTS: usize = 45;

/// Returns a TCP packet of [`SEGMENTS`] segments, over IPv4. Its sequence numbers tell `number` and
/// the segment.
fn packet(number: usize) -> Vec<u8> {
    let mut packet = vec![0; 14 + 20 + 32 + SEGMENTS * SEGMENT];
    let len = (packet.len() - 14) as u16;
    packet[12..16].copy_from_slice(&[8, 0, 0x45, 0]);
    packet[16..18].copy_from_slice(&len.to_be_bytes());
    packet[22..24].copy_from_slice(&[64, 6]);
    packet[38..42].copy_from_slice(&((number * SEGMENTS * SEGMENT) as u32).to_be_bytes());
    packet[46] = 8 << 4;
    packet
}

/// A queue with room for some frames, which takes over no offload.
#[derive(Clone, Default)]
struct Narrow {
    room: Arc<Mutex<usize>>,
    has_left: Arc<AtomicBool>,
    /// Numbers of the segments taken, over all packets.
    seen: Arc<Mutex<Vec<usize>>>,
}

impl Transmit for Narrow {
    fn transmit(&mut self, frames: &[Frame<'_>]) -> io::Result<usize> {
        let mut room = lock(&self.room);
        let taken = frames.len().min(*room);
        *room -= taken;
        for frame in &frames[..taken] {
            let bytes = frame.bytes(&mut scratch()).to_vec();
            assert_eq!(bytes.len(), 14 + 20 + 32 + SEGMENT);
            let sequence = u32::from_be_bytes(bytes[38..42].try_into().unwrap());
            lock(&self.seen).push(sequence as usize / SEGMENT);
        }
        Ok(taken)
    }

    fn frame_max(&self) -> usize {
        1514
    }

    fn is_ready(&self) -> bool {
        !self.has_left.load(Relaxed)
    }
}

/// Frames wait for the port's rate, and segments for room, when its peer leaves.
#[test]
fn next_peer_gets_nothing_that_waited_for_the_one_before() {
    let offload = Offload::Tcp(NonZeroU16::new(SEGMENT as u16).unwrap());
    for limit in ["", ",rate_out=100Mbit/6ms"] {
        let narrow = Narrow::default();
        let tx: Vec<Box<dyn Transmit>> = vec![Box::new(narrow.clone())];
        let port = dray_port::Port { rx: Vec::new(), tx, link: None };
        let config = format!("a=null:{limit}").parse().unwrap();
        let setting = setting(Flow::Backpressure);
        let port = OpenPort::new(0, config, port, &[], (1, &setting)).unwrap();
        let mut tally = Tally::new(1, 0, Arc::default());
        *lock(&narrow.room) = 5;
        let done = (0..3)
            .map(|number| {
                let bytes = packet(number);
                tally.transmit(&port, &[Frame::with_offload(&bytes, offload)])
            })
            .sum::<usize>();
        assert!(done > 0 && port.is_waiting(0), "{limit}");
        narrow.has_left.store(true, Relaxed);
        *lock(&narrow.room) = 0;
        let released = tally.release(&port, u64::MAX);
        assert!(released.is_empty && !released.is_blocked && !port.is_waiting(0), "{limit}");
        let drops = tally.of(0).drops;
        assert!(drops.get(DropReason::ReceiverNotReady) > 0, "{limit}: {drops:?}");
        narrow.has_left.store(false, Relaxed);
        *lock(&narrow.room) = usize::MAX;
        tally.release(&port, u64::MAX);
        assert_eq!(lock(&narrow.seen).len(), 5, "{limit}");
    }
}

/// Two workers transmit to a port whose peer takes few segments at a time. Each packet leaves whole
/// and in order, or is dropped and counted.
#[test]
fn packets_of_two_workers_leave_whole() {
    let offload = Offload::Tcp(NonZeroU16::new(SEGMENT as u16).unwrap());
    for limit in ["", ",rate_out=100Mbit/6ms", ",rate_out=1Gbit/6ms", ",rate_out=10Gbit/1ms"] {
        let narrow = Narrow::default();
        let tx: Vec<Box<dyn Transmit>> = vec![Box::new(narrow.clone())];
        let port = dray_port::Port { rx: Vec::new(), tx, link: None };
        let config = format!("a=null:{limit}").parse().unwrap();
        let setting = setting(Flow::Backpressure);
        let port = OpenPort::new(0, config, port, &[], (2, &setting)).unwrap();
        let mut tallies = [0, 1].map(|worker| Tally::new(1, worker, Arc::default()));
        let mut random = 1_u64;
        let mut draw = |below: usize| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) as usize % below
        };
        // Each worker has two senders, whose first packet waits until it is done with.
        let mut next = [0, 1, 2, 3];
        while next.iter().sum::<usize>() < 4 * 400 {
            *lock(&narrow.room) = draw(2 * SEGMENTS);
            let sender = draw(4);
            let (worker, bytes) = (sender % 2, packet(next[sender]));
            let frame = Frame::with_offload(&bytes, offload);
            let tally = &mut tallies[worker];
            next[sender] += 4 * tally.transmit(&port, &[frame]);
            if draw(3) == 0 {
                tally.release(&port, clock::ticks());
            }
        }
        *lock(&narrow.room) = usize::MAX;
        let mut dropped = 0;
        for (worker, tally) in tallies.iter_mut().enumerate() {
            tally.flush(&port);
            dropped += tally.of(0).drops.get(DropReason::PolicedOut) as usize;
            assert!(!port.is_waiting(worker));
        }
        let mut of = HashMap::<usize, Vec<usize>>::new();
        for segment in &*lock(&narrow.seen) {
            of.entry(segment / SEGMENTS).or_default().push(segment % SEGMENTS);
        }
        let whole: Vec<_> = (0..SEGMENTS).collect();
        for (number, segments) in &of {
            assert_eq!(*segments, whole, "{limit}: packet {number}");
        }
        let offered = next.iter().enumerate().map(|(sender, next)| (next - sender) / 4);
        assert_eq!(of.len() + dropped, offered.sum::<usize>(), "{limit}");
        assert!(dropped > 0 || !limit.contains("00Mbit"), "{limit}");
    }
}

/// Neither packets that wait for a mirror's rate nor segments hold up the ports that it mirrors.
#[test]
fn full_mirror_holds_up_nothing() {
    let narrow = Narrow::default();
    let tx: Vec<Box<dyn Transmit>> = vec![Box::new(narrow.clone())];
    let port = dray_port::Port { rx: Vec::new(), tx, link: None };
    let config = "m=null:,mirror=a,rate_out=100Mbit/6ms".parse().unwrap();
    let setting = setting(Flow::Backpressure);
    let port = OpenPort::new(0, config, port, &[], (1, &setting)).unwrap();
    let mut tally = Tally::new(1, 0, Arc::default());
    let offload = Offload::Tcp(NonZeroU16::new(SEGMENT as u16).unwrap());
    *lock(&narrow.room) = SEGMENTS + 5;
    for number in 0..4 {
        let bytes = packet(number);
        let frames = [Frame::with_offload(&bytes, offload)];
        tally.deliver(&port, &frames);
    }
    let released = tally.release(&port, u64::MAX);
    assert!(released.is_empty && !released.is_blocked);
    assert_eq!(lock(&narrow.seen).len(), SEGMENTS + 5);
    assert_eq!(tally.of(0).drops.get(DropReason::ReceiverFull), 3);
}
