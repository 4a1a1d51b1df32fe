//! Recordings: observations in a file that only grows at its end.
//!
//! A recording is a series of gzip members (RFC 1952), each with one line of JSON, so `zcat FILE`
//! shows all of it. The first says what it is; each further one is an observation. A field in the
//! header of each member (`HN`) holds its time and its length, so that a reader can go from one to
//! the next without unpacking. Each carries its checksum. A writer that is killed leaves at most one
//! member cut off at the end, which readers leave out and the next writer takes away.

use std::io::{self, Read, Seek, SeekFrom, Write};
use std::time::Duration;

use flate2::write::DeflateEncoder;
use flate2::{Compression, Crc, read::DeflateDecoder};
use homenode_units::{CpuSet, NodeId};
use serde::{Deserialize, Serialize};

use crate::Observation;

/// What a recording is of.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordingHead {
    /// [`RecordingHead::SCHEMA`].
    pub schema: String,
    /// Version of homenode that began it.
    pub version: String,
    /// The machine's name.
    pub host: String,
    /// The CPUs of each node.
    pub cpus: Vec<(NodeId, CpuSet)>,
    /// What the firmware claims about distances: from, to, tenths of a local access.
    pub distances: Vec<(NodeId, NodeId, u32)>,
}

impl RecordingHead {
    /// The name of the form.
    pub const SCHEMA: &str = "homenode.recording/1";
}

/// Why a recording could not be read.
#[derive(Debug, thiserror::Error)]
pub enum RecordingError {
    /// It is something else.
    #[error("expected a recording of homenode, found {found}")]
    Foreign {
        /// What it begins with.
        found: String,
    },
    /// It ends before its first observation could be.
    #[error("the file is cut off: it ends inside of its head")]
    CutOff,
    /// A later version wrote it.
    #[error("expected the form {}, found {found}", RecordingHead::SCHEMA)]
    Version {
        /// The form it names.
        found: String,
    },
    /// What is packed has changed since it was written.
    #[error("the observation at byte {offset} is damaged")]
    Damaged {
        /// Where its member begins.
        offset: u64,
    },
    /// The file could not be read.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A fixed part, the extra field's length, and the field `HN`: time, length.
const HEAD_BYTES: usize = 10 + 2 + 4 + 12;
const TAIL_BYTES: usize = 8;
/// More than this is no member of ours.
const MEMBER_MAX: u32 = 256 << 20;
const UNPACKED_MAX: u64 = 1 << 30;

/// Where an observation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Member {
    /// When it was made, since 1970. Unit: milliseconds.
    pub at_ms: u64,
    /// Where its member begins. Unit: bytes.
    pub offset: u64,
    /// Unit: bytes.
    pub length: u32,
}

/// Packs a value as a member.
///
/// # Errors
///
/// When it cannot be written as JSON, or is too large.
pub fn pack(value: &impl Serialize, at: Duration) -> io::Result<Vec<u8>> {
    let mut text = serde_json::to_vec(value)?;
    text.push(b'\n');
    let mut member = vec![0; HEAD_BYTES];
    let mut encoder = DeflateEncoder::new(&mut member, Compression::fast());
    encoder.write_all(&text)?;
    encoder.finish()?;
    let mut crc = Crc::new();
    crc.update(&text);
    member.extend(crc.sum().to_le_bytes());
    member.extend(crc.amount().to_le_bytes());
    let length = u32::try_from(member.len())
        .ok()
        .filter(|&length| length <= MEMBER_MAX)
        .ok_or_else(|| io::Error::other("an observation of more than 256 MiB"))?;
    let at_ms = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
    let seconds = u32::try_from(at.as_secs()).unwrap_or(0);
    // 8: deflate; 4: with an extra field; 255: of no operating system in particular.
    let mut head = vec![0x1f, 0x8b, 8, 4];
    head.extend(seconds.to_le_bytes());
    head.extend([0, 255]);
    head.extend(16u16.to_le_bytes());
    head.extend(*b"HN");
    head.extend(12u16.to_le_bytes());
    head.extend(at_ms.to_le_bytes());
    head.extend(length.to_le_bytes());
    member[..HEAD_BYTES].copy_from_slice(&head);
    Ok(member)
}

/// The time and length that the head of a member states.
fn parse_head(head: &[u8; HEAD_BYTES]) -> Option<(u64, u32)> {
    let ours = head[..4] == [0x1f, 0x8b, 8, 4] && head[10..16] == [16, 0, b'H', b'N', 12, 0];
    let at_ms = u64::from_le_bytes(head[16..24].try_into().ok()?);
    let length = u32::from_le_bytes(head[24..28].try_into().ok()?);
    let smallest = u32::try_from(HEAD_BYTES + TAIL_BYTES).ok()?;
    (ours && (smallest..=MEMBER_MAX).contains(&length)).then_some((at_ms, length))
}

/// A recording that is read.
#[derive(Debug)]
pub struct Recording<F> {
    file: F,
    /// What it is of.
    pub head: RecordingHead,
    /// Its observations, by time of writing.
    pub members: Vec<Member>,
    /// Where what is whole ends; less than the length where something else follows.
    pub whole_bytes: u64,
    /// Whether nothing follows, or only a member that is cut off, as a killed writer leaves it.
    pub is_ours_to_the_end: bool,
    /// Length of the file.
    pub length_bytes: u64,
    /// Length of the first member.
    pub head_bytes: u64,
}

impl<F: Read + Seek> Recording<F> {
    /// Reads the head and finds all observations, without unpacking them.
    ///
    /// # Errors
    ///
    /// [`RecordingError`]: it is something else, cut off in its head, or cannot be read.
    pub fn open(mut file: F) -> Result<Self, RecordingError> {
        let length_bytes = file.seek(SeekFrom::End(0))?;
        let mut members = Vec::new();
        let mut offset = 0;
        let is_ours_to_the_end = loop {
            if offset + HEAD_BYTES as u64 > length_bytes {
                break true;
            }
            let Some((at_ms, length)) = read_head(&mut file, offset)? else {
                break false;
            };
            if offset + u64::from(length) > length_bytes {
                break true;
            }
            members.push(Member {
                at_ms,
                offset,
                length,
            });
            offset += u64::from(length);
        };
        let Some(&first) = members.first() else {
            return Err(explain_beginning(&mut file, length_bytes));
        };
        let text = unpack(&mut file, first)?;
        let foreign = |_| RecordingError::Foreign {
            found: "gzip of something else".to_owned(),
        };
        let value: serde_json::Value = serde_json::from_slice(&text).map_err(foreign)?;
        match value["schema"].as_str() {
            Some(RecordingHead::SCHEMA) => {}
            found => {
                return Err(RecordingError::Version {
                    found: found.unwrap_or("none").chars().take(60).collect(),
                });
            }
        }
        let head = serde_json::from_value(value).map_err(foreign)?;
        members.remove(0);
        Ok(Self {
            file,
            head,
            members,
            whole_bytes: offset,
            is_ours_to_the_end,
            length_bytes,
            head_bytes: u64::from(first.length),
        })
    }

    /// Unpacks the observation with this position.
    ///
    /// # Errors
    ///
    /// [`RecordingError::Damaged`] when its checksum is wrong; the others are not concerned.
    ///
    /// # Panics
    ///
    /// When there is no such position.
    pub fn observation(&mut self, position: usize) -> Result<Observation, RecordingError> {
        let member = self.members[position];
        let text = unpack(&mut self.file, member)?;
        serde_json::from_slice(&text).map_err(|_| RecordingError::Damaged {
            offset: member.offset,
        })
    }

    /// The position of the last observation that was not made after this moment; the first where
    /// all were.
    #[must_use]
    pub fn position_at(&self, since_epoch: Duration) -> usize {
        let at_ms = u64::try_from(since_epoch.as_millis()).unwrap_or(u64::MAX);
        let behind = self.members.partition_point(|member| member.at_ms <= at_ms);
        behind.saturating_sub(1)
    }

    /// The file, to go on writing.
    pub fn into_file(self) -> F {
        self.file
    }
}

fn read_head(
    file: &mut (impl Read + Seek),
    offset: u64,
) -> Result<Option<(u64, u32)>, RecordingError> {
    let mut head = [0; HEAD_BYTES];
    file.seek(SeekFrom::Start(offset))?;
    match file.read_exact(&mut head) {
        Ok(()) => Ok(parse_head(&head)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn explain_beginning(file: &mut (impl Read + Seek), length_bytes: u64) -> RecordingError {
    let mut start = Vec::new();
    let read = file
        .seek(SeekFrom::Start(0))
        .and_then(|_| file.take(16).read_to_end(&mut start));
    if let Err(error) = read {
        return error.into();
    }
    let begins_as_ours = start.starts_with(&[0x1f, 0x8b, 8, 4]);
    if begins_as_ours {
        return RecordingError::CutOff;
    }
    let found = if length_bytes == 0 {
        "an empty file".to_owned()
    } else {
        format!("`{}`", String::from_utf8_lossy(&start).escape_debug())
    };
    RecordingError::Foreign { found }
}

fn unpack(file: &mut (impl Read + Seek), member: Member) -> Result<Vec<u8>, RecordingError> {
    let damaged = || RecordingError::Damaged {
        offset: member.offset,
    };
    file.seek(SeekFrom::Start(member.offset))?;
    let mut packed = Vec::new();
    file.take(member.length.into()).read_to_end(&mut packed)?;
    let body = packed
        .len()
        .checked_sub(TAIL_BYTES)
        .and_then(|end| packed.get(HEAD_BYTES..end))
        .ok_or_else(damaged)?;
    let mut text = Vec::new();
    DeflateDecoder::new(body)
        .take(UNPACKED_MAX)
        .read_to_end(&mut text)
        .map_err(|_| damaged())?;
    let mut crc = Crc::new();
    crc.update(&text);
    let tail = &packed[packed.len() - TAIL_BYTES..];
    let sums = [crc.sum().to_le_bytes(), crc.amount().to_le_bytes()].concat();
    if tail == sums {
        Ok(text)
    } else {
        Err(damaged())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use proptest::prelude::*;

    use super::*;
    use homenode_units::Reading;

    fn head() -> RecordingHead {
        RecordingHead {
            schema: RecordingHead::SCHEMA.to_owned(),
            version: "1".to_owned(),
            host: "db1".to_owned(),
            cpus: vec![(NodeId(0), CpuSet::parse_list("0-3").unwrap())],
            distances: Vec::new(),
        }
    }

    fn observation(second: u64) -> Observation {
        Observation {
            taken_at: Duration::from_secs(second),
            since_epoch: Duration::from_secs(second),
            nodes: Vec::new(),
            pressure: Reading::absent("x"),
            processes: Vec::new(),
            groups: Vec::new(),
            unreadable: 0,
            took: Duration::ZERO,
        }
    }

    fn file(seconds: &[u64]) -> Vec<u8> {
        let mut bytes = pack(&head(), Duration::ZERO).unwrap();
        for &second in seconds {
            bytes.extend(pack(&observation(second), Duration::from_secs(second)).unwrap());
        }
        bytes
    }

    #[test]
    fn what_is_written_is_read_back_and_found_by_time() {
        let mut recording = Recording::open(Cursor::new(file(&[10, 20, 30]))).unwrap();
        assert_eq!(recording.head, head());
        assert_eq!(recording.observation(1).unwrap(), observation(20));
        for (second, position) in [(0, 0), (10, 0), (29, 1), (30, 2), (99, 2)] {
            assert_eq!(recording.position_at(Duration::from_secs(second)), position);
        }
    }

    #[test]
    fn cut_off_anywhere_all_that_is_whole_is_there() {
        let whole = file(&[10, 20, 30]);
        let ends: Vec<u64> = {
            let recording = Recording::open(Cursor::new(whole.clone())).unwrap();
            let members = recording.members.iter();
            members
                .map(|member| member.offset + u64::from(member.length))
                .collect()
        };
        let head_bytes = pack(&head(), Duration::ZERO).unwrap().len();
        for length in 0..whole.len() {
            let cut = Recording::open(Cursor::new(whole[..length].to_vec()));
            if length < head_bytes {
                cut.unwrap_err();
                continue;
            }
            let mut cut = cut.unwrap();
            let expected = ends.iter().filter(|&&end| end <= length as u64).count();
            assert_eq!(cut.members.len(), expected);
            for position in 0..expected {
                cut.observation(position).unwrap();
            }
            assert!(cut.whole_bytes <= length as u64);
        }
    }

    #[test]
    fn what_follows_and_is_no_member_is_told_from_one_that_is_cut_off() {
        let whole = file(&[10, 20, 30]);
        let opened = |bytes: Vec<u8>| Recording::open(Cursor::new(bytes)).unwrap();
        let middle = usize::try_from(opened(whole.clone()).members[1].offset).unwrap();
        for length in middle..=whole.len() {
            assert!(opened(whole[..length].to_vec()).is_ours_to_the_end);
        }
        let mut damaged = whole.clone();
        damaged[middle] ^= 1;
        let recording = opened(damaged);
        assert!(!recording.is_ours_to_the_end);
        assert_eq!(recording.members.len(), 1);
        let foreign = [whole, vec![0; HEAD_BYTES]].concat();
        assert!(!opened(foreign).is_ours_to_the_end);
    }

    #[test]
    fn a_damaged_observation_is_refused_and_the_others_are_there() {
        let mut bytes = file(&[10, 20, 30]);
        let recording = Recording::open(Cursor::new(bytes.clone())).unwrap();
        let middle = recording.members[1].offset + u64::from(recording.members[1].length) / 2;
        bytes[usize::try_from(middle).unwrap()] ^= 0x20;
        let mut recording = Recording::open(Cursor::new(bytes)).unwrap();
        recording.observation(0).unwrap();
        let error = recording.observation(1).unwrap_err();
        assert!(matches!(error, RecordingError::Damaged { .. }), "{error}");
        recording.observation(2).unwrap();
    }

    #[test]
    fn what_is_no_recording_is_named() {
        let error = |bytes: &[u8]| {
            let opened = Recording::open(Cursor::new(bytes.to_vec()));
            opened.unwrap_err().to_string()
        };
        assert!(error(b"").contains("an empty file"));
        assert!(error(b"SQLite format 3\0").contains("SQLite format 3"));
        let cut = &file(&[])[..40];
        assert!(error(cut).contains("cut off"));
        let mut later = head();
        later.schema = "homenode.recording/9".to_owned();
        let later = pack(&later, Duration::ZERO).unwrap();
        assert!(error(&later).contains("found homenode.recording/9"));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes: Vec<u8>, at in 0usize..300) {
            let _ = Recording::open(Cursor::new(bytes.clone()));
            let mut changed = file(&[10]);
            let at = at.min(changed.len() - 1);
            changed.splice(at..at, bytes);
            if let Ok(mut recording) = Recording::open(Cursor::new(changed)) {
                for position in 0..recording.members.len() {
                    let _ = recording.observation(position);
                }
            }
        }
    }
}
