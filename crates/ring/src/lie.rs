//! Protocol violations of a peer in a ring.

/// An impossible statement of the peer. The connection to such a peer cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "each message says it all")]
pub enum Lie {
    #[error("ring index jumped from {from} to {to}: at most {size} entries can be new")]
    IndexJump { from: u16, to: u16, size: u16 },
    #[error("more is available than the {size} entries of the ring, all of which are taken")]
    Overfull { size: u16 },
    #[error("descriptor {index} of a table of {size}")]
    NoSuchDescriptor { index: u16, size: u16 },
    #[error("buffer of {len} bytes at {address:#x} is outside the shared memory")]
    OutsideMemory { address: u64, len: u64 },
    #[error("a chain is longer than {max} descriptors, or a loop")]
    ChainTooLong { max: u16 },
    #[error("a buffer to be {expected} is marked otherwise")]
    WrongDirection { expected: &'static str },
    #[error("an indirect table inside an indirect table")]
    NestedIndirect,
    #[error("an indirect table with a next descriptor")]
    IndirectWithNext,
    #[error("an indirect table of {len} bytes, not a positive multiple of 16")]
    IndirectLength { len: u32 },
    #[error("an indirect table, which was not negotiated")]
    IndirectNotNegotiated,
    #[error("buffer {id} was returned but is not out")]
    NotOut { id: u32 },
}
