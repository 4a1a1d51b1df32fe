//! Machines made by hand for the tests of the report.

use std::cell::Cell;
use std::time::Duration;

use homenode_host::{Buffer, Clock, FileError, Files, PageStatus, Probe, QueryError, Snapshot};
use homenode_topology::{
    Certainty, Detail, Mode, Source, Topology, Verdict, Warning, read_topology,
};
use homenode_units::{Bytes, CpuSet, NodeId, Pid};

use super::{GatherOptions, MachineReport, gather_live};

const GIB_KIB: u64 = 1 << 20;

/// A running machine made of files: it answers page queries and lets time pass at once.
pub(super) struct Machine {
    pub(super) files: Snapshot,
    /// Files that differ once time has passed.
    later: Snapshot,
    now: Cell<Duration>,
    /// A hundredth of the addresses below this residue lie on node 0, the others on node 1.
    pub(super) node0_percent: usize,
}

impl Files for Machine {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        let changed = !self.now.get().is_zero() && self.later.read(path, buffer).is_ok();
        let files = if changed { &self.later } else { &self.files };
        files.read_head(path, limit_bytes, buffer)
    }
    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        self.files.list(directory)
    }
    fn is_folder(&self, path: &str) -> bool {
        self.files.is_folder(path)
    }

    fn link(&self, path: &str) -> Result<String, FileError> {
        self.files.link(path)
    }
}

impl Clock for Machine {
    fn now(&self) -> Duration {
        self.now.get()
    }
    fn since_epoch(&self) -> Duration {
        Duration::from_secs(1_785_585_600)
    }
    fn sleep(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

impl Probe for Machine {
    fn page_size(&self) -> Bytes {
        Bytes(4096)
    }
    fn page_nodes(
        &self,
        pid: Pid,
        addresses: &[usize],
        statuses: &mut [PageStatus],
    ) -> Result<(), QueryError> {
        if pid == Pid(900) {
            return Err(QueryError::NotPermitted);
        }
        for (address, status) in addresses.iter().zip(statuses) {
            let on_node1 = (address / 4096).wrapping_mul(7919) % 100 >= self.node0_percent;
            *status = PageStatus::OnNode(NodeId(u32::from(on_node1)));
        }
        Ok(())
    }
}

/// `missed` pages were wanted on node 1 and placed on another node.
fn add_node(files: &mut Snapshot, node: u32, total_gib: u64, free_gib: u64, missed: u64) {
    let (miss, foreign) = if node == 1 { (0, missed) } else { (missed, 0) };
    let folder = format!("/sys/devices/system/node/node{node}");
    let kib = |name: &str, kib: u64| format!("Node {node} {name}: {kib} kB\n");
    let used_kib = (total_gib - free_gib) * GIB_KIB;
    let meminfo: String = [
        ("MemTotal", total_gib * GIB_KIB),
        ("MemFree", free_gib * GIB_KIB),
        ("AnonPages", used_kib / 2),
        ("FilePages", used_kib / 4),
        ("Shmem", 0),
        ("Slab", used_kib / 16),
        ("KernelStack", 1024),
        ("PageTables", 2048),
        ("Active(file)", used_kib / 8),
        ("Inactive(file)", used_kib / 8),
        ("SReclaimable", used_kib / 32),
    ]
    .into_iter()
    .map(|(name, amount)| kib(name, amount))
    .collect();
    files.add_file(&format!("{folder}/meminfo"), meminfo);
    files.add_file(
        &format!("{folder}/numastat"),
        format!(
            "numa_hit {}\nnuma_miss {miss}\nnuma_foreign {foreign}\ninterleave_hit 1123\n\
             local_node 6911850\nother_node 14\n",
            6_911_852 + missed * 5
        ),
    );
}

fn add_process(files: &mut Snapshot, pid: u32, name: &str, uid: u32, kib: u64, cpus: &str) {
    files.add_file(
        &format!("/proc/{pid}/status"),
        format!(
            "Name:\t{name}\nUid:\t{uid}\t{uid}\t{uid}\t{uid}\nVmRSS:\t{kib} kB\nThreads:\t4\n\
             Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t0-1\n"
        ),
    );
    // All of them last ran on CPU 3.
    files.add_file(
        &format!("/proc/{pid}/stat"),
        format!(
            "{pid} ({name}) S 1 1 1 0 -1 4194560 0 0 0 0 100 0 0 0 20 0 1 0 50 900000 {} 1 1 1 0 \
             0 0 0 0 0 0 0 0 0 17 3 0 0\n",
            kib / 4
        ),
    );
    files.add_file(
        &format!("/proc/{pid}/maps"),
        format!(
            "7f0000000000-{:x} rw-p 00000000 00:00 0 \n",
            0x7f00_0000_0000u64 + kib * 1024
        ),
    );
}

fn files() -> Snapshot {
    let mut files = Snapshot::default();
    files.add_file("/proc/sys/kernel/hostname", "db1\n");
    files.add_file("/proc/sys/kernel/osrelease", "6.12.43+deb13-amd64\n");
    files.add_file(
        "/etc/passwd",
        "root:x:0:0::/:/bin/sh\npostgres:x:105:1::/:/bin/sh\n",
    );
    files
}

/// Two packages, a node each, node 1 full; a database bound to node 0 with memory on node 1, a
/// process with a hostile name, and one that may not be looked into.
pub(super) fn two_nodes() -> (Machine, Topology, Verdict) {
    let mut files = files();
    add_node(&mut files, 0, 64, 48, 30_000);
    add_node(&mut files, 1, 64, 1, 30_000);
    let mut later = Snapshot::default();
    add_node(&mut later, 0, 64, 48, 39_000);
    add_node(&mut later, 1, 64, 1, 39_000);
    add_process(&mut files, 812, "postgres", 105, 24 * GIB_KIB, "0-15");
    add_process(&mut files, 900, "qemu-system-x86", 107, 8 * GIB_KIB, "0-31");
    add_process(
        &mut files,
        901,
        "<script>x\u{1b}[2J",
        0,
        2 * GIB_KIB,
        "0-31",
    );
    add_process(&mut files, 77, "sshd", 0, 9000, "0-31");
    let topology = topology(&mut files, &["0-15", "16-31"]);
    let machine = Machine {
        files,
        later,
        now: Cell::new(Duration::ZERO),
        node0_percent: 30,
    };
    let verdict = Verdict {
        mode: Mode::Plain,
        certainty: Certainty::Certain,
        headline: "2 packages, a node each: plain NUMA".to_owned(),
        evidence: vec!["node 0 is package 0, node 1 is package 1".to_owned()],
        undecided: None,
        warnings: vec![Warning {
            subject: "distances".to_owned(),
            message: "the firmware states 10 and 21 only".to_owned(),
            advice: None,
        }],
    };
    (machine, topology, verdict)
}

/// One package, one node.
pub(super) fn one_node() -> (Machine, Topology, Verdict) {
    let mut files = files();
    add_node(&mut files, 0, 16, 10, 0);
    add_process(&mut files, 1, "systemd", 0, 12_000, "0-7");
    add_process(&mut files, 812, "postgres", 105, 3 * GIB_KIB, "0-7");
    let topology = topology(&mut files, &["0-7"]);
    let machine = Machine {
        files,
        later: Snapshot::default(),
        now: Cell::new(Duration::ZERO),
        node0_percent: 100,
    };
    let verdict = Verdict {
        mode: Mode::Uniform,
        certainty: Certainty::Certain,
        headline: "1 package, 1 node: all memory is equally far".to_owned(),
        evidence: Vec::new(),
        undecided: None,
        warnings: Vec::new(),
    };
    (machine, topology, verdict)
}

pub(super) fn report((machine, topology, verdict): (Machine, Topology, Verdict)) -> MachineReport {
    gather_live(
        &machine,
        topology,
        verdict,
        GatherOptions::default(),
        |_| {},
    )
}

/// Adds nodes with these CPUs, a package each, and reads the topology back.
fn topology(files: &mut Snapshot, nodes: &[&str]) -> Topology {
    let cpu = "/sys/devices/system/cpu";
    let node = "/sys/devices/system/node";
    for (id, cpus) in nodes.iter().enumerate() {
        files.add_file(&format!("{node}/node{id}/cpulist"), format!("{cpus}\n"));
        let distance = |to: usize| if id == to { "10" } else { "21" };
        let distances: Vec<&str> = (0..nodes.len()).map(distance).collect();
        files.add_file(
            &format!("{node}/node{id}/distance"),
            distances.join(" ") + "\n",
        );
        for number in CpuSet::parse_list(cpus).unwrap().iter() {
            let folder = format!("{cpu}/cpu{number}/topology");
            files.add_file(&format!("{folder}/physical_package_id"), format!("{id}\n"));
            files.add_file(&format!("{folder}/package_cpus_list"), format!("{cpus}\n"));
        }
    }
    let all = format!("0-{}\n", nodes.last().unwrap().rsplit('-').next().unwrap());
    for list in ["online", "possible", "present"] {
        files.add_file(&format!("{cpu}/{list}"), all.clone());
    }
    let ids = if nodes.len() == 1 { "0\n" } else { "0-1\n" };
    for list in ["online", "possible", "has_cpu", "has_memory"] {
        files.add_file(&format!("{node}/{list}"), ids);
    }
    let source = Source::Synthetic("made by hand".to_owned());
    read_topology(files, source, Detail::Fast).unwrap()
}
