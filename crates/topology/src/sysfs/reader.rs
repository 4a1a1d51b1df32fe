//! Reads one small file after another into one buffer, and writes down what was wrong with them.

use std::collections::BTreeSet;
use std::fmt::{Arguments, Write as _};

use homenode_host::{Buffer, FileError, Files};
use homenode_units::{Id, IdSet, Reading};

use crate::Problem;

/// Why a value could not be read. Absent, forbidden and wrong are three different results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Gap {
    /// There is no such file.
    Missing,
    /// The file may not be read by this user.
    Denied,
    /// The file is there and cannot be read.
    Unreadable,
    /// The file holds something else; a [`Problem`] says what.
    Bad,
}

/// A reader of the kernel's small text files.
///
/// Not generic: one copy of what reads a machine, close together in the program, starts faster than
/// one copy for each kind of [`Files`].
pub(super) struct Reader<'files> {
    pub(super) files: &'files (dyn Files + Sync),
    /// The path read last; kept so that no file costs an allocation.
    path: String,
    buffer: Buffer,
    pub(super) problems: Vec<Problem>,
    /// What this kernel does not have; see [`Self::feature`].
    lacking: BTreeSet<&'static str>,
}

impl<'files> Reader<'files> {
    pub(super) fn new(files: &'files (dyn Files + Sync)) -> Self {
        Self {
            files,
            path: String::new(),
            buffer: Buffer::new(),
            problems: Vec::new(),
            lacking: BTreeSet::new(),
        }
    }

    /// Writes down a contradiction.
    pub(super) fn problem(&mut self, object: impl Into<String>, message: impl Into<String>) {
        self.problems.push(Problem {
            object: object.into(),
            message: message.into(),
        });
    }

    /// Asks for something that a kernel has for all nodes or for none.
    ///
    /// Once it was missing it is not asked for again: on a large machine that saves hundreds of
    /// opens.
    pub(super) fn feature<T>(
        &mut self,
        name: &'static str,
        read: impl FnOnce(&mut Self) -> Result<T, Gap>,
    ) -> Result<T, Gap> {
        if self.lacking.contains(name) {
            return Err(Gap::Missing);
        }
        let result = read(self);
        if matches!(result, Err(Gap::Missing)) {
            self.lacking.insert(name);
        }
        result
    }

    /// The bytes of a file.
    pub(super) fn bytes(&mut self, path: Arguments<'_>) -> Result<&[u8], Gap> {
        self.bytes_up_to(path, homenode_host::READ_LIMIT_BYTES)
    }

    fn bytes_up_to(&mut self, path: Arguments<'_>, limit_bytes: usize) -> Result<&[u8], Gap> {
        self.path.clear();
        self.path.write_fmt(path).expect("a String takes all text");
        match self
            .files
            .read_head(&self.path, limit_bytes, &mut self.buffer)
        {
            Ok(_) => Ok(&self.buffer),
            Err(FileError::NotFound { .. }) => Err(Gap::Missing),
            Err(FileError::Denied { .. }) => Err(Gap::Denied),
            Err(FileError::Other { path, source }) => {
                self.problems.push(Problem {
                    object: path,
                    message: format!("cannot be read: {source}"),
                });
                Err(Gap::Unreadable)
            }
        }
    }

    /// The text of a file, without the NUL bytes that some kernels and captures pad it with.
    pub(super) fn text(&mut self, path: Arguments<'_>) -> Result<&str, Gap> {
        self.text_up_to(path, homenode_host::READ_LIMIT_BYTES)
    }

    /// As [`Self::text`], of the first bytes of a file.
    pub(super) fn text_up_to(
        &mut self,
        path: Arguments<'_>,
        limit_bytes: usize,
    ) -> Result<&str, Gap> {
        self.bytes_up_to(path, limit_bytes)?;
        self.buffer.retain(|&byte| byte != 0);
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(text.trim()),
            Err(error) => {
                self.problems.push(Problem {
                    object: self.path.clone(),
                    message: format!(
                        "expected text, found a stray byte at {}",
                        error.valid_up_to()
                    ),
                });
                Err(Gap::Bad)
            }
        }
    }

    /// A value of a file that holds just that.
    ///
    /// `parse` returns what was expected when the text is something else.
    pub(super) fn value<T>(
        &mut self,
        path: Arguments<'_>,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Result<T, Gap> {
        match parse(self.text(path)?) {
            Ok(value) => Ok(value),
            Err(message) => {
                self.problems.push(Problem {
                    object: self.path.clone(),
                    message,
                });
                Err(Gap::Bad)
            }
        }
    }

    /// A plain number.
    pub(super) fn number<T: std::str::FromStr>(&mut self, path: Arguments<'_>) -> Result<T, Gap> {
        self.value(path, |text| {
            text.parse()
                .map_err(|_| format!("expected a number, found `{}`", shorten(text)))
        })
    }

    /// A signed id in which every negative number says "no such thing".
    pub(super) fn id(&mut self, path: Arguments<'_>) -> Option<u32> {
        self.number::<i64>(path)
            .ok()
            .and_then(|id| u32::try_from(id).ok())
    }

    /// A list of ids, such as `0-3,8`. Empty, blanks and `(null)` are the empty set.
    pub(super) fn list<T: Id>(&mut self, path: Arguments<'_>) -> Result<IdSet<T>, Gap> {
        self.value(path, |text| match text {
            "(null)" => Ok(IdSet::new()),
            _ => IdSet::parse_list(text).map_err(|error| error.to_string()),
        })
    }

    /// A mask of ids, such as `ff,00000000`.
    pub(super) fn mask<T: Id>(&mut self, path: Arguments<'_>) -> Result<IdSet<T>, Gap> {
        self.value(path, |text| {
            IdSet::parse_mask(text).map_err(|error| error.to_string())
        })
    }

    /// Turns a gap of the file read last into an absence with its reason.
    pub(super) fn reading<T>(&self, value: Result<T, Gap>) -> Reading<T> {
        match value {
            Ok(value) => Reading::Known(value),
            Err(gap) => Reading::absent(match gap {
                Gap::Missing => format!("no {}", self.path),
                Gap::Denied => format!("{} needs root", self.path),
                Gap::Unreadable => format!("{} cannot be read", self.path),
                Gap::Bad => format!("{} holds something else", self.path),
            }),
        }
    }

    /// The numbers `n` for which the folder holds an entry `<prefix><n>`, ascending.
    pub(super) fn numbered(&mut self, folder: &str, prefix: &str) -> Result<Vec<u32>, Gap> {
        let names = self.names(folder)?;
        let mut numbers: Vec<u32> = names
            .iter()
            .filter_map(|name| name.strip_prefix(prefix))
            .filter(|rest| rest.bytes().all(|byte| byte.is_ascii_digit()))
            .filter_map(|rest| rest.parse().ok())
            .filter(|&number| number < homenode_units::ID_LIMIT)
            .collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// The names in a folder.
    pub(super) fn names(&mut self, folder: &str) -> Result<Vec<String>, Gap> {
        self.path.clear();
        self.path.push_str(folder);
        self.files.list(folder).map_err(|error| match error {
            FileError::NotFound { .. } => Gap::Missing,
            FileError::Denied { .. } => Gap::Denied,
            FileError::Other { .. } => Gap::Unreadable,
        })
    }
}

/// What of a bad text is worth showing.
pub(super) fn shorten(text: &str) -> String {
    const SHOWN_CHARS: usize = 40;
    let mut shown: String = text
        .chars()
        .take(SHOWN_CHARS)
        .flat_map(char::escape_debug)
        .collect();
    if text.chars().nth(SHOWN_CHARS).is_some() {
        shown.push('…');
    }
    shown
}
