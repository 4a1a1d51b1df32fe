//! Star maps after Windows' Coreinfo: which CPUs make up what.

use std::fmt::Write as _;

use homenode_topology::{Cache, CacheKind, CpuGroup, Distance, Topology};
use homenode_units::{Bytes, CpuId, CpuSet, NodeId, NodeMatrix};

/// One star per CPU up to here, as Coreinfo has one row per group of 64 processors.
const STARS_MAX: usize = 64;
/// On folded maps, more alike rows than this become two, a count and the last.
const ROWS_MAX: usize = 8;
/// Columns of a list of CPUs beside a folded map.
const LIST_COLUMNS: usize = 40;

/// Maps of cores, sockets, nodes and caches, one character per online CPU.
///
/// `*` is a CPU that belongs to the row's object, `-` one that does not; CPUs stand in the order
/// of their numbers, and where the numbers have gaps the first line lists them. Labels and columns
/// are Coreinfo's, so that both can be read side by side.
///
/// Beyond 64 CPUs the maps fold, so that a row still fits on a line: one character stands for
/// several neighbouring CPUs (the first line says how many), `*` where all of them belong to the
/// object, `+` where some do; the list of CPUs follows the label. Of more than 8 rows of one map
/// the first two, the number left out and the last are shown.
///
/// Two things differ on purpose. Coreinfo measures "Approximate Cross-NUMA Node Access Cost"; this
/// prints the firmware's claim under a title that says so, divided by the smallest distance as
/// Coreinfo does, because nothing has been measured here. And processor groups exist on Windows
/// only.
#[must_use]
pub fn coreinfo(topology: &Topology) -> String {
    let mut maps = Maps::new(&topology.cpus.online);
    maps.legend();
    let processors = topology.cores.iter().zip(0..);
    let processors: Vec<Row<'_>> = processors
        .map(|(core, index)| processor(core, index))
        .collect();
    if processors.is_empty() {
        maps.push("Cores were not read.\n");
    } else {
        maps.map("Logical to Physical Processor Map:", &processors);
    }
    let sockets = topology.packages.iter().zip(0u32..);
    let sockets = sockets.map(|(package, index)| Row {
        cpus: &package.cpus,
        label: format!("Socket {}", package.id.unwrap_or(index)),
    });
    maps.map(
        "Logical Processor to Socket Map:",
        &sockets.collect::<Vec<_>>(),
    );
    let nodes = topology.nodes.iter().map(|node| Row {
        cpus: &node.cpus,
        label: match node.is_cpuless() {
            true => format!("NUMA Node {} (no CPUs)", node.id),
            false => format!("NUMA Node {}", node.id),
        },
    });
    if topology.nodes.len() > 1 {
        maps.map(
            "Logical Processor to NUMA Node Map:",
            &nodes.collect::<Vec<_>>(),
        );
    } else {
        // Coreinfo's words for a machine with one node.
        maps.push("Logical Processor to NUMA Node Map:\nNo NUMA nodes.\n");
    }
    if let Some(matrix) = topology
        .distances
        .known()
        .filter(|_| topology.nodes.len() > 1)
    {
        maps.push(&distances(matrix));
    }
    maps.map("Logical Processor to Cache Map:", &caches(&topology.caches));
    maps.text
}

/// One line of a map.
struct Row<'a> {
    cpus: &'a CpuSet,
    label: String,
}

fn processor(core: &CpuGroup, index: usize) -> Row<'_> {
    let threads = if core.cpus.len() > 1 {
        " (Hyperthreaded)"
    } else {
        ""
    };
    Row {
        cpus: &core.cpus,
        label: format!("Physical Processor {index}{threads}"),
    }
}

/// Caches in Coreinfo's order: by their first CPU, then from the core outwards.
fn caches(caches: &[Cache]) -> Vec<Row<'_>> {
    let mut sorted: Vec<&Cache> = caches.iter().collect();
    sorted.sort_by_key(|cache| (cache.cpus.lowest(), cache.level, cache.kind));
    let mut numbers = [0u32; 3];
    let rows = sorted.into_iter().map(|cache| {
        let (number, name) = match cache.kind {
            CacheKind::Data => (&mut numbers[0], "Data Cache"),
            CacheKind::Instruction => (&mut numbers[1], "Instruction Cache"),
            CacheKind::Unified => (&mut numbers[2], "Unified Cache"),
        };
        let size = cache
            .size
            .known()
            .map_or_else(|| "n/a".to_owned(), |&size| cache_size(size));
        let ways = match cache.ways {
            // The kernel's word for fully associative.
            Some(0) => "full".to_owned(),
            Some(ways) => ways.to_string(),
            None => "n/a".to_owned(),
        };
        let line = cache
            .line_size
            .map_or_else(|| "n/a".to_owned(), |line| line.0.to_string());
        let level = cache.level;
        let label = format!(
            "{name:<17}{number:>4}, Level {level}, {size:>7}, Assoc{ways:>4}, LineSize{line:>4}"
        );
        *number += 1;
        Row {
            cpus: &cache.cpus,
            label,
        }
    });
    rows.collect()
}

/// Coreinfo writes KB for 2^10 and MB for 2^20 bytes.
fn cache_size(size: Bytes) -> String {
    const MIB: u64 = 1 << 20;
    match size.0.is_multiple_of(MIB) && size.0 > 0 {
        true => format!("{:>4} MB", size.0 / MIB),
        false => format!("{:>4} KB", size.0 >> 10),
    }
}

/// The firmware's distances, relative to the smallest one that is a distance.
fn distances(matrix: &NodeMatrix<Distance>) -> String {
    let known = matrix.cells().map(|(_, _, distance)| distance.0);
    let Some(least) = known.filter(|&value| value != 0).min() else {
        return String::new();
    };
    let width = matrix
        .nodes()
        .last()
        .map_or(2, |node| node.to_string().len().max(2));
    let id = |node: NodeId| format!("{:0width$}", node.0);
    let mut text = String::from(
        "Cross-NUMA Node Distance by Firmware (relative to smallest; claimed, not measured):\n",
    );
    let cell = width.max(3) + 1;
    // Writing to a String cannot fail, here and below.
    let _ = write!(text, "{:width$} ", "");
    for &to in matrix.nodes() {
        let _ = write!(text, "{:>cell$}", id(to));
    }
    text.push('\n');
    for (from, row) in matrix.rows() {
        let _ = write!(text, "{}:", id(from));
        for distance in row {
            let _ = match *distance {
                Distance(0) => write!(text, "{:>cell$}", "n/a"),
                Distance::UNREACHABLE => write!(text, "{:>cell$}", "-"),
                Distance(value) => {
                    write!(text, "{:>cell$.1}", f64::from(value) / f64::from(least))
                }
            };
        }
        text.push('\n');
    }
    text
}

/// Writes maps over the same CPUs.
struct Maps {
    cpus: Vec<CpuId>,
    /// CPUs that one character stands for.
    fold: usize,
    text: String,
}

impl Maps {
    fn new(online: &CpuSet) -> Self {
        let cpus: Vec<CpuId> = online.iter().collect();
        Self {
            fold: cpus.len().div_ceil(STARS_MAX).max(1),
            cpus,
            text: String::new(),
        }
    }

    /// What the columns are, where they are not simply CPU 0, 1, 2, ….
    fn legend(&mut self) {
        if self.fold > 1 {
            let _ = writeln!(
                self.text,
                "One character is {} CPUs: * all of them, + some, - none.",
                self.fold
            );
        }
        let has_gaps = (0..).zip(&self.cpus).any(|(place, cpu)| cpu.0 != place);
        if has_gaps {
            let online: CpuSet = self.cpus.iter().copied().collect();
            let _ = writeln!(self.text, "From left to right: CPUs {online}.");
        }
        if !self.text.is_empty() {
            self.text.push('\n');
        }
    }

    fn push(&mut self, text: &str) {
        self.text.push_str(text);
        self.text.push('\n');
    }

    fn map(&mut self, title: &str, rows: &[Row<'_>]) {
        if rows.is_empty() {
            return;
        }
        let _ = writeln!(self.text, "{title}");
        match rows {
            [first, second, middle @ .., last] if self.fold > 1 && rows.len() > ROWS_MAX => {
                self.row(first);
                self.row(second);
                let _ = writeln!(self.text, "… {} more …", middle.len());
                self.row(last);
            }
            rows => rows.iter().for_each(|row| self.row(row)),
        }
        self.text.push('\n');
    }

    fn row(&mut self, row: &Row<'_>) {
        for block in self.cpus.chunks(self.fold) {
            let inside = block.iter().filter(|&&cpu| row.cpus.contains(cpu)).count();
            self.text.push(match inside {
                0 => '-',
                all if all == block.len() => '*',
                _ => '+',
            });
        }
        let _ = write!(self.text, "  {}", row.label);
        if self.fold > 1 && !row.cpus.is_empty() {
            let list = crate::short::fold_list(row.cpus, LIST_COLUMNS);
            let _ = write!(self.text, ": CPUs {list}");
        }
        self.text.push('\n');
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample;

    #[test]
    fn a_desktop_has_one_star_per_cpu() {
        insta::assert_snapshot!(coreinfo(&sample::single()));
    }

    #[test]
    fn two_sockets() {
        insta::assert_snapshot!(coreinfo(&sample::two_nodes()));
    }

    #[test]
    fn beyond_64_cpus_the_stars_fold() {
        insta::assert_snapshot!(coreinfo(&sample::snc_cpuless()));
    }

    #[test]
    fn cache_labels_are_as_coreinfo_prints_them() {
        let topology = sample::single();
        let rows = caches(&topology.caches);
        // As in the samples published with Coreinfo, their associativity ours.
        let expected = "Data Cache          0, Level 1,   32 KB, Assoc  16, LineSize  64";
        assert_eq!(rows[0].label, expected);
        let l3 = "Unified Cache       1, Level 3,   32 MB, Assoc  16, LineSize  64";
        assert_eq!(rows[3].label, l3);
    }

    #[test]
    fn gaps_in_the_cpu_numbers_are_listed() {
        let mut topology = sample::two_nodes();
        topology.cpus.online.remove(CpuId(5));
        let text = coreinfo(&topology);
        assert!(
            text.starts_with("From left to right: CPUs 0-4,6-47.\n"),
            "{text}"
        );
        let stars = |line: &str| line.chars().take_while(|c| "*-".contains(*c)).count();
        assert!(text.lines().any(|line| stars(line) == 47), "{text}");
    }

    #[test]
    fn distances_are_relative_and_no_path_is_no_number() {
        let text = coreinfo(&sample::memoryless());
        assert!(text.contains("00: 1.0 1.6 3.2 3.2 2.0\n"), "{text}");
        assert!(text.contains("02: 3.2 3.2 1.0 1.6   -\n"), "{text}");
    }

    #[test]
    fn rows_stay_short_on_large_machines() {
        for topology in [sample::big(), sample::snc_cpuless()] {
            let text = coreinfo(&topology);
            let stars = |line: &str| line.chars().take_while(|c| "*+-".contains(*c)).count();
            assert!(text.lines().all(|line| stars(line) <= STARS_MAX), "{text}");
            assert!(text.lines().count() < 120, "{}", text.lines().count());
        }
    }
}
