//! The file that is recorded into: bounded, and whole whatever happens.

use std::fs::{File, TryLockError};
use std::io::{self, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use homenode_observe::{Observation, Recording, RecordingError, RecordingHead, pack};
use homenode_units::Bytes;

use crate::error::Helped;

/// A recording that grows.
#[derive(Debug)]
pub(super) struct Recorder {
    path: PathBuf,
    file: File,
    /// Length of what is whole. Unit: bytes.
    size: u64,
    oldest: Option<Duration>,
    limit: Bytes,
    keep: Duration,
    /// Observations written by us.
    pub(super) written: u64,
}

impl Recorder {
    /// Begins a recording, or goes on with one.
    ///
    /// # Errors
    ///
    /// When the file is something else, is recorded into by another, or cannot be written.
    pub(super) fn open(
        path: &Path,
        head: &RecordingHead,
        limit: Bytes,
        keep: Duration,
    ) -> anyhow::Result<Self> {
        let name = path.display();
        let cannot = |error: io::Error| {
            Helped::wrap(
                format!("cannot record into {name}"),
                error,
                "name a file in a folder that this user may write to",
            )
        };
        let file = open(path, false).map_err(cannot)?;
        lock(&file, path)?;
        let mut recorder = Self {
            path: path.to_owned(),
            size: file.metadata().map_err(cannot)?.len(),
            file,
            oldest: None,
            limit,
            keep,
            written: 0,
        };
        if recorder.size == 0 {
            let head = pack(head, Duration::ZERO).map_err(cannot)?;
            recorder.append(&head).map_err(cannot)?;
            return Ok(recorder);
        }
        let recording = recorder.read().map_err(|error| {
            Helped::wrap(
                format!("cannot go on recording into {name}"),
                error,
                "name another file: this one is left as it is",
            )
        })?;
        if !recording.is_ours_to_the_end {
            return Err(Helped::error(
                format!(
                    "cannot go on recording into {name}: expected an observation at byte {}, found \
                     something else",
                    recording.whole_bytes
                ),
                "name another file: this one is left as it is",
            ));
        }
        recorder.oldest = recording
            .members
            .first()
            .map(|member| Duration::from_millis(member.at_ms));
        // What a killed writer left half done.
        recorder.size = recording.whole_bytes;
        recorder.file.set_len(recorder.size).map_err(cannot)?;
        Ok(recorder)
    }

    /// Adds an observation; after an error the file is as before.
    ///
    /// # Errors
    ///
    /// When the disk is full or the file cannot be written.
    pub(super) fn push(&mut self, observation: &Observation) -> anyhow::Result<()> {
        let written = self.try_push(observation);
        written.map_err(|error| {
            Helped::wrap(
                format!(
                    "cannot go on recording into {} ({} observations were kept)",
                    self.path.display(),
                    self.written
                ),
                error,
                "make room on the disk or give less of it: --size 16MiB",
            )
        })
    }

    fn try_push(&mut self, observation: &Observation) -> io::Result<()> {
        let at = observation.since_epoch;
        let member = pack(observation, at)?;
        let length = u64::try_from(member.len()).unwrap_or(u64::MAX);
        // Half as much again, so that not every observation rewrites the file.
        let too_old = self.keep + self.keep / 2;
        let is_old = self
            .oldest
            .is_some_and(|oldest| at.saturating_sub(oldest) > too_old);
        if self.size + length > self.limit.0 || is_old {
            self.drop_oldest(length, at.saturating_sub(self.keep))?;
        }
        if self.size + length > self.limit.0 {
            return Err(io::Error::other(format!(
                "one observation takes {}, more than --size leaves",
                Bytes(length)
            )));
        }
        self.append(&member)?;
        self.oldest = self.oldest.or(Some(at));
        self.written += 1;
        Ok(())
    }

    /// Writes at the end, all or nothing.
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.size))?;
        match self.file.write_all(bytes) {
            Ok(()) => {
                self.size += u64::try_from(bytes.len()).unwrap_or(0);
                Ok(())
            }
            Err(error) => {
                // A part may have been written; readers would leave it out, too.
                let _ = self.file.set_len(self.size);
                Err(error)
            }
        }
    }

    fn read(&self) -> Result<Recording<File>, RecordingError> {
        Recording::open(self.file.try_clone()?)
    }

    /// Rewrites the file with what is younger than `since` and, with `room` more bytes, takes at
    /// most half of the limit. The old file is there until the new one is whole.
    fn drop_oldest(&mut self, room: u64, since: Duration) -> io::Result<()> {
        let recording = self.read().map_err(io::Error::other)?;
        let head_bytes = recording.head_bytes;
        let mut left = (self.limit.0 / 2).saturating_sub(head_bytes + room);
        let mut kept: Vec<_> = Vec::new();
        for &member in recording.members.iter().rev() {
            let length = u64::from(member.length);
            if length > left || Duration::from_millis(member.at_ms) < since {
                break;
            }
            left -= length;
            kept.push(member);
        }
        kept.reverse();
        let mut name = self.path.clone().into_os_string();
        name.push(".new");
        let path = PathBuf::from(name);
        let copied = (|| {
            let mut new = open(&path, true)?;
            let mut size = 0;
            let parts = kept
                .iter()
                .map(|member| (member.offset, u64::from(member.length)));
            for (offset, length) in [(0, head_bytes)].into_iter().chain(parts) {
                self.file.seek(SeekFrom::Start(offset))?;
                size += io::copy(&mut (&self.file).take(length), &mut new)?;
            }
            new.sync_all()?;
            new.lock()?;
            std::fs::rename(&path, &self.path)?;
            Ok((new, size))
        })();
        match copied {
            Ok((new, size)) => {
                self.file = new;
                self.size = size;
                self.oldest = kept
                    .first()
                    .map(|member| Duration::from_millis(member.at_ms));
                Ok(())
            }
            Err(error) => {
                let _ = std::fs::remove_file(&path);
                Err(error)
            }
        }
    }
}

fn open(path: &Path, truncate: bool) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(truncate)
        .open(path)
}

fn lock(file: &File, path: &Path) -> anyhow::Result<()> {
    match file.try_lock() {
        Ok(()) => Ok(()),
        Err(TryLockError::WouldBlock) => Err(Helped::error(
            format!("another homenode records into {}", path.display()),
            "name another file, or look at this one: homenode replay FILE",
        )),
        // A file system without locks.
        Err(TryLockError::Error(_)) => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use homenode_units::Reading;

    use super::*;

    fn head() -> RecordingHead {
        RecordingHead {
            schema: RecordingHead::SCHEMA.to_owned(),
            version: "1".to_owned(),
            host: "h".to_owned(),
            cpus: Vec::new(),
            distances: Vec::new(),
        }
    }

    fn observation(second: u64) -> Observation {
        Observation {
            taken_at: Duration::from_secs(second),
            since_epoch: Duration::from_secs(second),
            nodes: Vec::new(),
            // What cannot be packed away.
            pressure: Reading::absent(
                (0..400u64)
                    .map(|i| format!("{:x}", (i + second).wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                    .collect::<String>(),
            ),
            processes: Vec::new(),
            groups: Vec::new(),
            unreadable: 0,
            took: Duration::ZERO,
        }
    }

    fn scratch(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("homenode-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    fn seconds(path: &Path) -> Vec<u64> {
        let recording = Recording::open(open(path, false).unwrap()).unwrap();
        let members = recording.members.iter();
        members.map(|member| member.at_ms / 1000).collect()
    }

    #[test]
    fn it_stays_within_its_size_and_keeps_the_newest() {
        let path = scratch("size");
        let limit = Bytes(64 << 10);
        let mut recorder = Recorder::open(&path, &head(), limit, Duration::from_secs(1 << 30));
        let recorder = recorder.as_mut().unwrap();
        for second in 0..100 {
            recorder.push(&observation(second)).unwrap();
            let size = std::fs::metadata(&path).unwrap().len();
            assert!(size <= limit.0, "{size}");
        }
        let kept = seconds(&path);
        assert_eq!(kept.last(), Some(&99));
        assert!((3..99).contains(&kept.len()), "{kept:?}");
        assert!(
            kept.windows(2).all(|pair| pair[0] + 1 == pair[1]),
            "{kept:?}"
        );
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn what_is_old_goes() {
        let path = scratch("age");
        let keep = Duration::from_secs(10);
        let mut recorder = Recorder::open(&path, &head(), Bytes(64 << 20), keep).unwrap();
        for second in 0..50 {
            recorder.push(&observation(second)).unwrap();
        }
        let kept = seconds(&path);
        assert!(kept[0] >= 30 && kept.last() == Some(&49), "{kept:?}");
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn after_a_kill_in_mid_write_it_goes_on_behind_what_is_whole() {
        let path = scratch("kill");
        let open_it = || Recorder::open(&path, &head(), Bytes(64 << 20), Duration::from_secs(99));
        let mut recorder = open_it().unwrap();
        recorder.push(&observation(1)).unwrap();
        recorder.push(&observation(2)).unwrap();
        // While one writes, nobody else does.
        assert!(
            open_it()
                .unwrap_err()
                .to_string()
                .contains("another homenode")
        );
        drop(recorder);
        let file = open(&path, false).unwrap();
        let size = file.metadata().unwrap().len();
        file.set_len(size - 100).unwrap();
        let mut recorder = open_it().unwrap();
        recorder.push(&observation(3)).unwrap();
        assert_eq!(seconds(&path), [1, 3]);
        std::fs::remove_file(&path).unwrap();
    }

    #[test]
    fn a_file_of_something_else_is_left_as_it_is() {
        let path = scratch("foreign");
        std::fs::write(&path, "precious").unwrap();
        let limit = Bytes(64 << 20);
        let error = Recorder::open(&path, &head(), limit, Duration::from_secs(9)).unwrap_err();
        assert!(
            error.to_string().contains("expected a recording"),
            "{error}"
        );
        let mut left = String::new();
        open(&path, false)
            .unwrap()
            .read_to_string(&mut left)
            .unwrap();
        assert_eq!(left, "precious");
        std::fs::remove_file(&path).unwrap();
    }
}
