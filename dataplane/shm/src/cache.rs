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
        // SAFETY: as above; processors without this instruction execute it as a no-op. The intrinsic
        // with a write hint becomes a read prefetch unless the whole program is compiled for newer
        // processors.
        unsafe {
            std::arch::asm!("prefetchw [{at}]", at = in(reg) at, options(nostack, preserves_flags));
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
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

/// Makes `copies`, in order. Nothing else is stored in between: stores leave the processor in order,
/// those to a line that another CPU holds wait in its store buffer, and any other store takes a
/// place in which the next line could be on its way (docs/performance.md). For the same reason the
/// stores are as wide as the processor has them.
///
/// # Safety
/// As for [`copy`], for each of them.
#[inline]
pub unsafe fn copy_each(copies: &[Copy]) {
    // SAFETY: by the contract, on a processor that has the instructions.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match (*WIDE, *PREFETCHES_TO_WRITE) {
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
            if PREFETCH {
                prefetch_to_write(later.to);
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
        // SAFETY: by the contract. Code that is compiled without AVX-512 does not use the register.
        unsafe {
            std::arch::asm!(
                "vmovdqu64 zmm31, [{from}]",
                "vmovdqu64 [{to}], zmm31",
                from = in(reg) from.add(at),
                to = in(reg) to.add(at),
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

    #[test]
    fn copies_write_their_bytes_and_no_others() {
        let mut ways: Vec<Each> = vec![copy_each, each::<false, false>, each::<false, true>];
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
