use std::io;

/// Where file contents land; kept by the caller and used again for every read.
pub type Buffer = Vec<u8>;

/// No file that a reader asks for is larger; what lies beyond is not read.
///
/// The largest in practice is `/proc/<pid>/numa_maps` of a process with some 100,000 mappings.
pub const READ_LIMIT_BYTES: usize = 64 << 20;

/// Reads the files of a machine, live or not.
///
/// Paths are absolute, as on the machine itself: `/sys/devices/system/node/online`.
pub trait Files {
    /// Reads at most `limit_bytes` of a file into `buffer`, which it empties first.
    ///
    /// # Errors
    ///
    /// [`FileError`] with the path, when the file is missing, forbidden or unreadable.
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError>;

    /// The names in a directory, sorted, without `.` and `..`.
    ///
    /// # Errors
    ///
    /// As [`Self::read_head`].
    fn list(&self, directory: &str) -> Result<Vec<String>, FileError>;

    /// Where a symbolic link points to, as it is written.
    ///
    /// # Errors
    ///
    /// As [`Self::read_head`]; what is not a link is [`FileError::Other`].
    fn link(&self, path: &str) -> Result<String, FileError>;

    /// Whether there is such a directory, and this user may know.
    fn is_folder(&self, path: &str) -> bool;

    /// Reads a file that the kernel writes as one record, such as `/proc/<pid>/stat`.
    ///
    /// A live machine is asked once, where [`Self::read`] asks again until nothing more comes: a
    /// record that fits into the buffer comes whole (`seq_read_iter()`, `fs/seq_file.c`, Linux
    /// 6.12).
    ///
    /// # Errors
    ///
    /// As [`Self::read_head`].
    fn read_record<'buffer>(
        &self,
        path: &str,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        self.read(path, buffer)
    }

    /// Reads a file into `buffer`, up to [`READ_LIMIT_BYTES`].
    ///
    /// # Errors
    ///
    /// As [`Self::read_head`].
    fn read<'buffer>(
        &self,
        path: &str,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        self.read_head(path, READ_LIMIT_BYTES, buffer)
    }
}

/// Why a file could not be read.
#[derive(Debug, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("{path} does not exist")]
    NotFound {
        /// The path asked for.
        path: String,
    },
    /// The file is there and this user may not read it.
    #[error("{path} may not be read by this user")]
    Denied {
        /// The path asked for.
        path: String,
    },
    /// Anything else.
    #[error("cannot read {path}")]
    Other {
        /// The path asked for.
        path: String,
        /// What the system said.
        source: io::Error,
    },
}

impl FileError {
    pub(crate) fn new(path: &str, source: impl Into<io::Error>) -> Self {
        let path = path.to_owned();
        let source = source.into();
        match source.kind() {
            // ENOTDIR: a part of the path is a file, so the file asked for is not there either.
            io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Self::NotFound { path },
            io::ErrorKind::PermissionDenied => Self::Denied { path },
            _ => Self::Other { path, source },
        }
    }

    /// Whether the file is simply not there.
    #[must_use]
    pub fn is_not_found(&self) -> bool {
        matches!(self, Self::NotFound { .. })
    }

    /// Whether the process that the file is about is no more: its folder is gone, or was opened in
    /// time and reads as `ESRCH`.
    #[must_use]
    pub fn is_process_gone(&self) -> bool {
        match self {
            Self::NotFound { .. } => true,
            Self::Denied { .. } => false,
            Self::Other { source, .. } => {
                source.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error())
            }
        }
    }

    /// The path asked for.
    #[must_use]
    pub fn path(&self) -> &str {
        match self {
            Self::NotFound { path } | Self::Denied { path } | Self::Other { path, .. } => path,
        }
    }

    /// The reason in few words, for `n/a (…)`.
    #[must_use]
    pub fn reason(&self) -> String {
        match self {
            Self::NotFound { path } => format!("no {path}"),
            Self::Denied { path } => format!("{path} needs root"),
            Self::Other { path, source } => format!("cannot read {path}: {source}"),
        }
    }
}
