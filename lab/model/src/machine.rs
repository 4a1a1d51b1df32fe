//! The machine to be modelled, as numbers that need no further thought.

use serde::{Deserialize, Serialize};

use crate::LINE_BYTES;

/// A machine: what the lab makes of a shape, and the model works with.
///
/// Nodes are positions, `0..nodes`: the places where controllers are. They need not be the nodes
/// that the guest's firmware tells of, as firmware may interleave them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// What an instruction takes when all it needs is in the first cache. Unit: picoseconds.
    pub instruction_ps: u32,
    /// How far one CPU may run ahead of another. Unit: picoseconds.
    pub slice_ps: u64,
    /// How many nodes there are.
    pub nodes: u16,
    /// The CPUs, by number.
    pub cpus: Vec<CpuShape>,
    /// Every single cache.
    pub caches: Vec<CacheShape>,
    /// Which addresses are which node's memory.
    pub memory: Vec<Span>,
    /// Where firmware interleaves: the nodes that take turns, page by page of 4096 bytes. Then the
    /// nodes in `memory` mean nothing.
    pub interleave: Vec<u16>,
    /// What it takes to get from a node's CPUs to a node's memory: `[from * nodes + to]`. `None`
    /// where there are no such CPUs or no such memory.
    pub paths: Vec<Option<Path>>,
    /// What lines queue for.
    pub resources: Vec<Resource>,
    /// How latency grows with load.
    pub load: LoadCurve,
}

/// A CPU's place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuShape {
    /// Its node.
    pub node: u16,
    /// Its caches, nearest first, as positions in [`Machine::caches`].
    pub caches: Vec<u16>,
    /// How many lines of a stream are on their way at once.
    pub lines_in_flight: u16,
}

/// One cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheShape {
    /// Sets, each of [`Self::ways`] lines.
    pub sets: u32,
    /// Lines in a set.
    pub ways: u16,
    /// What a hit costs, from asking to having. Unit: picoseconds. 0 in a first cache, where a hit
    /// costs its instruction.
    pub latency_ps: u32,
}

/// Memory of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Span {
    /// First address.
    pub start: u64,
    /// The address behind the last.
    pub end: u64,
    /// Whose it is.
    pub node: u16,
}

/// From a node's CPUs to a node's memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Path {
    /// A load that misses every cache of an idle machine, from asking to having. Unit: picoseconds.
    pub read_ps: u32,
    /// The same for a store.
    pub write_ps: u32,
    /// What a line passes on its way to the CPU, as positions in [`Machine::resources`].
    pub fetch: Vec<u16>,
    /// What a line passes on its way back to memory.
    pub write_back: Vec<u16>,
}

/// A controller, or a link in one direction.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Resource {
    /// What to call it: `controller 0`, `link 0 to 1`.
    pub name: String,
    /// How long a line occupies it. Unit: picoseconds.
    pub line_ps: u32,
}

/// How latency grows with the load of a resource:
/// `idle * min(cap, 1 + slope * use^power / (1 - use))`, where `use` is the rate through the
/// resource over `headroom` times its peak.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LoadCurve {
    /// Steepness.
    pub slope: f64,
    /// How late the curve bends.
    pub power: f64,
    /// The most that latency grows to, as a multiple of idle.
    pub cap: f64,
    /// How far the resource's limit lies above the peak that can be measured.
    pub headroom: f64,
}

impl Default for LoadCurve {
    /// The fit to a loaded-latency curve measured on a two-socket Haswell (FDio/csit,
    /// `test_environment_sut_calib_hsw.rst`): within 2.2 % of it.
    fn default() -> Self {
        Self {
            slope: 0.15,
            power: 1.0,
            cap: 3.0,
            headroom: 1.08,
        }
    }
}

/// Why numbers are no machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineError(String);

impl std::fmt::Display for MachineError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "this is no machine: {}", self.0)
    }
}

impl std::error::Error for MachineError {}

/// Bytes that firmware keeps together when it interleaves.
const INTERLEAVE_BYTES: u64 = 4096;

impl Machine {
    /// Finds what would make the model fail later: positions of things that are not there.
    ///
    /// # Errors
    ///
    /// [`MachineError`] with the first such thing.
    pub fn check(&self) -> Result<(), MachineError> {
        let expect = |holds: bool, what: &str| {
            if holds {
                Ok(())
            } else {
                Err(MachineError(format!("expected {what}")))
            }
        };
        let is_node = |node: u16| node < self.nodes;
        let is_resource = |resource: &u16| usize::from(*resource) < self.resources.len();
        let nodes = usize::from(self.nodes);
        expect(self.instruction_ps > 0, "instructions that take time")?;
        expect(
            self.paths.len() == nodes * nodes,
            "a path for each pair of nodes",
        )?;
        for cache in &self.caches {
            expect(
                cache.sets > 0 && cache.ways > 0,
                "caches with room for a line",
            )?;
        }
        for cpu in &self.cpus {
            expect(is_node(cpu.node), "each CPU in a node")?;
            expect(!cpu.caches.is_empty(), "a cache for each CPU")?;
            let known = |cache: &u16| usize::from(*cache) < self.caches.len();
            expect(cpu.caches.iter().all(known), "caches that are there")?;
        }
        for span in &self.memory {
            expect(
                is_node(span.node) && span.start < span.end,
                "memory in a node",
            )?;
        }
        expect(
            self.interleave.iter().all(|&node| is_node(node)),
            "interleaved nodes",
        )?;
        for resource in &self.resources {
            expect(resource.line_ps > 0, "lines that take time")?;
        }
        for path in self.paths.iter().flatten() {
            let parts = path.fetch.iter().chain(&path.write_back);
            expect(parts.clone().all(is_resource), "paths over resources")?;
        }
        for cpu in &self.cpus {
            for to in self.memory_nodes() {
                let path = &self.paths[self.pair(cpu.node, to)];
                expect(path.is_some(), "a path from each CPU to all memory")?;
            }
        }
        Ok(())
    }

    /// The nodes that have memory.
    fn memory_nodes(&self) -> impl Iterator<Item = u16> {
        let spans = self.memory.iter().map(|span| span.node);
        let is_interleaved = !self.interleave.is_empty();
        let spans = spans.filter(move |_| !is_interleaved);
        spans.chain(self.interleave.iter().copied())
    }

    /// Where in [`Self::paths`] the way from one node to another is.
    pub(crate) fn pair(&self, from: u16, to: u16) -> usize {
        usize::from(from) * usize::from(self.nodes) + usize::from(to)
    }

    /// The node that has a line; `None` for what is not memory of the machine, such as firmware.
    pub(crate) fn node_of(&self, line: u64) -> Option<u16> {
        let address = line * LINE_BYTES;
        let span = self
            .memory
            .iter()
            .find(|span| (span.start..span.end).contains(&address))?;
        if self.interleave.is_empty() {
            return Some(span.node);
        }
        let page = usize::try_from(address / INTERLEAVE_BYTES).ok()?;
        Some(self.interleave[page % self.interleave.len()])
    }

    /// Two nodes with two CPUs each, for tests and examples: 80 ns to the own memory, 136 ns to the
    /// other's.
    #[must_use]
    pub fn example() -> Self {
        const MIB: u64 = 1 << 20;
        let path = |read_ps, resources: &[u16]| {
            Some(Path {
                read_ps,
                write_ps: read_ps,
                fetch: resources.to_vec(),
                write_back: resources.to_vec(),
            })
        };
        let cache = |sets, ways, latency_ps| CacheShape {
            sets,
            ways,
            latency_ps,
        };
        let resource = |name: &str, line_ps| Resource {
            name: name.to_owned(),
            line_ps,
        };
        Self {
            instruction_ps: 250,
            slice_ps: 2_000_000,
            nodes: 2,
            cpus: (0..4)
                .map(|cpu| CpuShape {
                    node: cpu / 2,
                    caches: vec![cpu, 4 + cpu / 2],
                    lines_in_flight: 64,
                })
                .collect(),
            // Four of 32 KiB, and two of 1 MiB.
            caches: [
                [cache(64, 8, 0); 4].as_slice(),
                &[cache(1_024, 16, 15_000); 2],
            ]
            .concat(),
            memory: vec![
                Span {
                    start: 0,
                    end: 256 * MIB,
                    node: 0,
                },
                Span {
                    start: 256 * MIB,
                    end: 512 * MIB,
                    node: 1,
                },
            ],
            interleave: vec![],
            paths: vec![
                path(80_000, &[0]),
                path(136_000, &[1, 2]),
                path(136_000, &[0, 3]),
                path(80_000, &[1]),
            ],
            // 40 GB/s and 20 GB/s.
            resources: vec![
                resource("controller 0", 1_600),
                resource("controller 1", 1_600),
                resource("link 1 to 0", 3_200),
                resource("link 0 to 1", 3_200),
            ],
            load: LoadCurve::default(),
        }
    }
}
