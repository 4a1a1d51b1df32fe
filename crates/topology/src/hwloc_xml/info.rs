//! What homenode adds to hwloc XML, in `info` elements that hwloc carries along unread.
//!
//! An absent value is written `absent: why`. Sets are the kernel's lists (`0-3,8`).

/// Root: `fast` when cores were not read.
pub const DETAIL: &str = "HomenodeDetail";
/// Root: present CPUs that do not run. NUMA node: those of the node.
pub const OFFLINE_CPUS: &str = "HomenodeOfflineCpus";
/// Root: CPUs that could come online.
pub const POSSIBLE_CPUS: &str = "HomenodePossibleCpus";
/// Root: CPUs kept out of scheduling.
pub const ISOLATED_CPUS: &str = "HomenodeIsolatedCpus";
/// Root: nodes with an id that are not online.
pub const OFFLINE_NODES: &str = "HomenodeOfflineNodes";
/// Root: memory of the machine in bytes.
pub const MEMORY_TOTAL: &str = "HomenodeMemoryTotal";
/// Root: why there are no distances, or the only one of a machine with one node, which hwloc
/// cannot express (a matrix has at least 2 objects).
pub const DISTANCES: &str = "HomenodeDistances";
/// Root: `true` or `false`.
pub const HYPERVISOR: &str = "HomenodeHypervisor";
/// Root: a word of the kernel command line; one `info` each.
pub const KERNEL_OPTION: &str = "HomenodeKernelOption";
/// Root: an object that hwloc's tree has no place for, in words; one `info` each.
pub const NOT_EXPRESSED: &str = "HomenodeNotExpressed";
/// Root: the name of a `memattr` whose values were measured: no claim of the firmware; one `info`
/// each.
pub const MEASURED_ATTRIBUTE: &str = "HomenodeMeasuredAttribute";
/// NUMA node, PCI device: the CPUs it has, where its place in the tree says otherwise.
pub const CPUS: &str = "HomenodeCpus";
/// NUMA node: the nodes whose CPUs are nearest.
pub const NEAREST_CPU_NODES: &str = "HomenodeNearestCpuNodes";
/// NUMA node: `0` or why its size is not known. hwloc writes no size in either case.
pub const MEMORY: &str = "HomenodeMemory";
/// NUMA node: free memory in bytes.
pub const MEMORY_FREE: &str = "HomenodeMemoryFree";
/// NUMA node: `true` when it starts accesses and is no CPU.
pub const GENERIC_INITIATOR: &str = "HomenodeGenericInitiator";
/// NUMA node: its weight in interleaving.
pub const INTERLEAVE_WEIGHT: &str = "HomenodeInterleaveWeight";
/// NUMA node: what the HMAT says for one access class; one `info` each. Words
/// `class=1 initiators=0-1 read_latency_ns=80.5 write_latency_ns=…
/// read_bandwidth_bytes_per_s=… write_bandwidth_bytes_per_s=…`, those not known left out.
pub const ACCESS: &str = "HomenodeAccess";
/// PCI device: the id of its node, or why it is not known.
pub const NODE: &str = "HomenodeNode";
/// Core kind: its evidence.
pub const CORE_KIND: &str = "HomenodeCoreKind";
/// Starts the value of an `info` that stands for an absence; the reason follows.
pub const ABSENT: &str = "absent: ";
