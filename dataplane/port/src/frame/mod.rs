//! Frames as ports lend them.

pub(crate) mod finisher;
pub(crate) mod list;
pub(crate) mod reassembly;
pub(crate) mod received;

use std::marker::PhantomData;
use std::num::NonZeroU16;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

pub(crate) use dray_shm::cache::{Copier, Copy, copy, demote, prefetch_to_read};
use dray_wire::ethernet::{ETHERNET_LEN, FRAME_MAX, TAG_LEN, TAG_TYPE};
use dray_wire::flow;
use dray_wire::ip::IPV6_LEN;
use dray_wire::offload::Offload;

use crate::frame::list::{List, Space};

/// Maximum number of frames per receive or transmit call.
pub const BATCH_MAX: usize = 256;

/// Length of the longest frame that any port carries, in bytes: 9000 bytes of IP packet, an
/// Ethernet header and a VLAN tag.
pub const FRAME_LIMIT: usize = FRAME_MAX + TAG_LEN;

/// Minimum length of a frame: its Ethernet header.
pub(crate) const FRAME_LEAST: usize = ETHERNET_LEN;

/// Length of the longest frame with an [offload](Frame::offload), in bytes: the longest IPv6
/// packet, an Ethernet header and a VLAN tag.
pub const OFFLOADED_LIMIT: usize = IPV6_LEN + u16::MAX as usize + ETHERNET_LEN + TAG_LEN;

/// Length of the destination and source addresses, in bytes; a VLAN tag follows them.
pub(crate) const ADDRESSES_LEN: usize = 12;

/// A borrowed frame, from its destination MAC to the end of its payload.
///
/// It may lie in memory that a peer can write to at any time, so it is not a slice: inspect a copy
/// of its bytes ([`first`](Self::first), [`bytes`](Self::bytes)). Forwarding a frame copies it
/// once. To forward it with other headers, put new headers from other memory in front of the rest
/// ([`with_head`](Self::with_head)); that is still one copy.
///
/// A frame that is sent back with its addresses swapped:
///
/// ```
/// use dray_port::{Frame, scratch};
///
/// let bytes: Vec<u8> = (0..64).collect();
/// let frame = Frame::from(&bytes[..]);
/// let addresses: [u8; 12] = frame.first().expect("at least 12 bytes");
/// let swapped = [&addresses[6..], &addresses[..6]].concat();
/// let back = frame.with_head(&swapped, 12..frame.len());
/// assert_eq!(back.len(), 64);
/// let mut scratch = scratch();
/// assert_eq!(back.bytes(&mut scratch)[..14], [6, 7, 8, 9, 10, 11, 0, 1, 2, 3, 4, 5, 12, 13]);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The head, if the frame begins with bytes that lie in other memory.
    head: NonNull<u8>,
    /// The body: everything that is not in the head.
    start: NonNull<u8>,
    /// Length of head and body.
    len: u32,
    head_len: u8,
    /// [`SHARED`], and the kind of offload.
    flags: u8,
    /// Payload of a segment, if the frame has to be segmented.
    segment: u16,
    lent: PhantomData<&'a [u8]>,
}

// Batches of frames are kept in the cache.
const _: () = assert!(size_of::<Frame<'_>>() == 24);

/// Others may write to the body.
const SHARED: u8 = 1;
/// Kinds of offload.
const CHECKSUM: u8 = 2;
const TCP: u8 = 4;
const UDP: u8 = 6;
const TCP_ECN: u8 = 8;
const OFFLOAD: u8 = 14;

/// Length of the longest head that a frame can be given, in bytes.
pub const HEAD_MAX: usize = u8::MAX as usize;

// SAFETY: a frame's bytes are only read, and they stay mapped for `'a` on any thread.
unsafe impl Send for Frame<'_> {}

/// Buffer for a copy of one frame.
pub type Scratch = Box<[u8; FRAME_LIMIT]>;

/// Creates a zeroed [`Scratch`].
pub fn scratch() -> Scratch {
    vec![0; FRAME_LIMIT].try_into().expect("just as long")
}

impl<'a> Frame<'a> {
    /// Creates a frame of at most [`FRAME_LIMIT`] bytes in memory that others may write to.
    ///
    /// # Safety
    /// `len` bytes from `start` on must stay mapped for `'a`.
    #[inline]
    pub(crate) unsafe fn shared(start: NonNull<u8>, len: u32) -> Self {
        debug_assert!(len as usize <= FRAME_LIMIT);
        let head = NonNull::dangling();
        Self { head, start, len, head_len: 0, flags: SHARED, segment: 0, lent: PhantomData }
    }

    /// Returns the frame with an offload, in memory that others may write to.
    ///
    /// # Safety
    /// `len` bytes from `start` on must stay mapped for `'a`, at most [`OFFLOADED_LIMIT`], or
    /// without an offload [`FRAME_LIMIT`].
    #[inline]
    pub(crate) unsafe fn shared_with(start: NonNull<u8>, len: u32, offload: Offload) -> Self {
        // SAFETY: nothing is mapped beyond these; the length is set next.
        let mut frame = unsafe { Self::shared(start, 0) };
        frame.len = len;
        frame.set_offload(offload);
        debug_assert!(frame.len() <= frame.limit());
        frame
    }

    /// Creates a frame of `bytes` with an offload.
    ///
    /// # Panics
    /// If the slice is longer than [`OFFLOADED_LIMIT`], or without an offload than [`FRAME_LIMIT`].
    pub fn with_offload(bytes: &'a [u8], offload: Offload) -> Self {
        let mut frame = Self::from(&bytes[..0]);
        frame.start = NonNull::from(bytes).cast();
        frame.len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        frame.set_offload(offload);
        assert!(frame.len() <= frame.limit(), "a frame of {} bytes", bytes.len());
        frame
    }

    #[inline]
    fn set_offload(&mut self, offload: Offload) {
        let (kind, segment) = match offload {
            Offload::None => (0, 0),
            Offload::Checksum => (CHECKSUM, 0),
            Offload::Tcp(len) => (TCP, len.get()),
            Offload::TcpEcn(len) => (TCP_ECN, len.get()),
            Offload::Udp(len) => (UDP, len.get()),
        };
        self.flags = self.flags & !OFFLOAD | kind;
        self.segment = segment;
    }

    /// Returns what is left to do on the frame before it can go over a network. Only a port that
    /// was [opened for it](crate::PortUri::open_offloading) lends frames with an offload, and
    /// only a port that [handles](crate::Transmit::offloads) the offload transmits them.
    #[inline]
    pub fn offload(&self) -> Offload {
        match (self.flags & OFFLOAD, NonZeroU16::new(self.segment)) {
            (CHECKSUM, _) => Offload::Checksum,
            (TCP, Some(len)) => Offload::Tcp(len),
            (TCP_ECN, Some(len)) => Offload::TcpEcn(len),
            (UDP, Some(len)) => Offload::Udp(len),
            _ => Offload::None,
        }
    }

    /// Returns true if the frame has an [offload](Self::offload).
    #[inline(always)]
    pub fn has_offload(&self) -> bool {
        self.flags & OFFLOAD != 0
    }

    /// Returns the maximum length of a frame with the offload that this one has.
    #[inline]
    pub fn limit(&self) -> usize {
        if self.has_offload() { OFFLOADED_LIMIT } else { FRAME_LIMIT }
    }

    /// Returns a frame with other headers: `head`, followed by the bytes `body` of this frame.
    /// Copies nothing; the bytes are copied when the frame is transmitted.
    ///
    /// # Panics
    /// If the frame already has a head, if `body` is out of its range, if `head` is longer than
    /// [`HEAD_MAX`], or if the result is longer than the frame's [`limit`](Self::limit).
    #[inline]
    pub fn with_head<'h>(&self, head: &'h [u8], body: Range<usize>) -> Frame<'h>
    where
        'a: 'h,
    {
        let right = self.is_whole() && body.start <= body.end && body.end <= self.len();
        assert!(right, "{body:?} of {self:?}");
        let len = head.len() + body.len();
        assert!(head.len() <= HEAD_MAX && len <= self.limit(), "a frame of {len} bytes");
        Frame {
            head: NonNull::from(head).cast(),
            // SAFETY: the result is within the body, or just past its end.
            start: unsafe { self.start.add(body.start) },
            len: len as u32,
            head_len: head.len() as u8,
            flags: self.flags,
            segment: self.segment,
            lent: PhantomData,
        }
    }

    /// Returns true if others may write to the frame while it is lent, so that two reads can
    /// differ.
    #[inline]
    pub fn may_change(&self) -> bool {
        self.flags & SHARED != 0
    }

    /// Returns true if the whole frame is contiguous (it has no head).
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        self.head_len == 0
    }

    /// Returns the address of the first byte, or `None` if the frame is not contiguous. The bytes
    /// are valid as long as the frame, and others may write to them if it [may
    /// change](Self::may_change).
    #[inline]
    pub fn start(&self) -> Option<*const u8> {
        self.is_whole().then_some(self.start.as_ptr().cast_const())
    }

    /// Length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "no caller needs it")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if the frame is at most `max` bytes long without its VLAN tag. A network
    /// carries 802.1Q-tagged frames that are 4 bytes longer (IEEE 802.3ac).
    #[inline]
    pub(crate) fn fits(&self, max: usize) -> bool {
        self.len() <= max || (self.len() <= max + TAG_LEN && self.is_tagged())
    }

    #[cold]
    fn is_tagged(&self) -> bool {
        let head = self.first::<{ ADDRESSES_LEN + TAG_TYPE.len() }>();
        head.is_some_and(|head| head[ADDRESSES_LEN..] == TAG_TYPE)
    }

    /// Returns the range of an IPv4/UDP frame's payload, by the headers as they are now.
    #[inline]
    pub(crate) fn udp_payload(&self) -> Option<Range<usize>> {
        flow::udp_payload_range(&self.first()?, self.len())
    }

    /// Returns a copy of the first `N` bytes, or `None` if the frame is shorter.
    #[inline]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        if self.len() < N {
            return None;
        }
        let mut copy = [0; N];
        if self.is_whole() {
            // SAFETY: `N` bytes are mapped for `'a`. Others may be writing to them, so the copy can
            // hold any bytes, and any bytes are a valid `[u8; N]`.
            unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), copy.as_mut_ptr(), N) };
        } else {
            // SAFETY: `copy` has room for `N` bytes.
            unsafe { self.copy_part(0..N, NonNull::from(&mut copy).cast()) };
        }
        // The bytes that are checked must be the bytes that are used: no second read of the peer's
        // memory.
        compiler_fence(Ordering::SeqCst);
        Some(copy)
    }

    /// Returns a copy of the first `N` words, in byte order of the frame, or `None` if the frame is
    /// shorter or not contiguous. The copy stays in registers if it is only inspected.
    #[inline(always)]
    pub fn first_words<const N: usize>(&self) -> Option<[u64; N]> {
        if !self.is_whole() || self.len() < 8 * N {
            return None;
        }
        // SAFETY: as in `first`; the read may be unaligned.
        let words = unsafe { self.start.cast::<[u64; N]>().read_unaligned() };
        compiler_fence(Ordering::SeqCst);
        Some(words)
    }

    /// Copies the frame's bytes from offset `from` on into `to`, as many as exist and fit. Returns
    /// how many were copied.
    #[inline]
    pub fn copy_from(&self, from: usize, to: &mut [u8]) -> usize {
        let end = self.len().min(from.saturating_add(to.len()));
        let from = from.min(end);
        // SAFETY: `to` has room for `end - from` bytes, by the limit above.
        unsafe { self.copy_part(from..end, NonNull::from(to).cast()) };
        compiler_fence(Ordering::SeqCst);
        end - from
    }

    /// Like [`copy_from`](Self::copy_from) offset 0, for a length that is known at compile time:
    /// most frames are at least that long, so the copy needs no function call.
    ///
    /// From `AT` on, the copy is written in pieces of 16 bytes. A field within one piece can be
    /// read at once; a field that crosses two pieces can be read only when both have reached the
    /// cache.
    #[inline(always)]
    pub fn copy_first<const AT: usize, const N: usize>(&self, to: &mut [u8; N]) -> usize {
        if !self.is_whole() || self.len() < N {
            return self.copy_from(0, to);
        }
        let (from, to) = (self.start.as_ptr(), to.as_mut_ptr());
        // SAFETY: `N` bytes are mapped for `'a`, and `to` has `N` bytes; `AT` is at most `N`.
        unsafe {
            const { assert!(AT <= N) };
            ptr::copy_nonoverlapping(from, to, AT);
            ptr::copy_nonoverlapping(from.add(AT), to.add(AT), N - AT);
        }
        compiler_fence(Ordering::SeqCst);
        N
    }

    /// Returns all bytes of the frame: in place if no one else can write to them, else a copy in
    /// `scratch`.
    #[inline]
    pub fn bytes<'s>(&'s self, scratch: &'s mut Scratch) -> &'s [u8] {
        self.bytes_in(&mut scratch[..])
    }

    /// Like [`bytes`](Self::bytes), with a buffer of any length.
    ///
    /// # Panics
    /// If the frame has to be copied and is longer than `scratch`.
    #[inline]
    pub(crate) fn bytes_in<'s>(&'s self, scratch: &'s mut [u8]) -> &'s [u8] {
        if !self.may_change() && self.is_whole() {
            // SAFETY: the frame was made from a slice that is borrowed for `'a`.
            return unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) };
        }
        let copy = &mut scratch[..self.len()];
        // SAFETY: as in `first`; `copy` has exactly the frame's length.
        unsafe { self.copy_to(NonNull::from(&mut *copy).cast()) };
        compiler_fence(Ordering::SeqCst);
        copy
    }

    /// Prefetches the first bytes of the body into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch_to_read(self.start.as_ptr());
    }

    /// Copies the frame to the beginning of `to` and returns its length.
    ///
    /// # Panics
    /// If `to` is shorter than the frame.
    pub fn copy_into(&self, to: &mut [u8]) -> usize {
        let to = &mut to[..self.len()];
        // SAFETY: `to` has exactly the frame's length.
        unsafe { self.copy_to(NonNull::from(&mut *to).cast()) };
        compiler_fence(Ordering::SeqCst);
        self.len()
    }

    /// Returns the bytes of `range` as a part of the head and a part of the body, for a system
    /// call.
    ///
    /// # Panics
    /// If `range` is out of the frame's range.
    #[inline]
    pub(crate) fn parts(&self, range: Range<usize>) -> [Part<'a>; 2] {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {self:?}");
        let head = usize::from(self.head_len);
        let (middle, body) = (range.end.min(head), range.start.max(head));
        // SAFETY: each part begins within the head or the body, or just past its end.
        unsafe {
            [
                Part::new(
                    self.head.add(range.start.min(middle)),
                    middle.saturating_sub(range.start),
                ),
                Part::new(self.start.add(body - head), range.end.saturating_sub(body)),
            ]
        }
    }

    /// Returns the frame's offset from `base`, or `None` if it begins before `base` or is not
    /// contiguous.
    #[inline(always)]
    pub(crate) fn offset_from(&self, base: NonNull<u8>) -> Option<usize> {
        let whole = self.is_whole().then_some(self.start)?;
        whole.addr().get().checked_sub(base.addr().get())
    }

    /// Copies the whole frame to `to`.
    ///
    /// # Safety
    /// As many bytes as the frame has must be mapped and writable at `to`, and must not overlap the
    /// frame.
    #[inline(always)]
    pub(crate) unsafe fn copy_to(&self, to: NonNull<u8>) {
        // SAFETY: by the contract, and the frame's bytes are mapped for `'a`.
        unsafe {
            if self.is_whole() {
                copy(self.start.as_ptr(), to.as_ptr(), self.len());
            } else {
                self.copy_part(0..self.len(), to);
            }
        }
    }

    /// Adds what has to be copied so that the whole frame is at `to`.
    #[inline(always)]
    pub(crate) fn add_copies(&self, to: NonNull<u8>, copies: &mut Copies<'_>) {
        let (head, to) = (usize::from(self.head_len), to.as_ptr());
        if head > 0 {
            copies.push(Copy { from: self.head.as_ptr(), to, len: head });
        }
        let (from, to) = (self.start.as_ptr(), to.wrapping_add(head));
        copies.push(Copy { from, to, len: self.len() - head });
    }

    /// Copies the bytes of `range` to `to`.
    ///
    /// # Panics
    /// If `range` is out of the frame's range.
    ///
    /// # Safety
    /// As for [`copy_to`](Self::copy_to).
    #[inline]
    pub(crate) unsafe fn copy_part(&self, range: Range<usize>, to: NonNull<u8>) {
        let [head, body] = self.parts(range);
        // SAFETY: by the contract, and the frame's bytes are mapped for `'a`.
        unsafe {
            if head.len > 0 {
                copy(head.start.as_ptr(), to.as_ptr(), head.len);
            }
            copy(body.start.as_ptr(), to.as_ptr().add(head.len), body.len);
        }
    }
}

/// The copies of a batch of frames, each of which may have a head.
pub(crate) type Copies<'s> = List<'s, Copy>;

/// Room for the copies of a batch.
pub(crate) type CopySpace = Space<Copy, { 2 * crate::BATCH_MAX }>;

/// A contiguous part of a frame. It may lie in memory that others can write to.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// The first byte.
    pub(crate) start: NonNull<u8>,
    /// The number of bytes; all of them stay mapped for `'a`.
    pub(crate) len: usize,
    lent: PhantomData<&'a [u8]>,
}

impl Part<'_> {
    #[inline(always)]
    fn new(start: NonNull<u8>, len: usize) -> Self {
        Self { start, len, lent: PhantomData }
    }
}

impl<'a> From<&'a [u8]> for Frame<'a> {
    /// # Panics
    /// If the slice is longer than [`FRAME_LIMIT`].
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        assert!(bytes.len() <= FRAME_LIMIT, "a frame of {} bytes", bytes.len());
        Self {
            head: NonNull::dangling(),
            start: NonNull::from(bytes).cast(),
            len: bytes.len() as u32,
            head_len: 0,
            flags: 0,
            segment: 0,
            lent: PhantomData,
        }
    }
}

impl<'a> From<&'a [AtomicU8]> for Frame<'a> {
    /// Creates a frame in memory that others may write to.
    ///
    /// # Panics
    /// If the slice is longer than [`FRAME_LIMIT`].
    #[inline]
    fn from(bytes: &'a [AtomicU8]) -> Self {
        assert!(bytes.len() <= FRAME_LIMIT, "a frame of {} bytes", bytes.len());
        // SAFETY: the slice is borrowed for `'a`.
        unsafe { Self::shared(NonNull::from(bytes).cast(), bytes.len() as u32) }
    }
}

/// Number of cache lines that are prefetched ahead: about as many as a core can have in flight.
const AHEAD: usize = 16;

/// Iterates over `frames` and prefetches the first bytes of each some frames before its turn. A
/// caller that inspects frames of a peer on another CPU works on one frame while the next ones
/// arrive.
#[inline(always)]
pub fn ahead<'f, 'a>(frames: &'f [Frame<'a>]) -> impl Iterator<Item = &'f Frame<'a>> {
    frames.iter().take(AHEAD).for_each(Frame::prefetch);
    frames.iter().enumerate().map(|(index, frame)| {
        if let Some(later) = frames.get(index + AHEAD) {
            later.prefetch();
        }
        frame
    })
}

/// Prefetches the first cache line of `value` for reading.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_to_read(ptr::from_ref(value).cast());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copy_writes_exactly_the_frame_length() {
        let from: Vec<u8> = (0..=255).cycle().take(FRAME_LIMIT).collect();
        for len in (0..600).chain([1500, FRAME_LIMIT]) {
            let mut to = vec![0xee; len + 1];
            let frame = Frame::from(&from[..len]);
            // SAFETY: `to` has room for `len` bytes.
            unsafe { frame.copy_to(NonNull::from(&mut to[..]).cast()) };
            assert_eq!((&to[..len], to[len]), (&from[..len], 0xee), "{len}");
            // SAFETY: `from` outlives the frame.
            let shared = unsafe { Frame::shared(frame.start, len as u32) };
            assert_eq!(shared.bytes(&mut scratch()), &from[..len]);
            assert_eq!(shared.first::<14>().is_some(), len >= 14);
            let words = from.first_chunk().map(|words: &[u8; 16]| {
                [0, 8].map(|at| u64::from_ne_bytes(*words[at..].first_chunk().unwrap()))
            });
            assert_eq!(shared.first_words(), words.filter(|_| len >= 16));
        }
    }

    #[test]
    fn head_replaces_the_first_bytes() {
        let from: Vec<u8> = (0..200).collect();
        let frame = Frame::from(&from[..]);
        for (head_len, body) in [
            (0, 0..200),
            (14, 58..200),
            (98, 14..190),
            (HEAD_MAX, 200..200),
            (14, 0..9),
            (0, 14..15),
        ] {
            let head = vec![0xaa; head_len];
            let expected = [&head[..], &from[body.clone()]].concat();
            let frame = frame.with_head(&head, body);
            assert_eq!(frame.len(), expected.len());
            assert_eq!(frame.bytes(&mut scratch()), expected);
            assert_eq!(frame.first::<20>(), expected.first_chunk().copied());
            assert_eq!(frame.first_words::<1>().is_some(), head_len == 0 && expected.len() >= 8);
            let mut copied = vec![0; expected.len() + 3];
            for at in 0..=expected.len() + 1 {
                let rest = &expected[at.min(expected.len())..];
                let count = frame.copy_from(at, &mut copied);
                assert_eq!(&copied[..count], rest, "{head_len} {at}");
                let count = frame.copy_from(at, &mut copied[..7.min(expected.len())]);
                assert_eq!(copied[..count], rest[..rest.len().min(7).min(expected.len())]);
            }
        }
    }

    #[test]
    fn offload_stays_with_the_frame() {
        let bytes = vec![7; OFFLOADED_LIMIT];
        let len = NonZeroU16::new(1448).unwrap();
        for offload in [Offload::Checksum, Offload::Tcp(len), Offload::Udp(len)] {
            let frame = Frame::with_offload(&bytes, offload);
            assert_eq!((frame.offload(), frame.may_change()), (offload, false));
            assert!(frame.has_offload());
            let tagged = frame.with_head(&[1; 18], 18..frame.len());
            assert_eq!((tagged.offload(), tagged.len()), (offload, OFFLOADED_LIMIT));
            // SAFETY: `bytes` outlives the frame.
            let shared = unsafe { Frame::shared_with(frame.start, 1514, offload) };
            assert_eq!((shared.offload(), shared.may_change()), (offload, true));
        }
        let plain = Frame::with_offload(&bytes[..FRAME_LIMIT], Offload::None);
        assert!(!plain.has_offload() && plain.offload() == Offload::None);
    }

    #[test]
    #[should_panic(expected = "a frame of 9019 bytes")]
    fn long_frame_needs_an_offload() {
        let _ = Frame::with_offload(&[0; FRAME_LIMIT + 1], Offload::None);
    }

    #[test]
    #[should_panic(expected = "0..201 of Frame")]
    fn body_beyond_the_frame_panics() {
        let _ = Frame::from(&[0; 200][..]).with_head(&[], 0..201);
    }
}
