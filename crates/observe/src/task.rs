//! Processes and threads as one cheap line each.

use homenode_units::{CpuId, NodeId, Pid};
use serde::{Deserialize, Serialize};

use crate::ParseError;

/// Who a process is: the kernel gives numbers again, but never with the same start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: Pid,
    /// When it started. Unit: ticks of 10 ms (`USER_HZ`) since boot.
    pub started: u64,
}

/// A process or a thread at one moment.
///
/// Source: `/proc/<pid>/stat` or `/proc/<pid>/task/<tid>/stat`, `proc_pid_stat(5)`; everyone may
/// read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TaskStat {
    /// Its number, and when it started.
    pub id: ProcessId,
    /// The name, at most 15 bytes; it chooses it, so it may hold anything.
    pub name: String,
    /// `R`, `S`, `Z`, …
    pub state: char,
    /// Its parent.
    pub parent: Pid,
    /// Whether it is a thread of the kernel.
    pub of_kernel: bool,
    /// CPU time since its start: user and system. For a process that of all its threads. Unit:
    /// ticks of 10 ms (`USER_HZ`).
    pub ticks: u64,
    /// Threads of the process.
    pub threads: u32,
    /// Resident pages of the process, explicit huge pages left out. Unit: base pages.
    pub resident_pages: u64,
    /// The CPU it last ran on; of a process, that of its first thread.
    pub cpu: CpuId,
}

/// `PF_KTHREAD`, include/linux/sched.h, Linux 6.12.
const OF_KERNEL: u64 = 0x0020_0000;

impl TaskStat {
    /// Reads the text of a `stat` file.
    ///
    /// # Errors
    ///
    /// [`ParseError`] when it is no such line.
    pub fn parse(text: &[u8]) -> Result<Self, ParseError> {
        Self::parse_line(text).ok_or_else(|| {
            ParseError::new(
                "a task, such as 7 (sh) S 1 …",
                &String::from_utf8_lossy(text),
            )
        })
    }

    fn parse_line(text: &[u8]) -> Option<Self> {
        // The name may hold blanks and brackets; nothing after it does.
        let open = text.iter().position(|&byte| byte == b'(')?;
        let close = text.iter().rposition(|&byte| byte == b')')?;
        let pid = std::str::from_utf8(&text[..open]).ok()?.trim();
        let name = text.get(open + 1..close)?;
        let rest = std::str::from_utf8(&text[close + 1..]).ok()?;
        // Numbered as in the manual page, which counts from 1; the state is 3.
        let mut fields = rest.split_ascii_whitespace();
        let state = fields.next()?.chars().next()?;
        let mut next = 4;
        let mut field = |number: usize| {
            let value = fields.nth(number - next);
            next = number + 1;
            value
        };
        let parent = Pid(field(4)?.parse().ok()?);
        let flags: u64 = field(9)?.parse().ok()?;
        let user: u64 = field(14)?.parse().ok()?;
        let system: u64 = field(15)?.parse().ok()?;
        let threads = field(20)?.parse().ok()?;
        let started = field(22)?.parse().ok()?;
        let resident_pages = field(24)?.parse().ok()?;
        let cpu = CpuId(field(39)?.parse().ok()?);
        Some(Self {
            id: ProcessId {
                pid: Pid(pid.parse().ok()?),
                started,
            },
            name: String::from_utf8_lossy(name).into_owned(),
            state,
            parent,
            of_kernel: flags & OF_KERNEL != 0,
            ticks: user.saturating_add(system),
            threads,
            resident_pages,
            cpu,
        })
    }
}

/// What automatic balancing knows of a thread's accesses.
///
/// Source: `/proc/<pid>/task/<tid>/sched`, `sched_show_numa()`, kernel/sched/debug.c, Linux 6.12;
/// there with `CONFIG_SCHED_DEBUG`, and always from 6.15 on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The node the thread runs on.
    pub current: Option<NodeId>,
    /// Faults by node *of the memory*, decayed over time. Unit: base pages.
    pub by_node: Vec<(NodeId, u64)>,
}

impl Faults {
    /// Reads the text of a `sched` file. All zero is what it says where nothing is scanned.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let mut faults = Self::default();
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("current_node=") {
                let number = rest.split(',').next().and_then(|node| node.parse().ok());
                faults.current = number.map(NodeId);
            } else if let Some(rest) = line.strip_prefix("numa_faults node=") {
                let value = |key: &str| {
                    let word = rest
                        .split_ascii_whitespace()
                        .find_map(|word| word.strip_prefix(key));
                    word.and_then(|number| number.parse::<u64>().ok())
                };
                let node = rest.split_ascii_whitespace().next();
                let node = node.and_then(|node| node.parse().ok()).map(NodeId);
                if let (Some(node), Some(private), Some(shared)) =
                    (node, value("task_private="), value("task_shared="))
                {
                    faults.by_node.push((node, private.saturating_add(shared)));
                }
            }
        }
        faults
    }

    /// Faults on the thread's own node, and on all.
    #[must_use]
    pub fn local_and_all(&self) -> (u64, u64) {
        let all = self.by_node.iter().map(|&(_, count)| count).sum();
        let local = self
            .by_node
            .iter()
            .filter(|&&(node, _)| Some(node) == self.current)
            .map(|&(_, count)| count)
            .sum();
        (local, all)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINE: &str = "812 (a) b\n(c) S 1 2 3 4 5 4194304 7 8 9 10 110 22 13 14 20 0 6 0 \
                        123456 1000000 512 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 31 0 0";

    #[test]
    fn names_may_hold_anything() {
        let task = TaskStat::parse(LINE.as_bytes()).unwrap();
        assert_eq!(task.name, "a) b\n(c");
        assert_eq!(task.id.pid, Pid(812));
        assert_eq!(task.id.started, 123_456);
        assert_eq!(task.parent, Pid(1));
        assert_eq!(task.ticks, 132);
        assert_eq!(task.threads, 6);
        assert_eq!(task.resident_pages, 512);
        assert_eq!(task.cpu, CpuId(31));
        assert!(!task.of_kernel);
        let kernel = LINE.replace(" 4194304 ", " 2129984 ");
        assert!(TaskStat::parse(kernel.as_bytes()).unwrap().of_kernel);
    }

    #[test]
    fn what_is_no_task_is_refused() {
        for text in ["", "7", "7 (x", "7 (x) S 1 2", ")(", "x (y) S 1"] {
            TaskStat::parse(text.as_bytes()).unwrap_err();
        }
    }

    #[test]
    fn faults_are_counted_by_the_node_of_the_memory() {
        let text = "numa_preferred_nid : 1\ncurrent_node=1, numa_group_id=0\n\
                    numa_faults node=0 task_private=10 task_shared=20 group_private=0 group_shared=0\n\
                    numa_faults node=1 task_private=60 task_shared=10 group_private=9 group_shared=9\n";
        let faults = Faults::parse(text);
        assert_eq!(faults.current, Some(NodeId(1)));
        assert_eq!(faults.local_and_all(), (70, 100));
        assert_eq!(Faults::parse("").local_and_all(), (0, 0));
    }
}
