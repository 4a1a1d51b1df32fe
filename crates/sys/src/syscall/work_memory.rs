//! Memory to fill: anonymous, or a file's.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// Mapped memory that can be filled and not read, until it is dropped.
#[derive(Debug)]
pub struct WorkMemory {
    start: NonNull<u8>,
    length_bytes: usize,
}

impl WorkMemory {
    /// Maps memory; what is written to a file's goes into the file, which must be long enough.
    ///
    /// # Errors
    ///
    /// What mmap(2) says: `EINVAL` for no length, `ENOMEM`, `EACCES`, `ENODEV`.
    ///
    /// # Panics
    ///
    /// When the kernel maps the page at address 0, which it never does unasked.
    pub fn map(length_bytes: usize, file: Option<BorrowedFd<'_>>) -> io::Result<Self> {
        let (flags, descriptor) = match file {
            Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
            None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
        };
        // SAFETY: the address is left to the kernel, so no mapping of ours is replaced; the
        // descriptor is open as it is borrowed, or not looked at.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags,
                descriptor,
                0,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start.cast())
                .expect("the kernel maps nothing at address 0 unasked"),
            length_bytes,
        })
    }

    /// Where it starts.
    #[must_use]
    pub fn address(&self) -> usize {
        self.start.addr().get()
    }

    /// How long it is. Unit: bytes.
    #[must_use]
    pub fn length_bytes(&self) -> usize {
        self.length_bytes
    }

    /// Asks for base pages even where the machine prefers huge ones.
    ///
    /// # Errors
    ///
    /// What madvise(2) says: `EINVAL` where the kernel has no transparent huge pages.
    pub fn without_huge_pages(&mut self) -> io::Result<()> {
        // SAFETY: the range is the one that mmap returned, still mapped; the advice changes how
        // it is backed and not what it holds.
        let result = unsafe {
            libc::madvise(
                self.start.as_ptr().cast(),
                self.length_bytes,
                libc::MADV_NOHUGEPAGE,
            )
        };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }

    /// Writes a byte to all of a range, as far as there is memory.
    pub fn fill(&mut self, range: std::ops::Range<usize>, byte: u8) {
        let end = range.end.min(self.length_bytes);
        let Some(count) = end.checked_sub(range.start) else {
            return;
        };
        // SAFETY: `range.start` is at most `length_bytes`, as `end` is, so the address is inside
        // the mapping or one past its end.
        let from = unsafe { self.start.as_ptr().add(range.start) };
        // SAFETY: `count` bytes from there on are inside the mapping, writable and borrowed by
        // nobody else, as no reference into it is handed out.
        unsafe { from.write_bytes(byte, count) };
    }
}

impl Drop for WorkMemory {
    fn drop(&mut self) {
        // SAFETY: mmap returned start and length and nothing unmapped them since; no reference
        // into the memory was ever handed out.
        let _ = unsafe { libc::munmap(self.start.as_ptr().cast(), self.length_bytes) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_filled_within_its_bounds() {
        let mut memory = WorkMemory::map(10_000, None).unwrap();
        memory.fill(0..5_000, 0xff);
        memory.fill(5_000..20_000, 0xff);
        memory.fill(20_000..30_000, 0xff);
        assert_ne!(memory.address(), 0);
        assert_eq!(memory.length_bytes(), 10_000);
    }

    #[test]
    fn no_memory_is_refused() {
        let refused = WorkMemory::map(0, None).unwrap_err();
        assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
    }
}
