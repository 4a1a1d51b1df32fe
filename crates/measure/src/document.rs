//! What was measured, in one form for all tests: a list of cells.

use std::collections::BTreeSet;
use std::fmt;

use homenode_units::{Bytes, CpuSet, NodeSet};
use serde::{Deserialize, Serialize};

use crate::{Conditions, Estimate};

/// The name of the form. Under the same name fields are only added.
pub const SCHEMA: &str = "homenode.measure/1";

/// A run of one or more tests.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Document {
    /// [`SCHEMA`].
    pub schema: String,
    /// Version of homenode that measured.
    pub version: String,
    /// When it ended. Unit: seconds since 1970-01-01T00:00:00Z.
    pub taken_at_unix: u64,
    /// On which machine.
    pub machine: MachineId,
    /// What could have influenced it.
    pub conditions: Conditions,
    /// Whether it was cut short: the time was up or somebody interrupted it before every cell was
    /// reached.
    pub interrupted: bool,
    /// Things a reader of the numbers has to know.
    pub notes: Vec<String>,
    /// The numbers.
    pub cells: Vec<Cell>,
}

/// What tells whether numbers are about this machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MachineId {
    /// The processor's name; empty where it has none.
    pub processor: String,
    /// The nodes that were online.
    pub nodes: NodeSet,
    /// The CPUs that were online.
    pub cpus: CpuSet,
}

/// A number, and what it is about.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Which test it belongs to.
    pub test: Test,
    /// What was counted, and its unit.
    pub metric: Metric,
    /// The nodes whose CPUs worked.
    pub from: NodeSet,
    /// The nodes whose memory they worked on.
    pub to: NodeSet,
    /// How threads and memory were put together.
    pub arrangement: Arrangement,
    /// CPUs at work at a time.
    pub threads: usize,
    /// The loop: `whole`, `page-local/256`, `read avx2`.
    pub kernel: String,
    /// The pages the memory was made of.
    pub pages: Pages,
    /// The memory each thread worked on. Unit: bytes.
    pub size: Bytes,
    /// Where on a curve it stands, where the test has one: a delay, a distance.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub at: Option<f64>,
    /// Bytes that cross the memory bus for each useful byte, at least and at most: an estimate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bus_factor: Option<(f64, f64)>,
    /// The number, or why there is none.
    pub outcome: Outcome,
}

/// The tests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Test {
    /// Idle latency.
    Latency,
    /// Bandwidth.
    Bandwidth,
    /// Latency and bandwidth by size.
    WorkingSet,
    /// Latency under load.
    LoadedLatency,
    /// Memory spread over nodes.
    Interleave,
    /// Who touches memory first.
    FirstTouch,
    /// From one CPU to another.
    CoreToCore,
    /// The eight metrics of the Opteron study.
    Rmma,
}

impl Test {
    /// All tests, in the order of a report.
    pub const ALL: [Self; 8] = [
        Self::Latency,
        Self::Bandwidth,
        Self::WorkingSet,
        Self::LoadedLatency,
        Self::Interleave,
        Self::FirstTouch,
        Self::CoreToCore,
        Self::Rmma,
    ];

    /// Its name on command lines and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Latency => "latency",
            Self::Bandwidth => "bandwidth",
            Self::WorkingSet => "working-set",
            Self::LoadedLatency => "loaded-latency",
            Self::Interleave => "interleave",
            Self::FirstTouch => "first-touch",
            Self::CoreToCore => "core-to-core",
            Self::Rmma => "rmma",
        }
    }
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metric {
    /// Time of one load that waits for the one before. Unit: nanoseconds.
    Latency,
    /// Bytes loaded and stored by the program. Unit: bytes per second.
    UsefulBandwidth,
    /// Time from one CPU's store to another one's load. Unit: nanoseconds.
    OneWay,
    /// Share of pages on the node where they should be. Unit: none, 0 to 1.
    PageShare,
}

impl Metric {
    /// Its unit, as in tables for programs.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Latency | Self::OneWay => "ns",
            Self::UsefulBandwidth => "B/s",
            Self::PageShare => "1",
        }
    }

    /// Whether less is better.
    #[must_use]
    pub const fn is_lower_better(self) -> bool {
        matches!(self, Self::Latency | Self::OneWay)
    }
}

/// How threads and memory were put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arrangement {
    /// All threads on one node, all memory on one node: a cell of a matrix.
    Pair,
    /// All threads on one node, with its memory.
    Single,
    /// Threads on all nodes in turn, each with its own node's memory.
    Distributed,
    /// Threads on all nodes in turn, each with another node's memory.
    Remote,
    /// Memory spread over all nodes page by page.
    Interleaved,
    /// Memory touched first by one thread, whoever uses it.
    TouchedByOne,
    /// Memory touched first by the thread that uses it.
    TouchedByUser,
    /// Memory placed on the allocator's node when it was allocated, whoever touches it.
    PlacedAtAllocation,
}

impl Arrangement {
    /// Its name in tables and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pair => "pair",
            Self::Single => "single",
            Self::Distributed => "distributed",
            Self::Remote => "remote",
            Self::Interleaved => "interleaved",
            Self::TouchedByOne => "touched-by-one",
            Self::TouchedByUser => "touched-by-user",
            Self::PlacedAtAllocation => "placed-at-allocation",
        }
    }
}

/// The pages that memory was made of, as the kernel said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Pages {
    /// Huge pages of the pool.
    Hugetlb,
    /// Transparent huge pages, at least 99 of 100 bytes.
    Thp,
    /// Transparent huge pages and base pages.
    Mixed,
    /// Base pages.
    Base,
}

impl Pages {
    /// Its name in tables and in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hugetlb => "hugetlb",
            Self::Thp => "thp",
            Self::Mixed => "mixed",
            Self::Base => "base",
        }
    }

    /// Whether the memory is (all but) made of huge pages.
    #[must_use]
    pub const fn is_huge(self) -> bool {
        matches!(self, Self::Hugetlb | Self::Thp)
    }
}

impl fmt::Display for Pages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A number, or why there is none.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum Outcome {
    /// It was measured.
    Measured(Estimate),
    /// There is no number.
    Absent {
        /// Why.
        absent: String,
    },
}

impl Outcome {
    /// No number, and why.
    pub fn absent(why: impl fmt::Display) -> Self {
        Self::Absent {
            absent: why.to_string(),
        }
    }

    /// The number, if there is one.
    #[must_use]
    pub const fn measured(&self) -> Option<&Estimate> {
        match self {
            Self::Measured(estimate) => Some(estimate),
            Self::Absent { .. } => None,
        }
    }
}

/// Why a text is no document.
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    /// It is no JSON, or fields are missing.
    #[error("expected JSON as `homenode measure --json` writes it")]
    Json(#[from] serde_json::Error),
    /// It is of another kind.
    #[error("expected schema {SCHEMA}, found `{found}`")]
    Schema {
        /// What it says it is.
        found: String,
    },
}

impl Document {
    /// Reads what [`Self::to_json`] wrote.
    ///
    /// # Errors
    ///
    /// [`DocumentError`].
    pub fn parse(text: &[u8]) -> Result<Self, DocumentError> {
        #[derive(Deserialize)]
        struct Kind {
            schema: String,
        }
        let Kind { schema } = serde_json::from_slice(text)?;
        if schema != SCHEMA {
            return Err(DocumentError::Schema { found: schema });
        }
        Ok(serde_json::from_slice(text)?)
    }

    /// Writes it as JSON, ending in a line feed.
    ///
    /// # Panics
    ///
    /// Never: every value of a document can be written.
    #[must_use]
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("a document is numbers and text") + "\n"
    }

    /// The cells of a test.
    pub fn of(&self, test: Test) -> impl Iterator<Item = &Cell> {
        self.cells.iter().filter(move |cell| cell.test == test)
    }

    /// What is worth keeping of each test: its cells without their samples.
    #[must_use]
    pub fn by_test(&self) -> Vec<(Test, Self)> {
        let tests: BTreeSet<Test> = self.cells.iter().map(|cell| cell.test).collect();
        let only = |test| {
            let mut cells: Vec<Cell> = self.of(test).cloned().collect();
            for cell in &mut cells {
                if let Outcome::Measured(estimate) = &mut cell.outcome {
                    estimate.samples = Vec::new();
                    estimate.placements = Vec::new();
                }
            }
            Self {
                cells,
                ..self.clone()
            }
        };
        tests.into_iter().map(|test| (test, only(test))).collect()
    }
}

impl Cell {
    /// Whether the two say the same of the same thing, so that one can be compared with the other.
    #[must_use]
    pub fn is_about_the_same(&self, other: &Self) -> bool {
        self.key() == other.key()
    }

    fn key(&self) -> impl PartialEq + '_ {
        (
            (self.test, self.metric, &self.from, &self.to),
            (self.arrangement, self.threads, &self.kernel),
            (self.pages, self.size, self.at.map(f64::to_bits)),
        )
    }
}
