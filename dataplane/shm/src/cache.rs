//! Copies and cache hints for memory whose other user runs on another CPU.

use std::ptr;
#[cfg(target_arch = "x86_64")]
use std::sync::LazyLock;

/// Prefetches the cache line at `at` for reading.
#[inline(always)]
pub fn prefetch_to_read(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch is a hint: it accesses nothing and cannot fault.
    unsafe {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch(at.cast(), _MM_HINT_T0);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Prefetches the cache line at `at` for writing: takes it out of the peer's cache, which the store
/// would otherwise wait for. Does nothing on processors of AMD, whose stores request the lines of
/// the stores behind them by themselves: there a prefetch slows a loop of stores down
/// (docs/performance.md).
#[inline(always)]
pub fn prefetch_to_write(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    if *PREFETCHES_TO_WRITE {
        prefetchw(at);
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

#[cfg(target_arch = "x86_64")]
#[inline(always)]
fn prefetchw(at: *const u8) {
    // SAFETY: as above; processors without this instruction execute it as a no-op. The intrinsic
    // with a write hint becomes a read prefetch unless the whole program is compiled for newer
    // processors.
    unsafe {
        std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
}

/// False on processors of AMD.
#[cfg(target_arch = "x86_64")]
static PREFETCHES_TO_WRITE: LazyLock<bool> = LazyLock::new(|| {
    // "AuthenticAMD" (AMD64 Architecture Programmer's Manual, volume 3, function 0).
    let vendor = std::arch::x86_64::__cpuid(0);
    [vendor.ebx, vendor.edx, vendor.ecx].map(u32::to_le_bytes).as_flattened() != b"AuthenticAMD"
});

/// Moves the written cache line at `at` from this CPU's own cache to the cache that all CPUs share,
/// so that the next reader gets it sooner.
#[inline(always)]
pub fn demote(at: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: as above; older processors execute it as a no-op.
    unsafe {
        std::arch::asm!("cldemote [{at}]", at = in(reg) at, options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Source, destination and length of a copy.
#[derive(Clone, Copy, Debug)]
pub struct Copy {
    /// The first byte to read.
    pub from: *const u8,
    /// The first byte to write.
    pub to: *mut u8,
    /// Number of bytes.
    pub len: usize,
}

/// Copies batches of frames, for one queue. From time to time it compares whether a prefetch of the
/// destination for writing makes that faster, which depends on the processor, on where the other
/// side runs, and on what it does with the memory.
#[derive(Debug)]
#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is nothing to compare"))]
pub struct Copier {
    prefetches: bool,
    /// Batches that are long enough to be compared, until the next comparison ends.
    left: u32,
    /// Ticks for each copy in the first batch of a pair.
    first: f32,
    /// Pairs in which the batch with a prefetch was faster.
    faster_with: u32,
}

#[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "there is nothing to compare"))]
impl Copier {
    /// Pairs of batches, with a prefetch and without, in a comparison.
    const PAIRS: u32 = 32;
    /// Pairs that must agree for a change: by chance, three comparisons of a thousand would.
    const AGREE: u32 = 24;
    /// Batches until the end of the first comparison.
    pub const BEFORE: u32 = 1024;
    /// Batches until the end of each one after it.
    const BETWEEN: u32 = 16 * 1024;
    /// Copies of a batch that is compared.
    const LEAST: usize = 32;

    /// Creates one that begins with what suits the maker of the processor.
    pub fn new() -> Self {
        #[cfg(target_arch = "x86_64")]
        let prefetches = *PREFETCHES_TO_WRITE;
        #[cfg(not(target_arch = "x86_64"))]
        let prefetches = false;
        Self { prefetches, left: Self::BEFORE, first: 0.0, faster_with: 0 }
    }

    /// Returns true if it prefetches now.
    pub fn prefetches(&self) -> bool {
        self.prefetches
    }

    /// Makes `copies`, in order. Nothing else is stored in between: stores leave the processor in
    /// order, those to a line that another CPU holds wait in its store buffer, and any other store
    /// takes a place in which the next line could be on its way (docs/performance.md). For the same
    /// reason the stores are as wide as the processor has them.
    ///
    /// # Safety
    /// As for [`copy`], for each of them.
    #[inline]
    pub unsafe fn copy_each(&mut self, copies: &[Copy]) {
        #[cfg(target_arch = "x86_64")]
        if copies.len() >= Self::LEAST {
            self.left -= 1;
            if self.left < 2 * Self::PAIRS {
                // SAFETY: by the contract.
                return unsafe { self.compare(copies) };
            }
        }
        // SAFETY: by the contract.
        unsafe { copy_each(copies, self.prefetches) };
    }

    /// Makes the copies, with a prefetch or without, and takes the time.
    ///
    /// # Safety
    /// As for [`copy_each`](Self::copy_each).
    #[cfg(target_arch = "x86_64")]
    #[cold]
    unsafe fn compare(&mut self, copies: &[Copy]) {
        use std::arch::x86_64::{_mm_lfence, _mm_mfence, _rdtsc};
        // Waits for the stores, and lets the clock wait for that.
        let now = || {
            // SAFETY: fences and a look at the clock access nothing.
            unsafe {
                _mm_mfence();
                _mm_lfence();
                _rdtsc()
            }
        };
        let begin = now();
        // SAFETY: by the contract.
        unsafe { copy_each(copies, self.with()) };
        let ticks = now().wrapping_sub(begin);
        self.note(ticks as f32 / copies.len() as f32);
    }

    /// Returns true if the next batch of a comparison has a prefetch: without, with, with, without.
    fn with(&self) -> bool {
        (self.left ^ self.left >> 1) & 1 != 0
    }

    /// Notes the ticks for each copy in a batch of a comparison, and decides after the last one.
    fn note(&mut self, ticks: f32) {
        if self.left % 2 == 1 {
            self.first = ticks;
            return;
        }
        let (with, without) = if self.with() { (ticks, self.first) } else { (self.first, ticks) };
        self.faster_with += u32::from(with < without);
        if self.left == 0 {
            self.prefetches = match self.faster_with {
                Self::AGREE.. => true,
                few if few <= Self::PAIRS - Self::AGREE => false,
                _ => self.prefetches,
            };
            (self.left, self.faster_with) = (Self::BETWEEN, 0);
        }
    }
}

impl Default for Copier {
    fn default() -> Self {
        Self::new()
    }
}

/// # Safety
/// As for [`copy`], for each of them.
#[inline]
unsafe fn copy_each(copies: &[Copy], prefetches: bool) {
    // SAFETY: by the contract, on a processor that has the instructions.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match (*WIDE, prefetches) {
            (true, true) => each::<true, true>(copies),
            (true, false) => each::<true, false>(copies),
            (false, true) => each::<false, true>(copies),
            (false, false) => each::<false, false>(copies),
        }
        #[cfg(not(target_arch = "x86_64"))]
        each::<false, false>(copies)
    }
}

/// Number of copies whose lines are prefetched.
const AHEAD: usize = 8;

/// # Safety
/// As for [`copy_each`]; `WIDE` needs AVX-512.
#[inline(never)]
unsafe fn each<const WIDE: bool, const PREFETCH: bool>(copies: &[Copy]) {
    for (at, &Copy { from, to, len }) in copies.iter().enumerate() {
        if let Some(later) = copies.get(at + AHEAD) {
            prefetch_to_read(later.from);
            #[cfg(target_arch = "x86_64")]
            if PREFETCH {
                prefetchw(later.to);
            }
        }
        // SAFETY: by the contract.
        unsafe {
            match len {
                #[cfg(target_arch = "x86_64")]
                64..=256 if WIDE => wide(from, to, len),
                _ => copy(from, to, len),
            }
        }
    }
}

/// True if the processor has AVX-512, in a generation that does not slow down when it is used.
#[cfg(target_arch = "x86_64")]
static WIDE: LazyLock<bool> = LazyLock::new(|| is_x86_feature_detected!("avx512vbmi2"));

/// Copies at least 64 bytes in moves of 64 bytes that overlap at the end.
///
/// # Safety
/// As for [`copy`], on a processor with AVX-512.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
unsafe fn wide(from: *const u8, to: *mut u8, len: usize) {
    let mut at = 0;
    loop {
        // SAFETY: by the contract.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 zmm31, [{from}]",
                "vmovdqu64 [{to}], zmm31",
                from = in(reg) from.add(at),
                to = in(reg) to.add(at),
                // A build for processors with AVX-512 uses it.
                out("zmm31") _,
                options(nostack, preserves_flags),
            );
        }
        at = match at + 64 {
            next if next + 64 <= len => next,
            next if next < len => len - 64,
            _ => break,
        };
    }
}

/// Copies `len` bytes. Most frames are short, and a call of `memcpy` costs as much as copying one,
/// so short ones are copied inline, by moves that overlap at the end.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`], except that the source bytes may change during the copy.
#[inline]
pub unsafe fn copy(from: *const u8, to: *mut u8, len: usize) {
    /// Copies in moves of `N` bytes, the last of which ends at `len`; `len` is at least `N`.
    #[inline(always)]
    unsafe fn blocks<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
        let mut at = 0;
        // SAFETY: every block lies within `len`.
        unsafe {
            while at + N <= len {
                to.add(at).cast::<[u8; N]>().write(from.add(at).cast::<[u8; N]>().read());
                at += N;
            }
            if at < len {
                let at = len - N;
                to.add(at).cast::<[u8; N]>().write(from.add(at).cast::<[u8; N]>().read());
            }
        }
    }
    // SAFETY: by the contract.
    unsafe {
        match len {
            64..=256 => blocks::<64>(from, to, len),
            16..=63 => blocks::<16>(from, to, len),
            _ => ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    type Each = unsafe fn(&[Copy]);

    /// Ticks for each copy, with a prefetch and without.
    fn compared(mut copier: Copier, with: f32, without: f32) -> Copier {
        copier.left = 2 * Copier::PAIRS;
        while copier.left > 0 && copier.left <= 2 * Copier::PAIRS {
            copier.left -= 1;
            let ticks = if copier.with() { with } else { without };
            copier.note(ticks);
        }
        assert_eq!(copier.left, Copier::BETWEEN);
        copier
    }

    #[test]
    fn copier_prefers_what_is_faster() {
        let on = compared(Copier::new(), 20.0, 25.0);
        assert!(on.prefetches());
        let off = compared(on, 25.0, 20.0);
        assert!(!off.prefetches());
        assert!(!compared(off, 20.0, 20.0).prefetches());
    }

    #[test]
    fn copier_keeps_its_choice_if_pairs_disagree() {
        for prefetches in [false, true] {
            let mut copier = Copier { prefetches, ..Copier::new() };
            copier.left = 2 * Copier::PAIRS;
            for batch in 0..2 * Copier::PAIRS {
                copier.left -= 1;
                let slower = (batch / 4 % 2 == 0) == copier.with();
                copier.note(if slower { 30.0 } else { 20.0 });
            }
            assert_eq!(copier.prefetches(), prefetches);
        }
    }

    #[test]
    fn copier_copies_while_it_compares() {
        let from: Vec<u8> = (0..=255).cycle().take(64 * Copier::LEAST).collect();
        let mut copier = Copier::new();
        for _ in 0..Copier::BEFORE + Copier::BETWEEN + 100 {
            let mut to = vec![0; from.len()];
            let copies: Vec<Copy> = from
                .chunks(64)
                .zip(to.chunks_mut(64))
                .map(|(from, to)| Copy { from: from.as_ptr(), to: to.as_mut_ptr(), len: 64 })
                .collect();
            // SAFETY: both sides have 64 bytes.
            unsafe { copier.copy_each(&copies) };
            assert!(to == from);
        }
    }

    #[test]
    fn copies_write_their_bytes_and_no_others() {
        let mut ways: Vec<Each> = vec![each::<false, false>, each::<false, true>];
        #[cfg(target_arch = "x86_64")]
        if *WIDE {
            ways.extend([each::<true, false> as Each, each::<true, true>]);
        }
        let from: Vec<u8> = (0..=255).cycle().take(400).collect();
        let cases = (0..=330).flat_map(|len| [(len, 0), (len, 13)]);
        for ((len, skip), way) in cases.flat_map(|case| ways.iter().map(move |way| (case, way))) {
            let mut to = [vec![0u8; 400], vec![0; 400], vec![0; 400]];
            let copies = to.each_mut().map(|to| Copy {
                from: from[skip..].as_ptr(),
                to: to[7..].as_mut_ptr(),
                len,
            });
            // SAFETY: both sides have `len` bytes.
            unsafe { way(&copies) };
            for to in &to {
                assert_eq!(to[7..][..len], from[skip..][..len], "{len} bytes");
                assert!(to[..7].iter().chain(&to[7 + len..]).all(|byte| *byte == 0), "{len} bytes");
            }
        }
    }
}
