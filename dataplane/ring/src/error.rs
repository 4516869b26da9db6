//! Protocol violations of a peer in a ring.

/// A protocol violation by the peer. The connection to such a peer cannot continue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[expect(missing_docs, reason = "the messages document the variants")]
pub enum RingError {
    #[error("ring index jumped from {from} to {to}: at most {size} entries can be new")]
    IndexJump { from: u16, to: u16, size: u16 },
    #[error("driver made more than {size} descriptors available")]
    Overfull { size: u16 },
    #[error("descriptor {index} is outside the table of {size}")]
    NoSuchDescriptor { index: u16, size: u16 },
    #[error("buffer of {len} bytes at {address:#x} is outside the shared memory")]
    OutsideMemory { address: u64, len: u64 },
    #[error(
        "buffer of {len} bytes at offset {offset} of region {region} is outside the shared memory"
    )]
    OutsideRegion { region: u16, offset: u32, len: u32 },
    #[error("ring begins with {found:#x} instead of memif's cookie")]
    Cookie { found: u32 },
    #[error("descriptor chain is a loop or longer than {max} descriptors")]
    ChainTooLong { max: u16 },
    #[error("buffer is not device-{expected}")]
    WrongDirection { expected: &'static str },
    #[error("an indirect table inside an indirect table")]
    NestedIndirect,
    #[error("an indirect table with a next descriptor")]
    IndirectWithNext,
    #[error("indirect table length {len} is not a positive multiple of 16")]
    IndirectLength { len: u32 },
    #[error("indirect tables were not negotiated")]
    IndirectNotNegotiated,
    #[error("descriptor {index} was returned without the rest of its frame")]
    NotTogether { index: u16 },
    #[error("device returned buffer {id}, which is not in flight")]
    NotInFlight { id: u32 },
}
