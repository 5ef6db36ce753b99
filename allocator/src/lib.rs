//! Returns the free memory of this process to the system, which glibc does for the end of its heap only.

/// Returns free blocks of the heap to the system. Takes some milliseconds for each 100 MB, during which other threads wait
/// for memory. Does nothing with other C libraries, which need no help.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim has no preconditions and may be called from any thread (malloc_trim(3), "MT-Safe").
    unsafe {
        libc::malloc_trim(0);
    }
}
