use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::{Buffer, FileError, Files, Snapshot};

/// Passes every request on, and keeps a copy of all that was found.
///
/// What was asked for and missing is missing in the copy too, so that the readers give the same
/// answer on it.
#[derive(Debug)]
pub struct Recording<'files, F: ?Sized> {
    files: &'files F,
    found: Mutex<Snapshot>,
}

impl<'files, F: Files + ?Sized> Recording<'files, F> {
    /// Starts with nothing recorded.
    pub fn new(files: &'files F) -> Self {
        Self {
            files,
            found: Mutex::new(Snapshot::default()),
        }
    }

    /// A reader that panicked has left whole entries behind.
    fn found(&self) -> MutexGuard<'_, Snapshot> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// All that was read.
    pub fn into_snapshot(self) -> Snapshot {
        let mut found = self
            .found
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        found.settle();
        found
    }
}

impl<F: Files + ?Sized> Files for Recording<'_, F> {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        let content = self.files.read_head(path, limit_bytes, buffer)?;
        self.found().add_file(path, content);
        Ok(content)
    }

    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        let names = self.files.list(directory)?;
        let mut found = self.found();
        found.add_folder(directory);
        for name in &names {
            found.add_folder(&format!("{directory}/{name}"));
        }
        Ok(names)
    }

    fn is_folder(&self, path: &str) -> bool {
        let is_folder = self.files.is_folder(path);
        if is_folder {
            self.found().add_folder(path);
        }
        is_folder
    }

    fn link(&self, path: &str) -> Result<String, FileError> {
        let target = self.files.link(path)?;
        self.found().add_link(path, &target);
        Ok(target)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_read_through_a_link_is_found_both_ways() {
        let mut machine = Snapshot::default();
        machine.add_link("/sys/bus/a", "../devices/pci/a");
        machine.add_file("/sys/devices/pci/a/numa_node", "1\n");
        machine.add_file("/sys/devices/pci/a/never_read", "secret\n");

        let recording = Recording::new(&machine);
        let mut buffer = Buffer::new();
        recording.read("/sys/bus/a/numa_node", &mut buffer).unwrap();
        recording.link("/sys/bus/a").unwrap();
        let copy = recording.into_snapshot();

        assert_eq!(
            copy.read("/sys/bus/a/numa_node", &mut buffer).unwrap(),
            b"1\n"
        );
        assert_eq!(
            copy.read("/sys/devices/pci/a/numa_node", &mut buffer)
                .unwrap(),
            b"1\n"
        );
        assert!(
            copy.read("/sys/bus/a/never_read", &mut buffer)
                .unwrap_err()
                .is_not_found()
        );
    }
}
