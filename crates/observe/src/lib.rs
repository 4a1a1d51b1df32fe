//! Where workloads run and where their memory lies: from files and page queries to samples.
//!
//! * [`read_sample`] → [`Sample`]: per node, the kernel's allocation counters and what the memory
//!   is used for. Two samples give [`NodeRates`].
//! * [`read_processes`] → [`ProcessList`]: who runs, as whom, with how much memory, and where it
//!   may run.
//! * [`locate`] → [`Locality`]: the share of a process's memory on each node, with its error.
//! * [`read_cpu_times`] → [`CpuTimes`]: how busy each CPU was, between two of them.
//! * [`Watcher`] → [`Observation`]s of all processes and workloads at a bounded cost; two of them
//!   give [`rows`], with esxtop's fields.
//! * [`parse_numa_maps`] → [`MappingPages`]: every page of every mapping, exactly.
//!
//! Nothing here decides, prints or changes anything; text comes through [`homenode_host::Files`],
//! answers about pages through [`homenode_host::Probe`].
//!
//! ```
//! use homenode_host::Snapshot;
//! use homenode_observe::read_processes;
//!
//! let mut machine = Snapshot::default();
//! machine.add_file("/proc/7/status", "Name:\tdb\nUid:\t5\t5\t5\t5\nVmRSS:\t 2048 kB\nThreads:\t4\n");
//! let list = read_processes(&machine)?;
//! assert_eq!(list.processes[0].memory().mib(), 2);
//! # Ok::<(), homenode_observe::ObserveError>(())
//! ```
//!
//! # How memory is located
//!
//! Wanted is, for each node j, the share p<sub>j</sub> of a process's resident bytes that lie on j.
//! [`locate`] draws addresses *evenly over all pages the process has mapped*, one at random from each
//! of n equal slices of them, and asks the kernel for the node of each. Draws that hit nothing resident are thrown away and drawn again over
//! *all* mappings. Each draw that counts is then uniform over the resident pages: with M mapped
//! and R resident pages, a given resident page is drawn with chance (1/M) / (R/M) = 1/R, whatever
//! mapping it is in. So the share of counted draws on j is an unbiased estimate of p<sub>j</sub>.
//! Every base page weighs the same, also inside a huge page, so shares of pages are shares of bytes.
//!
//! How many draws count depends on how full the mappings are and not on the node of what they hit,
//! so going on until N draws count, or stopping at the limit with fewer, leaves the estimate
//! unbiased: it only widens the error. After n draws that count, the interval is Wilson's (E. B.
//! Wilson, JASA 22, 1927):
//!
//! ```text
//! centre = (p + z²/2n) / (1 + z²/n)     half = z √(p(1−p)/n + z²/4n²) / (1 + z²/n)     z = 1.96
//! ```
//!
//! It is the interval of independent draws. Slices make it a little wider than needed: memory that
//! lies in stretches, as it does, is hit in proportion to within a slice at each seam (the variance
//! of a stratified sample with equal parts is never above that of a simple one: W. G. Cochran,
//! Sampling Techniques, 1977, 5.6). Huge pages need no care: each draw is of a base page.
//!
//! It holds also near 0 and 1, where the textbook's z √(p(1−p)/n) shrinks to nothing and would
//! call 1,024 draws on one node a certainty; the true share lies in it in 95 of 100 runs.
//! N = 1,024 gives ±3.1 percentage points at worst (p = ½).
//!
//! # Why this way
//!
//! | way | weights from | cost, stall | verdict |
//! |---|---|---|---|
//! | `numa_maps`, `smaps` | every page table entry | 8 ms per GB under `mmap_lock`: 80 ms stall at 8 GB | never on a live workload |
//! | resident weights, redraw inside the mapping | `smaps`, the same walk | the same | as above |
//! | resident ranges (`PAGEMAP_SCAN`) | page tables | 3 ms per GB; Linux 6.7 and later | for sparse giants, later |
//! | **virtual size, redraw over all** | `maps` alone | 0.3 µs per draw, lock dropped every 16 pages | here |
//!
//! It is the same code on every kernel since 2.6.18, and its work is bounded whatever the process
//! does: at most [`Effort::draws_max`] draws. Its price is sparse mappings. A process with fewer
//! than [`Effort::samples_min`] hits in all draws - about 1 resident page in 1,000 mapped - is
//! reported as not located, with the numbers. Mappings without any access right (`---p`, the
//! reserves of Go, Java, glibc and JavaScript engines) would be most of those; they are left out,
//! since nothing can have been touched there unless it was made inaccessible afterwards.
//!
//! Not counted: page cache that is not mapped, pages swapped out, the shared page of zeros. Shared
//! pages count in full for each process that maps them, so shares of processes do not add up.
//!
//! Not seen: on Linux 6.1 to 6.5, pages that automatic balancing has marked for its next fault, as
//! the kernel calls them absent. Where the kernel counts more resident memory than can have been
//! visible, [`Locality::unseen`] says how much, and the bounds allow for all of it on any node. What
//! is hidden is no random part: of a busy process with 70 % on node 1, only pages of node 0 were
//! visible at one moment (emulated guest, Linux 6.1, 2026-11-21), said to be so ±89 %.
//!
//! Times are from a 2-CPU AMD EPYC VM, Linux 6.18; there 65,536 draws took 11 to 18 ms, whether 1
//! GiB dense or 4 TiB sparse. Checked in emulated 2-node guests of Linux 6.1, 6.12 and 7.2 against
//! `numa_maps` of a process with 140 MiB bound to node 0 and 60 MiB to node 1 (2026-11-21).

mod cgroup;
mod counters;
mod cpu_times;
mod error;
#[cfg(test)]
mod fake;
mod group_room;
mod locality;
mod maps;
mod memory;
mod numa_maps;
mod process;
mod process_maps;
mod random;
mod recording;
mod rows;
mod sample;
mod task;
mod threads;
mod watch;
mod workload;

pub use cgroup::{Membership, Version, parse_group_memory, parse_membership, read_group_memory};
pub use counters::{COUNTER_NAMES, Counters, NodeCounters, rates_between_counters};
pub use cpu_times::{CpuTimes, read_cpu_times};
pub use error::{ObserveError, ParseError};
pub use group_room::{GroupRoom, read_group_room};
pub use locality::{
    Effort, Locality, LocateError, Located, Method, NodeShare, locate, locate_in_mappings,
    on_only_node, read_mappings,
};
pub use maps::{Mapping, parse_maps};
pub use memory::{MemoryUse, parse_meminfo};
pub use numa_maps::{MappingPages, home_by_memory, parse_numa_maps};
pub use process::{Process, ProcessList, Unreadable, parse_status, read_processes};
pub use process_maps::{MappingUse, Matters, ProcessMaps, Reach, read_process_maps};
pub use random::Random;
pub use recording::{Member, Recording, RecordingError, RecordingHead, pack};
pub use rows::{HOME_SHARE, NodeMemory, Row, View, home_of, rows};
pub use sample::{NodeRates, NodeSample, Sample, rates_between, read_sample};
pub use task::{Faults, ProcessId, TaskStat};
pub use threads::{ThreadSample, read_threads};
pub use watch::{GroupSample, Observation, Placed, PlacedOn, ProcessSample, WatchOptions, Watcher};
pub use workload::{GuestMemory, Kind, Monitor, Vm, Workload, parse_command_line, vcpu_of_thread};

/// An error with its causes, in one line.
fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use homenode_units::Pid;
    use proptest::prelude::*;

    use super::*;

    /// Texts that look enough like the kernel's to get past the first check.
    fn text() -> impl Strategy<Value = String> {
        let words = "(numa_hit|qemu-system-x|-m|-object|memory-backend-|size=|\\\\x2d|docker-|.scope|/lxc/|\\(|\\) S 1|0:memory:|N0=|anon|file|default|local_node|MemTotal:|Node 0 MemFree:|VmRSS:|Uid:|Threads:|kB|---p|[0-9a-f]{1,20}|[0-9a-f]{1,16}-[0-9a-f]{1,16}|[ \\t\\n]|\\PC)";
        proptest::collection::vec(words, 0..40).prop_map(|words| words.concat())
    }

    proptest! {
        #[test]
        fn no_text_makes_a_parser_panic(text in text()) {
            let _ = NodeCounters::parse(&text);
            let _ = parse_meminfo(&text);
            let _ = parse_status(Pid(1), &text, &BTreeMap::new());
            let _ = parse_maps(&text);
            let _ = parse_numa_maps(&text, homenode_units::Bytes(4096));
            let _ = TaskStat::parse(text.as_bytes());
            let _ = Faults::parse(&text);
            let path = parse_membership(&text).path;
            let words: Vec<String> = text.split(' ').map(str::to_owned).collect();
            let _ = Workload::find(&path, Vm::of_command(&words).as_ref(), &text);
            let _ = Workload::find(&text, None, &text);
            let _ = parse_group_memory(&text, Version::Two, homenode_units::Bytes(1));
        }

        #[test]
        fn counters_written_as_the_kernel_does_are_read_back(counts: [u64; 6]) {
            let lines: Vec<String> = COUNTER_NAMES
                .iter()
                .zip(counts)
                .map(|(name, count)| format!("{name} {count}\n"))
                .collect();
            let counters = NodeCounters::parse(&lines.concat()).unwrap();
            prop_assert_eq!(counters.values().map(|&count| count), counts);
        }

        #[test]
        fn mappings_written_as_the_kernel_does_are_read_back(
            edges in proptest::collection::btree_set(any::<usize>(), 2..20),
            rights in "[r-][w-][x-][ps]",
        ) {
            let edges: Vec<usize> = edges.into_iter().collect();
            let text: String = edges
                .windows(2)
                .map(|edge| format!("{:08x}-{:08x} {rights} 00000000 00:00 0 \n", edge[0], edge[1]))
                .collect();
            let mappings = parse_maps(&text).unwrap();
            prop_assert_eq!(mappings.len(), edges.len() - 1);
            for (mapping, edge) in mappings.iter().zip(edges.windows(2)) {
                prop_assert_eq!([mapping.start, mapping.end], [edge[0], edge[1]]);
                prop_assert_eq!(mapping.accessible, !rights.starts_with("---"));
            }
        }
    }
}
