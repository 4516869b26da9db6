//! The process's own memory.

/// Makes all threads of the process share one heap. Otherwise the C library gives threads heaps of
/// their own, where what a thread has freed stays: the process of a daemon, whose connections are
/// short-lived threads, grows to several times what it uses. Data threads allocate nothing while
/// frames pass. Call it before any thread starts.
pub fn share_heap() {
    #[cfg(target_env = "gnu")]
    // SAFETY: the call sets a number of the allocator, and is safe in any thread.
    unsafe {
        libc::mallopt(libc::M_ARENA_MAX, 1);
    }
}
