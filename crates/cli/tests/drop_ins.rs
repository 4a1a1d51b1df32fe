//! The program under the names that it stands in for, against the originals on this machine: the
//! system calls with which they act. `lab/tests/guest` compares effects on several nodes.
#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "a test of the program: it makes and reads files of its own"
)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const THEIRS: &str = "/usr/bin/numactl";

/// A folder of our own, removed when dropped.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("homenode-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn link(&self, name: &str) -> PathBuf {
        let link = self.0.join(name);
        symlink(env!("CARGO_BIN_EXE_homenode"), &link).unwrap();
        link
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The calls by which a command line acts, in order, and the exit status.
fn acts(folder: &Folder, program: &Path, line: &str) -> (Vec<String>, Option<i32>) {
    let log = folder.0.join("strace");
    let status = Command::new("strace")
        .args(["-o".as_ref(), log.as_os_str()])
        .args([
            "-e",
            "trace=set_mempolicy,sched_setaffinity,mbind,shmget,execve",
        ])
        .arg(program)
        .args(line.split(' ').map(|word| word.trim_matches('\'')))
        .current_dir(&folder.0)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .unwrap();
    let text = fs::read_to_string(&log).unwrap();
    let mut calls: Vec<String> = text.lines().skip(1).filter_map(call).collect();
    // 2.0.16 asks for PREFERRED_MANY at its start by setting it: docs/drop-ins.md,
    // "preferred-many-probe".
    if text.contains("set_mempolicy(MPOL_PREFERRED_MANY") && text.contains("], 1024) ") {
        calls.drain(..2);
    }
    (calls, status.code())
}

/// A call without what may differ: addresses, and how many empty words a mask has.
fn call(line: &str) -> Option<String> {
    let (head, result) = line.rsplit_once(" = ")?;
    let (name, arguments) = head.trim_end().split_once('(')?;
    let arguments = arguments.trim_end_matches(')');
    let nodes = || -> String {
        let mask = arguments
            .split_once('[')
            .and_then(|(_, rest)| rest.split_once(']'))
            .map_or("", |(mask, _)| mask);
        mask.split(", ")
            .map(|word| word.trim_start_matches("0x").trim_start_matches('0'))
            .collect::<Vec<_>>()
            .join(" ")
            .trim_end()
            .to_owned()
    };
    let result = result.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Some(match name {
        "set_mempolicy" => {
            let mode = arguments.split(',').next()?;
            format!("{mode} {} {result}", nodes())
        }
        "mbind" => {
            let mode = arguments.split(", ").nth(2)?;
            let flags = arguments.rsplit(", ").next()?;
            format!("mbind {mode} {} {flags} {result}", nodes())
        }
        "sched_setaffinity" => {
            let cpus = arguments.split_once('[')?.1;
            format!("cpus {cpus} {result}")
        }
        // A key depends on the file; which one is tried first does not.
        "shmget" => format!("shmget {}", arguments.split_once(", ")?.1),
        "execve" if result.starts_with('0') => format!("exec {}", arguments.split(", ").next()?),
        _ => return None,
    })
}

#[test]
fn numactl_acts_by_the_same_calls() {
    let is_there = |program: &str| {
        Command::new(program)
            .arg("-V")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok()
    };
    if !is_there("strace") || !is_there(THEIRS) {
        eprintln!("skipped: needs strace and {THEIRS}");
        return;
    }
    let traced = Command::new("strace").arg("true").output().unwrap();
    if !traced.status.success() {
        eprintln!("skipped: strace may not trace here");
        return;
    }
    let folder = Folder::new("drop-ins");
    let ours = folder.link("numactl");
    for line in [
        "-m 0 true",
        "-i all true",
        "-i '' true",
        "-p 0 true",
        "-P 0 true",
        "-l true",
        "-b -m 0 true",
        "-m '' true",
        "-m !all true",
        "-m 0,all true",
        "-m 0-0 true",
        "-m +0 true",
        "-C 0 true",
        "-C all true",
        "-C '' true",
        "-N 0 true",
        "-N 0 -C 0 -N same true",
        "-N 0 -m same true",
        "-m 0 -N same true",
        "-m 0 -i 0 true",
        "-m 0 -H",
        "-m 99 true",
        "-m 1x true",
        "-C 99 true",
        "-a -m 0 true",
        "-m 0 -a true",
        "-t -m 0 true",
        "-m 0 nope",
        "true",
        "-L 5 -m 0 true",
        "-m 0",
        "-p '' true",
        "-L 64k -f region -m 0 -d",
        "-L 64k -t -f region -i 0",
        "-L 64k -f region -l",
        "-L 64k -f region -m '' -d",
        "-L 64k -f region -C 0",
        "-L 5 -f short -m 0",
        "-S key",
        "-f none -m 0",
    ] {
        let theirs = acts(&folder, Path::new(THEIRS), line);
        let found = acts(&folder, &ours, line);
        assert_eq!(found, theirs, "numactl {line}");
    }
}

#[test]
fn other_names_are_homenode_itself() {
    let folder = Folder::new("names");
    let output = Command::new(folder.link("numactl2"))
        .arg("--version")
        .output()
        .unwrap();
    assert!(String::from_utf8_lossy(&output.stdout).starts_with("homenode "));
}

#[test]
fn link_makes_links_that_answer() {
    let folder = Folder::new("link");
    let homenode = |arguments: &[&str]| {
        Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .output()
            .unwrap()
    };
    let place = folder.0.to_str().unwrap();
    let made = homenode(&["link", place]);
    assert!(made.status.success(), "{made:?}");
    assert_eq!(String::from_utf8_lossy(&made.stdout).lines().count(), 5);
    let version = Command::new(folder.0.join("numactl"))
        .arg("--version")
        .output()
        .unwrap();
    assert_eq!(version.stdout, b"2.0.19\n");
    let again = homenode(&["link", place]);
    assert!(
        again.status.success() && again.stdout.is_empty(),
        "{again:?}"
    );
    fs::remove_file(folder.0.join("memhog")).unwrap();
    fs::write(folder.0.join("memhog"), "theirs").unwrap();
    let refused = homenode(&["link", place]);
    assert_eq!(refused.status.code(), Some(2));
    assert_eq!(fs::read(folder.0.join("memhog")).unwrap(), b"theirs");
}
