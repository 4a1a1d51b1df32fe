//! Each mapping of one process: what it is, where it lies, and whether that matters.

use std::collections::{BTreeMap, BTreeSet};

use homenode_host::{Buffer, Files, Probe};
use homenode_units::{Bytes, NodeId, NodeSet, Pid, Reading};
use serde::Serialize;

use crate::{
    Effort, LocateError, Mapping, MappingPages, ProcessId, Random, TaskStat, Vm, home_by_memory,
    locate_in_mappings, parse_command_line, parse_numa_maps, parse_status, read_mappings,
};

/// Up to this much in base pages, every page is counted unless asked otherwise: it holds the
/// process up for some 10 ms.
const EXACT_MAX: Bytes = Bytes(1 << 30);

/// Away from home, less than this part of a process's memory costs nothing worth a word.
const MATTERS_SHARE: f64 = 0.01;

/// How mappings are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// All pages of a process that is small, else a sample.
    Auto,
    /// All pages, whatever it costs the process.
    Exact,
    /// A sample.
    Sampled,
}

/// One process, mapping by mapping.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ProcessMaps {
    /// Who it is.
    pub id: ProcessId,
    /// The name of its first thread.
    pub name: String,
    /// Memory in use, explicit huge pages included.
    pub memory: Bytes,
    /// Whether every page was counted.
    pub exact: bool,
    /// How far a share of the memory may be off, in 95 of 100 cases. Unit: none, 0 to 1.
    pub bound: f64,
    /// The node of most of its own pages; see [`crate::home_by_memory`].
    pub home_by_memory: Reading<NodeId>,
    /// The nodes that its threads last ran on.
    pub runs_on: NodeSet,
    /// Its mappings, most memory first.
    pub mappings: Vec<MappingUse>,
    /// Mapped and not resident: never touched, swapped out, or dropped.
    pub not_resident: Bytes,
}

/// A mapping and its memory.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct MappingUse {
    /// First address.
    pub start: usize,
    /// Size of the range, resident or not.
    pub size: Bytes,
    /// What is mapped: a path, `[heap]`, …; empty for plain memory.
    pub name: String,
    /// The memory policy, in the kernel's words.
    pub policy: Reading<String>,
    /// Size of its pages: 4 KiB also where they are transparent huge ones.
    pub page: Reading<Bytes>,
    /// Memory in transparent huge pages. Source: `AnonHugePages`, `ShmemPmdMapped`,
    /// `FilePmdMapped` of `/proc/<pid>/smaps`.
    pub transparent_huge: Reading<Bytes>,
    /// Whether its pages are the process's own.
    pub private: bool,
    /// The most processes that map one of its pages.
    pub shared_by: Reading<u64>,
    /// Whether it is memory of a guest.
    pub guest: bool,
    /// Resident memory on each node that has any.
    pub nodes: BTreeMap<NodeId, Bytes>,
}

impl MappingUse {
    /// Resident memory on all nodes.
    #[must_use]
    pub fn resident(&self) -> Bytes {
        self.nodes.values().copied().sum()
    }

    /// Resident memory on other nodes than this.
    #[must_use]
    pub fn away_from(&self, home: NodeId) -> Bytes {
        let away = self.nodes.iter().filter(|&(&node, _)| node != home);
        away.map(|(_, &bytes)| bytes).sum()
    }
}

/// Whether memory away from home matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Matters {
    /// Nothing is away.
    Nothing,
    /// Too little of the process's memory.
    Little,
    /// Its policy says so.
    Wanted,
    /// Pages of a file, which lie where whoever read them first ran: moving them may harm others.
    Shared,
    /// The process's own pages.
    Yes,
}

impl ProcessMaps {
    /// Memory away from its home by memory, by whether it matters.
    #[must_use]
    pub fn matters(&self, mapping: &MappingUse) -> Matters {
        let Some(&home) = self.home_by_memory.known() else {
            return Matters::Nothing;
        };
        let away = mapping.away_from(home);
        let spread = |policy: &String| {
            policy.contains("interleave") || policy.starts_with("bind") && !policy_has(policy, home)
        };
        if away == Bytes(0) {
            Matters::Nothing
        } else if away.share_of(self.memory).unwrap_or(0.0) < MATTERS_SHARE {
            Matters::Little
        } else if mapping.policy.known().is_some_and(spread) {
            Matters::Wanted
        } else if mapping.private {
            Matters::Yes
        } else {
            Matters::Shared
        }
    }

    /// Memory away from home, of mappings that matter this much.
    #[must_use]
    pub fn away(&self, matters: Matters) -> Bytes {
        let Some(&home) = self.home_by_memory.known() else {
            return Bytes(0);
        };
        self.mappings
            .iter()
            .filter(|mapping| self.matters(mapping) == matters)
            .map(|mapping| mapping.away_from(home))
            .sum()
    }

    /// Memory on each node that has any.
    #[must_use]
    pub fn by_node(&self) -> BTreeMap<NodeId, Bytes> {
        let mut nodes = BTreeMap::new();
        for (&node, &bytes) in self.mappings.iter().flat_map(|mapping| &mapping.nodes) {
            let sum: &mut Bytes = nodes.entry(node).or_default();
            *sum = *sum + bytes;
        }
        nodes
    }
}

/// Whether a policy such as `bind=static:0-1` names this node.
fn policy_has(policy: &str, node: NodeId) -> bool {
    let list = policy.rsplit(':').next().unwrap_or_default();
    NodeSet::parse_list(list).is_ok_and(|nodes| nodes.contains(node))
}

/// Reads the mappings of a process and where they lie.
///
/// # Errors
///
/// As [`crate::locate`]; [`LocateError::Gone`] also when the number was given to another process
/// meanwhile.
pub fn read_process_maps(
    host: &(impl Files + Probe + ?Sized),
    pid: Pid,
    cpu_nodes: &[(NodeId, homenode_units::CpuSet)],
    reach: Reach,
    random: &mut Random,
) -> Result<ProcessMaps, LocateError> {
    /// ±0.8 percentage points at worst.
    const EFFORT: Effort = Effort {
        samples_wanted: 16_384,
        ..Effort::DECISION
    };
    let mut buffer = Buffer::new();
    let task = read_task(host, pid, &mut buffer)?;
    let text = host
        .read(&format!("/proc/{pid}/status"), &mut buffer)
        .map_err(crate::locality::explain_file)?;
    let text = String::from_utf8_lossy(text);
    let status = parse_status(pid, &text, &BTreeMap::new()).map_err(LocateError::Parse)?;
    // A kernel thread or a zombie.
    let status = status.ok_or(LocateError::Empty)?;
    let vm = host
        .read(&format!("/proc/{pid}/cmdline"), &mut buffer)
        .ok()
        .and_then(|text| Vm::of_command(&parse_command_line(text)));
    let exact = match reach {
        Reach::Exact => true,
        Reach::Sampled => false,
        Reach::Auto => status.resident <= EXACT_MAX,
    };
    let (mut maps, ranges) = if exact {
        let ranges = read_mappings(host, pid)?;
        (exact_maps(host, pid, &ranges)?, ranges)
    } else {
        let nodes = NodeSet::new();
        let memory = status.memory();
        let located = locate_in_mappings(host, host, pid, &nodes, EFFORT, Some(memory), random)?;
        let maps = sampled_maps(&located, memory);
        (maps, located.mappings)
    };
    if let Some(vm) = vm {
        let guest = vm.guest_mappings(&ranges);
        let of_guest: BTreeSet<usize> = ranges
            .iter()
            .zip(guest)
            .filter(|&(_, guest)| guest)
            .map(|(range, _)| range.start)
            .collect();
        for mapping in &mut maps.mappings {
            mapping.guest = of_guest.contains(&mapping.start);
        }
    }
    // Another process may have got the number meanwhile.
    if read_task(host, pid, &mut buffer)?.id != task.id {
        return Err(LocateError::Gone);
    }
    let resident: Bytes = maps.mappings.iter().map(MappingUse::resident).sum();
    let mapped: Bytes = maps.mappings.iter().map(|mapping| mapping.size).sum();
    maps.mappings
        .retain(|mapping| mapping.resident() > Bytes(0));
    maps.mappings
        .sort_by(|a, b| b.resident().cmp(&a.resident()).then(a.start.cmp(&b.start)));
    Ok(ProcessMaps {
        id: task.id,
        name: status.name.clone(),
        memory: if exact { resident } else { status.memory() },
        exact,
        bound: maps.bound,
        home_by_memory: maps.home.map_or_else(
            || Reading::absent("it has no pages of its own"),
            Reading::Known,
        ),
        runs_on: read_runs_on(host, pid, cpu_nodes, &mut buffer),
        mappings: maps.mappings,
        not_resident: mapped.saturating_sub(resident),
    })
}

fn read_task(
    files: &(impl Files + ?Sized),
    pid: Pid,
    buffer: &mut Buffer,
) -> Result<TaskStat, LocateError> {
    let text = files
        .read(&format!("/proc/{pid}/stat"), buffer)
        .map_err(crate::locality::explain_file)?;
    TaskStat::parse(text).map_err(LocateError::Parse)
}

/// The nodes that its threads last ran on.
fn read_runs_on(
    files: &(impl Files + ?Sized),
    pid: Pid,
    cpu_nodes: &[(NodeId, homenode_units::CpuSet)],
    buffer: &mut Buffer,
) -> NodeSet {
    let names = files.list(&format!("/proc/{pid}/task")).unwrap_or_default();
    let mut nodes = NodeSet::new();
    for name in names {
        let Ok(text) = files.read(&format!("/proc/{pid}/task/{name}/stat"), buffer) else {
            continue;
        };
        let Ok(thread) = TaskStat::parse(text) else {
            continue;
        };
        let on = cpu_nodes.iter().find(|(_, cpus)| cpus.contains(thread.cpu));
        nodes.extend(on.map(|&(node, _)| node));
    }
    nodes
}

struct Maps {
    mappings: Vec<MappingUse>,
    home: Option<NodeId>,
    bound: f64,
}

fn size_of(mapping: &Mapping) -> Bytes {
    Bytes(u64::try_from(mapping.end - mapping.start).unwrap_or(u64::MAX))
}

fn exact_maps(
    host: &(impl Files + Probe + ?Sized),
    pid: Pid,
    ranges: &[Mapping],
) -> Result<Maps, LocateError> {
    let sizes: BTreeMap<usize, Bytes> = ranges
        .iter()
        .filter(|range| range.holds_memory())
        .map(|range| (range.start, size_of(range)))
        .collect();
    let mut buffer = Buffer::new();
    let text = host
        .read(&format!("/proc/{pid}/numa_maps"), &mut buffer)
        .map_err(crate::locality::explain_file)?;
    let pages = parse_numa_maps(&String::from_utf8_lossy(text), host.page_size())
        .map_err(LocateError::Parse)?;
    let transparent = match host.read(&format!("/proc/{pid}/smaps"), &mut buffer) {
        Ok(text) => Reading::Known(parse_transparent(&String::from_utf8_lossy(text))),
        Err(error) => Reading::absent(error.reason()),
    };
    let home = home_by_memory(&pages);
    let of = |mapping: MappingPages| {
        let nodes = mapping.nodes.keys().map(|&node| (node, mapping.on(node)));
        MappingUse {
            start: mapping.start,
            // A mapping that came between the two files is as large as what is in it.
            size: sizes
                .get(&mapping.start)
                .copied()
                .unwrap_or_else(|| mapping.resident()),
            nodes: nodes.collect(),
            private: mapping.is_private(),
            page: Reading::Known(mapping.page),
            transparent_huge: match &transparent {
                Reading::Known(by_start) => {
                    Reading::Known(by_start.get(&mapping.start).copied().unwrap_or_default())
                }
                Reading::Absent { why } => Reading::absent(why),
            },
            shared_by: Reading::Known(mapping.mapmax),
            policy: Reading::Known(mapping.policy),
            name: mapping.name,
            guest: false,
        }
    };
    Ok(Maps {
        mappings: pages.into_iter().map(of).collect(),
        home,
        bound: 0.0,
    })
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of an amount of memory"
)]
fn sampled_maps(located: &crate::Located, memory: Bytes) -> Maps {
    const WHY: &str = "not sampled: needs --exact";
    let mut own: BTreeMap<NodeId, f64> = BTreeMap::new();
    let mut mappings = Vec::new();
    for (position, range) in located.mappings.iter().enumerate() {
        if !range.holds_memory() {
            continue;
        }
        let private = range.name.is_empty() || range.name.starts_with('[');
        let mut nodes = BTreeMap::new();
        for on in &located.locality.nodes {
            let share = located.share_of_mapping(position, on.node);
            if share > 0.0 {
                nodes.insert(on.node, Bytes((share * memory.0 as f64).round() as u64));
                if private {
                    *own.entry(on.node).or_default() += share;
                }
            }
        }
        mappings.push(MappingUse {
            start: range.start,
            size: size_of(range),
            name: range.name.clone(),
            policy: Reading::absent(WHY),
            page: Reading::absent(WHY),
            transparent_huge: Reading::absent(WHY),
            private,
            shared_by: Reading::absent(WHY),
            guest: false,
            nodes,
        });
    }
    let home = own.into_iter().max_by(|a, b| a.1.total_cmp(&b.1));
    Maps {
        mappings,
        home: home.map(|(node, _)| node),
        bound: located.locality.bound(),
    }
}

/// Transparent huge pages by start of the mapping, from the text of `/proc/<pid>/smaps`.
fn parse_transparent(text: &str) -> BTreeMap<usize, Bytes> {
    let mut found = BTreeMap::new();
    let mut start = None;
    for line in text.lines() {
        let Some(head) = line.split_ascii_whitespace().next() else {
            continue;
        };
        if let Some((first, _)) = head.split_once('-') {
            start = usize::from_str_radix(first, 16).ok();
        } else if matches!(
            head,
            "AnonHugePages:" | "ShmemPmdMapped:" | "FilePmdMapped:"
        ) {
            let kib = line.split_ascii_whitespace().nth(1);
            let kib = kib.and_then(|kib| kib.parse().ok()).unwrap_or(0);
            if let Some(start) = start {
                let sum: &mut Bytes = found.entry(start).or_default();
                *sum = *sum + Bytes::from_kib(kib);
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::Machine;

    #[test]
    fn transparent_huge_pages_are_summed_by_mapping() {
        let text = "7f00-8f00 rw-p 00000000 00:00 0 \nRss: 9 kB\nAnonHugePages:    2048 kB\n\
                    ShmemPmdMapped: 0 kB\n9000-a000 r--p 0 0:0 0 /x\nFilePmdMapped: 4096 kB\n";
        let found = parse_transparent(text);
        assert_eq!(found[&0x7f00], Bytes(2 << 20));
        assert_eq!(found[&0x9000], Bytes(4 << 20));
    }

    /// It would take minutes if each mapping looked at all the others.
    #[test]
    fn a_hundred_thousand_mappings_are_told_apart() {
        const COUNT: usize = 100_000;
        let mut machine = Machine::new();
        machine.process(7, "db", [50, 400, 1, 0]);
        let start = |index: usize| 0x1_0000_0000 + index * 0x4000;
        let text = |line: &dyn Fn(usize) -> String| (0..COUNT).map(line).collect::<String>();
        for (name, line) in [
            (
                "maps",
                &(|at: usize| format!("{at:x}-{:x} rw-p 0 0:0 0 \n", at + 0x2000_usize))
                    as &dyn Fn(usize) -> String,
            ),
            ("numa_maps", &|at: usize| {
                format!("{at:x} default anon=2 N1=2\n")
            }),
            ("smaps", &|at: usize| {
                format!("{at:x}-{:x} rw-p 0 0:0 0\nAnonHugePages: 0 kB\n", at + 1)
            }),
        ] {
            let text = text(&|index| line(start(index)));
            machine.files.add_file(&format!("/proc/7/{name}"), text);
        }
        let mut random = Random::new(1);
        let mut read = |reach| read_process_maps(&machine, Pid(7), &[], reach, &mut random);
        let exact = read(Reach::Exact).unwrap();
        assert_eq!(exact.mappings.len(), COUNT);
        assert_eq!(exact.memory, Bytes(COUNT as u64 * 0x2000));
        assert_eq!(exact.home_by_memory, Reading::Known(NodeId(1)));
        let sampled = read(Reach::Sampled).unwrap();
        assert!((15_000..=16_384).contains(&sampled.mappings.len()));
        let off = sampled.by_node()[&NodeId(1)].0.abs_diff(sampled.memory.0);
        // Each mapping is rounded to a byte.
        assert!(off < 16_384, "{off}");
    }

    #[test]
    fn a_number_given_again_meanwhile_is_an_end() {
        let mut machine = Machine::new();
        machine.process(7, "new", [90, 1, 1, 3]);
        let later = machine.files.clone();
        machine.process(7, "old", [50, 400, 1, 0]);
        let read = |machine: &Machine| {
            let mut random = Random::new(1);
            read_process_maps(machine, Pid(7), &[], Reach::Sampled, &mut random)
        };
        assert_eq!(read(&machine).unwrap().name, "old");
        machine.asked.set(0);
        machine.later = Some(later);
        let error = read(&machine).unwrap_err();
        assert!(matches!(error, LocateError::Gone), "{error}");
    }

    fn mapping(name: &str, policy: &str, private: bool, on: &[(u32, u64)]) -> MappingUse {
        MappingUse {
            start: 0,
            size: Bytes(1 << 30),
            name: name.to_owned(),
            policy: Reading::Known(policy.to_owned()),
            page: Reading::Known(Bytes(4096)),
            transparent_huge: Reading::Known(Bytes(0)),
            private,
            shared_by: Reading::Known(1),
            guest: false,
            nodes: on
                .iter()
                .map(|&(node, mib)| (NodeId(node), Bytes(mib << 20)))
                .collect(),
        }
    }

    #[test]
    fn memory_away_from_home_is_judged() {
        let mut maps = ProcessMaps {
            id: ProcessId {
                pid: Pid(7),
                started: 1,
            },
            name: "db".to_owned(),
            memory: Bytes(1000 << 20),
            exact: true,
            bound: 0.0,
            home_by_memory: Reading::Known(NodeId(0)),
            runs_on: NodeSet::new(),
            mappings: Vec::new(),
            not_resident: Bytes(0),
        };
        for (mapping, matters) in [
            (mapping("", "default", true, &[(0, 9)]), Matters::Nothing),
            (mapping("", "default", true, &[(1, 9)]), Matters::Little),
            (
                mapping("", "default", true, &[(0, 1), (1, 20)]),
                Matters::Yes,
            ),
            (mapping("/x", "default", false, &[(1, 20)]), Matters::Shared),
            (
                mapping("", "interleave:0-1", true, &[(1, 20)]),
                Matters::Wanted,
            ),
            (
                mapping("", "bind=static:1-2", true, &[(1, 20)]),
                Matters::Wanted,
            ),
            (mapping("", "bind:0-1", true, &[(1, 20)]), Matters::Yes),
        ] {
            assert_eq!(maps.matters(&mapping), matters, "{mapping:?}");
            maps.mappings.push(mapping);
        }
        assert_eq!(maps.away(Matters::Yes), Bytes(40 << 20));
        assert_eq!(maps.away(Matters::Wanted), Bytes(40 << 20));
        assert_eq!(maps.by_node()[&NodeId(1)], Bytes(109 << 20));
    }
}
