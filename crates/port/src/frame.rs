//! Frames as ports lend them.

use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering, compiler_fence};

/// The longest frame that any port carries, in bytes: the longest test frame and a VLAN tag.
pub const FRAME_LIMIT: usize = dray_wire::FRAME_MAX + TAG_LEN;

/// Length of a VLAN tag, in bytes.
pub(crate) const TAG_LEN: usize = 4;
/// The type that says that a VLAN tag follows (IEEE 802.1Q).
pub(crate) const TAG_TYPE: [u8; 2] = [0x81, 0x00];
/// Destination and source: a tag lies behind them.
pub(crate) const ADDRESSES_LEN: usize = 12;

/// A frame where it lies, from its destination MAC to the end of its payload.
///
/// It may lie in memory that a peer can write to at any time, so it is not a slice: who wants to
/// look at its bytes looks at a copy ([`first`](Self::first), [`bytes`](Self::bytes)), and who
/// passes it on copies it once. Who passes it on with other headers puts those, from elsewhere, in
/// front of the rest ([`with_head`](Self::with_head)): that is copied once still.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// The head, where the frame begins with bytes that lie elsewhere.
    head: NonNull<u8>,
    /// The body: all that is not in the head.
    start: NonNull<u8>,
    /// Length of head and body.
    len: u32,
    head_len: u8,
    /// Whether others may write to the body.
    shared: bool,
    lent: PhantomData<&'a [u8]>,
}

/// The longest head that a frame can be given, in bytes.
pub const HEAD_MAX: usize = u8::MAX as usize;

// SAFETY: a frame is read only, and its memory stays mapped for `'a` on any thread.
unsafe impl Send for Frame<'_> {}

/// Room for a copy of one frame.
pub type Scratch = Box<[u8; FRAME_LIMIT]>;

/// A new, empty [`Scratch`].
pub fn scratch() -> Scratch {
    vec![0; FRAME_LIMIT].try_into().expect("just as long")
}

impl<'a> Frame<'a> {
    /// A frame in memory that others may write to. It has at most [`FRAME_LIMIT`] bytes.
    ///
    /// # Safety
    /// `len` bytes from `start` on must stay mapped for `'a`.
    #[inline]
    pub(crate) unsafe fn shared(start: NonNull<u8>, len: u32) -> Self {
        debug_assert!(len as usize <= FRAME_LIMIT);
        let head = NonNull::dangling();
        Self { head, start, len, head_len: 0, shared: true, lent: PhantomData }
    }

    /// `head`, and behind it the frame's bytes of `body`: a frame with other headers. Nothing is copied,
    /// but by whoever transmits it.
    ///
    /// # Panics
    /// Where the frame has a head already or no such bytes, where `head` is longer than [`HEAD_MAX`],
    /// or the outcome longer than [`FRAME_LIMIT`].
    #[inline]
    pub fn with_head<'h>(&self, head: &'h [u8], body: Range<usize>) -> Frame<'h>
    where
        'a: 'h,
    {
        let right = self.is_whole() && body.start <= body.end && body.end <= self.len();
        assert!(right, "{body:?} of {self:?}");
        let len = head.len() + body.len();
        assert!(head.len() <= HEAD_MAX && len <= FRAME_LIMIT, "a frame of {len} bytes");
        Frame {
            head: NonNull::from(head).cast(),
            // SAFETY: it lies within the body, or just behind it.
            start: unsafe { self.start.add(body.start) },
            len: len as u32,
            head_len: head.len() as u8,
            shared: self.shared,
            lent: PhantomData,
        }
    }

    /// Returns true if others may write to the frame while it is lent: two looks at it can differ.
    #[inline]
    pub fn may_change(&self) -> bool {
        self.shared
    }

    /// Whether all of it lies in one place.
    #[inline(always)]
    pub(crate) fn is_whole(&self) -> bool {
        self.head_len == 0
    }

    /// Length in bytes.
    #[inline]
    #[expect(clippy::len_without_is_empty, reason = "nobody asks")]
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Returns true if it is at most `max` bytes long without its VLAN tag: where a tag of 802.1Q
    /// comes on top, a network takes 4 bytes more (IEEE 802.3ac).
    #[inline]
    pub(crate) fn fits(&self, max: usize) -> bool {
        self.len() <= max || (self.len() <= max + TAG_LEN && self.is_tagged())
    }

    #[cold]
    fn is_tagged(&self) -> bool {
        let head = self.first::<{ ADDRESSES_LEN + TAG_TYPE.len() }>();
        head.is_some_and(|head| head[ADDRESSES_LEN..] == TAG_TYPE)
    }

    /// A copy of the first `N` bytes, where there are so many.
    #[inline]
    pub fn first<const N: usize>(&self) -> Option<[u8; N]> {
        if self.len() < N {
            return None;
        }
        let mut copy = [0; N];
        if self.is_whole() {
            // SAFETY: `N` bytes are mapped for `'a`. Others may be writing there, so the copy can
            // hold any bytes, which any `[u8; N]` may.
            unsafe { ptr::copy_nonoverlapping(self.start.as_ptr(), copy.as_mut_ptr(), N) };
        } else {
            // SAFETY: `copy` has room for `N` bytes.
            unsafe { self.copy_part(0..N, NonNull::from(&mut copy).cast()) };
        }
        // What was checked must be what is used: no second look at the peer's memory.
        compiler_fence(Ordering::SeqCst);
        Some(copy)
    }

    /// A copy of the first `N` words, in the order of their bytes, where there are so many and all of the
    /// frame lies in one place. It stays in registers where it is only looked at.
    #[inline(always)]
    pub fn first_words<const N: usize>(&self) -> Option<[u64; N]> {
        if !self.is_whole() || self.len() < 8 * N {
            return None;
        }
        // SAFETY: as in `first`; a word may lie anywhere.
        let words = unsafe { self.start.cast::<[u64; N]>().read_unaligned() };
        compiler_fence(Ordering::SeqCst);
        Some(words)
    }

    /// Copies its bytes from `from` on to `to`, as many as there are and as fit; how many those were.
    #[inline]
    pub fn copy_from(&self, from: usize, to: &mut [u8]) -> usize {
        let end = self.len().min(from.saturating_add(to.len()));
        let from = from.min(end);
        // SAFETY: `to` has room for so many bytes, by the limit above.
        unsafe { self.copy_part(from..end, NonNull::from(to).cast()) };
        compiler_fence(Ordering::SeqCst);
        end - from
    }

    /// As [`copy_from`](Self::copy_from) the beginning on, for a number of bytes that the compiler
    /// knows: most frames are longer, and so cost no call.
    ///
    /// From `AT` on the copy is written in pieces of 16 bytes. A field that lies within one of them can
    /// be read at once; one that lies across two can only be read when both have reached the cache.
    #[inline(always)]
    pub fn copy_first<const AT: usize, const N: usize>(&self, to: &mut [u8; N]) -> usize {
        if !self.is_whole() || self.len() < N {
            return self.copy_from(0, to);
        }
        let (from, to) = (self.start.as_ptr(), to.as_mut_ptr());
        // SAFETY: `N` bytes are mapped for `'a`, and `to` is as long; `AT` is a part of them.
        unsafe {
            const { assert!(AT <= N) };
            ptr::copy_nonoverlapping(from, to, AT);
            ptr::copy_nonoverlapping(from.add(AT), to.add(AT), N - AT);
        }
        compiler_fence(Ordering::SeqCst);
        N
    }

    /// All of its bytes: where they lie if nobody else can write there, else a copy in `scratch`.
    #[inline]
    pub fn bytes<'s>(&'s self, scratch: &'s mut Scratch) -> &'s [u8] {
        if !self.shared && self.is_whole() {
            // SAFETY: made from a slice that is borrowed for `'a`.
            return unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len()) };
        }
        let copy = &mut scratch[..self.len()];
        // SAFETY: as in `first`; `copy` is exactly as long.
        unsafe { self.copy_to(NonNull::from(&mut *copy).cast()) };
        compiler_fence(Ordering::SeqCst);
        copy
    }

    /// Asks for the first bytes of its body to be brought into the cache.
    #[inline(always)]
    pub(crate) fn prefetch(&self) {
        prefetch_to_read(self.start.as_ptr());
    }

    /// Copies it to the beginning of `to` and returns its length.
    ///
    /// # Panics
    /// Where `to` is shorter.
    pub fn copy_into(&self, to: &mut [u8]) -> usize {
        let to = &mut to[..self.len()];
        // SAFETY: `to` is exactly as long.
        unsafe { self.copy_to(NonNull::from(&mut *to).cast()) };
        compiler_fence(Ordering::SeqCst);
        self.len()
    }

    /// Some of its bytes, for a system call: those of the head, and those of the body.
    ///
    /// # Panics
    /// Where the frame has no such bytes.
    #[inline]
    pub(crate) fn parts(&self, range: Range<usize>) -> [Part<'a>; 2] {
        assert!(range.start <= range.end && range.end <= self.len(), "{range:?} of {self:?}");
        let head = usize::from(self.head_len);
        let (middle, body) = (range.end.min(head), range.start.max(head));
        // SAFETY: each begins within the head or the body, or just behind it.
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

    /// How many bytes behind `base` it begins, where it does not begin before and lies in one place.
    #[inline(always)]
    pub(crate) fn offset_from(&self, base: NonNull<u8>) -> Option<usize> {
        let whole = self.is_whole().then_some(self.start)?;
        whole.addr().get().checked_sub(base.addr().get())
    }

    /// Copies all of it to `to`.
    ///
    /// # Safety
    /// So many bytes must be mapped and writable at `to`, and none of them be the frame's.
    #[inline]
    pub(crate) unsafe fn copy_to(&self, to: NonNull<u8>) {
        // SAFETY: by the contract.
        unsafe { self.copy_part(0..self.len(), to) };
    }

    /// Copies the bytes of `range` to `to`.
    ///
    /// # Panics
    /// Where the frame has no such bytes.
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

/// Bytes of a frame. They may lie in memory that others can write to.
#[derive(Clone, Copy)]
pub(crate) struct Part<'a> {
    /// The first byte.
    pub(crate) start: NonNull<u8>,
    /// How many; all of them stay mapped for `'a`.
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
    /// Where the slice is longer than [`FRAME_LIMIT`].
    #[inline]
    fn from(bytes: &'a [u8]) -> Self {
        assert!(bytes.len() <= FRAME_LIMIT, "a frame of {} bytes", bytes.len());
        Self {
            head: NonNull::dangling(),
            start: NonNull::from(bytes).cast(),
            len: bytes.len() as u32,
            head_len: 0,
            shared: false,
            lent: PhantomData,
        }
    }
}

impl<'a> From<&'a [AtomicU8]> for Frame<'a> {
    /// A frame in memory that others may write to.
    ///
    /// # Panics
    /// Where the slice is longer than [`FRAME_LIMIT`].
    #[inline]
    fn from(bytes: &'a [AtomicU8]) -> Self {
        assert!(bytes.len() <= FRAME_LIMIT, "a frame of {} bytes", bytes.len());
        // SAFETY: the slice stays for `'a`.
        unsafe { Self::shared(NonNull::from(bytes).cast(), bytes.len() as u32) }
    }
}

/// Lines that are asked for before the first of them is needed: about as many as a core can have on
/// their way.
pub(crate) const AHEAD: usize = 16;

/// The frames of `frames`, each of whose first bytes are asked for some frames before its turn. Who
/// looks into frames of a peer on another CPU works on one frame while the next ones come.
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

/// Asks for the first line of `value` to be brought into the cache, to be read.
#[inline(always)]
pub fn prefetch<T: ?Sized>(value: &T) {
    prefetch_to_read(ptr::from_ref(value).cast());
}

/// Asks for the line at `at` to be brought into the cache, to be read.
#[inline(always)]
pub(crate) fn prefetch_to_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a hint: it accesses nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(at.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the line at `at` to be brought into the cache, to be written: taken away from the other
/// side's cache, which the store would have to wait for.
#[inline(always)]
pub(crate) fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; a processor that does not know it takes it for nothing. The intrinsic with
    // a hint for writing becomes one for reading unless all of the program is compiled for newer
    // processors.
    unsafe {
        std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for the line at `at`, which was written, to be moved from this CPU's own cache to the one that
/// all CPUs share: whoever reads it next has it sooner.
#[inline(always)]
pub(crate) fn demote(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; older processors take it for nothing.
    unsafe {
        std::arch::asm!("cldemote [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Copies `len` bytes. Most frames are short, and a call of `memcpy` costs as much as the copy of
/// one, so those are copied in place, by moves that overlap at the end.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`], but that the bytes may change meanwhile.
#[inline]
pub(crate) unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Moves of `N` bytes, the last one ending at the end; `len` is at least `N`.
    #[inline(always)]
    unsafe fn blocks<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
        let mut at = 0;
        // SAFETY: every block lies within `len`.
        unsafe {
            while at + N <= len {
                to.add(at).cast::<[u8; N]>().write(from.add(at).cast::<[u8; N]>().read());
                at += N;
            }
            if at < len {
                let at = len - N;
                to.add(at).cast::<[u8; N]>().write(from.add(at).cast::<[u8; N]>().read());
            }
        }
    }
    // SAFETY: by the contract.
    unsafe {
        match len {
            64..=256 => blocks::<64>(from, to, len),
            16..=63 => blocks::<16>(from, to, len),
            _ => ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_copied_whole_and_nothing_beyond() {
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
    fn a_head_takes_the_place_of_the_first_bytes() {
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
    #[should_panic(expected = "0..201 of Frame")]
    fn a_body_is_of_the_frame() {
        let _ = Frame::from(&[0; 200][..]).with_head(&[], 0..201);
    }
}
