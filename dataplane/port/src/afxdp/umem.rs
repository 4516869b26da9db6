//! UMEM: memory in chunks that AF_XDP sockets and the kernel pass to each other.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Weak};

use dray_shm::{Mapping, MemoryFile, PageSize, SharedWords};
use dray_socket::borrows_files;
use rustix::fs::fstat;
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use super::ring::RING_LEN;
use crate::Frame;
use crate::lock::lock;

/// Number of chunks of one socket: a ring full of chunks to receive into, and one of chunks to
/// transmit from.
const CHUNKS_OF_SOCKET: u32 = 2 * RING_LEN;
/// Minimum number of sockets for which a named UMEM has chunks.
const SOCKETS_OF_NAMED: u32 = 4;
/// Maximum number of sockets, which a port has in a UMEM of its own.
const SOCKETS_MAX: u32 = 2 * 16;

/// No chunk was exchanged: no chunk has this number.
const NONE: u32 = u32::MAX;
/// Set for a chunk that is free to transmit from.
const FREE: u64 = 1 << 63;

/// UMEM shared by some sockets.
///
/// A chunk is named by the address of its first byte, counted from the start of the UMEM. Each
/// chunk belongs to one slot, and a socket has the chunks of its slot. The number of chunks per
/// slot never changes: a half that takes over another's chunk exchanges one of its own for it.
///
/// Slots and chunks are recorded in memory that outlives the process, so that another one can
/// continue:
///
/// ```text
/// word 8 * slot            interface and queue of its socket (`UmemSlot`)
/// word 8 * slots + chunk   bits 0 to 31: if the chunk's frame was put on a transmit ring in place
///                          while it was lent, the number of the chunk that was exchanged for it,
///                          else NONE; bits 32 to 47: its slot; bit 63: FREE
/// ```
pub(super) struct Umem {
    file: MemoryFile,
    mapping: Mapping,
    words: SharedWords,
    chunk_len: u32,
    /// Locked while a socket joins: only the first socket registers the UMEM with the kernel.
    pub(super) joining: Mutex<()>,
    /// True for each slot that is taken.
    slots: Mutex<Box<[bool]>>,
    /// First of the words of chunks.
    first: usize,
}

/// Words of a slot.
const LINE: usize = 8;

/// Makes the word of a chunk.
fn chunk_word(slot: u64, exchanged: u32) -> u64 {
    slot << 32 | u64::from(exchanged)
}

fn slot_of(word: u64) -> u64 {
    word >> 32 & 0xffff
}

fn exchanged_for(word: u64) -> u32 {
    word as u32
}

/// Chunks for one socket. Dropping it frees them, which must be after the socket was closed.
///
/// ```text
/// word 0   index of the interface; bits 32 and up: 1 + number of the queue; 0: no socket
/// word 1   1: frames may lie in several chunks
/// word 2   index on the receive ring of the frames that are lent; bits 32 and up: index on the
///          fill ring of the first of their chunks
/// word 3   number of their descriptors
/// word 4   index on the transmit ring behind the last frame, whether it was submitted or not
/// ```
pub(super) struct UmemSlot {
    pub(super) umem: Arc<Umem>,
    number: u32,
}

/// Names of UMEMs of this process.
static NAMED: Mutex<Option<HashMap<String, Weak<Umem>>>> = Mutex::new(None);

impl Umem {
    fn new(sockets: u32, chunk_len: u32) -> io::Result<Self> {
        let len = u64::from(sockets * CHUNKS_OF_SOCKET) * u64::from(chunk_len);
        let file =
            MemoryFile::create("dray-umem", len, PageSize::Normal).map_err(io::Error::other)?;
        let words = SharedWords::create("dray-chunks", Self::words_of(sockets))?;
        let umem = Self::of(file, words, sockets, chunk_len)?;
        for (slot, chunks) in (0..).zip(umem.chunks().chunks(CHUNKS_OF_SOCKET as usize)) {
            chunks.iter().for_each(|chunk| chunk.store(chunk_word(slot, NONE), Ordering::Relaxed));
        }
        Ok(umem)
    }

    fn of(file: MemoryFile, words: SharedWords, sockets: u32, chunk_len: u32) -> io::Result<Self> {
        Ok(Self {
            mapping: Mapping::new(&file, 0, file.len())?,
            file,
            words,
            chunk_len,
            joining: Mutex::default(),
            slots: Mutex::new(vec![false; sockets as usize].into()),
            first: LINE * sockets as usize,
        })
    }

    /// Returns the number of words for `sockets` sockets.
    fn words_of(sockets: u32) -> usize {
        sockets as usize * (LINE + CHUNKS_OF_SOCKET as usize)
    }

    /// Returns a new UMEM for a port of `queues` queues, or the one that ports of this process call
    /// `name`.
    pub(super) fn get(name: Option<&str>, queues: u32, chunk_len: u32) -> io::Result<Arc<Self>> {
        let Some(name) = name else { return Self::new(queues, chunk_len).map(Arc::new) };
        // Room for another port with as many queues.
        let make = || Self::new(SOCKETS_OF_NAMED.max(2 * queues), chunk_len);
        let umem = Self::named(name, make)?;
        if umem.chunk_len != chunk_len {
            let what = format!("{name} has chunks of {0} bytes: set chunk={0}", umem.chunk_len);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        Ok(umem)
    }

    /// Makes the kernel allocate the memory on the NUMA node of a card. The first socket's
    /// registration allocates it.
    pub(super) fn prefer_node(&self, node: u32) -> io::Result<()> {
        self.mapping.prefer_node(node)
    }

    /// Returns the UMEM that ports of this process call `name`, or the one that `make` makes.
    fn named(name: &str, make: impl FnOnce() -> io::Result<Self>) -> io::Result<Arc<Self>> {
        let mut named = lock(&NAMED);
        let named = named.get_or_insert_default();
        if let Some(umem) = named.get(name).and_then(Weak::upgrade) {
            return Ok(umem);
        }
        let umem = Arc::new(make()?);
        named.retain(|_, umem| umem.strong_count() > 0);
        named.insert(name.to_owned(), Arc::downgrade(&umem));
        Ok(umem)
    }

    /// Continues with the UMEM of another process.
    pub(super) fn resume(
        name: Option<&str>,
        chunk_len: u32,
        [file, words]: [OwnedFd; 2],
    ) -> io::Result<Arc<Self>> {
        let file = MemoryFile::of(file)?;
        let id = fstat(&file).map(|stat| (stat.st_dev, stat.st_ino))?;
        let words = SharedWords::of(words)?;
        let sockets = words.words().len() / (LINE + CHUNKS_OF_SOCKET as usize);
        let sockets = u32::try_from(sockets).unwrap_or(u32::MAX).min(SOCKETS_MAX);
        let len = u64::from(sockets * CHUNKS_OF_SOCKET) * u64::from(chunk_len);
        if words.words().len() != Self::words_of(sockets) || file.len() != len || len == 0 {
            let (count, len) = (words.words().len(), file.len());
            let what =
                format!("{len} bytes and {count} words: not those of chunks of {chunk_len} bytes");
            return Err(io::Error::other(what));
        }
        let make = || Self::of(file, words, sockets, chunk_len);
        let Some(name) = name else { return make().map(Arc::new) };
        let umem = Self::named(name, make)?;
        match fstat(&umem.file).map(|stat| (stat.st_dev, stat.st_ino)) == Ok(id) {
            true => Ok(umem),
            false => Err(io::Error::other(format!("another one is called {name}"))),
        }
    }

    /// Returns the descriptors with which another process [continues](Self::resume).
    pub(super) fn descriptors(&self) -> [BorrowedFd<'_>; 2] {
        [self.file.as_fd(), self.words.as_fd()]
    }

    #[inline(always)]
    fn chunks(&self) -> &[AtomicU64] {
        &self.words.words()[self.first..]
    }

    /// Returns the length of a chunk in bytes.
    pub(super) fn chunk_len(&self) -> usize {
        self.chunk_len as usize
    }

    /// Takes the slot of another process's socket.
    pub(super) fn resume_slot(
        self: &Arc<Self>,
        interface: u32,
        queue: u32,
    ) -> io::Result<UmemSlot> {
        let mut slots = lock(&self.slots);
        let owner = owner(interface, queue);
        let is_owned =
            |number: &usize| self.words.words()[LINE * number].load(Ordering::Relaxed) == owner;
        let number = (0..slots.len()).find(is_owned);
        let number = number.filter(|number| !slots[*number]).ok_or_else(|| {
            io::Error::other(format!("no socket of queue {queue} of interface {interface}"))
        })?;
        slots[number] = true;
        Ok(UmemSlot { umem: self.clone(), number: number as u32 })
    }

    /// Takes a free slot.
    pub(super) fn take_slot(self: &Arc<Self>) -> io::Result<UmemSlot> {
        let mut slots = lock(&self.slots);
        let Some(number) = slots.iter().position(|is_taken| !is_taken) else {
            let what = format!(
                "all {} queues that it has chunks for are open: use another umem= for more",
                slots.len()
            );
            return Err(io::Error::other(what));
        };
        slots[number] = true;
        Ok(UmemSlot { umem: self.clone(), number: number as u32 })
    }

    /// Returns the chunks of a slot whose words have all bits of `with`.
    fn chunks_of(&self, slot: u32, with: u64) -> Vec<u64> {
        let is_of_slot = |word: u64| slot_of(word) == u64::from(slot) && word & with == with;
        let chunks = (0..).zip(self.chunks());
        let chunks = chunks.filter(|(_, chunk)| is_of_slot(chunk.load(Ordering::Relaxed)));
        chunks.map(|(number, _)| self.address(number)).collect()
    }

    /// Records that a chunk of the caller is free to transmit from, or not.
    #[inline(always)]
    pub(super) fn set_free(&self, chunk: u64, is_free: bool) {
        let Some(chunk) = self.chunks().get(self.number(chunk)) else { return };
        let word = chunk.load(Ordering::Relaxed);
        match (exchanged_for(word) == NONE, is_free) {
            // Only this thread writes the word.
            (true, true) => chunk.store(word | FREE, Ordering::Release),
            (true, false) => chunk.store(word & !FREE, Ordering::Release),
            // The half that has lent the chunk may end the loan concurrently.
            (false, true) => _ = chunk.fetch_or(FREE, Ordering::Release),
            (false, false) => _ = chunk.fetch_and(!FREE, Ordering::Release),
        }
    }

    /// Returns the description by which the UMEM is registered with the kernel.
    pub(super) fn registration(&self) -> XdpUmemReg {
        XdpUmemReg {
            addr: self.mapping.start().as_ptr() as u64,
            len: self.mapping.len() as u64,
            chunk_size: self.chunk_len,
            headroom: 0,
            flags: XdpUmemRegFlags::empty(),
            tx_metadata_len: 0,
        }
    }

    /// Returns the chunk that contains the byte at `address`.
    #[inline(always)]
    pub(super) fn chunk(&self, address: u64) -> u64 {
        address & !u64::from(self.chunk_len - 1)
    }

    fn number(&self, address: u64) -> usize {
        address as usize / self.chunk_len()
    }

    fn address(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.chunk_len)
    }

    /// Returns a pointer to `len` bytes at `address`, or `None` if they are not in one chunk.
    #[inline(always)]
    pub(super) fn find(&self, address: u64, len: u32) -> Option<NonNull<u8>> {
        let within = (address & u64::from(self.chunk_len - 1)) + u64::from(len);
        let fits = within <= u64::from(self.chunk_len) && address < self.mapping.len() as u64;
        // SAFETY: the chunk lies in the mapping.
        fits.then(|| unsafe { self.mapping.start().add(address as usize) })
    }

    /// Takes over the chunk of a frame that lies in this UMEM, in exchange for the caller's chunk
    /// `free`, and returns the frame's address; `None` if the frame lies elsewhere or its chunk was
    /// already taken over. The caller must put the frame on a ring, and must not reuse the chunk
    /// while it [`is_lent`](Self::is_lent). The half that lent the frame gets `free` for it. The
    /// chunk counts as free until the caller [clears](Self::set_free) that.
    #[inline]
    pub(super) fn exchange(&self, frame: &Frame<'_>, free: u64) -> Option<u64> {
        let address = frame.offset_from(self.mapping.start())?;
        let (chunks, number) = (self.chunks(), self.number(free));
        let (chunk, free) = (chunks.get(self.number(address as u64))?, chunks.get(number)?);
        let [before, other] = [chunk, free].map(|chunk| chunk.load(Ordering::Relaxed));
        if exchanged_for(before) != NONE {
            return None;
        }
        // If the process is killed here, the free chunk is lost; no chunk ever has two owners.
        free.store(chunk_word(slot_of(before), NONE), Ordering::Release);
        // The half that lent the frame waits until the call in which this happens has returned.
        let taken = chunk_word(slot_of(other), number as u32) | FREE;
        match chunk.compare_exchange(before, taken, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => Some(address as u64),
            Err(_) => {
                free.store(other, Ordering::Relaxed);
                None
            }
        }
    }

    /// Returns true if the frame in `chunk`, which was taken over, is still lent to further
    /// receivers, which copy it.
    #[inline(always)]
    pub(super) fn is_lent(&self, chunk: u64) -> bool {
        let chunk = self.chunks().get(self.number(chunk));
        // Acquire: all reads of the lent frame happened before.
        chunk.is_some_and(|chunk| exchanged_for(chunk.load(Ordering::Acquire)) != NONE)
    }

    /// Returns the chunk that the half that lent `chunk` has from now on: that chunk, or the one
    /// that was exchanged for it.
    #[inline(always)]
    pub(super) fn replacement(&self, chunk: u64) -> u64 {
        let word = self.chunks().get(self.number(chunk));
        match word.map_or(NONE, |word| exchanged_for(word.load(Ordering::Relaxed))) {
            NONE => chunk,
            other => self.address(other),
        }
    }

    /// Records that the frame in `chunk` is no longer lent.
    #[inline(always)]
    pub(super) fn end_loan(&self, chunk: u64) {
        if self.is_lent(chunk) {
            self.chunks()[self.number(chunk)].fetch_or(NONE.into(), Ordering::Release);
        }
    }
}

/// Returns the word that identifies the owner of a slot.
fn owner(interface: u32, queue: u32) -> u64 {
    u64::from(queue + 1) << 32 | u64::from(interface)
}

impl UmemSlot {
    fn word(&self, at: usize) -> &AtomicU64 {
        &self.umem.words.words()[LINE * self.number as usize + at]
    }

    /// Records the socket that has the slot.
    pub(super) fn set_owner(&self, interface: u32, queue: u32, parts: bool) {
        for at in 2..LINE {
            self.word(at).store(0, Ordering::Relaxed);
        }
        self.word(1).store(parts.into(), Ordering::Relaxed);
        self.word(0).store(owner(interface, queue), Ordering::Release);
    }

    /// Returns the chunks of a new socket: those to receive into, and those to transmit from.
    pub(super) fn new_chunks(&self) -> [Vec<u64>; 2] {
        let mut to_receive = self.umem.chunks_of(self.number, 0);
        let to_transmit = to_receive.split_off(RING_LEN as usize);
        to_receive.iter().for_each(|chunk| self.umem.set_free(*chunk, false));
        to_transmit.iter().for_each(|chunk| self.umem.set_free(*chunk, true));
        [to_receive, to_transmit]
    }

    pub(super) fn has_parts(&self) -> bool {
        self.word(1).load(Ordering::Relaxed) == 1
    }

    /// Records that `count` descriptors from the index `rx` on are lent. Their chunks will be put
    /// on the fill ring from the index `fill` on.
    #[inline(always)]
    pub(super) fn lend(&self, rx: u32, fill: u32, count: u32) {
        self.word(2).store(u64::from(fill) << 32 | u64::from(rx), Ordering::Relaxed);
        self.word(3).store(count.into(), Ordering::Release);
    }

    /// Records the number of descriptors that are still lent.
    #[inline(always)]
    pub(super) fn set_lent(&self, count: u32) {
        self.word(3).store(count.into(), Ordering::Release);
    }

    /// Returns the loan of another process: indices on both rings, and the number of descriptors.
    pub(super) fn loan(&self) -> [u32; 3] {
        let [indices, count] = [2, 3].map(|at| self.word(at).load(Ordering::Acquire));
        [indices as u32, (indices >> 32) as u32, count as u32]
    }

    /// Records the index behind the last frame on the transmit ring.
    #[inline(always)]
    pub(super) fn set_pushed(&self, index: u32) {
        self.word(4).store(index.into(), Ordering::Relaxed);
    }

    /// Returns the chunks that are free to transmit from, after another process. It has submitted
    /// the frames before the index `submitted`; `unsent` returns the chunk of each frame after it.
    /// `done` are the chunks that the kernel has returned.
    pub(super) fn resume_transmit(
        &self,
        submitted: u32,
        unsent: impl Fn(u32) -> u64,
        done: impl Iterator<Item = u64>,
    ) -> Vec<u64> {
        let umem = &self.umem;
        let pushed = self.word(4).load(Ordering::Acquire) as u32;
        let count = pushed.wrapping_sub(submitted);
        for offset in 0..if count <= RING_LEN { count } else { 0 } {
            umem.set_free(umem.chunk(unsent(submitted.wrapping_add(offset))), true);
        }
        // They become free when they are read from the ring.
        done.for_each(|chunk| umem.set_free(umem.chunk(chunk), false));
        self.set_pushed(submitted);
        umem.chunks_of(self.number, FREE)
    }
}

impl Drop for UmemSlot {
    fn drop(&mut self) {
        if !borrows_files() {
            // Loans of chunks of this slot end with its socket.
            let chunks = self.umem.chunks();
            for chunk in chunks {
                let given = exchanged_for(chunk.load(Ordering::Relaxed)) as usize;
                let other = chunks.get(given).map(|other| other.load(Ordering::Relaxed));
                if other.is_some_and(|other| slot_of(other) == u64::from(self.number)) {
                    chunk.fetch_or(NONE.into(), Ordering::Release);
                }
            }
            self.word(0).store(0, Ordering::Release);
        }
        lock(&self.umem.slots)[self.number as usize] = false;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn frame(umem: &Umem, address: u64) -> Frame<'_> {
        // SAFETY: the bytes are mapped as long as the UMEM.
        unsafe { Frame::shared(umem.find(address, 60).unwrap(), 60) }
    }

    #[test]
    fn every_umem_chunk_has_one_owner() {
        let umem = Arc::new(Umem::new(2, 2048).unwrap());
        let slots = [(); 2].map(|()| umem.take_slot().unwrap());
        assert!(umem.take_slot().is_err());
        let mut rx = umem.chunks_of(0, 0);
        let mut tx = umem.chunks_of(1, 0);
        for (n, received) in rx.iter_mut().enumerate().take(3000) {
            let free = tx[n % 100];
            let lent = frame(&umem, *received + 256);
            assert_eq!(umem.exchange(&lent, free), Some(*received + 256));
            // A second receiver gets a copy.
            assert_eq!(umem.exchange(&lent, free), None);
            assert!(umem.is_lent(*received));
            tx[n % 100] = *received;
            let before = std::mem::replace(received, umem.replacement(*received));
            umem.end_loan(before);
            assert_eq!(*received, free);
            assert!(!umem.is_lent(before) && umem.replacement(before) == before);
        }
        for (slot, chunks) in [(0, rx), (1, tx)] {
            let chunks: HashSet<_> = chunks.into_iter().collect();
            assert_eq!(chunks.len(), CHUNKS_OF_SOCKET as usize);
            assert!(chunks == umem.chunks_of(slot, 0).into_iter().collect());
        }
        // A chunk that is taken over and never taken back is not lost.
        let moved = umem.chunks_of(0, 0)[7];
        assert!(umem.exchange(&frame(&umem, moved), umem.chunks_of(1, 0)[7]).is_some());
        let [first, _second] = slots;
        drop(first);
        assert!(!umem.is_lent(moved));
        assert_eq!(umem.chunks_of(0, 0).len(), umem.chunks_of(1, 0).len());
        assert_eq!(umem.take_slot().unwrap().number, 0);
    }

    #[test]
    fn chunks_of_unsent_frames_are_free_after_a_kill() {
        let umem = Arc::new(Umem::new(1, 2048).unwrap());
        let slot = umem.take_slot().unwrap();
        let mine = umem.chunks_of(0, 0);
        mine[..10].iter().for_each(|chunk| umem.set_free(*chunk, true));
        // Six were put on the ring, of which four were submitted; the last one still counts as
        // free. The kernel has done with two, of which the process has taken one.
        mine[..5].iter().for_each(|chunk| umem.set_free(*chunk, false));
        umem.set_free(mine[0], true);
        slot.set_pushed(6);
        let done = || mine[..2].iter().copied();
        assert_eq!(slot.resume_transmit(4, |at| mine[at as usize], done()), mine[4..10]);
        for pushed in [3, 4 + RING_LEN + 1, u32::MAX] {
            slot.set_pushed(pushed);
            assert_eq!(slot.resume_transmit(4, |_| u64::MAX, done()), mine[4..10]);
        }
        assert_eq!(slot.resume_transmit(4, |_| 0, [u64::MAX].into_iter()), mine[4..10]);
    }

    #[test]
    fn umem_of_another_process_is_checked() {
        let umem = Arc::new(Umem::new(1, 2048).unwrap());
        let slot = umem.take_slot().unwrap();
        let mine = umem.chunks_of(0, 0);
        umem.set_free(mine[7], true);
        let resume = |chunk_len| {
            let copies = umem.descriptors().map(|fd| fd.try_clone_to_owned().unwrap());
            Umem::resume(None, chunk_len, copies)
        };
        assert!(resume(4096).is_err());
        let next = resume(2048).unwrap();
        assert!(next.resume_slot(1, 0).is_err());
        slot.set_owner(1, 0, false);
        let _seat = next.resume_slot(1, 0).unwrap();
        assert!(next.resume_slot(1, 0).is_err());
        assert_eq!(next.chunks_of(0, FREE), mine[7..8]);
        // Whatever the words say, chunks are those of the memory.
        let spoil = |chunk: &AtomicU64| chunk.store(0x8000_0000_1234_5678, Ordering::Relaxed);
        umem.chunks().iter().for_each(spoil);
        assert!(next.is_lent(mine[0]) && next.find(next.replacement(mine[0]), 1).is_none());
        assert_eq!(next.exchange(&frame(&next, mine[7]), u64::MAX), None);
    }

    #[test]
    fn exchange_refuses_memory_outside_umem() {
        let umem = Umem::new(1, 4096).unwrap();
        assert_eq!(umem.exchange(&Frame::from(&[0; 60][..]), 0), None);
        let end = umem.mapping.len() as u64;
        for (address, len, found) in [
            (0, 4096, true),
            (4095, 1, true),
            (4095, 2, false),
            (end - 1, 1, true),
            (end, 0, false),
        ] {
            assert_eq!(umem.find(address, len).is_some(), found, "{len} at {address}");
        }
        assert!(umem.find(u64::MAX, 1).is_none());
    }
}
