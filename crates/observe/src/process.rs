use std::collections::BTreeMap;

use homenode_host::{Buffer, FileError, Files};
use homenode_units::{Bytes, CpuSet, NodeSet, Pid};
use serde::Serialize;

use crate::{ObserveError, ParseError};

/// A process with memory of its own.
///
/// Source: `/proc/<pid>/status`, `proc_pid_status(5)`; everyone may read it. It is one file where
/// `statm`, `stat` and `comm` would be three.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Process {
    /// Its number.
    pub pid: Pid,
    /// The name of its first thread, at most 15 bytes. The process chooses it, so it may hold
    /// anything: control characters, markup, another program's name.
    pub name: String,
    /// The user it acts as (effective id).
    pub uid: u32,
    /// The name of that user in `/etc/passwd`, where it stands there.
    pub user: Option<String>,
    /// How many threads it has.
    pub threads: u32,
    /// Memory in use, pages of explicit huge pages left out.
    ///
    /// Unit: bytes. Source: `VmRSS` of `/proc/<pid>/status`. On Linux 6.2 to 6.15 this and `statm`
    /// lack what CPUs have not yet folded in, so small processes on machines with many CPUs may
    /// read as 0; 6.16 and later sum up exactly (commits f1a7941243c1, 82241a83cd15).
    /// `smaps_rollup` is exact everywhere and holds the process up while it counts.
    pub resident: Bytes,
    /// Memory in explicit huge pages. Unit: bytes. Source: `HugetlbPages`.
    pub huge: Bytes,
    /// CPUs its first thread may run on. Source: `Cpus_allowed_list`.
    pub cpus_allowed: CpuSet,
    /// Nodes its first thread may take memory from. Source: `Mems_allowed_list`.
    pub nodes_allowed: NodeSet,
}

impl Process {
    /// All memory in use, whichever page size.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        self.resident + self.huge
    }
}

/// The processes of a machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ProcessList {
    /// Processes with memory of their own, most memory first, then by number.
    ///
    /// Left out: kernel threads, zombies, and what ended while the list was read.
    pub processes: Vec<Process>,
    /// Processes that are there and could not be read.
    pub unreadable: Vec<Unreadable>,
}

/// A process that could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Unreadable {
    /// Its number.
    pub pid: Pid,
    /// Its name, where at least that could be read.
    pub name: Option<String>,
    /// Why, and what it would take.
    pub why: String,
}

/// Reads all processes: one file each, 30 µs.
///
/// # Errors
///
/// [`ObserveError::Processes`] when `/proc` cannot be listed.
pub fn read_processes(files: &(impl Files + ?Sized)) -> Result<ProcessList, ObserveError> {
    let users = read_users(files);
    let mut list = ProcessList::default();
    let mut buffer = Buffer::new();
    for name in files.list("/proc").map_err(ObserveError::Processes)? {
        // What is no number is no process; a sign would parse and is none either.
        let Some(pid) = name
            .bytes()
            .all(|byte| byte.is_ascii_digit())
            .then(|| name.parse())
        else {
            continue;
        };
        let Ok(pid) = pid.map(Pid) else {
            continue;
        };
        let unreadable = |why: String| Unreadable {
            pid,
            name: None,
            why,
        };
        match files.read(&format!("/proc/{pid}/status"), &mut buffer) {
            Ok(text) => match parse_status(pid, &String::from_utf8_lossy(text), &users) {
                Ok(Some(process)) => list.processes.push(process),
                Ok(None) => {}
                Err(error) => list.unreadable.push(unreadable(format!(
                    "cannot parse /proc/<pid>/status: {error}"
                ))),
            },
            Err(error) if error.is_process_gone() => {}
            Err(FileError::Denied { .. }) => list.unreadable.push(unreadable(
                "hidden from this user: /proc is mounted with hidepid".to_owned(),
            )),
            Err(error) => list.unreadable.push(unreadable(error.reason())),
        }
    }
    list.processes
        .sort_by(|a, b| b.memory().cmp(&a.memory()).then(a.pid.cmp(&b.pid)));
    Ok(list)
}

/// The names of users, by id; empty where `/etc/passwd` cannot be read.
pub(crate) fn read_users(files: &(impl Files + ?Sized)) -> BTreeMap<u32, String> {
    let mut buffer = Buffer::new();
    let Ok(text) = files.read("/etc/passwd", &mut buffer) else {
        return BTreeMap::new();
    };
    let text = String::from_utf8_lossy(text);
    let mut users = BTreeMap::new();
    for line in text.lines() {
        let mut fields = line.split(':');
        if let (Some(name), Some(Ok(uid))) = (fields.next(), fields.nth(1).map(str::parse)) {
            // The first entry of an id is the one getpwuid(3) gives.
            users.entry(uid).or_insert_with(|| name.to_owned());
        }
    }
    users
}

/// Reads the text of `/proc/<pid>/status`; `None` is a kernel thread or a zombie.
///
/// # Errors
///
/// [`ParseError`] with the line that is not understood, or the name of one that is missing.
pub fn parse_status(
    pid: Pid,
    text: &str,
    users: &BTreeMap<u32, String>,
) -> Result<Option<Process>, ParseError> {
    let field = |name: &str| {
        text.lines()
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
            .map(str::trim)
    };
    let missing = |expected| ParseError::new(expected, text);
    let kib = |name: &str| -> Result<Option<Bytes>, ParseError> {
        let Some(value) = field(name) else {
            return Ok(None);
        };
        let number = value
            .strip_suffix(" kB")
            .and_then(|number| number.trim().parse().ok());
        number
            .map(|kib| Some(Bytes::from_kib(kib)))
            .ok_or_else(|| ParseError::new("an amount in kB, such as VmRSS: 1612 kB", value))
    };
    // Only what has an address space has Vm lines (`task_mem()`, fs/proc/task_mmu.c, Linux 6.12).
    let Some(resident) = kib("VmRSS")? else {
        return Ok(None);
    };
    let uid = field("Uid")
        .and_then(|ids| ids.split_ascii_whitespace().nth(1)?.parse().ok())
        .ok_or_else(|| missing("four user ids behind Uid:"))?;
    let threads = field("Threads")
        .and_then(|count| count.parse().ok())
        .ok_or_else(|| missing("a number behind Threads:"))?;
    Ok(Some(Process {
        pid,
        name: unescape(field("Name").unwrap_or_default()),
        uid,
        user: users.get(&uid).cloned(),
        threads,
        resident,
        huge: kib("HugetlbPages")?.unwrap_or_default(),
        cpus_allowed: allowed(field("Cpus_allowed_list"))?,
        nodes_allowed: allowed(field("Mems_allowed_list"))?,
    }))
}

fn allowed<T: homenode_units::Id>(
    list: Option<&str>,
) -> Result<homenode_units::IdSet<T>, ParseError> {
    let list = list.unwrap_or_default();
    homenode_units::IdSet::parse_list(list)
        .map_err(|_| ParseError::new("a list, such as 0-3,8", list))
}

/// Undoes what the kernel does to line feeds and backslashes in a name (`proc_task_name()`,
/// fs/proc/array.c, Linux 6.12).
fn unescape(name: &str) -> String {
    let mut plain = String::with_capacity(name.len());
    let mut chars = name.chars();
    while let Some(char) = chars.next() {
        match (char, chars.as_str().chars().next()) {
            ('\\', Some('n')) => plain.push('\n'),
            ('\\', Some('\\')) => plain.push('\\'),
            _ => {
                plain.push(char);
                continue;
            }
        }
        chars.next();
    }
    plain
}

impl Process {
    /// The user for people: the name, else the number.
    #[must_use]
    pub fn user_shown(&self) -> String {
        self.user.clone().unwrap_or_else(|| self.uid.to_string())
    }
}

#[cfg(test)]
mod tests {
    use homenode_host::Snapshot;

    use super::*;

    const DATABASE: &str = "\
Name:\tpost\\\\gr\\nes
State:\tS (sleeping)
Uid:\t0\t999\t999\t999
VmSize:\t 9000000 kB
VmRSS:\t 4194304 kB
HugetlbPages:\t 2097152 kB
Threads:\t12
Cpus_allowed_list:\t0-15,32-47
Mems_allowed_list:\t0-1
";

    fn machine() -> Snapshot {
        let mut machine = Snapshot::default();
        machine.add_file("/proc/812/status", DATABASE);
        machine.add_file(
            "/proc/9/status",
            "Name:\tsmall\nUid:\t1\t1\t1\t1\nVmRSS:\t 12 kB\nThreads:\t1\n",
        );
        machine.add_file(
            "/proc/2/status",
            "Name:\tkthreadd\nUid:\t0\t0\t0\t0\nThreads:\t1\n",
        );
        machine.add_file("/proc/11/status", "garbage VmRSS\nVmRSS:\tx\n");
        machine.add_folder("/proc/77");
        machine.add_file("/proc/meminfo", "");
        machine.add_file(
            "/etc/passwd",
            "root:x:0:0::/:/bin/sh\npg:x:999:9::/:/bin/sh\nodd\n",
        );
        machine
    }

    #[test]
    fn processes_come_with_most_memory_first() {
        let list = read_processes(&machine()).unwrap();
        let names: Vec<&str> = list.processes.iter().map(|p| p.name.as_str()).collect();
        assert_eq!(names, ["post\\gr\nes", "small"]);
        let database = &list.processes[0];
        assert_eq!(database.memory(), Bytes(6 << 30));
        assert_eq!(database.user_shown(), "pg");
        assert_eq!(list.processes[1].user_shown(), "1");
        assert_eq!(database.threads, 12);
        assert_eq!(database.cpus_allowed.to_string(), "0-15,32-47");
        assert_eq!(database.nodes_allowed.to_string(), "0-1");
    }

    #[test]
    fn what_ended_is_left_out_and_what_is_odd_is_kept_with_the_reason() {
        let list = read_processes(&machine()).unwrap();
        let pids: Vec<u32> = list
            .unreadable
            .iter()
            .map(|process| process.pid.0)
            .collect();
        assert_eq!(pids, [11], "77 has no status any more, 2 is the kernel's");
        assert!(
            list.unreadable[0].why.contains("VmRSS: 1612 kB"),
            "{:?}",
            list.unreadable
        );
    }

    #[test]
    fn a_machine_without_proc_is_an_error() {
        let error = read_processes(&Snapshot::default()).unwrap_err();
        assert_eq!(error.to_string(), "cannot list the processes");
    }
}
