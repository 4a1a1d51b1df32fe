//! One test for each row of the table of modes, and for the traps around it.

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
fn row_1_nodes_that_share_cpus_have_no_mode() {
    let all = "0-7";
    let machine = machine(&[(0, all), (1, all)], &[(0, "0-3"), (1, "4-7")], &[]);
    let verdict = machine.verdict();
    expect(&verdict, Mode::OverlappingNodes, Certainty::Certain);
    says(&verdict, "nodes 0-1 have CPUs in common");
}

#[test]
fn row_1_one_shared_cpu_is_enough() {
    let machine = machine(&[(0, "0-3"), (1, "4-7"), (5, "7-9")], &[(0, "0-9")], &[]);
    let verdict = machine.verdict();
    expect(&verdict, Mode::OverlappingNodes, Certainty::Certain);
    says(&verdict, "nodes 1,5 have CPUs in common");
}

#[test]
fn row_1_made_up_nodes() {
    let machine = machine(&[(0, "0-3"), (1, "0-3")], &[(0, "0-3")], &[]);
    let verdict = machine.with_option("numa=fake=2").verdict();
    expect(&verdict, Mode::Emulated, Certainty::Certain);
    assert_eq!(
        verdict.headline,
        "2 nodes made up by the kernel option numa=fake=2"
    );
}

#[test]
fn row_1_an_option_without_effect_makes_up_nothing() {
    let machine = machine(&[(0, "0-3")], &[(0, "0-3")], &[]);
    let verdict = machine.with_option("numa=fake=2").verdict();
    expect(&verdict, Mode::Uniform, Certainty::Certain);
}

#[test]
fn row_2_a_kernel_without_nodes_whatever_the_packages() {
    let mut machine = one_node();
    machine.nodes_implied = true;
    expect(&machine.verdict(), Mode::NoNumaSupport, Certainty::Certain);
    machine.nodes.clear();
    expect(&machine.verdict(), Mode::NoNumaSupport, Certainty::Certain);
}

#[test]
fn row_2_a_desktop_is_uniform() {
    let machine = machine(&[(0, "0-19")], &[(0, "0-19")], &["0-19"]);
    let verdict = machine.verdict();
    expect(&verdict, Mode::Uniform, Certainty::Certain);
    assert_eq!(
        verdict.headline,
        "1 package, 1 node: all memory is equally far"
    );
    assert!(verdict.warnings.is_empty(), "{verdict:#?}");
}

#[test]
fn row_2_a_guest_of_linux_6_with_one_node_may_hide_more() {
    let machine = machine(&[(0, "0-1")], &[(0, "0-1")], &["0-1"]).with(Vendor::Amd, 26, 2);
    let verdict = machine.in_guest().verdict();
    expect(&verdict, Mode::Uniform, Certainty::Likely);
    says(&verdict, "the CPU reports a hypervisor");
}

#[test]
fn row_2_one_node_and_no_word_of_packages() {
    let mut machine = machine(&[(0, "0-1")], &[], &[]);
    expect(&machine.verdict(), Mode::Uniform, Certainty::Likely);
    // Several masks are no packages, and no proof of a single one.
    machine.packages = vec![group(0, "0"), group(1, "1")];
    for package in &mut machine.packages {
        package.grouped_by = GroupedBy::Mask;
    }
    expect(
        &machine.verdict(),
        Mode::UnknownPackages,
        Certainty::CannotTell,
    );
}

#[test]
fn t41_row_3_one_node_over_two_packages() {
    let verdict = one_node().verdict();
    expect(&verdict, Mode::OneNodeManyPackages, Certainty::CannotTell);
    assert!(
        verdict.headline.contains("NUMA is off in the firmware"),
        "{verdict:#?}"
    );
    says(&verdict, "the SRAT is not known: needs root");
    assert_eq!(verdict.warnings.len(), 1, "{verdict:#?}");
    assert_eq!(verdict.warnings[0].subject, "nodes");
}

#[test]
fn row_3_the_kernel_was_told() {
    for option in ["numa=off", "numa=noacpi", "acpi=off"] {
        let verdict = one_node().with_option(option).verdict();
        expect(&verdict, Mode::OneNodeManyPackages, Certainty::Certain);
        assert!(verdict.headline.contains(option), "{verdict:#?}");
        assert_eq!(verdict.undecided, None);
    }
}

#[test]
fn row_3_the_firmware_names_domains_that_the_kernel_ignores() {
    let with_domains = |sizes: &[u64]| {
        let mut machine = one_node();
        let domains = (0..).zip(sizes).map(|(domain, &gib)| SratDomain {
            domain,
            memory: Bytes(gib * GIB),
            ..SratDomain::default()
        });
        machine.firmware.srat = Reading::Known(Srat {
            domains: domains.collect(),
        });
        machine.verdict()
    };
    let verdict = with_domains(&[32, 32]);
    expect(&verdict, Mode::OneNodeManyPackages, Certainty::Likely);
    says(&verdict, "the SRAT names 2 domains");
    assert!(verdict.undecided.is_some_and(|text| text.contains("dmesg")));
    // An empty domain, such as a generic port's, is nothing to ignore.
    let verdict = with_domains(&[64, 0]);
    expect(&verdict, Mode::OneNodeManyPackages, Certainty::CannotTell);
    says(&verdict, "the SRAT names 1 domain");
}

#[test]
fn row_3_a_guest_without_virtual_nodes() {
    let verdict = one_node().in_guest().verdict();
    expect(&verdict, Mode::OneNodeManyPackages, Certainty::Likely);
    assert!(verdict.headline.contains("hypervisor"), "{verdict:#?}");
    assert!(verdict.warnings.is_empty(), "{verdict:#?}");
}

#[test]
fn row_3_processors_on_a_shared_bus_hide_nothing() {
    // hwloc's 16em64t-4s2c2t: four NetBurst Xeons.
    let verdict = one_node().with(Vendor::Intel, 15, 6).verdict();
    expect(&verdict, Mode::OneNodeManyPackages, Certainty::Likely);
    assert!(verdict.headline.contains("share one bus"), "{verdict:#?}");
    assert!(verdict.warnings.is_empty(), "{verdict:#?}");
}

#[test]
fn row_3_amd_calls_it_nps0() {
    let verdict = one_node().with(Vendor::Amd, 0x19, 1).verdict();
    assert!(verdict.headline.contains("NPS0"), "{verdict:#?}");
}

#[test]
fn row_3_is_ruled_out_by_a_node_that_is_offline() {
    // hwloc's offline-cpu0-node0: node 0 is offline, its CPUs are not.
    let mut machine = machine(&[(1, "5,7,9")], &[(0, "4,6,8"), (1, "5,7,9")], &["5,7,9"]);
    machine.nodes_offline = nodes("0");
    let verdict = machine.verdict();
    expect(&verdict, Mode::Plain, Certainty::Likely);
    says(&verdict, "CPUs 4,6,8 are online and in no online node");
}

#[test]
fn row_4_node_controller() {
    let machine = machine(
        &[(0, "0-3"), (1, "4-7")],
        &[(0, "0-1"), (1, "2-3"), (2, "4-5"), (3, "6-7")],
        &[],
    );
    let verdict = machine.verdict();
    let mode = Mode::NodeController {
        packages_per_node: 2,
    };
    expect(&verdict, mode, Certainty::Certain);
    assert!(verdict.headline.starts_with("2 nodes of 2 packages each"));
}

#[test]
fn row_5_plain_numa() {
    let verdict = plain().verdict();
    expect(&verdict, Mode::Plain, Certainty::Certain);
    assert_eq!(
        verdict.headline,
        "2 packages, a node each: plain NUMA (sub-NUMA clustering is off)"
    );
    says(&verdict, "2 packages, 2 nodes with CPUs, 48 CPUs online");
    assert_eq!(verdict.undecided, None);
}

#[test]
fn row_5_a_node_with_two_l3_that_is_its_package_is_still_plain() {
    // hwloc's nvidiagpunumanodes (POWER9), and an EPYC or Dhyana in NPS1.
    let machine = machine(
        &[(0, "0-7"), (8, "8-15")],
        &[(0, "0-7"), (8, "8-15")],
        &["0-3", "4-7", "8-11", "12-15"],
    );
    for vendor in [Vendor::Other("IBM".to_owned()), Vendor::Amd, Vendor::Hygon] {
        let verdict = machine.clone().with(vendor, 0x18, 1).verdict();
        expect(&verdict, Mode::Plain, Certainty::Certain);
    }
}

#[test]
fn row_5_nodes_without_cpus_are_named_and_do_not_count() {
    let mut machine = plain();
    let mut far = node(4, "");
    far.memory_total = Reading::Known(Bytes(126 * GIB));
    far.memory_kind = Reading::Known(MemoryKind::Nvm);
    far.nearest_cpu_nodes = nodes("0");
    machine.nodes.push(far);
    let mut machine = machine.with_distances(|from, to| if from == to { 10 } else { 17 });
    let verdict = machine.verdict();
    expect(&verdict, Mode::Plain, Certainty::Certain);
    assert!(
        verdict.headline.ends_with("and 1 more node without CPUs"),
        "{verdict:#?}"
    );
    says(
        &verdict,
        "node 4 has no CPUs: 126 GiB of persistent memory, nearest to node 0, at distance 17",
    );
    machine.nodes[2].memory_total = Reading::Known(Bytes(0));
    machine.nodes[2].generic_initiator = true;
    says(
        &machine.verdict(),
        "node 4 has neither CPUs nor memory: the firmware names it",
    );
}

#[test]
fn row_5_one_package_with_a_node_without_cpus_is_not_uniform() {
    let machine = machine(&[(0, "0-3"), (1, "")], &[(0, "0-3")], &["0-3"]);
    let verdict = machine.verdict();
    expect(&verdict, Mode::Plain, Certainty::Certain);
    says(
        &verdict,
        "node 1 has no CPUs: 32 GiB of memory of unknown kind (no evidence)",
    );
}

#[test]
fn row_6_snc_with_nodes_0_and_2_on_package_0() {
    let verdict = dealt(&["0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"]).verdict();
    let mode = Mode::Snc {
        nodes_per_package: 2,
    };
    expect(&verdict, mode, Certainty::Certain);
    assert_eq!(
        verdict.headline,
        "2 packages, 2 nodes each: sub-NUMA clustering (SNC-2)"
    );
    says(&verdict, "each node holds 4 of the 8 CPUs of its package");
    says(
        &verdict,
        "the L3 of CPUs 0,2,4,6,8,10,12,14 is shared by nodes 0,2",
    );
}

#[test]
fn row_6_offline_cpus_change_nothing() {
    let l3 = ["0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"];
    let mode = Mode::Snc {
        nodes_per_package: 2,
    };
    // CPU 0 and most of node 0, where snc_get_config() of Linux was wrong.
    let verdict = dealt(&l3).with_offline("0,4,8").verdict();
    expect(&verdict, mode, Certainty::Certain);
    says(&verdict, "3 CPUs offline and ignored here");
    // All of node 0: package 0 looks like a plain one.
    let verdict = dealt(&l3).with_offline("0,4,8,12").verdict();
    expect(&verdict, mode, Certainty::Likely);
    says(&verdict, "no CPU of node 0 is online");
}

#[test]
fn row_6_is_no_snc_on_amd() {
    let machine = epyc(&["0-15"]);
    let mode = Mode::SplitPackage {
        nodes_per_package: 4,
    };
    let verdict = machine.clone().verdict();
    expect(&verdict, mode, Certainty::Likely);
    assert!(verdict.undecided.is_some());
    expect(&machine.in_guest().verdict(), mode, Certainty::Likely);
}

#[test]
fn row_6_without_a_maker_is_likely() {
    let mut machine = dealt(&["0,2,4,6,8,10,12,14", "1,3,5,7,9,11,13,15"]);
    machine.processor.vendor = Reading::absent("no /proc/cpuinfo");
    let mode = Mode::Snc {
        nodes_per_package: 2,
    };
    expect(&machine.verdict(), mode, Certainty::Likely);
}

#[test]
fn row_6_an_l3_beyond_its_package_is_a_contradiction() {
    let verdict = dealt(&["0-15"]).verdict();
    let mode = Mode::SplitPackage {
        nodes_per_package: 2,
    };
    expect(&verdict, mode, Certainty::CannotTell);
}

#[test]
fn t20_row_7_cluster_on_die_and_the_same_machine_without_clusters() {
    let mode = Mode::ClusterOnDie {
        nodes_per_package: 2,
    };
    for model in [63, 79] {
        let verdict = halves().with(Vendor::Intel, 6, model).verdict();
        expect(&verdict, mode, Certainty::Certain);
        says(&verdict, "each node holds 7 of the 14 CPUs of its package");
        says(&verdict, "the L3 of CPUs 0-6 equals node 0");
        says(&verdict, "the processors are Intel family 6 model");
    }
    let off = machine(
        &[(0, "0-13"), (1, "14-27")],
        &[(0, "0-13"), (1, "14-27")],
        &["0-13", "14-27"],
    );
    let verdict = off.with(Vendor::Intel, 6, 63).verdict();
    expect(&verdict, Mode::Plain, Certainty::Certain);
    assert!(
        verdict.headline.contains("Cluster-on-Die is off"),
        "{verdict:#?}"
    );
}

#[test]
fn row_7_packages_from_wrong_masks_feed_no_verdict() {
    // hwloc's 28em64t-2s2n7c-buggycoresiblings: by id 2 packages, by mask 4.
    let mut machine = halves().with(Vendor::Intel, 6, 63);
    machine.packages = vec![
        group(0, "0-6"),
        group(1, "7-13"),
        group(2, "14-20"),
        group(3, "21-27"),
    ];
    for package in &mut machine.packages {
        package.grouped_by = GroupedBy::Mask;
    }
    let verdict = machine.verdict();
    expect(&verdict, Mode::UnknownPackages, Certainty::CannotTell);
    says(&verdict, "4 groups");
}

#[test]
fn row_7_two_dies_in_a_package() {
    let mode = Mode::MultiDiePackage {
        nodes_per_package: 2,
    };
    for family in [0x10, 0x15] {
        let verdict = halves().with(Vendor::Amd, family, 1).verdict();
        expect(&verdict, mode, Certainty::Certain);
    }
}

#[test]
fn row_7_l3_as_numa_and_nps_look_the_same() {
    let mode = |k| Mode::L3AsNuma {
        nodes_per_package: k,
    };
    let verdict = epyc(&["0-3", "4-7", "8-11", "12-15"]).verdict();
    expect(&verdict, mode(4), Certainty::CannotTell);
    let undecided = verdict.undecided.unwrap();
    assert!(undecided.contains("NPS4"), "{undecided}");
    assert!(
        undecided.contains("homenode measure bandwidth"),
        "{undecided}"
    );
    expect(
        &halves().with(Vendor::Hygon, 0x19, 1).verdict(),
        mode(2),
        Certainty::CannotTell,
    );
}

#[test]
fn row_7_more_nodes_than_any_nps_are_l3_as_numa() {
    let lists: Vec<String> = (0..8).map(|i| format!("{}-{}", i * 2, i * 2 + 1)).collect();
    let lists: Vec<&str> = lists.iter().map(String::as_str).collect();
    let nodes: Vec<(u32, &str)> = (0..).zip(lists.iter().copied()).collect();
    let machine = machine(&nodes, &[(0, "0-15")], &lists).with(Vendor::Amd, 0x19, 1);
    let mode = Mode::L3AsNuma {
        nodes_per_package: 8,
    };
    let verdict = machine.verdict();
    expect(&verdict, mode, Certainty::Certain);
    assert_eq!(verdict.undecided, None);
}

#[test]
fn row_7_other_makers_guests_and_no_maker() {
    let mode = Mode::L3AsNuma {
        nodes_per_package: 2,
    };
    let kunpeng = halves().with(Vendor::Other("0x48".to_owned()), 0, 0);
    expect(&kunpeng.verdict(), mode, Certainty::Likely);
    let guest = halves().with(Vendor::Amd, 0x19, 1).in_guest();
    expect(&guest.verdict(), mode, Certainty::Likely);
    let mut unknown = halves();
    unknown.processor.vendor = Reading::absent("no /proc/cpuinfo");
    expect(&unknown.verdict(), mode, Certainty::CannotTell);
}

#[test]
fn row_8_nps_with_an_l3_smaller_than_the_node() {
    let caches = ["0-1", "2-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"];
    let mode = Mode::Nps {
        nodes_per_package: 4,
    };
    let verdict = epyc(&caches).verdict();
    expect(&verdict, mode, Certainty::Certain);
    assert!(verdict.headline.contains("NPS4"), "{verdict:#?}");
    says(&verdict, "each node consists of 2 L3 caches");
    for (vendor, family) in [(Vendor::Hygon, 0x18), (Vendor::Amd, 0x17)] {
        let verdict = epyc(&caches).with(vendor, family, 1).verdict();
        expect(&verdict, mode, Certainty::Certain);
        assert!(
            verdict.headline.contains("Naples or Dhyana"),
            "{verdict:#?}"
        );
    }
}

#[test]
fn row_8_an_l3_that_is_switched_off_does_not_break_the_pattern() {
    let caches = ["0-3", "4-5", "6-7", "8-9", "10-11", "12-13", "14-15"];
    let mode = Mode::Nps {
        nodes_per_package: 4,
    };
    let verdict = epyc(&caches).verdict();
    expect(&verdict, mode, Certainty::Certain);
    says(&verdict, "1 to 2 L3 caches");
}

#[test]
fn row_9_no_l3_to_go_by() {
    let mode = Mode::SplitPackage {
        nodes_per_package: 4,
    };
    let verdict = epyc(&[])
        .with(Vendor::Other("0x710".to_owned()), 0, 0)
        .verdict();
    expect(&verdict, mode, Certainty::CannotTell);
    says(&verdict, "no L3 cache is shown");
    let verdict = epyc(&[]).with(Vendor::Intel, 6, 87).verdict();
    expect(&verdict, mode, Certainty::Likely);
    assert!(
        verdict.headline.contains("Knights Landing in SNC-4"),
        "{verdict:#?}"
    );
}

#[test]
fn row_10_nodes_that_differ_are_listed() {
    // util-linux' x86_64-64cpu: nodes 0, 2 and 3, one of which spans two packages.
    let machine = machine(
        &[(0, "0-7"), (2, "8-11"), (3, "12-15")],
        &[(0, "0-3"), (1, "4-7"), (2, "8-11"), (3, "12-15")],
        &[],
    );
    let verdict = machine.verdict();
    expect(&verdict, Mode::Mixed, Certainty::Certain);
    says(
        &verdict,
        "node 0 has 8 CPUs in 2 packages, of which it holds 2 whole",
    );
    says(
        &verdict,
        "node 2 has 4 CPUs in 1 package, of which it holds 1 whole",
    );
}

#[test]
fn row_10_packages_with_different_numbers_of_nodes_are_mixed() {
    let machine = machine(
        &[(0, "0-3"), (1, "4-7"), (2, "8-15")],
        &[(0, "0-7"), (1, "8-15")],
        &["0-7", "8-15"],
    );
    expect(&machine.verdict(), Mode::Mixed, Certainty::Certain);
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
    expect(&machine.verdict(), Mode::NoNumaSupport, Certainty::Certain);
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
