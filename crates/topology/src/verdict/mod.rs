//! What kind of machine this is, with the evidence.
//!
//! The kind follows from three sets of CPUs: those of each node, each package and each L3 cache.
//! How they contain one another is put together in `shape`; `mode` compares that with the
//! patterns of known machines, the first that fits being the answer. CPUs that are offline and
//! nodes without CPUs take no part, and neither do packages that were guessed from masks.
//!
//! A verdict is a pure function of the topology: the same files give the same words.

mod mode;
mod notes;
mod one_node;
mod processor;
#[cfg(test)]
pub(crate) mod sample;
mod shape;
mod split;
#[cfg(test)]
mod tests;

use serde::Serialize;

use crate::{Processor, Topology, warnings};

/// What kind of machine a topology shows, and how sure that is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// The kind.
    pub mode: Mode,
    /// How sure.
    pub certainty: Certainty,
    /// One sentence for people: `2 packages, 2 nodes each: sub-NUMA clustering (SNC-2)`.
    pub headline: String,
    /// The observations behind it, each a sentence that names its numbers.
    pub evidence: Vec<String>,
    /// What this machine's files cannot tell, and what would: `NPS1 with L3 as NUMA and NPS4 look
    /// the same; homenode measure bandwidth tells them apart`.
    pub undecided: Option<String>,
    /// What an operator should look at.
    pub warnings: Vec<Warning>,
}

/// The kinds of machine, by how nodes relate to packages and last-level caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case", tag = "name")]
pub enum Mode {
    /// One node and at most one package: all memory is equally far.
    Uniform,
    /// The kernel shows no node directory; everything is one implied node.
    NoNumaSupport,
    /// One node over several packages: interleaved, NUMA off, a shared bus, or a VM that hides it.
    OneNodeManyPackages,
    /// Nodes share CPUs: broken firmware or a made-up table. No mode can be told.
    OverlappingNodes,
    /// The kernel was told to make up nodes (`numa=fake=`).
    Emulated,
    /// Each node spans several packages behind a node controller.
    NodeController {
        /// Packages in each node.
        packages_per_node: usize,
    },
    /// A node per package.
    Plain,
    /// Intel sub-NUMA clustering: several nodes share one L3.
    Snc {
        /// Nodes per package.
        nodes_per_package: usize,
    },
    /// Intel Cluster-on-Die: a node per half of a processor, each with its L3.
    ClusterOnDie {
        /// Nodes per package.
        nodes_per_package: usize,
    },
    /// A node per die of a package that holds several, each with its L3: AMD Magny-Cours to
    /// Abu Dhabi (families 10h and 15h).
    MultiDiePackage {
        /// Nodes per package.
        nodes_per_package: usize,
    },
    /// A node per L3: AMD "L3 as NUMA", NPS4 with one L3 per quadrant, Kunpeng, a VM, ….
    L3AsNuma {
        /// Nodes per package.
        nodes_per_package: usize,
    },
    /// AMD nodes-per-socket, several L3 in each node.
    Nps {
        /// Nodes per package.
        nodes_per_package: usize,
    },
    /// Several nodes per package, and neither the L3 caches nor the maker tell why.
    SplitPackage {
        /// Nodes per package.
        nodes_per_package: usize,
    },
    /// Packages cannot be told, so neither can the mode.
    UnknownPackages,
    /// Nodes differ from one another.
    Mixed,
}

/// How sure a verdict is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Certainty {
    /// The files leave no other reading.
    Certain,
    /// The usual reading; others exist.
    Likely,
    /// Several readings fit; see [`Verdict::undecided`].
    CannotTell,
}

/// Something an operator should look at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    /// What it is about: `node 5`, `distances`.
    pub subject: String,
    /// What is odd, with its numbers.
    pub message: String,
    /// What to do about it, where something can be done.
    pub advice: Option<String>,
}

impl Topology {
    /// What kind of machine this is, why, and what to look at.
    #[must_use]
    pub fn verdict(&self) -> Verdict {
        let shape = shape::Shape::of(self);
        let mut finding = mode::find(self, &shape);
        finding.evidence.extend(notes::odd_nodes(self));
        Verdict {
            mode: finding.mode,
            certainty: finding.certainty,
            headline: finding.headline,
            evidence: finding.evidence,
            undecided: finding.undecided,
            warnings: warnings::warnings(self, finding.mode),
        }
    }
}

/// Whether the processors reach all memory over one bus, so that no node can be hidden.
pub(crate) fn shares_a_bus(processor: &Processor) -> bool {
    processor::Chip::shares_a_bus(processor)
}

/// A verdict in the making.
#[derive(Debug)]
struct Finding {
    mode: Mode,
    certainty: Certainty,
    headline: String,
    evidence: Vec<String>,
    undecided: Option<String>,
}

impl Finding {
    fn new(mode: Mode, certainty: Certainty, headline: impl Into<String>) -> Self {
        Self {
            mode,
            certainty,
            headline: headline.into(),
            evidence: Vec::new(),
            undecided: None,
        }
    }

    fn because(mut self, evidence: impl Into<String>) -> Self {
        self.evidence.push(evidence.into());
        self
    }

    fn undecided(mut self, question: impl Into<String>) -> Self {
        self.undecided = Some(question.into());
        self
    }
}
