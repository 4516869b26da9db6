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
