//! UMEM: memory in chunks that AF_XDP sockets and the kernel pass to each other.

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dray_shm::{Mapping, MemoryFile, PageSize};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use super::ring::RING_LEN;
use super::socket::{Rings, Socket};
use crate::Frame;
use crate::scheme::Failed;

/// Number of chunks of one socket: a ring full of chunks to receive into, and one of chunks to
/// transmit from.
const CHUNKS_OF_SOCKET: u32 = 2 * RING_LEN;
/// Minimum number of sockets for which a named UMEM has chunks.
const SOCKETS_OF_NAMED: u32 = 4;

/// Marks that no chunk was given; no chunk has this number.
const NONE: u32 = u32::MAX;

/// UMEM shared by some sockets.
///
/// A chunk is named by the address of its first byte, counted from the start of the UMEM. Each
/// chunk belongs to one seat, and a socket has the chunks of its seat. The number of chunks per
/// seat never changes: a half that takes over another's chunk gives one of its own in exchange.
pub(super) struct Umem {
    mapping: Mapping,
    chunk_len: u32,
    chunks: Box<[Chunk]>,
    /// Held while a socket joins: only the first socket registers the UMEM with the kernel.
    joining: Mutex<()>,
    /// The socket of each seat.
    seats: Mutex<Box<[Option<Weak<Socket>>]>>,
}

struct Chunk {
    /// The seat that the chunk belongs to.
    seat: AtomicU32,
    /// If the chunk's frame was put on a transmit ring in place while it was lent: the number of
    /// the chunk that was given in exchange; else [`NONE`].
    given: AtomicU32,
}

/// Chunks for one socket. Dropping it frees them, which must be after the socket was closed.
pub(super) struct Seat {
    pub(super) umem: Arc<Umem>,
    number: u32,
}

/// A socket that has joined a UMEM.
pub(super) struct Joined {
    pub(super) socket: Arc<Socket>,
    pub(super) rings: Rings,
    /// Chunks to receive into.
    pub(super) to_receive: Vec<u64>,
    /// Chunks to transmit from.
    pub(super) to_transmit: Vec<u64>,
}

impl Umem {
    fn new(sockets: u32, chunk_len: u32) -> io::Result<Self> {
        let count = sockets * CHUNKS_OF_SOCKET;
        let len = u64::from(count) * u64::from(chunk_len);
        let file =
            MemoryFile::create("dray-umem", len, PageSize::Normal).map_err(io::Error::other)?;
        let chunk = |number| Chunk {
            seat: AtomicU32::new(number / CHUNKS_OF_SOCKET),
            given: AtomicU32::new(NONE),
        };
        Ok(Self {
            mapping: Mapping::new(&file, 0, len)?,
            chunk_len,
            chunks: (0..count).map(chunk).collect(),
            joining: Mutex::default(),
            seats: Mutex::new((0..sockets).map(|_| None).collect()),
        })
    }

    /// Returns a new UMEM for a port of `queues` queues, or the one that ports of this process call
    /// `name`.
    pub(super) fn get(name: Option<&str>, queues: u32, chunk_len: u32) -> io::Result<Arc<Self>> {
        static NAMED: Mutex<Option<HashMap<String, Weak<Umem>>>> = Mutex::new(None);
        let Some(name) = name else { return Self::new(queues, chunk_len).map(Arc::new) };
        let mut named = lock(&NAMED);
        let named = named.get_or_insert_default();
        if let Some(umem) = named.get(name).and_then(Weak::upgrade) {
            if umem.chunk_len != chunk_len {
                let what = format!("{name} has chunks of {0} bytes: set chunk={0}", umem.chunk_len);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            return Ok(umem);
        }
        // Room for another port with as many queues.
        let umem = Arc::new(Self::new(SOCKETS_OF_NAMED.max(2 * queues), chunk_len)?);
        named.retain(|_, umem| umem.strong_count() > 0);
        named.insert(name.to_owned(), Arc::downgrade(&umem));
        Ok(umem)
    }

    /// Returns the length of a chunk in bytes.
    pub(super) fn chunk_len(&self) -> usize {
        self.chunk_len as usize
    }

    /// Lets `join` create a socket that uses the UMEM, on a free seat. `join` also gets another
    /// socket of the UMEM, if there is one.
    pub(super) fn add(
        self: &Arc<Self>,
        join: impl FnOnce(Seat, Option<&Socket>) -> Result<(Arc<Socket>, Rings), Failed>,
    ) -> Result<Joined, Failed> {
        let _joining = lock(&self.joining);
        let seat = self.take_seat().map_err(|error| ("UMEM", error))?;
        let number = seat.number;
        // Values dropped from here on may lock the seats, so the lock is not held.
        let others: Vec<_> = lock(&self.seats).iter().flatten().filter_map(Weak::upgrade).collect();
        // The kernel has forgotten the UMEM of sockets whose interface was removed.
        let other = others.iter().find(|socket| !socket.is_gone());
        let (socket, rings) = join(seat, other.map(|socket| &**socket))?;
        lock(&self.seats)[number as usize] = Some(Arc::downgrade(&socket));
        let mut to_receive = self.chunks_of(number);
        let to_transmit = to_receive.split_off(RING_LEN as usize);
        Ok(Joined { socket, rings, to_receive, to_transmit })
    }

    /// Takes a free seat.
    fn take_seat(self: &Arc<Self>) -> io::Result<Seat> {
        let mut seats = lock(&self.seats);
        let Some(number) = seats.iter().position(Option::is_none) else {
            let what = format!(
                "all {} queues that it has chunks for are open: use another umem= for more",
                seats.len()
            );
            return Err(io::Error::other(what));
        };
        seats[number] = Some(Weak::new());
        Ok(Seat { umem: self.clone(), number: number as u32 })
    }

    /// Returns the chunks of a seat that no socket has.
    fn chunks_of(&self, seat: u32) -> Vec<u64> {
        let chunks = (0..).zip(&self.chunks);
        let mine = chunks.filter(|(_, chunk)| chunk.seat.load(Ordering::Relaxed) == seat);
        mine.map(|(number, _)| self.address(number)).collect()
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
    /// while it [`is_lent`](Self::is_lent). The half that lent the frame gets `free` for it.
    #[inline]
    pub(super) fn exchange(&self, frame: &Frame<'_>, free: u64) -> Option<u64> {
        let address = frame.offset_from(self.mapping.start())?;
        let chunk = self.chunks.get(self.number(address as u64))?;
        let free = self.number(free);
        // The half that lent the frame waits until the call in which this happens has returned.
        chunk
            .given
            .compare_exchange(NONE, free as u32, Ordering::Relaxed, Ordering::Relaxed)
            .ok()?;
        let seat = self.chunks[free].seat.load(Ordering::Relaxed);
        let seat = chunk.seat.swap(seat, Ordering::Relaxed);
        self.chunks[free].seat.store(seat, Ordering::Relaxed);
        Some(address as u64)
    }

    /// Returns true if the frame in `chunk`, which was taken over, is still lent: it may go to
    /// several receivers, to the others as a copy.
    #[inline(always)]
    pub(super) fn is_lent(&self, chunk: u64) -> bool {
        // Acquire: those it was lent to have read all that they read of it before.
        self.chunks[self.number(chunk)].given.load(Ordering::Acquire) != NONE
    }

    /// Returns the chunk with which the half that lent the frame in `chunk` continues, now that the
    /// frame is no longer lent: that chunk, or the one that was given for it.
    #[inline(always)]
    pub(super) fn take_back(&self, chunk: u64) -> u64 {
        let given = &self.chunks[self.number(chunk)].given;
        match given.load(Ordering::Relaxed) {
            NONE => chunk,
            other => {
                given.store(NONE, Ordering::Release);
                self.address(other)
            }
        }
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        // Frames of this seat that were taken over and not taken back are no longer lent.
        let chunks = &self.umem.chunks;
        for Chunk { given, .. } in chunks {
            let other = chunks.get(given.load(Ordering::Relaxed) as usize);
            if other.is_some_and(|other| other.seat.load(Ordering::Relaxed) == self.number) {
                given.store(NONE, Ordering::Release);
            }
        }
        lock(&self.umem.seats)[self.number as usize] = None;
    }
}

fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // The data is consistent at any time, even after a panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
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
        let seats = [(); 2].map(|()| umem.take_seat().unwrap());
        assert!(umem.take_seat().is_err());
        let mut rx = umem.chunks_of(0);
        let mut tx = umem.chunks_of(1);
        for (n, received) in rx.iter_mut().enumerate().take(3000) {
            let free = tx[n % 100];
            let lent = frame(&umem, *received + 256);
            assert_eq!(umem.exchange(&lent, free), Some(*received + 256));
            // A second receiver gets a copy.
            assert_eq!(umem.exchange(&lent, free), None);
            assert!(umem.is_lent(*received));
            tx[n % 100] = *received;
            let before = std::mem::replace(received, umem.take_back(*received));
            assert_eq!(*received, free);
            assert!(!umem.is_lent(before) && umem.take_back(before) == before);
        }
        for (seat, chunks) in [(0, rx), (1, tx)] {
            let chunks: HashSet<_> = chunks.into_iter().collect();
            assert_eq!(chunks.len(), CHUNKS_OF_SOCKET as usize);
            assert!(chunks == umem.chunks_of(seat).into_iter().collect());
        }
        // A chunk that is taken over and never taken back is not lost.
        let moved = umem.chunks_of(0)[7];
        assert!(umem.exchange(&frame(&umem, moved), umem.chunks_of(1)[7]).is_some());
        let [first, _second] = seats;
        drop(first);
        assert!(!umem.is_lent(moved));
        assert_eq!(umem.chunks_of(0).len(), umem.chunks_of(1).len());
        assert_eq!(umem.take_seat().unwrap().number, 0);
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
