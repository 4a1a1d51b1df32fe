//! Memory shared with other processes: `mmap(2)` of a file and System V segments, so that a policy
//! can be set on it. Its content is not to be had here.

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;

/// A piece of shared memory in our address space, until it is dropped.
#[derive(Debug)]
pub struct SharedMemory {
    start: NonNull<c_void>,
    length_bytes: usize,
    is_segment: bool,
}

/// A System V segment, as the kernel numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentId(c_int);

/// How to make a segment that is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewSegment {
    /// Who may use it: the nine permission bits.
    pub mode: u16,
    /// Of huge pages.
    pub huge: bool,
}

impl SharedMemory {
    /// Maps a part of a file, to be shared with whoever else maps it.
    ///
    /// # Errors
    ///
    /// What mmap(2) says: `EINVAL` for no length or an offset inside a page, `ENODEV`, `EACCES`,
    /// `ENOMEM`.
    ///
    /// # Panics
    ///
    /// When the kernel maps the page at address 0, which it never does unasked.
    pub fn map_file(
        file: BorrowedFd<'_>,
        offset_bytes: u64,
        length_bytes: usize,
    ) -> io::Result<Self> {
        let offset = libc::off_t::try_from(offset_bytes)
            .map_err(|_| io::Error::from_raw_os_error(libc::EOVERFLOW))?;
        // SAFETY: the address is left to the kernel, so no mapping of ours is replaced; the
        // descriptor is open as it is borrowed. Nothing reads or writes the memory through this.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                offset,
            )
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start).expect("the kernel maps nothing at address 0 unasked"),
            length_bytes,
            is_segment: false,
        })
    }

    /// Attaches a whole segment.
    ///
    /// # Errors
    ///
    /// What shmat(2) and shmctl(2) say: `EACCES`, `EIDRM`, `EINVAL`, `ENOMEM`.
    ///
    /// # Panics
    ///
    /// As [`Self::map_file`].
    pub fn attach(segment: SegmentId) -> io::Result<Self> {
        let length_bytes = segment.size()?;
        // SAFETY: the address is left to the kernel, so no mapping of ours is replaced; the
        // identifier is a number. Nothing reads or writes the memory through this.
        let start = unsafe { libc::shmat(segment.0, std::ptr::null(), 0) };
        if start.addr() == usize::MAX {
            return Err(io::Error::last_os_error());
        }
        Ok(Self {
            start: NonNull::new(start).expect("the kernel maps nothing at address 0 unasked"),
            length_bytes,
            is_segment: true,
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
}

impl Drop for SharedMemory {
    fn drop(&mut self) {
        if self.is_segment {
            // SAFETY: shmat returned the address and nothing detached it since; no reference into
            // the memory was ever handed out.
            let _ = unsafe { libc::shmdt(self.start.as_ptr()) };
        } else {
            // SAFETY: mmap returned start and length and nothing unmapped them since; no reference
            // into the memory was ever handed out.
            let _ = unsafe { libc::munmap(self.start.as_ptr(), self.length_bytes) };
        }
    }
}

impl SegmentId {
    /// Finds the segment of a key, which must hold `length_bytes` or more, or makes it.
    ///
    /// # Errors
    ///
    /// What shmget(2) says: `ENOENT` where there is none and `new` is `None`, `EACCES`, `EINVAL`
    /// for one that is too small, `ENOMEM`, `ENOSPC`.
    pub fn get(key: i32, length_bytes: usize, new: Option<NewSegment>) -> io::Result<Self> {
        let flags = match new {
            None => 0,
            Some(NewSegment { mode, huge }) => {
                let huge = if huge { libc::SHM_HUGETLB } else { 0 };
                libc::IPC_CREAT | c_int::from(mode & 0o777) | huge
            }
        };
        // SAFETY: three numbers; the call touches no memory of ours.
        let id = unsafe { libc::shmget(key, length_bytes, flags) };
        if id < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(Self(id))
    }

    fn size(self) -> io::Result<usize> {
        // SAFETY: the structure is numbers only, for which all bits zero are values.
        let mut status: libc::shmid_ds = unsafe { std::mem::zeroed() };
        // SAFETY: IPC_STAT writes one `shmid_ds` to the address, which is that of a live one that
        // nobody else uses.
        let result = unsafe { libc::shmctl(self.0, libc::IPC_STAT, &raw mut status) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(status.shm_segsz)
    }

    /// Takes the segment away; memory that is still attached lives until it is detached.
    ///
    /// # Errors
    ///
    /// What shmctl(2) says: `EPERM`, `EIDRM`, `EINVAL`.
    pub fn remove(self) -> io::Result<()> {
        // SAFETY: IPC_RMID uses no buffer, so the pointer may be null.
        let result = unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    /// Unlikely to be anybody's, and different for each run of the tests.
    fn key() -> i32 {
        0x686e_0000 | (std::process::id() & 0xffff).cast_signed()
    }

    #[test]
    fn a_segment_is_found_by_its_key_until_it_is_removed() {
        let enoent = |result: io::Result<SegmentId>| {
            result.err().and_then(|error| error.raw_os_error()) == Some(libc::ENOENT)
        };
        assert!(enoent(SegmentId::get(key(), 4096, None)));
        let new = NewSegment {
            mode: 0o600,
            huge: false,
        };
        let made = SegmentId::get(key(), 8192, Some(new)).unwrap();
        let found = SegmentId::get(key(), 0, None);
        let too_small = SegmentId::get(key(), 1 << 20, None);
        let memory = SharedMemory::attach(made);
        made.remove().unwrap();
        assert_eq!(found.unwrap(), made);
        assert_eq!(too_small.unwrap_err().raw_os_error(), Some(libc::EINVAL));
        let memory = memory.unwrap();
        assert_eq!(memory.length_bytes(), 8192);
        assert_ne!(memory.address(), 0);
        assert!(enoent(SegmentId::get(key(), 0, None)));
    }

    #[test]
    fn a_file_is_mapped_from_a_page_on() {
        let path = std::env::temp_dir().join(format!("homenode-sys-{}", std::process::id()));
        let file = std::fs::File::options()
            .read(true)
            .write(true)
            .create(true)
            .truncate(true)
            .open(&path)
            .unwrap();
        std::fs::remove_file(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        let memory = SharedMemory::map_file(file.as_fd(), 1 << 16, 1 << 16).unwrap();
        assert_eq!(memory.length_bytes(), 1 << 16);
        for (offset, length) in [(5, 4096), (0, 0)] {
            let refused = SharedMemory::map_file(file.as_fd(), offset, length).unwrap_err();
            assert_eq!(refused.raw_os_error(), Some(libc::EINVAL));
        }
    }
}
