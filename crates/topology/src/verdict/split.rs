//! Packages that hold several nodes: what the L3 caches and the maker say about why.

use homenode_units::NodeSet;

use super::mode::{is_guest, name, totals};
use super::processor::{self, Chip};
use super::shape::{CacheFit, Package, Shape};
use super::{Certainty, Finding, Mode};
use crate::words::{count, cpus, nodes, range};
use crate::{Node, Topology};

/// Several nodes in each package; `None` where packages differ.
pub(super) fn split_packages(
    topology: &Topology,
    shape: &Shape<'_>,
    packages: &[Package],
) -> Option<Finding> {
    let split = Split::of(topology, shape, packages)?;
    let k = split.nodes_per_package;
    let chip = Chip::of(&topology.processor);
    let kind = match &split.fit {
        CacheFit::Inside(_) => inside_l3(chip, k, is_guest(topology)),
        CacheFit::Equal => equal_l3(chip, k, is_guest(topology)),
        CacheFit::Holds(_) => several_l3(chip, k),
        CacheFit::None => no_l3(chip, k),
        CacheFit::Crosses => Kind {
            mode: Mode::SplitPackage {
                nodes_per_package: k,
            },
            certainty: Certainty::CannotTell,
            what: "and L3 caches that contradict them".to_owned(),
            undecided: Some("why packages are split: the L3 caches do not fit the nodes".into()),
        },
    };
    let headline = format!(
        "{}, {k} nodes {}: {}",
        count(packages.len(), "package"),
        if packages.len() == 1 { "in it" } else { "each" },
        kind.what
    );
    let certainty = match kind.certainty {
        Certainty::Certain if split.nodes_missing => Certainty::Likely,
        certainty => certainty,
    };
    let mut finding = Finding::new(kind.mode, certainty, headline)
        .because(totals(topology, shape, packages))
        .because(split.evidence);
    finding.undecided = kind.undecided;
    if let Some(processor) = processor::describe(&topology.processor) {
        finding
            .evidence
            .push(format!("the processors are {processor}"));
    }
    if split.nodes_missing {
        finding.evidence.push(format!(
            "no CPU of {} is online, so some packages show fewer nodes than others",
            nodes(&shape.nodes_asleep.union(&topology.nodes_offline))
        ));
    }
    Some(finding)
}

/// Packages that hold the same number of nodes, which lie to their L3 caches in the same way.
struct Split {
    nodes_per_package: usize,
    fit: CacheFit,
    /// Whether nodes are missing in some packages because their CPUs are offline.
    nodes_missing: bool,
    evidence: String,
}

impl Split {
    fn of(topology: &Topology, shape: &Shape<'_>, packages: &[Package]) -> Option<Self> {
        let held: Vec<Vec<&Node>> = packages
            .iter()
            .map(|package| shape.nodes_in(package))
            .collect();
        let within = held.iter().map(Vec::len).sum::<usize>();
        let k = held.iter().map(Vec::len).max()?;
        let missing = held.iter().map(|nodes| k - nodes.len()).sum::<usize>();
        let asleep = shape.nodes_asleep.union(&topology.nodes_offline).len();
        if k < 2 || within != shape.nodes.len() || missing > asleep {
            return None;
        }
        // A package that lost a node to offline CPUs lies to its L3 in a way of its own.
        let full = packages
            .iter()
            .zip(&held)
            .filter(|(_, nodes)| nodes.len() == k);
        let pairs: Vec<(&Package, &Node)> = full
            .flat_map(|(package, nodes)| nodes.iter().map(move |&node| (package, node)))
            .collect();
        let fits: Vec<CacheFit> = pairs
            .iter()
            .map(|(package, node)| shape.cache_fit(node, package))
            .collect();
        let (&(package, node), _) = pairs.split_first()?;
        let fit = common_fit(&fits)?;
        Some(Self {
            nodes_per_package: k,
            nodes_missing: missing > 0,
            evidence: describe_split(&pairs, package, node, &fit, &fits),
            fit,
        })
    }
}

/// How all nodes lie to the L3 caches; `None` where they differ.
fn common_fit(fits: &[CacheFit]) -> Option<CacheFit> {
    let (first, others) = fits.split_first()?;
    let all = |matches: fn(&CacheFit) -> bool| fits.iter().all(matches);
    if all(|fit| matches!(fit, CacheFit::Inside(_))) {
        return Some(first.clone());
    }
    // Nodes of one and of several L3 are of one kind too: processors with some L3 switched off
    // have such nodes, and so have machines with offline CPUs.
    if all(|fit| matches!(fit, CacheFit::Equal | CacheFit::Holds(_))) {
        let several = fits.iter().find(|fit| matches!(fit, CacheFit::Holds(_)));
        return Some(several.unwrap_or(first).clone());
    }
    others.iter().all(|fit| fit == first).then(|| first.clone())
}

/// `each node holds 14 of the 28 CPUs of its package; the L3 of CPUs 0-13 equals node 0`.
fn describe_split(
    pairs: &[(&Package, &Node)],
    package: &Package,
    node: &Node,
    fit: &CacheFit,
    fits: &[CacheFit],
) -> String {
    let of_package = |pair: &(&Package, &Node)| pair.0.cpus.len();
    let in_node = |pair: &(&Package, &Node)| pair.1.cpus.len();
    let sizes = format!(
        "each node holds {} of the {} CPUs of its package",
        range(pairs.iter().map(in_node)),
        range(pairs.iter().map(of_package)),
    );
    let caches = match fit {
        CacheFit::None => "no L3 cache is shown".to_owned(),
        CacheFit::Equal => format!("the L3 of {} equals node {}", cpus(&node.cpus), node.id),
        CacheFit::Inside(cache) => {
            let sharers = pairs.iter().filter(|pair| pair.1.cpus.is_subset(cache));
            let sharers: NodeSet = sharers.map(|pair| pair.1.id).collect();
            format!("the L3 of {} is shared by {}", cpus(cache), nodes(&sharers))
        }
        CacheFit::Holds(_) => {
            let numbers = fits.iter().map(|fit| match fit {
                CacheFit::Holds(number) => *number,
                _ => 1,
            });
            format!("each node consists of {} L3 caches", range(numbers))
        }
        CacheFit::Crosses => format!(
            "the L3 caches of {} do not end where node {} or {} ends",
            cpus(&node.cpus),
            node.id,
            name(package)
        ),
    };
    format!("{sizes}; {caches}")
}

/// What a split package is, after its L3 caches and its maker.
struct Kind {
    mode: Mode,
    certainty: Certainty,
    what: String,
    undecided: Option<String>,
}

impl Kind {
    fn new(mode: Mode, certainty: Certainty, what: impl Into<String>) -> Self {
        Self {
            mode,
            certainty,
            what: what.into(),
            undecided: None,
        }
    }

    fn undecided(mut self, question: impl Into<String>) -> Self {
        self.undecided = Some(question.into());
        self
    }
}

/// Several nodes share one L3.
fn inside_l3(chip: Chip, k: usize, guest: bool) -> Kind {
    let snc = Mode::Snc {
        nodes_per_package: k,
    };
    match chip {
        Chip::IntelSubNuma => Kind::new(
            snc,
            Certainty::Certain,
            format!("sub-NUMA clustering (SNC-{k})"),
        ),
        Chip::IntelClusterOnDie => Kind::new(
            Mode::ClusterOnDie {
                nodes_per_package: k,
            },
            Certainty::Likely,
            "Cluster-on-Die, with an L3 that the kernel shows for the whole package",
        ),
        Chip::Intel | Chip::IntelKnights | Chip::Unknown => Kind::new(
            snc,
            Certainty::Likely,
            format!("they share an L3, as in Intel's sub-NUMA clustering (SNC-{k})"),
        ),
        _ => {
            let kind = Kind::new(
                Mode::SplitPackage {
                    nodes_per_package: k,
                },
                Certainty::Likely,
                "they share an L3, which no processor of this maker is known to do",
            );
            if guest {
                return kind;
            }
            kind.undecided("why packages are split; homenode measure latency shows how far apart the nodes are")
        }
    }
}

/// A node per L3.
fn equal_l3(chip: Chip, k: usize, guest: bool) -> Kind {
    let l3_as_numa = Mode::L3AsNuma {
        nodes_per_package: k,
    };
    match chip {
        Chip::IntelClusterOnDie if k == 2 => Kind::new(
            Mode::ClusterOnDie {
                nodes_per_package: k,
            },
            Certainty::Certain,
            "Cluster-on-Die, a node per half of a processor",
        ),
        Chip::AmdMultiDie if k == 2 => Kind::new(
            Mode::MultiDiePackage {
                nodes_per_package: k,
            },
            Certainty::Certain,
            "a node per die, two dies in a package",
        ),
        Chip::AmdZen | Chip::Naples if guest => Kind::new(
            l3_as_numa,
            Certainty::Likely,
            "a node per L3 cache, as the hypervisor laid it out",
        ),
        // The firmware offers NPS1, NPS2 and NPS4.
        Chip::AmdZen if matches!(k, 2 | 4) => Kind::new(
            l3_as_numa,
            Certainty::CannotTell,
            format!("a node per L3 cache, by \"L3 as NUMA\" or by NPS{k}"),
        )
        .undecided(format!(
            "\"L3 as NUMA\" and NPS{k} look the same here: in the first, memory is interleaved \
             over more channels than a node's own; homenode measure bandwidth tells them apart"
        )),
        Chip::AmdZen => Kind::new(
            l3_as_numa,
            Certainty::Certain,
            format!("a node per L3 cache (\"L3 as NUMA\": NPS{k} does not exist)"),
        ),
        Chip::Unknown => Kind::new(
            l3_as_numa,
            Certainty::CannotTell,
            "a node per L3 cache, by a maker that is not known",
        )
        .undecided(
            "why packages are split: Cluster-on-Die, several dies, \"L3 as NUMA\" and NPS look \
             the same without the processor's name; homenode measure bandwidth shows what a node \
             has to itself",
        ),
        _ => Kind::new(l3_as_numa, Certainty::Likely, "a node per L3 cache"),
    }
}

/// Several L3 in each node.
fn several_l3(chip: Chip, k: usize) -> Kind {
    let nps = Mode::Nps {
        nodes_per_package: k,
    };
    match chip {
        Chip::Naples => Kind::new(
            nps,
            Certainty::Certain,
            "a node per die with several L3 caches (Naples or Dhyana)",
        ),
        Chip::AmdZen if matches!(k, 2 | 4) => Kind::new(
            nps,
            Certainty::Certain,
            format!("NPS{k}, several L3 caches in each node"),
        ),
        Chip::AmdZen | Chip::Unknown => Kind::new(
            nps,
            Certainty::Likely,
            format!("several L3 caches in each node, as in AMD's NPS{k}"),
        ),
        _ => Kind::new(
            Mode::SplitPackage {
                nodes_per_package: k,
            },
            Certainty::Likely,
            "several L3 caches in each node",
        ),
    }
}

/// No L3 to go by.
fn no_l3(chip: Chip, k: usize) -> Kind {
    let split = Mode::SplitPackage {
        nodes_per_package: k,
    };
    match chip {
        Chip::IntelKnights => Kind::new(
            split,
            Certainty::Likely,
            format!("Knights Landing in SNC-{k}, which has no L3 cache"),
        ),
        _ => Kind::new(
            split,
            Certainty::CannotTell,
            "and no L3 cache that would tell why",
        )
        .undecided("why packages are split: no L3 cache is shown"),
    }
}
