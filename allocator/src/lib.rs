//! Memory that is held for this process: by glibc, in its heaps and as free blocks, and by the system, as bytes of connections that
//! their other side has not acknowledged.

use std::io;
use std::os::fd::BorrowedFd;

/// The length of blocks that go back to the system at once, in bytes. glibc raises its own limit with each block that is freed.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
const LARGE: i32 = 128 << 10;

/// Returns large blocks to the system at once from now on, and makes all threads that are started later share two heaps. Call
/// it before any thread starts.
///
/// By default there are eight heaps for each core, and a free block of one serves no other: connections that come and go on
/// other threads would take memory for each of them. Does nothing with other C libraries.
pub fn hold_little() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: mallopt changes limits of the allocator only (mallopt(3)).
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, LARGE);
        libc::mallopt(libc::M_ARENA_MAX, 2);
    }
}

/// Returns free blocks of the heaps to the system, which glibc does for their ends only. Takes some milliseconds for each
/// 100 MB, during which other threads wait for memory. Does nothing with other C libraries, which need no help.
pub fn release_free_memory() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    // SAFETY: malloc_trim has no preconditions and may be called from any thread (malloc_trim(3), "MT-Safe").
    unsafe {
        libc::malloc_trim(0);
    }
}

/// Returns how many bytes of a TCP connection the other side has not acknowledged; the end of the stream counts as one. The
/// system holds them, also after the connection was closed. Returns 0 on other systems than Linux, which are not asked.
pub fn unacknowledged(connection: BorrowedFd<'_>) -> io::Result<usize> {
    #[cfg(target_os = "linux")]
    {
        use std::os::fd::AsRawFd;

        let mut bytes: libc::c_int = 0;
        // SAFETY: SIOCOUTQ, which has the number of TIOCOUTQ, writes one int (tcp(7)). The descriptor is open while borrowed.
        let asked = unsafe { libc::ioctl(connection.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
        match asked {
            0 => Ok(usize::try_from(bytes).unwrap_or_default()),
            _ => Err(io::Error::last_os_error()),
        }
    }
    #[cfg(not(target_os = "linux"))]
    {
        let _ = connection;
        Ok(0)
    }
}

#[cfg(all(test, target_os = "linux", target_env = "gnu"))]
mod tests {
    use std::ffi::CStr;
    use std::sync::Barrier;
    use std::{ptr, thread};

    /// Returns how many heaps glibc has.
    fn heaps() -> usize {
        let (mut text, mut length) = (ptr::null_mut(), 0);
        // SAFETY: the stream and its text are used as open_memstream(3) and malloc_info(3) describe.
        unsafe {
            let stream = libc::open_memstream(&raw mut text, &raw mut length);
            libc::malloc_info(0, stream);
            libc::fclose(stream);
            let described = CStr::from_ptr(text).to_string_lossy();
            let heaps = described.matches("<heap nr=").count();
            libc::free(text.cast());
            heaps
        }
    }

    #[test]
    fn many_threads_share_two_heaps() {
        super::hold_little();
        let (threads, all) = (16, Barrier::new(16));
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let held = vec![1_u8; 4_096];
                    all.wait();
                    drop(held);
                });
            }
        });
        // One more if this thread was started before.
        assert!(heaps() <= 3, "{}", heaps());
    }
}
