//! Operations decoded from bytes.

/// Bytes that decide what happens next. After the last one come zeroes.
#[derive(Debug)]
pub(crate) struct Bytes<'a>(pub(crate) &'a [u8]);

impl Bytes<'_> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> u8 {
        self.0.split_off_first().copied().unwrap_or(0)
    }

    pub(crate) fn flag(&mut self) -> bool {
        self.byte() & 1 != 0
    }

    pub(crate) fn u16(&mut self) -> u16 {
        u16::from_le_bytes([self.byte(), self.byte()])
    }

    pub(crate) fn u32(&mut self) -> u32 {
        u32::from(self.u16()) | u32::from(self.u16()) << 16
    }

    pub(crate) fn u64(&mut self) -> u64 {
        u64::from(self.u32()) | u64::from(self.u32()) << 32
    }

    /// Returns a ring size, mostly a small one.
    pub(crate) fn size(&mut self) -> dray_ring::QueueSize {
        let exponent = match self.byte() {
            252.. => 15,
            byte @ 230..252 => 1 + byte % 15,
            byte => 1 + byte % 5,
        };
        dray_ring::QueueSize::new(1 << exponent).expect("a power of two")
    }
}
