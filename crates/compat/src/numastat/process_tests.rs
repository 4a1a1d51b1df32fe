use homenode_host::Snapshot;

use super::*;

const NODES: [NodeId; 2] = [NodeId(0), NodeId(3)];
const MIB: ByteCount = 1 << 20;

/// The categories in the order of the rows, each with its nodes. Unit: bytes.
fn amounts(text: &str) -> Vec<Vec<ByteCount>> {
    let usage = parse_maps(text.as_bytes(), &NODES, 4096).unwrap();
    let rows = usage.rows();
    let labels: Vec<&[u8]> = rows.iter().map(|row| row.label.as_slice()).collect();
    assert_eq!(labels, [&b"Huge"[..], b"Heap", b"Stack", b"Private"]);
    rows.into_iter()
        .map(|row| row.cells.into_iter().flatten().collect())
        .collect()
}

#[test]
fn each_line_is_one_category_and_all_its_pages_have_one_size() {
    let text = "\
55d0 default file=/usr/bin/foo\\040stack mapped=3 N0=3 kernelpagesize_kB=1024
55d1 default heap anon=300 dirty=300 N0=100 N3=200 kernelpagesize_kB=1024
7f00 bind:0 file=/dev/hugepages/x huge dirty=4 N0=1 N3=3 kernelpagesize_kB=2048
7f10 default anon=5 N3=5 kernelpagesize_kB=1024
7ffd default stack:12 anon=30 N0=30 kernelpagesize_kB=1024
7ffe default
";
    let expected = [[2, 6], [100, 200], [30, 0], [3, 5]];
    assert_eq!(amounts(text), expected.map(|row| row.map(|mib| mib * MIB)));
}

#[test]
fn odd_lines_are_read_as_upstream_reads_them() {
    let private = |text| amounts(text)[3].clone();
    assert_eq!(private("1 default N0=256\n"), [MIB, 0], "a base page");
    assert_eq!(private("1 N0=256 kernelpagesize_kB=0\n"), [MIB, 0]);
    assert_eq!(private("1 kernelpagesize_kB=1024 N3=7"), [0, 7 * MIB]);
    assert_eq!(
        private("1 N9=1 N1=1 kernelpagesize_kB=4\n"),
        [0, 0],
        "other nodes"
    );
    assert_eq!(private("1 N0=4x kernelpagesize_kB=1024k\r\n"), [4 * MIB, 0]);
    let heap = "1 heap huge stack N0=1 kernelpagesize_kB=1024\n";
    assert_eq!(amounts(heap)[1], [MIB, 0], "the first word counts");
    assert_eq!(amounts(""), vec![vec![0, 0]; 4]);
}

#[test]
fn what_is_no_count_of_pages_ends_all() {
    for text in ["1 N0", "1 N", "1 Nx=1", "1 N0x1=1", "1 N=4", "1 N-1=4"] {
        let failure = parse_maps(text.as_bytes(), &NODES, 4096).unwrap_err();
        assert!(matches!(failure, Failure::NodeValue), "{text}: {failure}");
    }
}

#[test]
fn the_sum_of_a_process_is_over_its_categories() {
    let text = "1 heap N0=1 kernelpagesize_kB=4\n1 N0=2 N3=5 kernelpagesize_kB=4\n";
    let usage = parse_maps(text.as_bytes(), &NODES, 4096).unwrap();
    let row = usage.total_row(b"7 (x)".to_vec());
    assert_eq!(row.cells, [Some(3 * 4096), Some(5 * 4096)]);
    let largest = format!("1 N0={0} kernelpagesize_kB={0}\n", u64::MAX);
    let text = largest.repeat(8);
    parse_maps(text.as_bytes(), &NODES, 4096).unwrap();
}

fn machine() -> Snapshot {
    let mut machine = Snapshot::default();
    for (number, name, line) in [
        (1, "init", "/sbin/init\0"),
        (40, "web Content", "/usr/bin/browser\0--type\0tab\0"),
        (300, "kthread", ""),
        (5, "numastat", "numastat\0tab\0"),
    ] {
        let status = format!("Name:\t{name}\nPid:\t{number}\n");
        machine.add_file(&format!("/proc/{number}/status"), status);
        machine.add_file(&format!("/proc/{number}/cmdline"), line);
    }
    machine.add_folder("/proc/88");
    machine.add_folder("/proc/self");
    machine
}

fn selected(wanted: &[&str]) -> (Vec<Number>, String) {
    let wanted: Vec<Vec<u8>> = wanted.iter().map(|word| word.as_bytes().to_vec()).collect();
    let mut out = Vec::new();
    let numbers = select(&wanted, Some(5), &machine(), &mut out).unwrap();
    (numbers, String::from_utf8(out).unwrap())
}

#[test]
fn patterns_are_looked_for_in_names_and_command_lines() {
    for (pattern, expected) in [
        ("tab", vec![40]),
        ("b Con", vec![40]),
        ("Content /usr/bin/browser --type tab ", vec![40]),
        ("in", vec![1, 40]),
        ("thread", vec![300]),
        ("a", vec![40, 300]),
    ] {
        assert_eq!(selected(&[pattern]), (expected, String::new()), "{pattern}");
    }
    let (numbers, told) = selected(&["TAB", "Name:"]);
    assert!(numbers.is_empty());
    assert_eq!(
        told,
        "Found no processes containing pattern: \"TAB\"\n\
         Found no processes containing pattern: \"Name:\"\n"
    );
}

#[test]
fn digits_are_numbers_and_each_process_comes_once_in_order() {
    assert_eq!(selected(&["40", "tab", "007", "1"]).0, [1, 7, 40]);
    assert_eq!(selected(&[""]).0, [0]);
    assert!(selected(&["4x"]).0.is_empty());
    assert_eq!(
        selected(&["99999999999999999999"]).0,
        [i64::MAX.unsigned_abs()],
        "no other process is meant"
    );
}

#[test]
fn names_cannot_drive_a_terminal() {
    let mut machine = machine();
    machine.add_file("/proc/9/status", "Name:\t a\u{1b}[2J\tb \n");
    machine.add_file("/proc/10/status", "State: x\n");
    assert_eq!(read_name(9, &machine).unwrap(), b"a?[2J\tb ");
    assert_eq!(read_name(10, &machine), None);
    assert_eq!(read_name(88, &machine), None);
}

#[test]
fn a_process_that_is_gone_is_told_and_a_broken_file_ends_all() {
    let mut machine = machine();
    let mut err = Vec::new();
    let gone = read_usage(1, &NODES, 4096, &machine).unwrap_err();
    report(1, gone, &mut err).unwrap();
    assert_eq!(
        String::from_utf8(err).unwrap(),
        "Can't read /proc/1/numa_maps: No such file or directory\n"
    );
    machine.add_folder("/proc/1/numa_maps");
    let broken = read_usage(1, &NODES, 4096, &machine).unwrap_err();
    let failure = report(1, broken, &mut Vec::new()).unwrap_err();
    assert!(
        failure
            .to_string()
            .starts_with("Can't read /proc/1/numa_maps: is a dir"),
        "{failure}"
    );
}
