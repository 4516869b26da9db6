//! A UMEM: memory in chunks that AF_XDP sockets and the kernel pass to each other.

use std::collections::HashMap;
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use dray_shm::{Mapping, MemoryFile, PageSize};
use rustix::net::xdp::{XdpUmemReg, XdpUmemRegFlags};

use super::ring::RING_LEN;
use super::socket::{Failed, Rings, Socket};
use crate::Frame;

/// Chunks that one socket has: a ring full of those to receive into, and one of those to transmit
/// from.
const CHUNKS_OF_SOCKET: u32 = 2 * RING_LEN;
/// Sockets that share a UMEM which ports name.
const SOCKETS_OF_NAMED: u32 = 4;

/// The UMEM of some sockets.
///
/// A chunk is named by the address of its first byte, counted from the start of the UMEM. At any
/// time it is in one of the sockets' rings, with one of the halves of a port, or in the pool.
pub(super) struct Umem {
    mapping: Mapping,
    chunk_len: u32,
    /// Chunks that nobody has.
    pool: Mutex<Vec<u64>>,
    /// Of each chunk whether the frame in it, which was lent, has been put on a ring to be
    /// transmitted from where it lies.
    moved: Box<[AtomicBool]>,
    /// Those that use it.
    sockets: Mutex<Vec<Weak<Socket>>>,
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
        Ok(Self {
            mapping: Mapping::new(&file, 0, len)?,
            chunk_len,
            // The last one is given first; neighbours are given together.
            pool: Mutex::new(
                (0..u64::from(count)).rev().map(|n| n * u64::from(chunk_len)).collect(),
            ),
            moved: (0..count).map(|_| AtomicBool::new(false)).collect(),
            sockets: Mutex::default(),
        })
    }

    /// A UMEM of its own for a port of so many queues, or the one that ports of this process call
    /// `name`.
    pub(super) fn get(name: Option<&str>, queues: u32, chunk_len: u32) -> io::Result<Arc<Self>> {
        static NAMED: Mutex<Option<HashMap<String, Weak<Umem>>>> = Mutex::new(None);
        let Some(name) = name else { return Self::new(queues, chunk_len).map(Arc::new) };
        let mut named = lock(&NAMED);
        let named = named.get_or_insert_default();
        if let Some(umem) = named.get(name).and_then(Weak::upgrade) {
            if umem.chunk_len != chunk_len {
                let what = format!("UMEM {name} has chunks of {} bytes", umem.chunk_len);
                return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
            }
            return Ok(umem);
        }
        let umem = Arc::new(Self::new(SOCKETS_OF_NAMED.max(queues), chunk_len)?);
        named.retain(|_, umem| umem.strong_count() > 0);
        named.insert(name.to_owned(), Arc::downgrade(&umem));
        Ok(umem)
    }

    /// The bytes of a chunk.
    pub(super) fn chunk_len(&self) -> usize {
        self.chunk_len as usize
    }

    /// Has `join` make a socket that uses the UMEM; it is told of another one that does, where there
    /// is one.
    pub(super) fn add(
        &self,
        join: impl FnOnce(Option<Arc<Socket>>) -> Result<(Arc<Socket>, Rings), Failed>,
    ) -> Result<Joined, Failed> {
        let mut sockets = lock(&self.sockets);
        sockets.retain(|socket| socket.strong_count() > 0);
        if lock(&self.pool).len() < CHUNKS_OF_SOCKET as usize {
            let what = format!("{} sockets share it already, or have", sockets.len());
            return Err(("UMEM", io::Error::other(what)));
        }
        let (socket, rings) = join(sockets.iter().find_map(Weak::upgrade))?;
        sockets.push(Arc::downgrade(&socket));
        let [to_receive, to_transmit] = [(); 2].map(|()| self.take(RING_LEN as usize));
        Ok(Joined { socket, rings, to_receive, to_transmit })
    }

    /// Takes at most `count` chunks out of the pool.
    pub(super) fn take(&self, count: usize) -> Vec<u64> {
        let mut pool = lock(&self.pool);
        let rest = pool.len().saturating_sub(count);
        pool.split_off(rest)
    }

    /// Puts chunks back into the pool.
    pub(super) fn put(&self, chunks: impl IntoIterator<Item = u64>) {
        lock(&self.pool).extend(chunks);
    }

    /// How the kernel is told of it.
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

    /// The chunk that the byte at `address` is in.
    #[inline(always)]
    pub(super) fn chunk(&self, address: u64) -> u64 {
        address & !u64::from(self.chunk_len - 1)
    }

    /// Where `len` bytes at `address` lie; `None` where they are not in one chunk.
    #[inline(always)]
    pub(super) fn find(&self, address: u64, len: u32) -> Option<NonNull<u8>> {
        let within = (address & u64::from(self.chunk_len - 1)) + u64::from(len);
        let fits = within <= u64::from(self.chunk_len) && address < self.mapping.len() as u64;
        // SAFETY: the chunk lies in the mapping.
        fits.then(|| unsafe { self.mapping.start().add(address as usize) })
    }

    /// Where a frame begins that lies in here, and that nobody has put on a ring yet: now the caller
    /// has to, and the half of the port that lent the frame leaves the chunk to it.
    #[inline]
    pub(super) fn move_out(&self, frame: &Frame<'_>) -> Option<u64> {
        let address = frame.offset_from(self.mapping.start())?;
        let moved = self.moved.get(address / self.chunk_len())?;
        // Whoever lent the frame waits until the call returns in which this happens.
        (!moved.swap(true, Ordering::Relaxed)).then_some(address as u64)
    }

    /// Whether a frame that was lent has been moved out of the hands of the half that lent it, which
    /// asks this once.
    #[inline(always)]
    pub(super) fn was_moved(&self, chunk: u64) -> bool {
        let moved = &self.moved[chunk as usize / self.chunk_len()];
        moved.load(Ordering::Relaxed) && moved.swap(false, Ordering::Relaxed)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // What is in there is right at any time.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
