//! Machines written by hand, with numbers that are random and always the same.

use std::collections::BTreeSet;

use homenode_host::Snapshot;

/// A machine and what is special about it.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) name: &'static str,
    pub(crate) nodes: &'static [u32],
    /// Whether whole nodes or rows are zero.
    pub(crate) has_zeros: bool,
    pub(crate) snapshot: Snapshot,
}

impl Machine {
    /// Upstream takes `-s<node>` for a column, which is the node only where there are no gaps.
    pub(crate) fn has_gaps(&self) -> bool {
        self.nodes
            .iter()
            .enumerate()
            .any(|(at, &id)| u32::try_from(at) != Ok(id))
    }
}

const SHAPES: &[(&str, &[u32], Zeros)] = &[
    ("1 node", &[0], Zeros::None),
    ("2 nodes", &[0, 1], Zeros::None),
    ("4 nodes", &[0, 1, 2, 3], Zeros::None),
    ("8 nodes", &[0, 1, 2, 3, 4, 5, 6, 7], Zeros::None),
    ("gaps", &[0, 2, 5], Zeros::None),
    ("large ids", &[0, 9, 10, 99, 100, 1023], Zeros::None),
    ("2 nodes, one without memory", &[0, 1], Zeros::OddNodes),
    (
        "4 nodes, 2 without memory, rows of zeros",
        &[0, 1, 2, 3],
        Zeros::OddNodesAndRows,
    ),
    (
        "8 nodes, rows of zeros",
        &[0, 1, 2, 3, 4, 5, 6, 7],
        Zeros::OddNodesAndRows,
    ),
    ("nothing but zeros", &[0, 1, 2], Zeros::All),
];

/// What of a machine is zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Zeros {
    None,
    OddNodes,
    OddNodesAndRows,
    All,
}

/// `KReclaimable` stands last, as up to 2.0.16, so that all releases agree on the order.
const MEMINFO: [&str; 32] = [
    "MemTotal",
    "MemFree",
    "MemUsed",
    "Active",
    "Inactive",
    "Active(anon)",
    "Inactive(anon)",
    "Active(file)",
    "Inactive(file)",
    "Unevictable",
    "Mlocked",
    "Dirty",
    "Writeback",
    "FilePages",
    "Mapped",
    "AnonPages",
    "Shmem",
    "KernelStack",
    "PageTables",
    "NFS_Unstable",
    "Bounce",
    "WritebackTmp",
    "Slab",
    "SReclaimable",
    "SUnreclaim",
    "AnonHugePages",
    "ShmemHugePages",
    "ShmemPmdMapped",
    "HugePages_Total",
    "HugePages_Free",
    "HugePages_Surp",
    "KReclaimable",
];

const COUNTERS: [&str; 6] = [
    "numa_hit",
    "numa_miss",
    "numa_foreign",
    "interleave_hit",
    "local_node",
    "other_node",
];

/// Rows that are zero on all nodes of some machines.
const ZERO_ROWS: [&str; 6] = [
    "Unevictable",
    "Dirty",
    "Inactive(file)",
    "HugePages_Surp",
    "numa_miss",
    "other_node",
];

/// Numbers of any length, from a linear congruential generator (Knuth's MMIX).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.0 >> 33
    }

    /// At most `digits` digits.
    fn up_to(&mut self, digits: u64) -> u64 {
        let digits = u32::try_from(self.next() % digits).expect("few digits") + 1;
        self.next() % 10_u64.pow(digits)
    }
}

pub(crate) fn machines() -> Vec<Machine> {
    SHAPES
        .iter()
        .map(|&(name, nodes, zeros)| {
            let seed = name.bytes().fold(1, |seed: u64, byte| {
                seed.wrapping_mul(31).wrapping_add(byte.into())
            });
            Machine {
                name,
                nodes,
                has_zeros: zeros != Zeros::None,
                snapshot: snapshot(nodes, zeros, &mut Numbers(seed)),
            }
        })
        .collect()
}

fn snapshot(nodes: &[u32], zeros: Zeros, numbers: &mut Numbers) -> Snapshot {
    let mut machine = Snapshot::default();
    machine.add_file(
        "/proc/meminfo",
        "MemTotal: 24684100 kB\nMemFree: 100 kB\nHugepagesize:       2048 kB\n",
    );
    for &node in nodes {
        let mut number = |name: &str, digits| {
            let number = numbers.up_to(digits);
            let is_zero = match zeros {
                Zeros::None => false,
                Zeros::OddNodes => node % 2 == 1,
                Zeros::OddNodesAndRows => node % 2 == 1 || ZERO_ROWS.contains(&name),
                Zeros::All => true,
            };
            if is_zero { 0 } else { number.max(1) }
        };
        let folder = format!("/sys/devices/system/node/node{node}");
        let mut meminfo = String::new();
        let mut used = BTreeSet::new();
        for name in MEMINFO {
            let line = if name.starts_with("HugePages") {
                format!("Node {node} {name}: {:5}\n", number(name, 3))
            } else {
                // Every third is a whole number of 128 KiB: halves of a hundredth.
                let kib = number(name, 9);
                let mut kib = if kib.is_multiple_of(3) {
                    kib.next_multiple_of(128)
                } else {
                    kib
                };
                // Equal rows come in no order that both releases share, but for zeros.
                while kib > 0 && !used.insert(kib) {
                    kib += 128;
                }
                format!("Node {node} {:<15} {kib:8} kB\n", format!("{name}:"))
            };
            meminfo.push_str(&line);
        }
        machine.add_file(&format!("{folder}/meminfo"), meminfo);
        let counters: String = COUNTERS
            .iter()
            .map(|name| format!("{name} {}\n", number(name, 9)))
            .collect();
        machine.add_file(&format!("{folder}/numastat"), counters);
    }
    add_processes(&mut machine, nodes, numbers);
    machine
}

fn add_processes(machine: &mut Snapshot, nodes: &[u32], numbers: &mut Numbers) {
    let all = |numbers: &mut Numbers| Some(maps(nodes, numbers));
    let small = format!(
        "1 default N{}=1 kernelpagesize_kB=4\n",
        nodes[nodes.len() - 1]
    );
    let processes = [
        (1, "init", "/sbin/init\0splash\0", all(numbers)),
        (5, "kthread", "", Some(String::new())),
        (9, "secret", "zork\0", None),
        (12, "z", "z", Some(small)),
        (77, "foo", "foo\0--bar\0", all(numbers)),
        (
            300,
            "web Content",
            "/usr/bin/browser\0--type tab",
            Some(maps(&nodes[..1], numbers)),
        ),
        (123_456, "foolongnamexxxx", "foo\0", all(numbers)),
        (4_194_303, "sixteenchars123", "x", all(numbers)),
    ];
    for (pid, name, line, maps) in processes {
        let status = format!("Name:\t{name}\nUmask:\t0022\nPid:\t{pid}\n");
        machine.add_file(&format!("/proc/{pid}/status"), status);
        machine.add_file(&format!("/proc/{pid}/cmdline"), line);
        if let Some(maps) = maps {
            machine.add_file(&format!("/proc/{pid}/numa_maps"), maps);
        }
    }
}

fn maps(nodes: &[u32], numbers: &mut Numbers) -> String {
    const KINDS: [&str; 6] = [
        "",
        " heap",
        " stack",
        " file=/usr/lib/libheap.so",
        " huge",
        " file=/x huge",
    ];
    let mut text = String::new();
    for line in 0..numbers.next() % 60 + 1 {
        let kind = KINDS[usize::try_from(numbers.next() % 6).expect("below 6")];
        let address = 0x7f00_0000_0000 + line * 0x1000;
        text.push_str(&format!("{address:x} default{kind} anon=3 dirty=3"));
        for node in nodes {
            if numbers.next().is_multiple_of(2) {
                text.push_str(&format!(" N{node}={}", numbers.up_to(6)));
            }
        }
        // Up to 2.0.16 these two sizes are taken for granted.
        let page = if kind.contains("huge") { 2048 } else { 4 };
        text.push_str(&format!(" kernelpagesize_kB={page}\n"));
    }
    text
}
