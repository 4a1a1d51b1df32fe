//! One test for each row of the table of modes, and for the traps around it.

mod split;
mod whole;

use homenode_units::{Bytes, CpuSet, NodeSet, Reading};

use super::sample::{GIB, cpus, group, machine, node, nodes};
use super::{Certainty, Mode, Verdict};
use crate::{GroupedBy, MemoryKind, Srat, SratDomain, Topology, Vendor};

/// Two packages with two nodes each: nodes 0 and 2 on package 0, 1 and 3 on package 1, CPUs
/// dealt out in turn, as Intel servers number them.
fn dealt(l3_caches: &[&str]) -> Topology {
    machine(
        &[
            (0, "0,4,8,12"),
            (1, "1,5,9,13"),
            (2, "2,6,10,14"),
            (3, "3,7,11,15"),
        ],
        &[(0, "0,2,4,6,8,10,12,14"), (1, "1,3,5,7,9,11,13,15")],
        l3_caches,
    )
}

/// Two packages of 14 CPUs, a node per half, an L3 per node: a Xeon E5-2683 v3 in Cluster-on-Die.
fn halves() -> Topology {
    machine(
        &[(0, "0-6"), (1, "7-13"), (2, "14-20"), (3, "21-27")],
        &[(0, "0-13"), (1, "14-27")],
        &["0-6", "7-13", "14-20", "21-27"],
    )
}

/// Two packages, a node each: two Xeon Silver 4214 as `numactl -H` shows them.
fn plain() -> Topology {
    machine(
        &[(0, "0-11,24-35"), (1, "12-23,36-47")],
        &[(0, "0-11,24-35"), (1, "12-23,36-47")],
        &["0-11,24-35", "12-23,36-47"],
    )
}

/// One node over two packages.
fn one_node() -> Topology {
    machine(&[(0, "0-15")], &[(0, "0-7"), (1, "8-15")], &["0-7", "8-15"])
}

/// An EPYC with four nodes in its only package, an L3 for each of the given lists.
fn epyc(l3_caches: &[&str]) -> Topology {
    machine(
        &[(0, "0-3"), (1, "4-7"), (2, "8-11"), (3, "12-15")],
        &[(0, "0-15")],
        l3_caches,
    )
    .with(Vendor::Amd, 0x19, 1)
}

#[track_caller]
fn expect(verdict: &Verdict, mode: Mode, certainty: Certainty) {
    assert_eq!(verdict.mode, mode, "{verdict:#?}");
    assert_eq!(verdict.certainty, certainty, "{verdict:#?}");
    let cannot_tell = certainty == Certainty::CannotTell;
    assert!(!cannot_tell || verdict.undecided.is_some(), "{verdict:#?}");
    assert!(!verdict.evidence.is_empty(), "{verdict:#?}");
}

#[track_caller]
fn says(verdict: &Verdict, sentence: &str) {
    let found = verdict.evidence.iter().any(|it| it.contains(sentence));
    assert!(found, "`{sentence}` is missing in {verdict:#?}");
}

#[test]
fn packages_that_leave_cpus_out_feed_no_verdict() {
    let mut machine = plain();
    machine.packages.pop();
    expect(
        &machine.verdict(),
        Mode::UnknownPackages,
        Certainty::CannotTell,
    );
}

#[test]
fn nodes_whose_cpus_are_all_offline_leave_nothing_to_compare() {
    let mut machine = plain();
    for node in &mut machine.nodes {
        node.cpus_offline = std::mem::take(&mut node.cpus);
    }
    expect(
        &machine.verdict(),
        Mode::UnknownPackages,
        Certainty::CannotTell,
    );
}

#[test]
fn t16_t17_cores_and_threads_are_counted() {
    let mut machine = plain();
    machine.cores = (0..24)
        .map(|n| group(n, &format!("{n},{}", n + 24)))
        .collect();
    says(&machine.verdict(), "48 CPUs online (24 cores × 2)");
    says(
        &machine.verdict(),
        "node 0 and package 0 both hold CPUs 0-11,24-35",
    );
}

#[test]
fn a_verdict_about_no_machine_at_all_does_not_panic() {
    let mut machine = machine(&[], &[], &[]);
    machine.cpus.online = cpus("0-3");
    machine.memory_total = Reading::Known(Bytes(GIB));
    let verdict = machine.verdict();
    expect(&verdict, Mode::NoNumaSupport, Certainty::Certain);
    assert_eq!((verdict.evidence.len(), verdict.warnings.len()), (1, 0));
    machine.nodes = vec![node(0, ""), node(1, "")];
    machine.nodes[1].cpus_offline = cpus("3");
    machine.allowed.nodes = NodeSet::new();
    machine.cpus.online = CpuSet::new();
    expect(
        &machine.verdict(),
        Mode::UnknownPackages,
        Certainty::CannotTell,
    );
}
