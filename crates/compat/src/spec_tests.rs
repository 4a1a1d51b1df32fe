use homenode_units::{CpuId, CpuSet};

use super::*;

/// A machine like the reference's guest: nodes 0 to 2 (node 2 has no CPUs), CPUs 0 to 3.
fn nodes(allowed: &str) -> Universe<NodeId> {
    Universe {
        allowed: NodeSet::parse_list(allowed).unwrap(),
        noun: "node",
    }
}

fn cpus(allowed: &str) -> Universe<CpuId> {
    Universe {
        allowed: CpuSet::parse_list(allowed).unwrap(),
        noun: "cpu",
    }
}

/// Devices whose node is known: any `netdev:` on node 2, but for those with a comma in the name.
fn devices(text: &OsStr) -> Option<Result<NodeSet, BadSpec>> {
    let name = text.to_str()?.strip_prefix("netdev:")?;
    Some(if name.contains(',') {
        Err(BadSpec::device(format!("no {name}")))
    } else {
        Ok(std::iter::once(NodeId(2)).collect())
    })
}

/// The set as a list, or the warning in front of `!`.
fn read_nodes(text: &str, allowed: &str) -> String {
    match parse_nodes(OsStr::new(text), &nodes(allowed), &devices) {
        Ok(set) => set.to_string(),
        Err(bad) => format!("! {}", bad.warning.unwrap_or_default()),
    }
}

fn read_cpus(text: &str, allowed: &str) -> String {
    match parse_cpus(OsStr::new(text), &cpus(allowed)) {
        Ok(set) => set.to_string(),
        Err(bad) => format!("! {}", bad.warning.unwrap_or_default()),
    }
}

/// Every row of the table in the reference (drop-in.md, 3), and what numactl 2.0.19 did with it on
/// three nodes (lab, shape 3n-cpuless, Linux 6.12).
const NODE_TABLE: [(&str, &str); 44] = [
    ("", ""),
    ("0", "0"),
    ("1", "1"),
    ("3", "! node argument 3 is out of range\n"),
    ("0-1", "0-1"),
    ("1-0", "1"),
    ("2-1", "2"),
    ("0,2", "0,2"),
    ("all", "0-2"),
    ("!0", "1-2"),
    ("!1", "0,2"),
    ("!0-1", "2"),
    ("!all", ""),
    ("+0", "0"),
    ("+2", "2"),
    ("+0-1", "0-1"),
    ("!+0", "1-2"),
    ("+0,1", "0-1"),
    ("0,all", "0-2"),
    ("all,0", "! unparseable node description `all,0'\n"),
    ("1,", "! unparseable node description `'\n"),
    (",1", "! unparseable node description `,1'\n"),
    ("1,,0", "! unparseable node description `,0'\n"),
    ("!", "! unparseable node description `'\n"),
    ("-", "! unparseable node description `-'\n"),
    ("+!0", "! unparseable node description `!0'\n"),
    ("foo:bar", "! unparseable node description `foo:bar'\n"),
    ("0-", "! missing node argument \n"),
    ("1-x", "! missing node argument x\n"),
    ("0-3", "! node argument 3 out of range\n"),
    ("1x", "! "),
    ("0x", "! "),
    ("08", "! "),
    ("1 ", "! "),
    ("0-0-0", "! "),
    ("-1", "! node argument -1 is out of range\n"),
    ("0x1", "1"),
    ("01", "1"),
    (" 1", "1"),
    ("0- 1", "0-1"),
    ("0--0", "0"),
    ("netdev:eth0", "2"),
    ("0,netdev:eth0", "0,2"),
    ("netdev:eth0,0", "! no eth0,0"),
];

#[test]
fn node_specifications_mean_what_the_reference_says() {
    for (text, expected) in NODE_TABLE {
        assert_eq!(read_nodes(text, "0-2"), expected, "`{text}`");
    }
}

#[test]
fn only_the_ends_of_a_range_must_be_allowed() {
    assert_eq!(read_nodes("0-3", "0,3"), "0,3");
    assert_eq!(read_nodes("0-2", "0,3"), "! node argument 2 out of range\n");
}

#[test]
fn plus_counts_and_not_inverts_within_what_is_allowed() {
    assert_eq!(read_nodes("+1", "4,8,9"), "8");
    assert_eq!(read_nodes("+0-1", "4,8,9"), "4,8");
    assert_eq!(read_nodes("!8", "4,8,9"), "4,9");
    assert_eq!(
        read_nodes("+3", "4,8,9"),
        "! node argument +3 is out of range\n"
    );
}

#[test]
fn cpu_specifications_know_no_devices() {
    for (text, expected) in [
        ("0-3", "0-3"),
        ("3-0", "3"),
        ("all", "0-3"),
        ("!all", ""),
        ("!0", "1-3"),
        ("+1", "1"),
        ("same", "! unparseable cpu description `same'\n"),
        (
            "netdev:eth0",
            "! unparseable cpu description `netdev:eth0'\n",
        ),
        ("5", "! cpu argument 5 is out of range\n"),
        ("2-9", "! cpu argument 9 out of range\n"),
        ("0-", "! missing cpu argument \n"),
    ] {
        assert_eq!(read_cpus(text, "0-3"), expected, "`{text}`");
    }
}

#[test]
fn under_taskset_only_the_allowed_cpus_count() {
    assert_eq!(read_cpus("+0", "2-3"), "2");
    assert_eq!(read_cpus("all", "2-3"), "2-3");
    assert_eq!(read_cpus("0", "2-3"), "! cpu argument 0 is out of range\n");
    assert_eq!(read_cpus("!2", "2-3"), "3");
}

#[test]
fn numbers_are_read_as_c_does() {
    for (text, value, rest) in [
        ("10,", 10, ","),
        (" \t7", 7, ""),
        ("010", 8, ""),
        ("0x1Fg", 31, "g"),
        ("0x", 0, "x"),
        ("-1", u64::MAX, ""),
        ("+3", 3, ""),
        ("99999999999999999999", u64::MAX, ""),
    ] {
        assert_eq!(
            number(text.as_bytes()),
            Some((Number(value), rest.as_bytes())),
            "{text}"
        );
    }
    for text in ["", " ", "-", "x", "--1"] {
        assert_eq!(number(text.as_bytes()), None, "{text}");
    }
}

#[test]
fn a_number_that_does_not_fit_is_out_of_range() {
    // libnuma cuts it to 32 bits and takes node 0.
    assert_eq!(
        read_nodes("4294967296", "0-2"),
        "! node argument 4294967296 is out of range\n"
    );
}

proptest::proptest! {
    #[test]
    fn any_text_is_a_set_of_allowed_nodes_or_refused(text: String) {
        if let Ok(set) = parse_nodes(OsStr::new(&text), &nodes("0-2,7"), &|_| None) {
            proptest::prop_assert!(set.is_subset(&nodes("0-2,7").allowed));
        }
    }

    #[test]
    fn a_list_is_read_back(numbers in proptest::collection::btree_set(0u32..40, 1..20)) {
        let set: NodeSet = numbers.into_iter().map(NodeId).collect();
        let read = parse_nodes(OsStr::new(&set.to_string()), &nodes("0-39"), &|_| None);
        proptest::prop_assert_eq!(read, Ok(set));
    }
}
