use homenode_host::Snapshot;

use super::*;

const NODES: [NodeId; 2] = [NodeId(0), NodeId(3)];

fn machine(name: &str, node0: &str, node3: &str) -> Snapshot {
    let mut machine = Snapshot::default();
    machine.add_file(&node_file(NODES[0], name), node0);
    machine.add_file(&node_file(NODES[1], name), node3);
    machine
}

fn shown(rows: &[Row]) -> Vec<(&str, Vec<Option<ByteCount>>)> {
    rows.iter()
        .map(|row| (str::from_utf8(&row.label).unwrap(), row.cells.clone()))
        .collect()
}

#[test]
fn nodes_are_folders_with_the_kernels_numbers() {
    let mut machine = Snapshot::default();
    for name in [
        "node10", "node2", "node", "nodex", "node01", "node+1", "power",
    ] {
        machine.add_folder(&format!("{NODE_FOLDER}/{name}"));
    }
    machine.add_file(&format!("{NODE_FOLDER}/online"), "0\n");
    assert_eq!(list_nodes(&machine).unwrap(), [NodeId(2), NodeId(10)]);
    assert!(list_nodes(&Snapshot::default()).unwrap_err().is_not_found());
}

#[test]
fn rows_that_only_some_nodes_have_stand_where_those_have_them() {
    let machine = machine("numastat", "a 1\nc 3\nd 4\n", "b 2\nc 5\nx 7\nd 6\ny\n\n");
    let rows = read_counters(&machine, &NODES).unwrap();
    let expected = [
        ("b", vec![None, Some(2)]),
        ("a", vec![Some(1), None]),
        ("c", vec![Some(3), Some(5)]),
        ("x", vec![None, Some(7)]),
        ("d", vec![Some(4), Some(6)]),
        ("y", vec![None, Some(0)]),
    ];
    assert_eq!(shown(&rows), expected);
}

#[test]
fn counters_become_memory_with_capital_names() {
    let machine = machine("numastat", "numa_hit 3\n_x_ 1\n", "");
    let rows = read_counters_as_memory(&machine, &NODES, 65_536).unwrap();
    let expected = [
        ("Numa_Hit", vec![Some(196_608), None]),
        ("_X_", vec![Some(65_536), None]),
    ];
    assert_eq!(shown(&rows), expected);
}

#[test]
fn a_missing_file_is_named() {
    let mut machine = machine("meminfo", "", "");
    machine.remove(&node_file(NODES[1], "meminfo"));
    let failure = read_meminfo(&machine, &NODES).unwrap_err();
    assert_eq!(
        failure.to_string(),
        "cannot open /sys/devices/system/node/node3/meminfo: No such file or directory"
    );
}

const MEMINFO: &str = "\
Node 0 MemTotal:         100 kB
Node 0 Odd:        7
Node 0 Empty:
Node 0
Node 0 HugePages_Total:   3
Node 0 HugePages_Free:    2
Node 0 HugePages_Rsvd:    1
Node 0 FileHugePages:     1 kB
";

#[test]
fn huge_pages_are_counted_in_the_default_size_where_nothing_tells_more() {
    let mut machine = machine("meminfo", MEMINFO, "");
    machine.add_file(
        "/proc/meminfo",
        "MemTotal: 7 kB\nHugepagesize:    2048 kB\n",
    );
    let rows = read_meminfo(&machine, &NODES).unwrap();
    let first: Vec<_> = rows.iter().map(|row| row.cells[0].unwrap()).collect();
    let huge = 2 << 20;
    assert_eq!(first, [102_400, 7, 0, 3 * huge, 2 * huge, huge, 1024]);
    machine.remove("/proc/meminfo");
    let rows = read_meminfo(&machine, &NODES).unwrap();
    assert_eq!(rows[3].cells[0], Some(0), "no huge pages without a size");
}

#[test]
fn huge_pages_of_all_sizes_are_counted() {
    let mut machine = machine("meminfo", MEMINFO, "");
    machine.add_file("/proc/meminfo", "Hugepagesize: 2048 kB\n");
    let folder = node_file(NODES[0], "hugepages");
    for (file, small, large) in [("nr", "5\n", "2\n"), ("free", "1\n", "1\n")] {
        machine.add_file(
            &format!("{folder}/hugepages-2048kB/{file}_hugepages"),
            small,
        );
        machine.add_file(
            &format!("{folder}/hugepages-1048576kB/{file}_hugepages"),
            large,
        );
    }
    machine.add_folder(&format!("{folder}/other"));
    let rows = read_meminfo(&machine, &NODES).unwrap();
    let (mib, gib) = (1 << 20, 1 << 30);
    assert_eq!(rows[3].cells[0], Some(2 * gib + 10 * mib));
    assert_eq!(rows[4].cells[0], Some(gib + 2 * mib));
    assert_eq!(
        rows[5].cells[0],
        Some(2 * mib),
        "no file says how many are reserved"
    );
    // What is not told in full is not told at all.
    machine.remove(&format!("{folder}/hugepages-2048kB/free_hugepages"));
    let rows = read_meminfo(&machine, &NODES).unwrap();
    assert_eq!(rows[4].cells[0], Some(4 * mib));
}
