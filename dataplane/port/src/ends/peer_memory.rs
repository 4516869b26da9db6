//! Memory that a port shares with its peer. Each peer gets new memory, so that no peer can read or
//! change the frames of another.

use std::io;
use std::ops::Deref;
use std::os::fd::{AsFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::Arc;

use dray_shm::{Mapping, MemoryFile, PageSize};
use rustix::fs::{FallocateFlags, fallocate};

use crate::session::connection::End;

/// Memory that a port creates and its peer maps.
#[derive(Debug)]
pub(crate) struct Region {
    file: MemoryFile,
    mapping: Mapping,
}

impl Region {
    pub(crate) fn create(name: &str, len: usize, pages: PageSize) -> io::Result<Self> {
        let file = MemoryFile::create(name, len as u64, pages).map_err(io::Error::other)?;
        let mapping = Mapping::new(&file, 0, len as u64)?;
        Ok(Self { file, mapping })
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Returns the length in bytes.
    pub(crate) fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Returns the address of the byte at `offset` in this process.
    ///
    /// # Panics
    /// If the region is shorter.
    pub(crate) fn at(&self, offset: usize) -> NonNull<u8> {
        assert!(offset < self.len(), "offset {offset}");
        // SAFETY: the offset is within the mapping.
        unsafe { self.mapping.start().add(offset) }
    }

    /// Frees the pages, even those that another process has mapped. The memory reads as zeroes from
    /// then on.
    fn discard(&self) {
        // If this fails, the pages are freed when the last peer that has them mapped unmaps them.
        let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(self.fd(), how, 0, self.len() as u64);
    }
}

/// Allocates memory for one peer after another.
pub(crate) struct PeerMemory<M> {
    make: Box<dyn FnMut() -> io::Result<M> + Send>,
    /// Memory that no peer has had access to.
    spare: Option<M>,
    /// Memory of the present peer.
    current: Option<Arc<M>>,
}

impl<M: Deref<Target = Region>> PeerMemory<M> {
    /// Creates the first peer's memory, so that a lack of memory is reported when the port is
    /// opened.
    pub(crate) fn new(
        mut make: impl FnMut() -> io::Result<M> + Send + 'static,
    ) -> io::Result<Self> {
        let spare = Some(make()?);
        Ok(Self { make: Box::new(make), spare, current: None })
    }

    /// Returns the memory for a new peer.
    pub(crate) fn allocate(&mut self) -> io::Result<Arc<M>> {
        let memory = self.spare.take().map_or_else(&mut self.make, Ok)?;
        Ok(self.current.insert(Arc::new(memory)).clone())
    }

    /// Discards the memory of a peer that disconnected or was disconnected. The peer may still have
    /// it mapped: without this, a peer that reconnects repeatedly could use up all memory. A port
    /// that is being closed (`End::Stop`) discards nothing, since the peer may still read its
    /// rings.
    pub(crate) fn release(&mut self, end: &End) {
        if let Some(memory) = self.current.take().filter(|_| !matches!(end, End::Stop)) {
            memory.discard();
        }
    }
}
