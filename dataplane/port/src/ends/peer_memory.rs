//! Memory that a port shares with its peer. Each peer gets new memory, so that no peer reads what
//! was sent to another, or changes what another sees.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};

use crate::session::connection::End;

/// Memory that can be returned to the system while other processes have it mapped.
pub(crate) trait Discard {
    /// Frees the pages. The memory reads as zeroes from then on.
    fn discard(&self);
}

/// Creates memory for one peer after another.
pub(crate) struct PeerMemory<M> {
    make: Box<dyn FnMut() -> io::Result<M> + Send>,
    /// Memory that no peer has had access to.
    spare: Option<M>,
    /// Memory of the present peer.
    given: Option<Arc<M>>,
}

impl<M: Discard> PeerMemory<M> {
    /// Creates the first peer's memory, so that a lack of memory is reported when the port is
    /// opened.
    pub(crate) fn new(
        mut make: impl FnMut() -> io::Result<M> + Send + 'static,
    ) -> io::Result<Self> {
        let spare = Some(make()?);
        Ok(Self { make: Box::new(make), spare, given: None })
    }

    /// Returns the memory for a new peer.
    pub(crate) fn give(&mut self) -> io::Result<Arc<M>> {
        let memory = self.spare.take().map_or_else(&mut self.make, Ok)?;
        Ok(self.given.insert(Arc::new(memory)).clone())
    }

    /// Discards the memory of a peer that disconnected or was disconnected. The peer may still have
    /// it mapped, and a peer that reconnects again and again must not hold more and more memory.
    /// When the port is being closed (`End::Stop`), a peer that has not noticed may still read its
    /// rings, so they are left to it.
    pub(crate) fn take_back(&mut self, end: &End) {
        let given = self.given.take();
        if let Some(memory) = given.filter(|_| !matches!(end, End::Stop)) {
            memory.discard();
        }
    }
}

/// Frees the pages of a file of `len` bytes.
pub(crate) fn discard(file: BorrowedFd<'_>, len: usize) {
    // If this fails, the pages are freed when the last peer that has them mapped unmaps them.
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, how, 0, len as u64);
}
