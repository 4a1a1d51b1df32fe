use std::io;
use std::path::Path;
use std::sync::OnceLock;

use rustix::buffer::spare_capacity;
use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, Dir, FileType, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::{Buffer, FileError, Files};

/// A read of a sysfs attribute that returns less than this has seen its end: the kernel hands out
/// at most a page per read (`kernfs_file_read_iter()`, fs/kernfs/file.c, Linux 6.12). It saves one
/// system call in four. procfs makes no such promise (`seq_read_iter()` returns early).
const SYSFS_PAGE_BYTES: usize = 4096;

/// Holds any sysfs attribute and most of procfs; more would make the allocator map a region of its own.
const FIRST_READ_BYTES: usize = 16 << 10;

/// A captured tree may hold anything: never wait for a FIFO's writer, never gain a terminal.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// This machine.
#[derive(Debug, Default, Clone, Copy)]
pub struct Live;

/// A machine saved in a folder: what was `/sys/x` there lies at `<folder>/sys/x`.
///
/// Links, absolute ones too, lead nowhere but into the folder (from Linux 5.6 on; before, the
/// system follows them as it always does).
#[derive(Debug)]
pub struct Captured {
    root: OwnedFd,
}

impl Captured {
    /// Opens the folder.
    ///
    /// # Errors
    ///
    /// [`FileError`] when it is missing, forbidden or no folder.
    pub fn open(folder: &Path) -> Result<Self, FileError> {
        let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::RDONLY;
        match rustix::fs::openat(CWD, folder, flags, Mode::empty()) {
            Ok(root) => Ok(Self { root }),
            Err(Errno::NOTDIR) => Err(FileError::Other {
                path: folder.display().to_string(),
                source: io::Error::new(
                    io::ErrorKind::NotADirectory,
                    "expected a folder that holds sys/ and proc/",
                ),
            }),
            Err(error) => Err(FileError::new(&folder.display().to_string(), error)),
        }
    }
}

/// How a path becomes an open file: the only thing in which live and captured differ.
trait Open {
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno>;
}

/// Where most of what is read lies. Opened once: finding a file below takes a fifth less time then.
const SYSTEM: &str = "/sys/devices/system/";

fn system_folder() -> Option<BorrowedFd<'static>> {
    static FOLDER: OnceLock<Option<OwnedFd>> = OnceLock::new();
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let open = || rustix::fs::openat(CWD, SYSTEM, flags, Mode::empty()).ok();
    FOLDER.get_or_init(open).as_ref().map(AsFd::as_fd)
}

impl Open for Live {
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let below = path.strip_prefix(SYSTEM).filter(|name| !name.is_empty());
        match (below, system_folder()) {
            (Some(name), Some(folder)) => rustix::fs::openat(folder, name, flags, Mode::empty()),
            _ => rustix::fs::openat(CWD, path, flags, Mode::empty()),
        }
    }
}

impl Open for Captured {
    fn open(&self, path: &str, flags: OFlags) -> Result<OwnedFd, Errno> {
        let relative = match path.trim_start_matches('/') {
            "" => ".",
            relative => relative,
        };
        let inside = ResolveFlags::IN_ROOT;
        match rustix::fs::openat2(&self.root, relative, flags, Mode::empty(), inside) {
            // Linux before 5.6, gVisor, valgrind.
            Err(Errno::NOSYS) => rustix::fs::openat(&self.root, relative, flags, Mode::empty()),
            result => result,
        }
    }
}

impl<T: Open> Files for T {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        let file = self
            .open(path, OPEN)
            .map_err(|error| FileError::new(path, error))?;
        let short_read_is_end = path.starts_with("/sys/");
        read_open(file.as_fd(), limit_bytes, short_read_is_end, buffer)
            .map_err(|error| FileError::new(path, error))?;
        Ok(buffer)
    }

    fn read_record<'buffer>(
        &self,
        path: &str,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        let file = self
            .open(path, OPEN)
            .map_err(|error| FileError::new(path, error))?;
        read_open(file.as_fd(), FIRST_READ_BYTES, true, buffer)
            .map_err(|error| FileError::new(path, error))?;
        Ok(buffer)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        let names = || {
            let folder = self.open(directory, OPEN | OFlags::DIRECTORY)?;
            let mut names = Vec::new();
            for entry in Dir::new(folder)? {
                // A name that is not UTF-8 is none the kernel gave.
                if let Ok(name) = entry?.file_name().to_str()
                    && name != "."
                    && name != ".."
                {
                    names.push(name.to_owned());
                }
            }
            names.sort_unstable();
            Ok(names)
        };
        names().map_err(|error: Errno| FileError::new(directory, error))
    }

    fn is_folder(&self, path: &str) -> bool {
        self.open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC)
            .is_ok()
    }

    fn link(&self, path: &str) -> Result<String, FileError> {
        let target = || {
            let link = self.open(path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC)?;
            let kind = FileType::from_raw_mode(rustix::fs::fstat(&link)?.st_mode);
            if kind != FileType::Symlink {
                return Err(io::Error::other("expected a symbolic link"));
            }
            let target = rustix::fs::readlinkat(&link, "", Vec::new())?;
            target
                .into_string()
                .map_err(|_| io::Error::other("expected a link of UTF-8 text"))
        };
        target().map_err(|error| FileError::new(path, error))
    }
}

fn read_open(
    file: BorrowedFd<'_>,
    limit_bytes: usize,
    short_read_is_end: bool,
    buffer: &mut Buffer,
) -> Result<(), Errno> {
    buffer.clear();
    buffer.reserve(FIRST_READ_BYTES.min(limit_bytes));
    while buffer.len() < limit_bytes {
        if buffer.len() == buffer.capacity() {
            buffer.reserve(buffer.len());
        }
        let count = match rustix::io::read(file, spare_capacity(buffer)) {
            Err(Errno::INTR) => continue,
            other => other?,
        };
        if count == 0 || (short_read_is_end && count < SYSFS_PAGE_BYTES) {
            break;
        }
    }
    buffer.truncate(limit_bytes);
    Ok(())
}
