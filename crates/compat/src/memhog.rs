//! `memhog SIZE [POLICY [NODES]]`: fills memory, under a policy.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use homenode_sys::{BindFlags, Policy, PolicyMode, WorkMemory, mbind};
use homenode_units::NodeSet;

use crate::migratepages::nodes;
use crate::numactl::shm::parse_size;
use crate::numactl::text::reason;
use crate::spec::number;

const USAGE: &str = "\
usage: memhog [-fFILE] [-rN] [-H] SIZE[kmg] [POLICY [NODES]]
-fFILE  memory of this file, which is overwritten
-rN     fill it N times
-H      without transparent huge pages
POLICY: default local membind preferred preferred-many interleave weighted-interleave
";

/// A dot is printed for each piece of this size.
const DOT_BYTES: usize = 10 << 20;

/// What memory is filled with.
const FILLING: u8 = 0xff;

/// Answers for `memhog` with these arguments.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let done = run(args, &mut out, &mut err);
    let _ = out.flush();
    match done {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

/// What the command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Request {
    file: Option<OsString>,
    repeats: u64,
    without_huge_pages: bool,
    length_bytes: u64,
    mode: PolicyMode,
    /// As they are written.
    nodes: Option<OsString>,
}

/// `None` where the usage text is the answer.
fn parse(args: &[OsString]) -> Option<Request> {
    let mut request = Request {
        file: None,
        repeats: 1,
        without_huge_pages: false,
        length_bytes: 0,
        mode: PolicyMode::Default,
        nodes: None,
    };
    let mut words = args;
    while let Some((word, rest)) = words.split_first()
        && let [b'-', letter, attached @ ..] = word.as_bytes()
    {
        match letter {
            b'f' => request.file = Some(OsStr::from_bytes(attached).to_owned()),
            b'r' => request.repeats = number(attached)?.0.0,
            b'H' => request.without_huge_pages = true,
            _ => return None,
        }
        words = rest;
    }
    let (size, words) = words.split_first()?;
    request.length_bytes = parse_size(size);
    let Some((policy, words)) = words.split_first() else {
        return Some(request);
    };
    request.mode = match policy.to_str()?.trim_start_matches('-') {
        "default" => PolicyMode::Default,
        "local" => PolicyMode::Local,
        "membind" => PolicyMode::Bind,
        "preferred" => PolicyMode::Preferred,
        "preferred-many" => PolicyMode::PreferredMany,
        "interleave" => PolicyMode::Interleave,
        "weighted-interleave" => PolicyMode::WeightedInterleave,
        _ => return None,
    };
    if !matches!(request.mode, PolicyMode::Default | PolicyMode::Local) {
        request.nodes = Some(words.first()?.clone());
    }
    Some(request)
}

/// `None` when it failed, which has been said.
fn run(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> Option<()> {
    let Some(request) = parse(args) else {
        let _ = write!(out, "{USAGE}");
        return None;
    };
    let nodes = match &request.nodes {
        Some(text) => nodes(text, out, err)?,
        None => NodeSet::new(),
    };
    let file = request.file.as_ref().and_then(|path| open(path, err));
    // A length that no address can tell is refused by the kernel as well.
    let length = usize::try_from(request.length_bytes).unwrap_or(usize::MAX);
    let mut memory = match WorkMemory::map(length, file.as_ref().map(AsFd::as_fd)) {
        Ok(memory) => memory,
        Err(error) => {
            let _ = writeln!(err, "numactl: mmap: {}", reason(&error));
            return None;
        }
    };
    let policy = Policy::new(request.mode, nodes);
    if let Err(error) = mbind(memory.address(), length, &policy, BindFlags::default()) {
        let error = io::Error::from_raw_os_error(error.errno());
        let _ = writeln!(err, "mbind: {}", reason(&error));
    }
    if request.without_huge_pages {
        // Where there are no huge pages, none have to be kept away.
        let _ = memory.without_huge_pages();
    }
    for _ in 0..request.repeats {
        fill(&mut memory, out);
    }
    Some(())
}

/// Opens the file to fill; says why not.
fn open(path: &OsStr, err: &mut dyn Write) -> Option<File> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .open(path)
        .inspect_err(|error| {
            let _ = writeln!(err, "{}: {}", path.display(), reason(error));
        })
        .ok()
}

fn fill(memory: &mut WorkMemory, out: &mut dyn Write) {
    for start in (0..memory.length_bytes()).step_by(DOT_BYTES) {
        let _ = write!(out, ".");
        let _ = out.flush();
        memory.fill(start..start.saturating_add(DOT_BYTES), FILLING);
    }
    let _ = writeln!(out);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(line: &str) -> (bool, String, String) {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ok = run(&args, &mut out, &mut err).is_some();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ok, text(out), text(err))
    }

    #[test]
    fn a_dot_is_a_started_10_mebibytes() {
        for (line, dots) in [
            ("15m", "..\n"),
            ("1MB", ".\n"),
            ("-r3 15m", "..\n..\n..\n"),
            ("-H 25m default", "...\n"),
            ("4k --default", ".\n"),
        ] {
            let (ok, out, _) = on(line);
            assert!(ok, "{line}");
            assert_eq!(out, dots, "{line}");
        }
    }

    #[test]
    fn wrong_words_get_the_usage_text() {
        for line in ["", "-r 2 5m", "-x 5m", "5m foo 0", "5m membind", "-H"] {
            let (ok, out, err) = on(line);
            assert!(
                !ok && out.starts_with("usage: ") && err.is_empty(),
                "{line}"
            );
        }
    }

    #[test]
    fn no_memory_and_no_node_are_named() {
        let (ok, out, err) = on("x");
        assert_eq!(
            (ok, &*out, &*err),
            (false, "", "numactl: mmap: Invalid argument\n")
        );
        let (ok, out, _) = on("5m membind 4095");
        assert_eq!((ok, &*out), (false, "<4095> is invalid\n"));
    }

    #[test]
    fn a_file_that_is_not_there_leaves_anonymous_memory() {
        let (ok, out, err) = on("-f/nope/nope 1m");
        assert_eq!((ok, &*out), (true, ".\n"));
        assert_eq!(err, "/nope/nope: No such file or directory\n");
    }
}
