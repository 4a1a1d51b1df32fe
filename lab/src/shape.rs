//! What a machine of the lab looks like, and what its kernel should show.

use std::collections::BTreeSet;
use std::fs;
use std::str::FromStr;

use homenode_lab_model::Machine;
use homenode_units::{Bytes, CpuSet, MatrixError, NodeId, NodeMatrix};
use serde::{Deserialize, Deserializer, de};
use toml::Spanned;

use crate::guest_paths;
use crate::timing::{self, TimingText};

/// A machine of the lab: one file of `lab/shapes`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shape {
    /// The file's name without `.toml`; not in the file itself.
    #[serde(skip)]
    pub name: String,
    /// The file's text, which travels into the guest.
    #[serde(skip)]
    pub text: String,
    /// What it is, in one line.
    pub description: String,
    /// Added to the kernel's command line.
    #[serde(default)]
    pub kernel_args: String,
    /// Relative distances as firmware tells them (ACPI SLIT): from the row's node to the column's.
    distances: Vec<Vec<u32>>,
    /// Packages, dies, cores and threads.
    pub cpu: CpuTopology,
    #[serde(rename = "node")]
    nodes: Vec<NodeShape>,
    /// Latency and bandwidth as firmware tells them; no table where empty.
    #[serde(default)]
    pub hmat: Vec<HmatEntry>,
    /// What the kernel and homenode should make of it.
    pub expect: Expect,
    /// What accesses cost; without it, the shape cannot be booted `--timed`.
    timing: Option<Spanned<TimingText>>,
    /// Made from `timing`.
    #[serde(skip)]
    machine: Option<Machine>,
}

/// How CPUs are built; every package is equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CpuTopology {
    /// Packages.
    pub sockets: u32,
    /// Dies in a package, each with its L3.
    #[serde(default = "one")]
    pub dies: u32,
    /// Cores in a die.
    pub cores: u32,
    /// Hardware threads in a core.
    #[serde(default = "one")]
    pub threads: u32,
}

fn one() -> u32 {
    1
}

/// A memory node.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeShape {
    /// Its number. QEMU numbers without gaps.
    pub id: NodeId,
    /// Its CPUs as a kernel list, such as `0-3`; empty for a memory-only node.
    #[serde(default)]
    pub cpus: CpuSet,
    /// Its memory, such as `256MiB`; 0 for a memory-less node.
    #[serde(deserialize_with = "bytes_from_text")]
    pub memory: Bytes,
    /// For a memory-only node: the node whose CPUs it is nearest to. Used with HMAT only.
    pub initiator: Option<NodeId>,
}

/// What firmware tells about accesses from one node to another (ACPI HMAT).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HmatEntry {
    /// The node whose CPUs access.
    pub from: NodeId,
    /// The node whose memory is accessed.
    pub to: NodeId,
    /// Latency of a read or a write. Unit: nanoseconds.
    pub latency_ns: u32,
    /// Bandwidth, such as `20GiB`; whole mebibytes per second.
    #[serde(deserialize_with = "bytes_from_text")]
    pub bandwidth_per_second: Bytes,
}

/// What should be made of a shape.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// The mode that homenode should tell, in its own word: `plain`, `snc`, ….
    pub verdict: String,
    /// The nodes that the kernel shows, where these are not the nodes of the machine.
    #[serde(default, rename = "node")]
    nodes: Vec<NodeShape>,
    /// The distances that the kernel shows, where these are not the machine's.
    #[serde(default)]
    distances: Vec<Vec<u32>>,
}

/// Why there is no such shape.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ShapeError {
    /// No file of that name.
    #[error("expected the name of a shape, found `{name}`\nhelp: the shapes are {}", Shape::names().collect::<Vec<_>>().join(", "))]
    Unknown {
        /// The name asked for.
        name: String,
    },
    /// The file is no TOML, or has unknown, missing or ill-typed fields.
    #[error("cannot parse lab/shapes/{name}.toml: {message}")]
    Parse {
        /// The shape.
        name: String,
        /// Line, column and expectation, from the TOML parser.
        message: String,
    },
    /// The file describes no possible machine.
    #[error("lab/shapes/{name}.toml: {field}: {problem}")]
    Check {
        /// The shape.
        name: String,
        /// The field at fault.
        field: String,
        /// What was expected, and what was found.
        problem: String,
    },
    /// The part about what accesses cost describes no possible machine.
    #[error("lab/shapes/{name}.toml:{line}: {problem}")]
    Timing {
        /// The shape.
        name: String,
        /// The line at fault, from 1.
        line: usize,
        /// The field, what was expected, and what was found.
        problem: String,
    },
    /// The guest has no shape file; only a machine of the lab has one.
    #[error("cannot read {path}: {message}\nhelp: run it with `cargo xtask lab-test`")]
    NotAGuest {
        /// The file.
        path: &'static str,
        /// The operating system's words.
        message: String,
    },
}

macro_rules! shapes {
    ($($name:literal),* $(,)?) => {
        /// Name and text of each file in `lab/shapes`, small machines first.
        const SHAPES: &[(&str, &str)] = &[
            $(($name, include_str!(concat!("../shapes/", $name, ".toml")))),*
        ];
    };
}

shapes![
    "1n",
    "2p1n",
    "1n-fake2",
    "2n",
    "2n-big",
    "2n-unequal",
    "2n-hmat",
    "2n-numa-off",
    "3n-cpuless",
    "3n-memoryless",
    "2p2c",
    "4n-ring",
    "8n",
    "opteron",
    "opteron-4p0",
    "opteron-interleave",
    "drepper",
    "cxl",
    "cod-2x2",
    "epyc-nps1",
    "epyc-nps4",
    "2n-move",
    "xeon-4214",
    "xeon-4214-numa-off",
    "cube",
];

impl Shape {
    /// The names of all shapes, small machines first.
    pub fn names() -> impl Iterator<Item = &'static str> {
        SHAPES.iter().map(|&(name, _)| name)
    }

    /// The shape of that name.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Unknown`], and those of [`Self::parse`].
    pub fn named(name: &str) -> Result<Self, ShapeError> {
        let &(name, text) = SHAPES
            .iter()
            .find(|(known, _)| *known == name)
            .ok_or_else(|| ShapeError::Unknown {
                name: name.to_owned(),
            })?;
        Self::parse(name, text)
    }

    /// Reads a shape and checks it.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Parse`] when the text is no shape, [`ShapeError::Check`] and
    /// [`ShapeError::Timing`] when it is no machine.
    pub fn parse(name: &str, text: &str) -> Result<Self, ShapeError> {
        let mut shape: Self = toml::from_str(text).map_err(|error| ShapeError::Parse {
            name: name.to_owned(),
            message: error.to_string(),
        })?;
        name.clone_into(&mut shape.name);
        text.clone_into(&mut shape.text);
        shape.check()?;
        if let Some(timing) = &shape.timing {
            let machine =
                timing::machine(timing, shape.cpu, &shape.nodes).map_err(|(offset, problem)| {
                    ShapeError::Timing {
                        name: name.to_owned(),
                        line: text[..offset].matches('\n').count() + 1,
                        problem,
                    }
                })?;
            shape.machine = Some(machine);
        }
        Ok(shape)
    }

    /// Inside a guest: the shape that this guest was booted with.
    ///
    /// # Errors
    ///
    /// [`ShapeError::NotAGuest`] elsewhere, and those of [`Self::parse`].
    pub fn in_guest() -> Result<Self, ShapeError> {
        let read = |path: &'static str| {
            fs::read_to_string(path).map_err(|error| ShapeError::NotAGuest {
                path,
                message: error.to_string(),
            })
        };
        Self::parse(&read(guest_paths::SHAPE_NAME)?, &read(guest_paths::SHAPE)?)
    }

    /// The nodes of the machine.
    #[must_use]
    pub fn nodes(&self) -> &[NodeShape] {
        &self.nodes
    }

    /// What the model of costs works with; `None` where the shape does not say what accesses cost.
    #[must_use]
    pub fn machine(&self) -> Option<&Machine> {
        self.machine.as_ref()
    }

    /// The distances that firmware tells.
    ///
    /// # Panics
    ///
    /// Never: [`Self::parse`] checked them.
    #[must_use]
    pub fn distances(&self) -> NodeMatrix<u32> {
        matrix(&self.nodes, &self.distances).expect("checked when the shape was parsed")
    }

    /// The nodes that the kernel should show.
    #[must_use]
    pub fn expected_nodes(&self) -> &[NodeShape] {
        if self.expect.nodes.is_empty() {
            &self.nodes
        } else {
            &self.expect.nodes
        }
    }

    /// The distances that the kernel should show.
    ///
    /// # Panics
    ///
    /// Never: [`Self::parse`] checked them.
    #[must_use]
    pub fn expected_distances(&self) -> NodeMatrix<u32> {
        let rows = if self.expect.distances.is_empty() {
            &self.distances
        } else {
            &self.expect.distances
        };
        matrix(self.expected_nodes(), rows).expect("checked when the shape was parsed")
    }

    /// The CPUs of each package, by package number; CPUs are numbered package by package.
    #[must_use]
    pub fn packages(&self) -> Vec<CpuSet> {
        let size = self.cpu.dies * self.cpu.cores * self.cpu.threads;
        (0..self.cpu.sockets)
            .map(|package| {
                (package * size..(package + 1) * size)
                    .map(homenode_units::CpuId)
                    .collect()
            })
            .collect()
    }

    /// All memory of the machine.
    #[must_use]
    pub fn memory(&self) -> Bytes {
        self.nodes.iter().map(|node| node.memory).sum()
    }

    /// Refuses what cannot be a machine, or what QEMU cannot build.
    ///
    /// # Errors
    ///
    /// [`ShapeError::Check`] with the first field at fault.
    pub fn check(&self) -> Result<(), ShapeError> {
        self.check_fields()
            .map_err(|(field, problem)| ShapeError::Check {
                name: self.name.clone(),
                field,
                problem,
            })
    }

    fn check_fields(&self) -> Result<(), (String, String)> {
        if self.description.is_empty() || self.description.contains('\n') {
            return fault("description", "expected one line");
        }
        let counts = self.cpu;
        let Some(cpus) = [counts.dies, counts.cores, counts.threads]
            .into_iter()
            .try_fold(counts.sockets, u32::checked_mul)
            .filter(|cpus| (1..=CPUS_MAX).contains(cpus))
        else {
            return fault(
                "cpu",
                format!("expected 1 to {CPUS_MAX} CPUs in all, found {counts:?}"),
            );
        };
        check_nodes(&self.nodes)?;
        let mut owned = CpuSet::new();
        for node in &self.nodes {
            let field = format!("node {}: cpus", node.id);
            if owned.intersects(&node.cpus) {
                return fault(
                    &field,
                    format!("expected CPUs of no other node, found {}", node.cpus),
                );
            }
            owned = owned.union(&node.cpus);
        }
        if owned != CpuSet::first(cpus) {
            let message = format!(
                "expected nodes to have CPUs 0-{} between them, found {owned}",
                cpus - 1
            );
            return fault("node: cpus", message);
        }
        check_distances("distances", &self.nodes, &self.distances)?;
        self.check_hmat()?;
        if self.expect.verdict.is_empty() {
            return fault("expect: verdict", "expected a mode such as `plain`");
        }
        if self.expect.nodes.is_empty() != self.expect.distances.is_empty() {
            return fault(
                "expect",
                "expected `node` and `distances` together, or neither",
            );
        }
        if !self.expect.nodes.is_empty() {
            check_nodes(&self.expect.nodes)?;
            check_distances(
                "expect: distances",
                &self.expect.nodes,
                &self.expect.distances,
            )?;
        }
        Ok(())
    }

    fn check_hmat(&self) -> Result<(), (String, String)> {
        let node = |id: NodeId| self.nodes.iter().find(|node| node.id == id);
        for NodeShape { id, initiator, .. } in &self.nodes {
            if let Some(initiator) = initiator
                && node(*initiator).is_none_or(|node| node.cpus.is_empty())
            {
                let message = format!("expected a node with CPUs, found {initiator}");
                return fault(&format!("node {id}: initiator"), message);
            }
        }
        let mut seen = BTreeSet::new();
        for entry in &self.hmat {
            let field = format!("hmat {} to {}", entry.from, entry.to);
            if node(entry.from).is_none_or(|node| node.cpus.is_empty()) {
                return fault(&field, "expected `from` to be a node with CPUs");
            }
            if node(entry.to).is_none_or(|node| node.memory == Bytes(0)) {
                return fault(&field, "expected `to` to be a node with memory");
            }
            if !seen.insert((entry.from, entry.to)) {
                return fault(&field, "expected each pair once");
            }
            if entry.latency_ns == 0 {
                return fault(&field, "expected a latency above 0");
            }
            let bandwidth = entry.bandwidth_per_second;
            if bandwidth == Bytes(0) || bandwidth.0 % MIB != 0 {
                return fault(&field, "expected a bandwidth of whole mebibytes per second");
            }
        }
        Ok(())
    }
}

/// More would boot for minutes: two real CPUs emulate them all.
const CPUS_MAX: u32 = 64;
const MIB: u64 = 1 << 20;

fn fault(field: &str, problem: impl Into<String>) -> Result<(), (String, String)> {
    Err((field.to_owned(), problem.into()))
}

fn check_nodes(nodes: &[NodeShape]) -> Result<(), (String, String)> {
    if nodes.is_empty() {
        return fault("node", "expected at least one node");
    }
    for (expected, node) in (0..).zip(nodes) {
        let field = |name: &str| format!("node {}: {name}", node.id);
        if node.id != NodeId(expected) {
            let message = format!("expected {expected}, as QEMU numbers nodes without gaps");
            return fault(&field("id"), message);
        }
        if node.memory.0 % MIB != 0 {
            return fault(&field("memory"), "expected whole mebibytes");
        }
        if node.memory == Bytes(0) && node.cpus.is_empty() {
            return fault(&field("memory"), "expected memory, CPUs or both");
        }
    }
    if nodes[0].memory == Bytes(0) {
        // The first mebibyte has to be somewhere, and QEMU puts it into node 0.
        return fault(
            "node 0: memory",
            "expected memory, as machines start from node 0",
        );
    }
    Ok(())
}

fn check_distances(
    field: &str,
    nodes: &[NodeShape],
    rows: &[Vec<u32>],
) -> Result<(), (String, String)> {
    let matrix = match matrix(nodes, rows) {
        Ok(matrix) => matrix,
        Err(error) => return fault(field, error.to_string()),
    };
    for (from, to, &distance) in matrix.cells() {
        // ACPI: 10 is local, 255 is unreachable. Two fake nodes in one real one are 10 apart.
        let allowed = if from == to { 10..=10 } else { 10..=254 };
        if !allowed.contains(&distance) {
            let (low, high) = allowed.into_inner();
            return fault(
                field,
                format!("expected {low} to {high} from node {from} to node {to}, found {distance}"),
            );
        }
    }
    Ok(())
}

fn matrix(nodes: &[NodeShape], rows: &[Vec<u32>]) -> Result<NodeMatrix<u32>, MatrixError> {
    NodeMatrix::from_rows(nodes.iter().map(|node| node.id).collect(), rows.to_vec())
}

fn bytes_from_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Bytes, D::Error> {
    let text = String::deserialize(deserializer)?;
    Bytes::from_str(&text).map_err(de::Error::custom)
}

#[cfg(test)]
mod tests;
