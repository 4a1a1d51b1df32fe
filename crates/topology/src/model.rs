//! What a machine is made of: the values that readers fill and everyone else looks at.

use std::fmt;

use homenode_units::{
    Bytes, BytesPerSecond, CpuId, CpuSet, Nanoseconds, NodeId, NodeMatrix, NodeSet, Reading,
};
use serde::Serialize;

/// A machine: its CPUs, caches, memory nodes and devices, and how far they are apart.
///
/// Lists are ordered by the lowest CPU of their members, nodes by id.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Topology {
    /// Where this description comes from.
    pub source: Source,
    /// How much was read.
    pub detail: Detail,
    /// What the CPUs are.
    pub processor: Processor,
    /// Which CPUs there are, and in which state.
    pub cpus: Cpus,
    /// Physical packages (sockets).
    pub packages: Vec<CpuGroup>,
    /// Dies inside packages, where the kernel names them.
    pub dies: Vec<CpuGroup>,
    /// Clusters of cores that share something below the last-level cache, where the kernel names
    /// them.
    pub clusters: Vec<CpuGroup>,
    /// Books (s390).
    pub books: Vec<CpuGroup>,
    /// Drawers (s390).
    pub drawers: Vec<CpuGroup>,
    /// Cores; each holds its SMT threads. Empty unless [`Detail::Full`].
    pub cores: Vec<CpuGroup>,
    /// Caches; only those of level 3 unless [`Detail::Full`].
    pub caches: Vec<Cache>,
    /// Kinds of cores on a machine that mixes them (hybrid); empty where all are alike or where
    /// the kernel does not tell.
    pub core_kinds: Vec<CoreKind>,
    /// Memory nodes that are online, by id.
    pub nodes: Vec<Node>,
    /// Whether the one node of [`Self::nodes`] is made up to stand for the machine, because the
    /// source shows no nodes (a kernel without NUMA support).
    pub nodes_implied: bool,
    /// Nodes that the kernel reserved an id for and that are not online.
    pub nodes_offline: NodeSet,
    /// What the firmware claims about distances.
    ///
    /// Unit: none; 10 is local by definition. Shape: from node × to node.
    /// Source: `/sys/devices/system/node/node<n>/distance`, which is the ACPI SLIT.
    pub distances: Reading<NodeMatrix<Distance>>,
    /// Memory of the whole machine as the kernel counts it, which nodes need not add up to.
    ///
    /// Unit: bytes. Source: `MemTotal` of `/proc/meminfo`, `proc_meminfo(5)`.
    pub memory_total: Reading<Bytes>,
    /// The kernel's memory tiers, fastest first.
    pub tiers: Reading<Vec<Tier>>,
    /// Whether the kernel moves cold pages to slower tiers.
    ///
    /// Source: `/sys/kernel/mm/numa/demotion_enabled`.
    pub demotion_enabled: Reading<bool>,
    /// PCI devices, with what the system calls them.
    pub devices: Reading<Vec<Device>>,
    /// Memory modules and empty slots, as the firmware lists them.
    ///
    /// Source: DMI type 17, `/sys/firmware/dmi/entries/17-*/raw`; needs root.
    pub memory_slots: Reading<Vec<MemorySlot>>,
    /// What the ACPI tables say, where they may be read.
    pub firmware: Firmware,
    /// What this process may use of the machine.
    pub allowed: Allowed,
    /// Kernel command line words that change how nodes look, such as `numa=off`.
    pub kernel_options: Vec<String>,
    /// Contradictions and gaps met while reading.
    pub problems: Vec<Problem>,
}

/// Where a topology comes from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "kind", content = "name")]
pub enum Source {
    /// This machine.
    Live,
    /// A captured machine: the folder.
    Captured(String),
    /// An hwloc XML file: its path.
    HwlocXml(String),
    /// A synthetic description: the string.
    Synthetic(String),
}

/// How much of a machine is read. Cost is process start plus files opened, 6 to 8 µs each.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Detail {
    /// Nodes, CPUs, distances, memory, packages and last-level caches: what the verdict needs.
    Fast,
    /// Also cores, all caches, devices, tiers, HMAT, huge pages, core kinds, firmware tables.
    Full,
}

/// What the CPUs are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Processor {
    /// `x86_64`, `aarch64`, …, where the source tells.
    pub architecture: Reading<String>,
    /// Who made it.
    pub vendor: Reading<Vendor>,
    /// The maker's name for it: `AMD EPYC 7713 64-Core Processor`.
    pub model_name: Reading<String>,
    /// CPU family number (x86).
    pub family: Reading<u32>,
    /// Model number (x86).
    pub model: Reading<u32>,
    /// Whether the CPU reports a hypervisor (x86, flag `hypervisor` of `/proc/cpuinfo`).
    pub hypervisor: Reading<bool>,
}

/// A maker of CPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Vendor {
    /// `GenuineIntel`.
    Intel,
    /// `AuthenticAMD`.
    Amd,
    /// `HygonGenuine`.
    Hygon,
    /// Another one, as `/proc/cpuinfo` writes it.
    Other(String),
}

/// Which CPUs there are.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Cpus {
    /// CPUs that run.
    pub online: CpuSet,
    /// CPUs that are there and switched off.
    pub offline: CpuSet,
    /// CPUs that could ever come online; those present unless [`Detail::Full`].
    pub possible: CpuSet,
    /// CPUs kept out of general scheduling (`isolcpus=`); empty unless [`Detail::Full`].
    pub isolated: CpuSet,
}

/// CPUs that belong together: a package, die, cluster, core, book or drawer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CpuGroup {
    /// The kernel's number, unique only among its siblings; `None` where it has none (-1).
    pub id: Option<u32>,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// How it was found.
    pub grouped_by: GroupedBy,
}

/// How the members of a [`CpuGroup`] were found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum GroupedBy {
    /// They carry the same id.
    Id,
    /// They carry the same mask, because they have no usable id. Feeds no verdict.
    Mask,
    /// An imported description says so.
    Stated,
}

/// A CPU cache.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Cache {
    /// 1 is nearest to the core.
    pub level: u8,
    /// What it holds.
    pub kind: CacheKind,
    /// The kernel's number; unique per level and kind. `None` where it has none.
    pub id: Option<u32>,
    /// Unit: bytes.
    pub size: Reading<Bytes>,
    /// Unit: bytes.
    pub line_size: Option<Bytes>,
    /// Associativity; 0 is fully associative.
    pub ways: Option<u32>,
    /// The online CPUs that share it.
    pub cpus: CpuSet,
}

/// What a cache holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CacheKind {
    /// Data.
    Data,
    /// Instructions.
    Instruction,
    /// Both.
    Unified,
}

/// Cores of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct CoreKind {
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// The evidence: capacity, highest frequency or part number, such as `capacity 1024`.
    pub name: String,
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Node {
    /// The kernel's number.
    pub id: NodeId,
    /// Its online CPUs.
    pub cpus: CpuSet,
    /// Its CPUs that are offline.
    pub cpus_offline: CpuSet,
    /// Unit: bytes. Zero is a memory-less node, absent is not known.
    /// Source: `MemTotal` of `node<n>/meminfo`.
    pub memory_total: Reading<Bytes>,
    /// Unit: bytes. Source: `MemFree` of `node<n>/meminfo`.
    pub memory_free: Reading<Bytes>,
    /// Explicit huge pages; empty unless [`Detail::Full`].
    pub huge_pages: Vec<HugePagePool>,
    /// Memory that other memory caches, nearest first; empty unless [`Detail::Full`].
    pub side_caches: Vec<SideCache>,
    /// What the HMAT claims, by access class (0 any initiator, 1 CPUs only).
    pub access: Vec<Access>,
    /// The nodes whose CPUs are nearest. Itself, for a node with CPUs; empty when not known.
    pub nearest_cpu_nodes: NodeSet,
    /// What kind of memory it is, where there is evidence.
    pub memory_kind: Reading<MemoryKind>,
    /// The weight of this node in weighted interleaving; absent before Linux 6.9.
    pub interleave_weight: Reading<u32>,
    /// Whether the firmware names the node as a place that starts accesses but is no CPU.
    pub generic_initiator: bool,
}

/// Huge pages of one size, set aside on a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HugePagePool {
    /// Size of one page. Unit: bytes.
    pub page_size: Bytes,
    /// Pages set aside.
    pub total_pages: u64,
    /// Of these, pages in nobody's use.
    pub free_pages: u64,
}

/// Memory that caches the node's memory (2LM, "memory mode").
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SideCache {
    /// 1 is nearest to the memory.
    pub level: u32,
    /// Unit: bytes.
    pub size: Reading<Bytes>,
    /// Unit: bytes.
    pub line_size: Option<Bytes>,
}

/// What the HMAT claims about the best initiators of a node. Zero in the table is "unknown".
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Access {
    /// 0: any initiator; 1: CPUs only.
    pub class: u8,
    /// Nodes that reach this memory best.
    pub initiators: NodeSet,
    /// Unit: nanoseconds.
    pub read_latency: Option<Nanoseconds>,
    /// Unit: nanoseconds.
    pub write_latency: Option<Nanoseconds>,
    /// Unit: bytes per second.
    pub read_bandwidth: Option<BytesPerSecond>,
    /// Unit: bytes per second.
    pub write_bandwidth: Option<BytesPerSecond>,
}

/// What memory is made of or hangs on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum MemoryKind {
    /// Ordinary memory on a memory controller of the CPUs.
    Dram,
    /// High-bandwidth memory.
    Hbm,
    /// Memory behind a CXL link.
    Cxl,
    /// Persistent memory used as RAM.
    Nvm,
    /// Memory of an accelerator.
    Gpu,
    /// Set apart for special purposes by the firmware, usually HBM.
    SpecialPurpose,
}

/// A firmware distance: 10 is local by definition, 255 is unreachable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct Distance(pub u32);

impl Distance {
    /// The distance of a node to itself (ACPI 6.5, 5.2.17).
    pub const LOCAL: Self = Self(10);
    /// No path (ACPI 6.5, 5.2.17).
    pub const UNREACHABLE: Self = Self(255);
    /// What Linux assumes for another node without a SLIT (`REMOTE_DISTANCE`,
    /// include/linux/topology.h).
    pub const KERNEL_DEFAULT_REMOTE: Self = Self(20);
}

impl fmt::Display for Distance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A memory tier of the kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Tier {
    /// The kernel's number; lower is faster.
    pub id: u32,
    /// Its nodes.
    pub nodes: NodeSet,
}

/// A PCI device that moves data.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// PCI address: `0000:81:00.0`.
    pub address: String,
    /// What it is for.
    pub kind: DeviceKind,
    /// Names of the system: `eth0`, `nvme0n1`, `mlx5_0`; may be empty.
    pub names: Vec<String>,
    /// The node it hangs on, or why the machine does not say.
    pub node: Reading<NodeId>,
    /// The CPUs next to it; empty where the kernel names all or none.
    pub cpus: CpuSet,
}

/// What a device is for, from its PCI class.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeviceKind {
    /// Class 01: NVMe, RAID, SATA.
    Storage,
    /// Class 02.
    Network,
    /// Class 0c06.
    InfiniBand,
    /// Class 03: GPUs and plain display adapters.
    Display,
    /// Class 12, and class 0b40 (co-processors).
    Accelerator,
    /// Anything else that was asked for.
    Other,
}

/// A memory slot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MemorySlot {
    /// As printed on the board: `P1-DIMMA1`.
    pub locator: String,
    /// The bank or channel: `P0_Node0_Channel0_Dimm0`.
    pub bank: String,
    /// Unit: bytes; `None` is an empty slot, absent an unknown size.
    pub size: Reading<Option<Bytes>>,
    /// Configured speed. Unit: million transfers per second.
    pub speed_mts: Option<u32>,
}

/// What the ACPI tables say, each absent with its reason.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Firmware {
    /// Which proximity domains exist.
    pub srat: Reading<Srat>,
    /// Distances between proximity domains.
    pub slit: Reading<Slit>,
    /// Latencies and bandwidths between proximity domains.
    pub hmat: Reading<Hmat>,
}

/// System Resource Affinity Table (ACPI 6.5, 5.2.16).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Srat {
    /// Each proximity domain with what the table puts there, by domain number.
    pub domains: Vec<SratDomain>,
}

/// What the SRAT puts into one proximity domain. Domains are firmware numbers, not node ids.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct SratDomain {
    /// The firmware's number.
    pub domain: u32,
    /// Enabled processors (local APIC, x2APIC or GICC entries).
    pub processors: u32,
    /// Enabled memory. Unit: bytes.
    pub memory: Bytes,
    /// Of it, memory that may come or go while the machine runs. Unit: bytes.
    pub hot_pluggable: Bytes,
    /// Whether a generic initiator is in it.
    pub generic_initiator: bool,
}

/// System Locality Distance Information Table (ACPI 6.5, 5.2.17).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Slit {
    /// Shape: from domain × to domain, by domain number.
    pub rows: Vec<Vec<u8>>,
}

/// Heterogeneous Memory Attribute Table (ACPI 6.5, 5.2.27).
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Hmat {
    /// Latency and bandwidth matrices, in the order of the table.
    pub matrices: Vec<HmatMatrix>,
    /// Memory-side caches.
    pub side_caches: Vec<HmatSideCache>,
}

/// One matrix of the HMAT.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct HmatMatrix {
    /// What the values are.
    pub metric: HmatMetric,
    /// Whether the values are of the memory (0) or of its side cache level 1 to 3.
    pub hierarchy: u8,
    /// Proximity domains of the rows.
    pub initiators: Vec<u32>,
    /// Proximity domains of the columns.
    pub targets: Vec<u32>,
    /// Shape: initiator × target; `None` where the table says unknown or unreachable.
    /// Unit: nanoseconds for latencies, bytes per second for bandwidths.
    pub values: Vec<Vec<Option<f64>>>,
}

/// What an HMAT matrix holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum HmatMetric {
    /// Read and write latency alike.
    AccessLatency,
    /// Read latency.
    ReadLatency,
    /// Write latency.
    WriteLatency,
    /// Read and write bandwidth alike.
    AccessBandwidth,
    /// Read bandwidth.
    ReadBandwidth,
    /// Write bandwidth.
    WriteBandwidth,
}

/// A memory-side cache of the HMAT.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct HmatSideCache {
    /// Proximity domain of the cached memory.
    pub domain: u32,
    /// Unit: bytes.
    pub size: Bytes,
    /// This cache's level; 1 is nearest to the memory.
    pub level: u8,
    /// Unit: bytes.
    pub line_size: Bytes,
}

/// What this process may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Allowed {
    /// Online CPUs that affinity and cpusets leave.
    pub cpus: CpuSet,
    /// Online nodes whose memory cpusets leave.
    pub nodes: NodeSet,
    /// How this was found out.
    pub evidence: String,
    /// CPU time limit of the cgroup. Unit: CPUs. Source: `cpu.max` or `cpu.cfs_quota_us`.
    pub cpu_limit: Option<CpuLimit>,
    /// Memory limit of the cgroup. Unit: bytes. Source: `memory.max` or
    /// `memory.limit_in_bytes`.
    pub memory_limit: Option<Bytes>,
}

/// How much CPU time a cgroup may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct CpuLimit {
    /// Time allowed in each period. Unit: microseconds.
    pub quota_us: u64,
    /// Unit: microseconds; never 0.
    pub period_us: u64,
}

/// A contradiction or gap met while reading.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The file, attribute or object.
    pub object: String,
    /// What was expected and found.
    pub message: String,
}

impl Topology {
    /// The online node with this id.
    #[must_use]
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.iter().find(|node| node.id == id)
    }

    /// The ids of the online nodes.
    #[must_use]
    pub fn node_ids(&self) -> NodeSet {
        self.nodes.iter().map(|node| node.id).collect()
    }

    /// The nodes that have CPUs, online or not.
    pub fn cpu_nodes(&self) -> impl Iterator<Item = &Node> {
        self.nodes.iter().filter(|node| !node.is_cpuless())
    }

    /// The node of a CPU.
    #[must_use]
    pub fn node_of(&self, cpu: CpuId) -> Option<NodeId> {
        self.nodes
            .iter()
            .find(|node| node.cpus.contains(cpu))
            .map(|node| node.id)
    }

    /// Caches of this level that hold data.
    pub fn data_caches(&self, level: u8) -> impl Iterator<Item = &Cache> {
        self.caches
            .iter()
            .filter(move |cache| cache.level == level && cache.kind != CacheKind::Instruction)
    }

    /// The highest number of CPUs in a core; `None` when cores were not read.
    #[must_use]
    pub fn threads_per_core_max(&self) -> Option<usize> {
        self.cores.iter().map(|core| core.cpus.len()).max()
    }
}

impl Node {
    /// Whether no CPU belongs to the node, offline ones counted.
    #[must_use]
    pub fn is_cpuless(&self) -> bool {
        self.cpus.is_empty() && self.cpus_offline.is_empty()
    }

    /// Whether the node is known to have no memory.
    #[must_use]
    pub fn is_memoryless(&self) -> bool {
        self.memory_total.known() == Some(&Bytes(0))
    }
}
