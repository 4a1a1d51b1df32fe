use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::path::{Path, PathBuf};

use crate::{Buffer, FileError, Files};

/// As many as the kernel follows (`MAXSYMLINKS`, include/linux/namei.h).
const LINKS_FOLLOWED_MAX: usize = 40;

/// The files of a machine, in memory.
///
/// Folders are there when something is in them, or when [`Self::add_folder`] said so.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// By absolute path; no path leads through a link of this map once [`Self::resolve`]d.
    entries: BTreeMap<String, Entry>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Entry {
    File(Vec<u8>),
    Link(String),
    Folder,
}

/// Why a snapshot could not be written to a folder.
#[derive(Debug, thiserror::Error)]
#[error("cannot write {}", path.display())]
pub struct WriteError {
    /// The file or folder that could not be made.
    pub path: PathBuf,
    /// What the system said.
    pub source: io::Error,
}

impl Snapshot {
    /// Adds or replaces a file.
    pub fn add_file(&mut self, path: &str, content: impl Into<Vec<u8>>) {
        self.entries
            .insert(path.to_owned(), Entry::File(content.into()));
    }

    /// Adds or replaces a symbolic link.
    pub fn add_link(&mut self, path: &str, target: &str) {
        self.entries
            .insert(path.to_owned(), Entry::Link(target.to_owned()));
    }

    /// Adds a folder that may stay empty.
    pub fn add_folder(&mut self, path: &str) {
        self.entries.entry(path.to_owned()).or_insert(Entry::Folder);
    }

    /// Takes out a file, link or folder, and all below it.
    pub fn remove(&mut self, path: &str) {
        let below = format!("{path}/");
        self.entries
            .retain(|entry, _| entry != path && !entry.starts_with(&below));
    }

    /// The files with their content, by path.
    pub fn files(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::File(content) => Some((path.as_str(), content.as_slice())),
            Entry::Link(_) | Entry::Folder => None,
        })
    }

    /// The symbolic links with their targets, by path.
    pub fn links(&self) -> impl Iterator<Item = (&str, &str)> {
        self.entries.iter().filter_map(|(path, entry)| match entry {
            Entry::Link(target) => Some((path.as_str(), target.as_str())),
            Entry::File(_) | Entry::Folder => None,
        })
    }

    /// Changes the content of every file, and drops those for which `change` returns `None`.
    pub fn rewrite(&mut self, mut change: impl FnMut(&str, &[u8]) -> Option<Vec<u8>>) {
        self.entries.retain(|path, entry| match entry {
            Entry::File(content) => match change(path, content) {
                Some(changed) => {
                    *content = changed;
                    true
                }
                None => false,
            },
            Entry::Link(_) | Entry::Folder => true,
        });
    }

    /// Moves all that lies at or below `from` to `to`.
    pub fn rename(&mut self, from: &str, to: &str) {
        let entries = std::mem::take(&mut self.entries);
        self.entries = entries
            .into_iter()
            .map(|(path, entry)| match path.strip_prefix(from) {
                Some(rest) if rest.is_empty() || rest.starts_with('/') => {
                    (format!("{to}{rest}"), entry)
                }
                _ => (path, entry),
            })
            .collect();
    }

    /// Moves what was added through a link to where the link leads, so that both ways find it.
    pub(crate) fn settle(&mut self) {
        let settled = self
            .entries
            .iter()
            .filter_map(|(path, entry)| Some((self.resolve(path, false)?, entry.clone())));
        let mut entries = BTreeMap::new();
        for (path, entry) in settled {
            if entry == Entry::Folder {
                entries.entry(path).or_insert(entry);
            } else {
                entries.insert(path, entry);
            }
        }
        self.entries = entries;
    }

    /// The path with all links followed: no link of this snapshot is left in it.
    ///
    /// Returns `None` for a loop of links. `..` at the root stays at the root.
    fn resolve(&self, path: &str, follow_last: bool) -> Option<String> {
        let mut todo: VecDeque<String> = path.split('/').map(str::to_owned).collect();
        let mut resolved = String::new();
        let mut links = 0;
        while let Some(part) = todo.pop_front() {
            match part.as_str() {
                "" | "." => continue,
                ".." => {
                    resolved.truncate(resolved.rfind('/').unwrap_or(0));
                    continue;
                }
                _ => {}
            }
            let parent_length = resolved.len();
            resolved.push('/');
            resolved.push_str(&part);
            if todo.is_empty() && !follow_last {
                break;
            }
            if let Some(Entry::Link(target)) = self.entries.get(&resolved) {
                links += 1;
                if links > LINKS_FOLLOWED_MAX {
                    return None;
                }
                resolved.truncate(if target.starts_with('/') {
                    0
                } else {
                    parent_length
                });
                for part in target.rsplit('/') {
                    todo.push_front(part.to_owned());
                }
            }
        }
        Some(resolved)
    }

    fn find(&self, path: &str, follow_last: bool) -> Result<&Entry, FileError> {
        let missing = || FileError::NotFound {
            path: path.to_owned(),
        };
        let resolved = self.resolve(path, follow_last).ok_or_else(|| {
            FileError::new(path, io::Error::other("too many levels of symbolic links"))
        })?;
        match self.entries.get(&resolved) {
            Some(entry) => Ok(entry),
            None if self.below(&resolved).next().is_some() => Ok(&Entry::Folder),
            None => Err(missing()),
        }
    }

    /// The paths below a resolved folder, without its prefix.
    fn below<'a>(&'a self, folder: &str) -> impl Iterator<Item = &'a str> + use<'a> {
        let prefix = format!("{folder}/");
        self.entries
            .range::<str, _>((Bound::Excluded(prefix.as_str()), Bound::Unbounded))
            .map_while(move |(path, _)| path.strip_prefix(&prefix))
    }

    /// Writes the snapshot into a folder, as [`Captured`](crate::Captured) reads it.
    ///
    /// # Errors
    ///
    /// [`WriteError`] with the path that could not be made.
    pub fn write_to(&self, folder: &Path) -> Result<(), WriteError> {
        for (path, entry) in &self.entries {
            // Written where the path leads to, so that a link and what is behind it do not clash,
            // and no `..` of a link leads out of the folder.
            let Some(resolved) = self.resolve(path, false) else {
                continue;
            };
            let place = folder.join(resolved.trim_start_matches('/'));
            let failed = |source| WriteError {
                path: place.clone(),
                source,
            };
            let parent = place.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent).map_err(failed)?;
            match entry {
                Entry::File(content) => std::fs::write(&place, content),
                Entry::Link(target) => std::os::unix::fs::symlink(target, &place),
                Entry::Folder => std::fs::create_dir_all(&place),
            }
            .map_err(failed)?;
        }
        Ok(())
    }
}

impl Files for Snapshot {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        match self.find(path, true)? {
            Entry::File(content) => {
                buffer.clear();
                buffer.extend_from_slice(&content[..content.len().min(limit_bytes)]);
                Ok(buffer)
            }
            Entry::Folder | Entry::Link(_) => Err(FileError::new(
                path,
                io::Error::from(io::ErrorKind::IsADirectory),
            )),
        }
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        if let Entry::File(_) = self.find(directory, true)? {
            return Err(FileError::NotFound {
                path: directory.to_owned(),
            });
        }
        let resolved = self.resolve(directory, true).unwrap_or_default();
        let mut names: Vec<String> = self
            .below(&resolved)
            .filter_map(|rest| rest.split('/').next())
            .map(str::to_owned)
            .collect();
        names.dedup();
        // `a-b/x` sorts before `a/x`, so equal names need not stand together before this.
        names.sort_unstable();
        names.dedup();
        Ok(names)
    }

    fn is_folder(&self, path: &str) -> bool {
        matches!(self.find(path, true), Ok(Entry::Folder))
    }

    fn link(&self, path: &str) -> Result<String, FileError> {
        match self.find(path, false)? {
            Entry::Link(target) => Ok(target.clone()),
            _ => Err(FileError::new(
                path,
                io::Error::other("expected a symbolic link"),
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machine() -> Snapshot {
        let mut machine = Snapshot::default();
        machine.add_file("/sys/devices/system/cpu/cpu0/topology/core_id", "0\n");
        machine.add_link("/sys/devices/system/node/node0/cpu0", "../../cpu/cpu0");
        machine.add_link("/sys/loop", "loop");
        machine.add_link("/escape", "../../../etc");
        machine.add_file("/etc/passwd", "inside");
        machine.add_folder("/sys/empty");
        machine
    }

    #[test]
    fn files_are_read_through_links() {
        let mut buffer = Buffer::new();
        let path = "/sys/devices/system/node/node0/cpu0/topology/core_id";
        assert_eq!(machine().read(path, &mut buffer).unwrap(), b"0\n");
        assert_eq!(machine().read_head(path, 1, &mut buffer).unwrap(), b"0");
        assert_eq!(
            machine().read("/escape/passwd", &mut buffer).unwrap(),
            b"inside"
        );
    }

    #[test]
    fn folders_list_their_names_once() {
        let machine = machine();
        assert_eq!(
            machine.list("/sys/devices/system").unwrap(),
            ["cpu", "node"]
        );
        assert_eq!(
            machine.list("/sys/devices/system/node/node0/cpu0").unwrap(),
            ["topology"]
        );
        assert!(machine.list("/sys/empty").unwrap().is_empty());
    }

    #[test]
    fn what_is_not_there_is_said_with_its_path() {
        let mut buffer = Buffer::new();
        let error = machine().read("/sys/none", &mut buffer).unwrap_err();
        assert!(error.is_not_found());
        assert_eq!(error.to_string(), "/sys/none does not exist");
        let error = machine().read("/sys/loop", &mut buffer).unwrap_err();
        assert!(matches!(error, FileError::Other { .. }), "{error:?}");
        machine().link("/sys/empty").unwrap_err();
    }

    #[test]
    fn moved_folders_keep_their_files() {
        let mut machine = machine();
        machine.rename("/sys/devices/system/cpu/cpu0", "/elsewhere");
        let mut buffer = Buffer::new();
        assert_eq!(
            machine
                .read("/elsewhere/topology/core_id", &mut buffer)
                .unwrap(),
            b"0\n"
        );
    }
}
