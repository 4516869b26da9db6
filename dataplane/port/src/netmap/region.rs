//! Region: memory with the rings and buffers of netmap ports.

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

use super::calls::Pages;
use super::layout::{Interface, RINGS_AT, RingHeader};
use crate::Frame;
use crate::lock::lock;

/// Stands for a buffer that was not given: netmap keeps buffer 0 to itself.
const NONE: u32 = 0;

/// Region that ports of this process share, mapped once.
///
/// A buffer lies in one slot of one ring. A transmitting half that puts a received frame on its
/// ring takes over the frame's buffer, and gives the one of its own slot in exchange: the receiving
/// half puts that into the slot where the frame was.
pub(super) struct Region {
    pages: Pages,
    /// Distance of buffer 0 from the start of the region.
    buffers_at: usize,
    buffer_len: usize,
    /// For each buffer whose frame was put on a transmit ring in place while it was lent: the
    /// number of the buffer that was given in exchange; else [`NONE`].
    given: Box<[AtomicU32]>,
}

/// Position in a region: that of a frame, or of the buffer in a ring's slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    /// Number of the buffer.
    pub(super) buffer: u32,
    /// Distance from the start of the buffer.
    pub(super) offset: u32,
}

impl Region {
    /// Returns the region `id`, which this process may have mapped already; else
    /// `map` maps it. A port's [`Interface`] lies at `interface_at`, and has the transmit ring
    /// `ring`: a port of host rings has no others.
    pub(super) fn get(
        id: u16,
        interface_at: usize,
        ring: usize,
        map: impl FnOnce() -> io::Result<Pages>,
    ) -> io::Result<Arc<Self>> {
        // The kernel reuses the number of a region only when no process has that region mapped.
        static MAPPED: Mutex<Option<HashMap<u16, Weak<Region>>>> = Mutex::new(None);
        let mut mapped = lock(&MAPPED);
        let mapped = mapped.get_or_insert_default();
        if let Some(region) = mapped.get(&id).and_then(Weak::upgrade) {
            return Ok(region);
        }
        let region = Arc::new(Self::new(map()?, interface_at, ring)?);
        mapped.retain(|_, region| region.strong_count() > 0);
        mapped.insert(id, Arc::downgrade(&region));
        Ok(region)
    }

    /// Creates the value for mapped memory, in which a port's [`Interface`] lies at `interface_at`,
    /// and has the transmit ring `ring`.
    pub(super) fn new(pages: Pages, interface_at: usize, ring: usize) -> io::Result<Self> {
        let mut region = Self { pages, buffers_at: 0, buffer_len: 1, given: Box::default() };
        // All rings have the same buffers.
        let (at, header) = region.header(interface_at, ring)?;
        // SAFETY: `header` checked that it lies in the region.
        let header = unsafe { header.as_ref() };
        let buffers_at = header.buffers_at.load(Ordering::Relaxed);
        let buffers_at = usize::try_from(buffers_at).ok().and_then(|from| at.checked_add(from));
        let buffer_len = header.buffer_len.load(Ordering::Relaxed) as usize;
        let room = buffers_at.and_then(|at| region.pages.len.checked_sub(at));
        let (Some(buffers_at), Some(room), 1..) = (buffers_at, room, buffer_len) else {
            return Err(invalid("buffers outside its memory"));
        };
        let count = u32::try_from(room / buffer_len).map_err(|_| invalid("too many buffers"))?;
        (region.buffers_at, region.buffer_len) = (buffers_at, buffer_len);
        region.given = (0..count).map(|_| AtomicU32::new(NONE)).collect();
        Ok(region)
    }

    /// Returns a pointer to the `T` at `offset`.
    fn at<T>(&self, offset: usize) -> io::Result<NonNull<T>> {
        let end = offset.checked_add(size_of::<T>()).filter(|end| *end <= self.pages.len);
        if end.is_none() || !offset.is_multiple_of(align_of::<T>()) {
            return Err(invalid("a ring outside its memory"));
        }
        // SAFETY: it lies within the mapping.
        Ok(unsafe { self.pages.start.add(offset) }.cast())
    }

    /// Returns ring `index` of the port whose [`Interface`] lies at `interface_at`: its distance
    /// from the start of the region, and its header.
    fn header(
        &self,
        interface_at: usize,
        index: usize,
    ) -> io::Result<(usize, NonNull<RingHeader>)> {
        let entry = interface_at.checked_add(RINGS_AT + index * size_of::<AtomicI64>());
        let entry = self.at::<AtomicI64>(entry.unwrap_or(usize::MAX))?;
        // SAFETY: it lies in the region, and all access to it is atomic.
        let distance = unsafe { entry.as_ref() }.load(Ordering::Relaxed);
        let at = usize::try_from(distance).ok().and_then(|from| interface_at.checked_add(from));
        let at = at.ok_or_else(|| invalid("a ring outside its memory"))?;
        Ok((at, self.at(at)?))
    }

    /// Returns the header of transmit ring `index` of a port, or of its receive ring if `receives`,
    /// and the room from there to the end of the region. Host rings follow those of the
    /// interface.
    pub(super) fn ring_header(
        &self,
        interface_at: usize,
        index: usize,
        receives: bool,
    ) -> io::Result<(NonNull<RingHeader>, usize)> {
        let interface = self.at::<Interface>(interface_at)?;
        // SAFETY: it lies in the region, and all access to it is atomic.
        let interface = unsafe { interface.as_ref() };
        let before = match receives {
            true => {
                interface.tx_rings.load(Ordering::Relaxed) as usize
                    + interface.host_tx_rings.load(Ordering::Relaxed) as usize
            }
            false => 0,
        };
        let (at, header) = self.header(interface_at, before + index)?;
        // SAFETY: `header` checked that it lies in the region.
        let (buffers_at, buffer_len) = unsafe {
            let header = header.as_ref();
            (header.buffers_at.load(Ordering::Relaxed), header.buffer_len.load(Ordering::Relaxed))
        };
        let same = i64::try_from(self.buffers_at - at.min(self.buffers_at)) == Ok(buffers_at);
        if !same || buffer_len as usize != self.buffer_len {
            return Err(invalid("a ring with other buffers than its memory has"));
        }
        Ok((header, self.pages.len - at))
    }

    /// Returns the length of a buffer in bytes.
    pub(super) fn buffer_len(&self) -> usize {
        self.buffer_len
    }

    /// Returns a pointer to `len` bytes at `place`, or `None` if they are not in one buffer.
    #[inline(always)]
    pub(super) fn find(&self, place: Place, len: usize) -> Option<NonNull<u8>> {
        let (buffer, offset) = (place.buffer as usize, place.offset as usize);
        let fits = buffer > 1 && buffer < self.given.len() && offset + len <= self.buffer_len;
        let at = self.buffers_at + buffer * self.buffer_len + offset;
        // SAFETY: the region has that many buffers.
        fits.then(|| unsafe { self.pages.start.add(at) })
    }

    /// Takes over the buffer of a frame that lies in this region, in exchange for the caller's
    /// buffer, and returns its number; `None` if the frame lies elsewhere, begins at another offset
    /// than `own`, or its buffer was already taken over. The caller must put the buffer into its
    /// slot, and must not write to it while it [`is_lent`](Self::is_lent). The half that lent the
    /// frame gets the buffer of `own` for it.
    #[inline]
    pub(super) fn exchange(&self, frame: &Frame<'_>, own: Place) -> Option<u32> {
        let at = frame.offset_from(self.pages.start)?.checked_sub(self.buffers_at)?;
        let place = Place {
            buffer: u32::try_from(at / self.buffer_len).ok()?,
            offset: (at % self.buffer_len) as u32,
        };
        // A pipe keeps the offsets of its slots.
        if place.offset != own.offset {
            return None;
        }
        self.find(place, frame.len())?;
        // The half that lent the frame waits until the call in which this happens has returned.
        self.given[place.buffer as usize]
            .compare_exchange(NONE, own.buffer, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        Some(place.buffer)
    }

    /// Returns true if the frame in `buffer`, which was taken over, is still lent: it may go to
    /// several receivers, to the others as a copy.
    #[inline(always)]
    pub(super) fn is_lent(&self, buffer: u32) -> bool {
        // Acquire: those it was lent to have read all that they read of it before.
        let given = self.given.get(buffer as usize);
        given.is_some_and(|given| given.load(Ordering::Acquire) != NONE)
    }

    /// Returns the buffer with which the half that lent the frame in `buffer` continues, now that
    /// the frame is no longer lent: that buffer, or the one that was given for it.
    #[inline(always)]
    pub(super) fn take_back(&self, buffer: u32) -> u32 {
        let Some(given) = self.given.get(buffer as usize) else { return buffer };
        match given.load(Ordering::Relaxed) {
            NONE => buffer,
            other => {
                given.store(NONE, Ordering::Release);
                other
            }
        }
    }
}

/// Returns the error for a region that contradicts itself.
pub(super) fn invalid(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("netmap's memory describes {what}"))
}
