//! Rows 1 to 5: nodes that hold whole packages, and those that tell nothing.

use homenode_units::BytesPerSecond;

use super::*;
use crate::Access;

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
    expect(
        &machine.clone().in_guest().verdict(),
        Mode::NoNumaSupport,
        Certainty::Certain,
    );
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
    let dunnington = one_node().with(Vendor::Intel, 6, 29).verdict();
    assert_eq!(dunnington.headline, verdict.headline);
    assert!(verdict.headline.contains("share one bus"), "{verdict:#?}");
    assert!(verdict.warnings.is_empty(), "{verdict:#?}");
}

#[test]
fn row_3_amd_calls_it_nps0() {
    let verdict = one_node().with(Vendor::Amd, 0x19, 1).verdict();
    assert!(verdict.headline.contains("NPS0"), "{verdict:#?}");
}

#[test]
fn row_3_is_not_ruled_out_by_node_ids_that_are_only_possible() {
    let mut machine = one_node();
    machine.nodes_offline = nodes("1-7");
    let verdict = machine.verdict();
    expect(&verdict, Mode::OneNodeManyPackages, Certainty::CannotTell);
    says(&verdict, "node ids 1-7 are possible and not online");
}

#[test]
fn row_3_is_ruled_out_by_a_node_that_is_offline() {
    // hwloc's offline-cpu0-node0: node 0 is offline, its CPUs are not.
    let mut machine = machine(&[(1, "5,7,9")], &[(0, "4,6,8"), (1, "5,7,9")], &["5,7,9"]);
    machine.nodes_offline = nodes("0");
    let verdict = machine.verdict();
    expect(&verdict, Mode::Plain, Certainty::Likely);
    assert!(
        verdict.headline.starts_with("1 package of 2, a node, "),
        "{verdict:#?}"
    );
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
    for (class, gbs) in [(1, 8.0), (0, 9.0)] {
        machine.nodes[2].access.push(Access {
            class,
            initiators: nodes("0"),
            read_latency: None,
            write_latency: None,
            read_bandwidth: Some(BytesPerSecond(gbs * 1e9)),
            write_bandwidth: None,
        });
    }
    says(&machine.verdict(), "at distance 17, 8.0 GB/s by the HMAT");
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
