//! libdray: ports of dray for programs in C and C++.
//!
//! The functions here are the interface; `include/dray.h` is generated from them, and
//! `docs/libdray.md` explains them. No panic leaves a function, and every misuse that can be seen
//! has an error code. A port belongs to the thread that opened it.

mod error;
mod handles;
mod signals;

use std::cell::{Cell, RefCell};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::AtomicU8;
use std::time::{Duration, Instant};

use ::dray_port::{
    BATCH_MAX, Batch, FRAME_LIMIT, Frame, Link, LinkState, PATIENCE, Port, PortUri, Receive,
    Transmit, Wait,
};
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;

use error::{Failure, boundary};
pub use error::{dray_code, dray_error};
use handles::Table;

/// Maximum number of frames per call.
pub const DRAY_BATCH_MAX: usize = 256;

/// Length of the longest frame that any port carries, in bytes.
pub const DRAY_FRAME_MAX: usize = 9018;

/// Maximum number of ports that are waited for together.
const WAIT_MAX: usize = 4096;

const _: () = assert!(DRAY_BATCH_MAX == BATCH_MAX && DRAY_FRAME_MAX == FRAME_LIMIT);

/// Handle of an open port. 0 is never one.
#[expect(non_camel_case_types, reason = "a name of the C interface")]
pub type dray_port = u64;

/// A frame, from its destination MAC address to the end of its payload.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct dray_frame {
    /// The first byte. A peer may write to a lent frame at any time: check a copy.
    pub data: *const u8,
    /// Length in bytes.
    pub len: u32,
}

impl dray_frame {
    /// Returns true if no port can be given the frame.
    #[inline]
    fn is_invalid(&self) -> bool {
        self.data.is_null() | (self.len == 0) | (self.len as usize > FRAME_LIMIT)
    }

    /// Returns the error for an invalid frame.
    #[cold]
    fn invalid(&self, index: usize) -> Failure {
        let Self { data, len } = self;
        let why = format!(
            "frame {index} has {len} bytes at {data:p}: allowed are 1 to {FRAME_LIMIT} at an \
             address that is not NULL"
        );
        Failure::new(dray_code::DRAY_ERR_ARGUMENT, why)
    }
}

/// Takes lent frames: returns how many of them, from the first one on, it is done with. The others
/// are lent again by the next call. The frames are valid until it returns. It may call any function
/// for other ports, and transmit on this one; it must not leave by an exception or longjmp.
#[expect(non_camel_case_types, reason = "a name of the C interface")]
pub type dray_take = Option<
    unsafe extern "C-unwind" fn(
        context: *mut c_void,
        frames: *const dray_frame,
        count: usize,
    ) -> usize,
>;

/// Facts about a port, and its counters.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct dray_facts {
    /// 1 if frames can pass, 0 if a peer has yet to connect.
    pub running: u32,
    /// Length in bytes of the longest untagged frame that the port transmits.
    pub frame_max: u32,
    /// Frames that the program took.
    pub received: u64,
    /// Frames that were transmitted.
    pub transmitted: u64,
    /// Frames that were lost at the port because they were not received in time or were malformed.
    pub receive_dropped: u64,
    /// Frames that were taken for transmission and could not be delivered.
    pub transmit_dropped: u64,
    /// Frames that were given to dray_transmit and that the port cannot carry.
    pub refused: u64,
    /// Transmitted frames that have not reached the peer yet, at least.
    pub pending: u64,
}

struct Open {
    uri: PortUri,
    rx: RefCell<Queues>,
    /// Number of receive queues.
    queues: usize,
    tx: RefCell<Vec<Box<dyn Transmit>>>,
    link: Option<Arc<dyn Link>>,
    event: OwnedFd,
    received: Cell<u64>,
    transmitted: Cell<u64>,
    refused: Cell<u64>,
}

struct Queues {
    queues: Vec<Box<dyn Receive>>,
    /// The queue that is looked at first.
    next: usize,
}

thread_local! {
    static PORTS: Table<Open> = const { Table::new() };
}

/// Calls `body` with an open port.
#[inline]
fn with(port: dray_port, body: impl FnOnce(&Open) -> Result<c_int, Failure>) -> c_int {
    boundary(|| body(&*PORTS.with(|ports| ports.get(port))?))
}

impl Open {
    fn new(text: &str) -> Result<Self, Failure> {
        let uri: PortUri =
            text.parse().map_err(|error| Failure::new(dray_code::DRAY_ERR_URI, error))?;
        let blocked = signals::Blocked::new();
        let opened = uri.open();
        drop(blocked);
        let Port { mut rx, tx, link } =
            opened.map_err(|error| Failure::new(dray_code::DRAY_ERR_OPEN, error))?;
        rx.iter_mut().for_each(|rx| rx.set_wait(Wait::Poll { pause_us: 0 }));
        let event = event(&rx).map_err(|error| {
            Failure::new(dray_code::DRAY_ERR_OPEN, format!("port {uri}: epoll: {error}"))
        })?;
        Ok(Self {
            uri,
            queues: rx.len(),
            rx: RefCell::new(Queues { queues: rx, next: 0 }),
            tx: RefCell::new(tx),
            link,
            event,
            received: Cell::new(0),
            transmitted: Cell::new(0),
            refused: Cell::new(0),
        })
    }

    fn busy(&self) -> Failure {
        let why = format!("port {} is in use: its frames are lent by this thread's call", self.uri);
        Failure::new(dray_code::DRAY_ERR_BUSY, why)
    }

    fn io(&self) -> impl Fn(io::Error) -> Failure {
        |error| Failure::new(dray_code::DRAY_ERR_IO, format!("port {}: {error}", self.uri))
    }

    /// Asks for events, or for none; returns true if a frame is there.
    fn arm(&self, on: bool) -> Result<bool, Failure> {
        let mut rx = self.rx.try_borrow_mut().map_err(|_| self.busy())?;
        Ok(rx.queues.iter_mut().fold(false, |there, queue| queue.arm(on) | there))
    }
}

/// Returns the descriptor that becomes readable when one of `queues` signals a frame.
fn event(queues: &[Box<dyn Receive>]) -> io::Result<OwnedFd> {
    let all = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    for fd in queues.iter().filter_map(|queue| queue.event()) {
        match epoll::add(&all, fd, epoll::EventData::new_u64(0), epoll::EventFlags::IN) {
            // Two queues may share an event.
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Opens the port `uri` in the network namespace of the calling thread, to which the port then
/// belongs, and stores its handle at `port`. Returns 0 or an error.
///
/// # Safety
/// `uri` is NULL or a string; `port` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dray_open(uri: *const c_char, port: *mut dray_port) -> c_int {
    boundary(|| {
        if port.is_null() {
            return Err(Failure::null("port"));
        }
        // SAFETY: by the contract.
        unsafe { port.write(0) };
        if uri.is_null() {
            return Err(Failure::null("uri"));
        }
        // SAFETY: by the contract.
        let uri = unsafe { CStr::from_ptr(uri) };
        let text = uri.to_str().map_err(|error| {
            let (text, at) = (uri.to_string_lossy(), error.valid_up_to());
            let what = format!("{text}: byte {at} is not UTF-8: use a path and names that are");
            Failure::new(dray_code::DRAY_ERR_URI, what)
        })?;
        let handle = PORTS.with(|ports| ports.add(Open::new(text)?))?;
        // SAFETY: by the contract.
        unsafe { port.write(handle) };
        Ok(0)
    })
}

/// Closes a port. Ports that are open when their thread ends are closed then. Returns 0 or an
/// error.
#[unsafe(no_mangle)]
pub extern "C" fn dray_close(port: dray_port) -> c_int {
    boundary(|| {
        let open = PORTS.with(|ports| ports.get(port))?;
        if open.rx.try_borrow_mut().is_err() {
            return Err(open.busy());
        }
        PORTS.with(|ports| ports.remove(port))?;
        Ok(0)
    })
}

/// Lends the frames that have arrived to `take`, in order, at most DRAY_BATCH_MAX. Never waits, and
/// does not call `take` if there is no frame. Returns how many frames it lent, or an error.
///
/// # Safety
/// `take` is NULL or follows its contract.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dray_receive(
    port: dray_port,
    take: dray_take,
    context: *mut c_void,
) -> c_int {
    with(port, |open| {
        let take = take.ok_or_else(|| Failure::null("take"))?;
        let mut rx = open.rx.try_borrow_mut().map_err(|_| open.busy())?;
        let Queues { queues, next } = &mut *rx;
        for _ in 0..queues.len() {
            let queue = &mut queues[*next];
            *next = (*next + 1) % open.queues;
            let lent = queue.receive(&mut |frames| {
                let mut lent = [const { MaybeUninit::<dray_frame>::uninit() }; BATCH_MAX];
                let mut count = 0;
                for (place, frame) in lent.iter_mut().zip(frames) {
                    // Every frame that a port lends is contiguous.
                    let Some(data) = frame.start() else { break };
                    place.write(dray_frame { data, len: frame.len() as u32 });
                    count += 1;
                }
                // SAFETY: by the contract; the first `count` are written, and valid until it
                // returns.
                let taken = unsafe { take(context, lent.as_ptr().cast(), count) }.min(count);
                open.received.set(open.received.get() + taken as u64);
                taken
            });
            let lent = lent.map_err(open.io())?;
            if lent > 0 {
                return Ok(lent as c_int);
            }
        }
        Ok(0)
    })
}

/// Copies `count` frames to the port's peer, in order, and returns how many were taken, or an
/// error. Fewer than all means that the port is full for now: give it the others later. It may wait
/// for up to 10 ms while the peer takes none. A frame that the port cannot carry is taken, dropped
/// and counted as refused.
///
/// # Safety
/// `frames` is NULL or has `count` frames, whose bytes can be read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dray_transmit(
    port: dray_port,
    frames: *const dray_frame,
    count: usize,
) -> c_int {
    with(port, |open| {
        if frames.is_null() && count > 0 {
            return Err(Failure::null("frames"));
        }
        if count > BATCH_MAX {
            let why = format!("{count} frames: allowed are 0 to {BATCH_MAX}");
            return Err(Failure::new(dray_code::DRAY_ERR_ARGUMENT, why));
        }
        if count == 0 {
            return Ok(0);
        }
        // SAFETY: by the contract.
        let given = unsafe { std::slice::from_raw_parts(frames, count) };
        let mut invalid = None;
        let frame = |(index, given): (usize, &dray_frame)| {
            if given.is_invalid() {
                invalid = Some(index);
                return None;
            }
            // SAFETY: by the contract. A lent frame's peer may write to it, so it is made of
            // atomics.
            let bytes: &[AtomicU8] =
                unsafe { std::slice::from_raw_parts(given.data.cast(), given.len as usize) };
            Some(Frame::from(bytes))
        };
        let batch: Batch<'_> = given.iter().enumerate().map_while(frame).collect();
        if let Some(index) = invalid {
            return Err(given[index].invalid(index));
        }
        let mut tx = open.tx.try_borrow_mut().map_err(|_| open.busy())?;
        // One queue for all frames of a thread keeps them in order.
        let Some(tx) = tx.first_mut() else {
            let why = format!("port {} only receives", open.uri);
            return Err(Failure::new(dray_code::DRAY_ERR_ARGUMENT, why));
        };
        let mut done = 0;
        while done < batch.len() {
            let rest = &batch[done..];
            let run = tx.accepted(rest);
            if run == 0 {
                open.refused.set(open.refused.get() + 1);
                done += 1;
                continue;
            }
            let taken = tx.transmit(&rest[..run]).map_err(open.io())?;
            let sent = taken - tx.lost().of_call().len();
            open.transmitted.set(open.transmitted.get() + sent as u64);
            done += taken;
            if taken < run {
                break;
            }
        }
        Ok(done as c_int)
    })
}

/// Waits until one of `count` ports may have a frame, for at most `timeout` milliseconds. Returns 1
/// if one may, 0 if the time is over or a signal arrived, or an error. Returns 1 at once if a port
/// is polled: its URI has `wait=poll`, or it is `null:` or `impair:`.
///
/// # Safety
/// `ports` is NULL or has `count` handles.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dray_wait(ports: *const dray_port, count: usize, timeout: c_int) -> c_int {
    boundary(|| {
        if ports.is_null() {
            return Err(Failure::null("ports"));
        }
        if !(1..=WAIT_MAX).contains(&count) || timeout < 0 {
            let why = format!(
                "{count} ports, {timeout} ms: allowed are 1 to {WAIT_MAX} ports and 0 ms or more"
            );
            return Err(Failure::new(dray_code::DRAY_ERR_ARGUMENT, why));
        }
        // SAFETY: by the contract.
        let handles = unsafe { std::slice::from_raw_parts(ports, count) };
        let found = || handles.iter().map(|port| PORTS.with(|ports| ports.get(*port)));
        // As dray's own forwarder: it sleeps only if it may sleep at all of its ports. Polling
        // allocates nothing.
        if found().try_fold(false, |polls, port| Ok(polls | (port?.uri.wait() != Wait::Block)))? {
            return Ok(1);
        }
        let ports = found().collect::<Result<Vec<_>, _>>()?;
        let until = Instant::now() + Duration::from_millis(timeout as u64);
        loop {
            let mut there = false;
            for port in &ports {
                there |= port.arm(true)?;
            }
            // A port whose peer connects meanwhile has to be armed again.
            let rest = until.saturating_duration_since(Instant::now());
            let nap = if there { Duration::ZERO } else { rest.min(PATIENCE) };
            let nap = Timespec { tv_sec: 0, tv_nsec: nap.subsec_nanos().into() };
            let mut fds: Vec<_> =
                ports.iter().map(|port| PollFd::new(&port.event, PollFlags::IN)).collect();
            let woken = poll(&mut fds, Some(&nap));
            for port in &ports {
                there |= port.arm(false)?;
            }
            match woken {
                Err(Errno::INTR) => return Ok(there.into()),
                Err(error) => {
                    return Err(Failure::new(dray_code::DRAY_ERR_IO, format!("poll: {error}")));
                }
                Ok(count) if there || count > 0 => return Ok(1),
                Ok(_) if rest.is_zero() => return Ok(0),
                Ok(_) => {}
            }
        }
    })
}

/// Returns a descriptor for poll and epoll, readable when a frame may have arrived, or an error. It
/// belongs to the port. Call `dray_arm` with true before each sleep on it, sleep only if that
/// returns 0, and for at most 10 ms while the port has no peer.
#[unsafe(no_mangle)]
pub extern "C" fn dray_event(port: dray_port) -> c_int {
    with(port, |open| Ok(open.event.as_fd().as_raw_fd()))
}

/// Asks for events at the port's descriptor (true, before a sleep), or for none (false, after it).
/// Returns 1 if a frame is already there, so that the program must not sleep, else 0, or an error.
#[unsafe(no_mangle)]
pub extern "C" fn dray_arm(port: dray_port, on: bool) -> c_int {
    with(port, |open| Ok(open.arm(on)?.into()))
}

/// Stores facts about the port and its counters at `facts`. Returns 0 or an error.
///
/// # Safety
/// `facts` is NULL or can be written to.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dray_get_facts(port: dray_port, facts: *mut dray_facts) -> c_int {
    with(port, |open| {
        if facts.is_null() {
            return Err(Failure::null("facts"));
        }
        let rx = open.rx.try_borrow().map_err(|_| open.busy())?;
        let mut tx = open.tx.try_borrow_mut().map_err(|_| open.busy())?;
        let running = open.link.as_ref().is_none_or(|l| l.status().state == LinkState::Running);
        let lost = rx.queues.iter().map(|queue| queue.dropped()).sum::<io::Result<u64>>();
        let found = dray_facts {
            running: running.into(),
            frame_max: tx.first().map_or(0, |tx| tx.frame_max() as u32),
            received: open.received.get(),
            transmitted: open.transmitted.get(),
            receive_dropped: lost.map_err(open.io())?,
            transmit_dropped: tx.iter().map(|tx| tx.dropped()).sum(),
            refused: open.refused.get(),
            pending: tx.iter_mut().map(|tx| tx.pending() as u64).sum(),
        };
        // SAFETY: by the contract.
        unsafe { facts.write(found) };
        Ok(0)
    })
}
