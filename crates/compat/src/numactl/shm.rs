//! The shared memory mode: policies of a file on tmpfs or of a System V segment.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use homenode_sys::{
    BindFlags, NewSegment, Policy, PolicyMode, SegmentId, SharedMemory, mbind, node_at, page_size,
    policy_at,
};
use homenode_units::{NodeId, NodeSet};

use super::show::{blanks, policy_name};
use super::text::{Failure, reason};
use crate::spec::number;

/// What the options before `--shm` or `--file` said.
#[derive(Clone, Debug)]
pub(super) struct RegionOptions {
    /// 0 where it was not given.
    pub(super) length_bytes: u64,
    pub(super) offset_bytes: u64,
    pub(super) id: u64,
    pub(super) mode: u16,
    pub(super) huge: bool,
    /// The last of these options that makes no sense for a process.
    pub(super) last: Option<&'static str>,
}

impl Default for RegionOptions {
    fn default() -> Self {
        Self {
            length_bytes: 0,
            offset_bytes: 0,
            id: 0,
            mode: 0o600,
            huge: false,
            last: None,
        }
    }
}

/// A size as `--length` and `--offset` take it: a number and `k`, `m` or `g`; what follows does
/// not count.
pub(crate) fn parse_size(text: &OsStr) -> u64 {
    let Some((value, rest)) = number(text.as_bytes()) else {
        return 0;
    };
    let shift = match rest.first().map(u8::to_ascii_lowercase) {
        Some(b'k') => 10,
        Some(b'm') => 20,
        Some(b'g') => 30,
        _ => 0,
    };
    value.0.saturating_mul(1 << shift)
}

/// A mode in octal digits.
pub(super) fn parse_mode(text: &OsStr) -> Option<u16> {
    u16::from_str_radix(text.to_str()?, 8).ok()
}

/// A number with nothing behind it.
pub(crate) fn parse_id(text: &OsStr) -> Option<u64> {
    match number(text.as_bytes())? {
        (value, []) => Some(value.0),
        _ => None,
    }
}

/// The piece of shared memory that policies are set on.
#[derive(Debug)]
pub(super) struct Region {
    /// A file's mapping starts at the region, a segment's at the segment.
    memory: SharedMemory,
    /// From the start of `memory`.
    start_bytes: usize,
    length_bytes: usize,
    /// From the start of the file or segment, as it is shown.
    offset_bytes: u64,
}

fn complaint(text: impl Into<String>) -> Failure {
    Failure::Complaint(text.into())
}

fn complaint_about(what: &str, error: &io::Error) -> Failure {
    complaint(format!("{what}: {}", reason(error)))
}

/// A length that an address can tell.
fn to_usize(bytes: u64) -> Result<usize, Failure> {
    usize::try_from(bytes).map_err(|_| complaint("policy region is larger than memory can be"))
}

impl Region {
    /// Opens or makes a file and maps the region.
    pub(super) fn of_file(path: &Path, options: &RegionOptions) -> Result<Self, Failure> {
        let open = |create: bool| {
            OpenOptions::new()
                .read(true)
                .write(true)
                .create(create)
                .mode(options.mode.into())
                .truncate(false)
                .open(path)
        };
        let file = match open(false) {
            Ok(file) => file,
            Err(_) if options.length_bytes == 0 => {
                return Err(complaint("need a --length to create a shared file"));
            }
            Err(_) => open(true).map_err(|error| {
                complaint_about(&format!("cannot create file {}", path.display()), &error)
            })?,
        };
        if options.length_bytes == 0 {
            return Err(complaint(
                "policy region length not specified before --file",
            ));
        }
        lengthen(&file, options)?;
        let length = to_usize(options.length_bytes)?;
        let memory = SharedMemory::map_file(file.as_fd(), options.offset_bytes, length)
            .map_err(|error| complaint_about("shm mmap", &error))?;
        Self::new(memory, 0, length, options.offset_bytes)
    }

    /// Finds or makes the segment of a key file and attaches it.
    pub(super) fn of_segment(
        path: &Path,
        options: &RegionOptions,
        err: &mut dyn Write,
    ) -> Result<Self, Failure> {
        let key = segment_key(path, options, err)?;
        let whole = to_usize(options.length_bytes.saturating_add(options.offset_bytes))?;
        let asked = if options.length_bytes == 0 { 0 } else { whole };
        let segment = match SegmentId::get(key, asked, None) {
            Ok(segment) => segment,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_segment(path, key, whole, options, err)?
            }
            Err(error) => return Err(complaint_about("shmat", &error)),
        };
        let memory =
            SharedMemory::attach(segment).map_err(|error| complaint_about("shmat", &error))?;
        let start = to_usize(options.offset_bytes)?;
        let length = match to_usize(options.length_bytes)? {
            0 => memory.length_bytes().saturating_sub(start),
            length => length,
        };
        Self::new(memory, start, length, options.offset_bytes)
    }

    fn new(
        memory: SharedMemory,
        start_bytes: usize,
        length_bytes: usize,
        offset_bytes: u64,
    ) -> Result<Self, Failure> {
        let page = page_bytes();
        if !start_bytes.is_multiple_of(page) || !length_bytes.is_multiple_of(page) {
            return Err(complaint("policy region not page aligned"));
        }
        Ok(Self {
            memory,
            start_bytes,
            length_bytes,
            offset_bytes,
        })
    }

    /// Sets the region's policy.
    pub(super) fn set(&self, policy: &Policy, strict: bool) -> io::Result<()> {
        let flags = BindFlags {
            strict,
            ..BindFlags::default()
        };
        mbind(
            self.memory.address() + self.start_bytes,
            self.length_bytes,
            policy,
            flags,
        )
        .map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }

    /// The pages that an action named `action` goes over: offset in the file or segment, address.
    ///
    /// Upstream compares the offset with the region's own length: docs/drop-ins.md, "offset".
    fn pages(&self, action: &str) -> Result<impl Iterator<Item = (u64, usize)> + use<>, Failure> {
        let end = self.start_bytes.checked_add(self.length_bytes);
        if end.is_none_or(|end| end > self.memory.length_bytes()) {
            return Err(complaint(format!(
                "region offset {:#x} and length {:#x} beyond the segment's length {:#x} at {action}",
                self.offset_bytes,
                self.length_bytes,
                self.memory.length_bytes()
            )));
        }
        let (address, offset) = (self.memory.address() + self.start_bytes, self.offset_bytes);
        Ok((0..self.length_bytes)
            .step_by(page_bytes())
            .map(move |at| (offset + at as u64, address + at)))
    }

    /// Touches each page, so that it is allocated now.
    pub(super) fn touch(&self) -> Result<(), Failure> {
        for (_, address) in self.pages("--touch")? {
            node_of(address)?;
        }
        Ok(())
    }

    /// Prints each page that is not where its policy wants it; whether there is one.
    pub(super) fn verify(&self, out: &mut dyn Write) -> Result<bool, Failure> {
        let mut found = false;
        for (offset, address) in self.pages("--verify")? {
            let (policy, node) = (policy_of(address)?, node_of(address)?);
            if wanted(&policy).is_some_and(|nodes| !nodes.contains(node)) {
                found = true;
                let _ = writeln!(
                    out,
                    "numactl verify {address:x}({offset:x}): unexpected node {node}\nexpected: {}",
                    blanks(&policy.nodes)
                );
            }
        }
        Ok(found)
    }

    /// Prints the policy of each part that has one.
    pub(super) fn dump(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let page = page_bytes() as u64;
        let pages = self.pages("--dump")?;
        let policies = pages.map(|(offset, address)| Ok((offset, policy_of(address)?)));
        write_runs(out, page, policies, |policy| {
            (policy.mode != PolicyMode::Default)
                .then(|| format!("{} : {}", policy_name(policy.mode), blanks(&policy.nodes)))
        })
    }

    /// Prints the node of each part.
    pub(super) fn dump_nodes(&self, out: &mut dyn Write) -> Result<(), Failure> {
        let page = page_bytes() as u64;
        let pages = self.pages("--dump-nodes")?;
        let nodes = pages.map(|(offset, address)| Ok((offset, node_of(address)?)));
        write_runs(out, page, nodes, |node| Some(node.to_string()))
    }
}

/// Where the pages of a policy must lie; `None` where any node will do.
fn wanted(policy: &Policy) -> Option<&NodeSet> {
    match policy.mode {
        PolicyMode::Default | PolicyMode::Local | PolicyMode::Other(_) => None,
        _ => Some(&policy.nodes),
    }
}

/// Writes neighbours of equal value as one line: `start-end: text`.
fn write_runs<T: PartialEq>(
    out: &mut dyn Write,
    page: u64,
    values: impl Iterator<Item = Result<(u64, T), Failure>>,
    text: impl Fn(&T) -> Option<String>,
) -> Result<(), Failure> {
    let mut lines = String::new();
    let mut push = |start: u64, end: u64, value: &T| {
        if let Some(text) = text(value) {
            let _ = writeln!(lines, "{start:016x}-{end:016x}: {text}");
        }
    };
    let mut run: Option<(u64, u64, T)> = None;
    for value in values {
        let (offset, value) = value?;
        match &mut run {
            Some((_, end, of)) if *of == value => *end = offset + page,
            _ => {
                if let Some((start, end, value)) = run.replace((offset, offset + page, value)) {
                    push(start, end, &value);
                }
            }
        }
    }
    if let Some((start, end, value)) = run {
        push(start, end, &value);
    }
    let _ = out.write_all(lines.as_bytes());
    Ok(())
}

fn policy_of(address: usize) -> Result<Policy, Failure> {
    policy_at(address).map_err(|error| question(error.errno()))
}

fn node_of(address: usize) -> Result<NodeId, Failure> {
    node_at(address).map_err(|error| question(error.errno()))
}

fn question(errno: i32) -> Failure {
    let error = io::Error::from_raw_os_error(errno);
    Failure::Lines(vec![format!("get_mempolicy: {}", reason(&error))])
}

fn page_bytes() -> usize {
    usize::try_from(page_size().0).expect("a page fits into memory")
}

/// Makes the file long enough; never shorter.
fn lengthen(file: &File, options: &RegionOptions) -> Result<(), Failure> {
    let wanted = options.length_bytes.saturating_add(options.offset_bytes);
    let done = file.metadata().and_then(|file_now| {
        if file_now.len() < wanted {
            file.set_len(wanted)
        } else {
            Ok(())
        }
    });
    done.map_err(|error| complaint_about("cannot truncate file", &error))
}

/// The key of a segment, from its key file, which is made where it is not there.
fn segment_key(path: &Path, options: &RegionOptions, err: &mut dyn Write) -> Result<i32, Failure> {
    let shown = path.display();
    if !path.exists() {
        let _ = writeln!(
            err,
            "numactl: Creating shm key file {shown} mode {:04o}",
            options.mode
        );
        OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(false)
            .mode(options.mode.into())
            .open(path)
            .map_err(|error| {
                complaint_about(&format!("cannot create shm key file {shown}"), &error)
            })?;
    }
    let file = std::fs::metadata(path)
        .map_err(|error| complaint_about(&format!("cannot access shm key file {shown}"), &error))?;
    Ok(ftok(file.dev(), file.ino(), options.id))
}

/// ftok(3): eight bits of the project, eight of the device, sixteen of the file's number.
fn ftok(device: u64, inode: u64, project: u64) -> i32 {
    let key = (project & 0xff) << 24 | (device & 0xff) << 16 | (inode & 0xffff);
    u32::try_from(key)
        .expect("the three parts fill 32 bits")
        .cast_signed()
}

fn make_segment(
    path: &Path,
    key: i32,
    whole_bytes: usize,
    options: &RegionOptions,
    err: &mut dyn Write,
) -> Result<SegmentId, Failure> {
    if options.length_bytes == 0 {
        return Err(complaint(
            "need a --length to create a sysv shared memory segment",
        ));
    }
    let _ = writeln!(
        err,
        "numactl: Creating shared memory segment {} id {} mode {:04o} length {}MB",
        path.display(),
        options.id,
        options.mode,
        options.length_bytes >> 20
    );
    let new = NewSegment {
        mode: options.mode,
        huge: options.huge,
    };
    SegmentId::get(key, whole_bytes, Some(new))
        .map_err(|error| complaint_about("cannot create shared memory segment", &error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_a_suffix_and_ignore_the_rest() {
        for (text, bytes) in [
            ("20m", 20 << 20),
            ("1G", 1 << 30),
            ("0x10k", 16 << 10),
            ("64kb", 64 << 10),
            ("4096", 4096),
            ("z", 0),
            ("", 0),
        ] {
            assert_eq!(parse_size(OsStr::new(text)), bytes, "{text}");
        }
    }

    #[test]
    fn modes_are_octal_and_ids_whole() {
        assert_eq!(parse_mode(OsStr::new("0644")), Some(0o644));
        assert_eq!(parse_mode(OsStr::new("9")), None);
        assert_eq!(parse_id(OsStr::new("0x10")), Some(16));
        assert_eq!(parse_id(OsStr::new("3x")), None);
    }

    #[test]
    fn the_key_is_that_of_ftok() {
        // numactl 2.0.16 under strace: project 0, device 259:0 (0x10300), a file of number 0x4003.
        assert_eq!(ftok(0x10300, 0x4003, 0), 0x4003);
        assert_eq!(ftok(0x1fe05, 0x12_4003, 3), 0x0305_4003);
    }

    #[test]
    fn equal_neighbours_are_one_line() {
        let values = [(0x1000, 1), (0x2000, 1), (0x3000, 0), (0x4000, 2)];
        let mut out = Vec::new();
        write_runs(&mut out, 0x1000, values.into_iter().map(Ok), |&value| {
            (value != 0).then(|| value.to_string())
        })
        .unwrap();
        assert_eq!(
            String::from_utf8(out).unwrap(),
            "0000000000001000-0000000000003000: 1\n0000000000004000-0000000000005000: 2\n"
        );
    }
}
