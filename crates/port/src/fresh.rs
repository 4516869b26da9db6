//! Memory that a port shares with its peer: new for each one, so that no peer reads what another was
//! sent, or changes what another sees.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use rustix::fs::{FallocateFlags, fallocate};

use crate::connection::End;

/// Memory that can be given back to the system while others have it mapped.
pub(crate) trait Discard {
    /// Gives its pages back. All of it reads as zeroes from then on.
    fn discard(&self);
}

/// Makes memory for one peer after another.
pub(crate) struct Fresh<M> {
    make: Box<dyn FnMut() -> io::Result<M> + Send>,
    /// Memory that no peer has seen.
    spare: Option<M>,
    /// Memory that the present peer has.
    given: Option<Arc<M>>,
}

impl<M: Discard> Fresh<M> {
    /// Makes the first peer's memory, so that whoever opens a port is told where there is none.
    pub(crate) fn new(
        mut make: impl FnMut() -> io::Result<M> + Send + 'static,
    ) -> io::Result<Self> {
        let spare = Some(make()?);
        Ok(Self { make: Box::new(make), spare, given: None })
    }

    /// The memory for a peer that is about to get it.
    pub(crate) fn give(&mut self) -> io::Result<Arc<M>> {
        let memory = self.spare.take().map_or_else(&mut self.make, Ok)?;
        Ok(self.given.insert(Arc::new(memory)).clone())
    }

    /// The peer has gone, or was left. It may still have the memory mapped: a peer that comes and goes
    /// must not keep more and more of it. Where the port is being closed, a peer that has not noticed
    /// may still look at its rings, and is left with them.
    pub(crate) fn take_back(&mut self, end: &End) {
        let given = self.given.take();
        if let Some(memory) = given.filter(|_| !matches!(end, End::Stop)) {
            memory.discard();
        }
    }
}

/// Gives the pages of a file of `len` bytes back.
pub(crate) fn discard(file: BorrowedFd<'_>, len: usize) {
    // Where that cannot be, they go when the last peer that has them mapped does.
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let _ = fallocate(file, how, 0, len as u64);
}
