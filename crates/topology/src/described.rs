//! What machines have in common that are described (hwloc XML, synthetic) and not read.

use homenode_units::{CpuSet, NodeId, NodeSet, Reading};

use crate::{Allowed, Cpus, Detail, Firmware, Node, Processor, Source, Topology};

/// A machine of which nothing is known yet; `why` is the reason of every absence.
pub(crate) fn unknown_machine(source: Source, why: &str) -> Topology {
    Topology {
        source,
        detail: Detail::Full,
        processor: Processor {
            architecture: Reading::absent(why),
            vendor: Reading::absent(why),
            model_name: Reading::absent(why),
            family: Reading::absent(why),
            model: Reading::absent(why),
            hypervisor: Reading::absent(why),
        },
        cpus: Cpus::default(),
        packages: Vec::new(),
        dies: Vec::new(),
        clusters: Vec::new(),
        books: Vec::new(),
        drawers: Vec::new(),
        cores: Vec::new(),
        caches: Vec::new(),
        core_kinds: Vec::new(),
        nodes: Vec::new(),
        nodes_implied: false,
        nodes_offline: NodeSet::new(),
        distances: Reading::absent(why),
        memory_total: Reading::absent(why),
        tiers: Reading::absent(why),
        demotion_enabled: Reading::absent(why),
        devices: Reading::absent(why),
        memory_slots: Reading::absent(why),
        firmware: Firmware {
            srat: Reading::absent(why),
            slit: Reading::absent(why),
            hmat: Reading::absent(why),
        },
        allowed: Allowed {
            cpus: CpuSet::new(),
            nodes: NodeSet::new(),
            evidence: String::new(),
            cpu_limit: None,
            memory_limit: None,
        },
        kernel_options: Vec::new(),
        problems: Vec::new(),
    }
}

/// A node of which only the id is known.
pub(crate) fn unknown_node(id: NodeId, why: &str) -> Node {
    Node {
        id,
        cpus: CpuSet::new(),
        cpus_offline: CpuSet::new(),
        memory_total: Reading::absent(why),
        memory_free: Reading::absent(why),
        huge_pages: Vec::new(),
        side_caches: Vec::new(),
        access: Vec::new(),
        nearest_cpu_nodes: NodeSet::new(),
        memory_kind: Reading::absent(why),
        interleave_weight: Reading::absent(why),
        generic_initiator: false,
    }
}

/// Where a description attaches a node: below the object that has these CPUs.
#[derive(Clone, Debug)]
pub(crate) struct Claim {
    pub(crate) node: NodeId,
    pub(crate) cpus: CpuSet,
    /// Lower claims first. Ordinary memory comes before special memory.
    pub(crate) rank: u8,
}

/// Tells which of the attached nodes have CPUs; the others are CPU-less.
///
/// hwloc hangs a CPU-less node below the object that has the nearest CPUs and gives it the CPUs of
/// that object, so that several nodes claim the same CPUs. In Linux a CPU has one node. The claim
/// with the lower rank wins; then the one with fewer CPUs, since a node that covers others (a
/// package's, where each half has its own) was hung above them; then the lower id, since CPU-less
/// nodes come up later. A node any of whose CPUs are taken has none.
pub(crate) fn owners_of_cpus(claims: &[Claim]) -> NodeSet {
    let mut order: Vec<&Claim> = claims.iter().collect();
    order.sort_by_key(|claim| (claim.rank, claim.cpus.len(), claim.node));
    let mut taken = CpuSet::new();
    let mut owners = NodeSet::new();
    for claim in order {
        if !claim.cpus.is_empty() && !claim.cpus.intersects(&taken) {
            taken = taken.union(&claim.cpus);
            owners.insert(claim.node);
        }
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(node: u32, cpus: &str, rank: u8) -> Claim {
        Claim {
            node: NodeId(node),
            cpus: CpuSet::parse_list(cpus).unwrap(),
            rank,
        }
    }

    #[test]
    fn each_cpu_goes_to_one_node() {
        // A package of two halves with a node each, memory of the whole package, HBM beside one
        // half, and CPUs 8-9 that have nothing but HBM.
        let claims = [
            claim(3, "0-7", 0),
            claim(1, "4-7", 0),
            claim(0, "0-3", 0),
            claim(4, "0-3", 1),
            claim(5, "8-9", 1),
            claim(6, "8-9", 1),
            claim(7, "", 0),
        ];
        assert_eq!(owners_of_cpus(&claims).to_string(), "0-1,5");
    }
}
