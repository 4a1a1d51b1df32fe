//! Rows 6 to 10: packages that hold several nodes.

use super::*;

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
    unknown.processor.architecture = Reading::Known("aarch64".to_owned());
    expect(&unknown.verdict(), mode, Certainty::Likely);
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
fn row_8_l3_caches_across_the_nodes_borders_are_a_contradiction() {
    // As a guest of cloud-hypervisor saw them (#5742).
    let machine = epyc(&["0-1", "2-5", "6-9", "10-13", "14-15"]);
    let mode = Mode::SplitPackage {
        nodes_per_package: 4,
    };
    let verdict = machine.verdict();
    expect(&verdict, mode, Certainty::CannotTell);
    says(&verdict, "do not end where node 0 or package 0 ends");
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
