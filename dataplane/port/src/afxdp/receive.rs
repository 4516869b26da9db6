//! The receiving half of one queue of an AF_XDP port.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;
use dray_wire::offload::{self, HEADERS_MAX};
use rustix::net::xdp::{XdpDesc, XdpDescOptions};

use super::absence::Absence;
use super::ring::{Consumer, Fill};
use super::socket::Socket;
use crate::frame::reassembly::ReassemblyBuffer;
use crate::frame::{self, Frame, Scratch, scratch};
use crate::total::Total;
use crate::wait::sleep_on;
use crate::{BATCH_MAX, Batch, PATIENCE, Receive, Take, Wait, clock};

pub(super) struct AfxdpReceive {
    socket: Arc<Socket>,
    rx: Consumer<XdpDesc>,
    fill: Fill,
    wait: Wait,
    /// When idle: the tick of the next check that the interface still exists, and the interval of
    /// these checks in ticks.
    check_at: u64,
    check_ticks: u64,
    absence: Absence,
    reassembly: ReassemblyBuffer,
    drops: Total,
    /// Number of frames that were longer than [`FRAME_LIMIT`](crate::FRAME_LIMIT).
    oversized: u64,
    /// Completes checksums, on an interface that frames of local kernels reach.
    repair: Option<Repair>,
    /// True if this continues for another process and has not begun yet.
    is_resuming: bool,
}

impl AfxdpReceive {
    /// `chunks` are the chunks to receive into.
    pub(super) fn new(
        socket: Arc<Socket>,
        rx: Consumer<XdpDesc>,
        mut fill: Fill,
        chunks: Vec<u64>,
        wait: Wait,
    ) -> Self {
        chunks.into_iter().for_each(|chunk| fill.push(chunk));
        fill.submit();
        Self { is_resuming: false, ..Self::resume(socket, rx, fill, wait) }
    }

    /// Continues for another process, from the first call of [`receive`](Receive::receive).
    pub(super) fn resume(
        socket: Arc<Socket>,
        rx: Consumer<XdpDesc>,
        fill: Fill,
        wait: Wait,
    ) -> Self {
        let drops = Total::new(&drops(&socket), u64::MAX);
        let repair = socket.program().carries_partial_checksums().then(Repair::default);
        Self {
            repair,
            socket,
            rx,
            fill,
            wait,
            check_at: 0,
            check_ticks: clock::to_ticks(PATIENCE),
            absence: Absence::default(),
            reassembly: ReassemblyBuffer::new(),
            drops,
            oversized: 0,
            is_resuming: true,
        }
    }

    /// Begins at the position at which the other process has stopped. If that process was killed
    /// while it lent frames, these are dropped, since it may have forwarded them.
    #[cold]
    fn begin(&mut self) {
        self.is_resuming = false;
        self.rx.resume();
        self.fill.resume();
        let [rx, fill, count] = self.socket.slot().loan();
        let is_open = rx == self.rx.next() && count <= self.rx.available(count);
        if is_open && count > 0 {
            // The chunks may have been submitted, if the process was killed before it released the
            // frames.
            if self.fill.next() == fill {
                self.return_chunks(count);
            }
            self.release(count);
        }
        self.socket.slot().set_lent(0);
    }

    /// Waits for frames as configured; returns the number of descriptors available afterwards.
    #[cold]
    fn wait(&mut self) -> io::Result<u32> {
        // The removal of the interface is not visible in a ring, and wakes no sleeping thread.
        let now = clock::ticks();
        let checks = now >= self.check_at;
        if checks {
            self.check_at = now + self.check_ticks;
        }
        match if checks { self.socket.call() } else { self.socket.wake_receive(&self.fill) } {
            Ok(()) if checks => self.absence.clear(),
            Ok(()) => {}
            Err(error) => self.absence.check(&self.socket, error)?,
        }
        if self.wait == Wait::Block && self.rx.available(1) == 0 {
            sleep_on(&[self.socket.as_fd()])?;
        }
        Ok(self.rx.available(1))
    }

    /// Lends the frames of `available` descriptors to `take`. Returns how many frames it lent, and
    /// how many descriptors are done.
    #[inline]
    fn lend(&mut self, available: u32, take: &mut Take<'_>) -> io::Result<(usize, u32)> {
        let mut batch = Batch::new();
        // End of each frame's descriptors.
        let mut ends = ArrayVec::<u32, BATCH_MAX>::new();
        let mut room = self.reassembly.rooms();
        let mut next = 0;
        while next < available && !batch.is_full() {
            let repair = self.repair.as_mut();
            let read = read(&self.socket, &self.rx, next, available, &mut room, repair)?;
            let Some(read) = read else {
                break;
            };
            let Some(frame) = read.frame else {
                if batch.is_empty() {
                    self.oversized += 1;
                    self.socket.slot().lend(self.rx.next(), self.fill.next(), read.end);
                    return Ok((0, read.end));
                }
                break;
            };
            next = read.end;
            batch.push(frame);
            ends.push(read.end);
        }
        let Some(last) = ends.last() else { return Ok((0, 0)) };
        let slot = self.socket.slot();
        slot.lend(self.rx.next(), self.fill.next(), *last);
        let lent = batch.len();
        let taken = take(&batch).min(lent);
        let done = taken.checked_sub(1).map_or(0, |last| ends[last]);
        slot.set_lent(done);
        Ok((lent, done))
    }

    /// Returns the chunks of the next `count` descriptors to the kernel.
    #[inline]
    fn return_descriptors(&mut self, count: u32) {
        self.return_chunks(count);
        self.release(count);
        self.socket.slot().set_lent(0);
    }

    /// Puts the chunks of the next `count` descriptors on the fill ring, or those exchanged for
    /// them.
    #[inline]
    fn return_chunks(&mut self, count: u32) {
        let umem = self.socket.umem();
        // The ring has room for more chunks than there are, and the kernel has taken these.
        self.fill.room(count);
        for offset in 0..count {
            self.fill.push(umem.replacement(umem.chunk(self.rx.get(offset).addr)));
        }
        self.fill.submit();
    }

    /// Releases the next `count` descriptors.
    #[inline]
    fn release(&mut self, count: u32) {
        let umem = self.socket.umem();
        for offset in 0..count {
            umem.end_loan(umem.chunk(self.rx.get(offset).addr));
        }
        self.rx.release(count);
    }
}

/// Returns the number of frames for which the socket had no chunk, or its ring no room.
fn drops(socket: &Socket) -> io::Result<u64> {
    let statistics = socket.statistics()?;
    Ok(statistics.rx_dropped + statistics.rx_ring_full.unwrap_or(0))
}

impl Receive for AfxdpReceive {
    #[inline]
    fn receive(&mut self, take: &mut Take<'_>) -> io::Result<usize> {
        if self.is_resuming {
            self.begin();
        }
        let mut available = self.rx.available(1);
        if available == 0 {
            available = self.wait()?;
            if available == 0 {
                return Ok(0);
            }
        }
        let (lent, done) = self.lend(available, take)?;
        if lent == 0 && done == 0 {
            // The rest of a multi-chunk frame has not arrived.
            self.rx.available(available + 1);
        }
        if done > 0 {
            self.return_descriptors(done);
        }
        if self.fill.needs_wakeup() {
            // Errors are reported by the call that finds nothing to lend.
            let _ = self.socket.wake_receive(&self.fill);
        }
        Ok(lent)
    }

    fn missed(&self) -> io::Result<u64> {
        Ok(self.drops.at(&drops(&self.socket)))
    }

    fn refused(&self) -> u64 {
        self.oversized
    }

    fn event(&self) -> Option<BorrowedFd<'_>> {
        Some(self.socket.as_fd())
    }

    fn devices(&self) -> Vec<BorrowedFd<'_>> {
        self.socket.descriptors().collect()
    }

    fn arm(&mut self, on: bool) -> bool {
        on && self.rx.available(1) > 0
    }

    fn set_wait(&mut self, wait: Wait) {
        self.wait = wait;
    }
}

/// Completes the partial checksums of frames from a local kernel. AF_XDP does not mark them, but a
/// wrong checksum that equals that of the pseudo-header must be partial.
struct Repair {
    /// Copy of a frame, of which only the checksum is written back.
    scratch: Scratch,
}

impl Default for Repair {
    fn default() -> Self {
        Self { scratch: scratch() }
    }
}

impl Repair {
    /// Completes the checksum of the frame of `len` bytes at `start`.
    ///
    /// # Safety
    /// The frame must be mapped, and writable.
    #[inline]
    unsafe fn frame(&mut self, start: NonNull<u8>, len: u32) {
        // SAFETY: by the contract.
        let frame = unsafe { Frame::shared(start, len) };
        let mut head = [0; HEADERS_MAX];
        let count = frame.copy_from(0, &mut head);
        if !offload::is_suspect(&head[..count], frame.len()) {
            return;
        }
        if let Some((at, sum)) = offload::missing_checksum(frame.bytes(&mut self.scratch)) {
            // SAFETY: by the contract; both bytes are in the frame.
            unsafe { start.add(at).cast::<[u8; 2]>().write_unaligned(sum) };
        }
    }
}

/// A frame and the end of its descriptors; `frame` is `None` if the frame is too long.
struct Descriptors<'a> {
    frame: Option<Frame<'a>>,
    end: u32,
}

/// Reads the frame whose first descriptor is `first`, of `available` descriptors. Returns `None` if
/// the rest of the frame, or room for it, is not there yet.
#[inline(always)]
fn read<'a>(
    socket: &'a Socket,
    rx: &Consumer<XdpDesc>,
    first: u32,
    available: u32,
    room: &mut impl Iterator<Item = &'a mut [u8]>,
    repair: Option<&mut Repair>,
) -> io::Result<Option<Descriptors<'a>>> {
    let umem = socket.umem();
    let outside = || io::Error::other("the kernel returned a descriptor outside the UMEM");
    let entry = rx.get(first);
    let start = umem.find(entry.addr, entry.len).ok_or_else(outside)?;
    if !entry.options.contains(XdpDescOptions::XDP_PKT_CONTD) {
        if let Some(repair) = repair {
            // SAFETY: as below; nothing else uses the chunk.
            unsafe { repair.frame(start, entry.len) };
        }
        // SAFETY: the chunk is ours until the descriptor is released, and stays mapped for longer.
        let frame = unsafe { Frame::shared(start, entry.len) };
        return Ok(Some(Descriptors { frame: Some(frame), end: first + 1 }));
    }
    let Some(end) = (first + 1..available)
        .find(|next| !rx.get(*next).options.contains(XdpDescOptions::XDP_PKT_CONTD))
    else {
        return Ok(None);
    };
    let Some(to) = room.next() else { return Ok(None) };
    let mut len = 0;
    for offset in first..=end {
        let entry = rx.get(offset);
        let start = umem.find(entry.addr, entry.len).ok_or_else(outside)?;
        let Some(to) = to.get_mut(len..len + entry.len as usize) else {
            return Ok(Some(Descriptors { frame: None, end: end + 1 }));
        };
        // SAFETY: the chunk is ours, and `to` has the same length.
        unsafe { frame::copy(start.as_ptr(), to.as_mut_ptr(), to.len()) };
        len += entry.len as usize;
    }
    let to = &mut to[..len];
    if repair.is_some()
        && let Some((at, sum)) = offload::missing_checksum(to)
    {
        to[at..at + 2].copy_from_slice(&sum);
    }
    Ok(Some(Descriptors { frame: Some(Frame::from(&*to)), end: end + 1 }))
}
