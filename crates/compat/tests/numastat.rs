//! `numastat` on machines written by hand: whole outputs, exit statuses, and any text.

use std::ffi::OsString;

use homenode_compat::numastat::{Surroundings, run};
use homenode_host::Snapshot;
use proptest::prelude::*;

/// What a command line gives.
#[derive(Debug, PartialEq, Eq)]
struct Answer {
    code: u8,
    out: String,
    err: String,
}

fn surroundings() -> Surroundings {
    Surroundings {
        width: None,
        is_terminal: false,
        page_bytes: 4096,
        own_pid: None,
    }
}

fn answer_in(machine: &Snapshot, line: &str, surroundings: &Surroundings) -> Answer {
    let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code =
        run(&args, machine, surroundings, &mut out, &mut err).expect("a Vec takes everything");
    Answer {
        code,
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
    }
}

fn answer(machine: &Snapshot, line: &str) -> Answer {
    answer_in(machine, line, &surroundings())
}

/// Two nodes with a gap between their numbers, and processes: two readable, one another user's.
fn machine() -> Snapshot {
    let mut machine = Snapshot::default();
    for (node, hit, total_kib) in [(0, 512, 1_048_576), (2, 128, 4_194_432)] {
        let folder = format!("/sys/devices/system/node/node{node}");
        machine.add_file(
            &format!("{folder}/numastat"),
            format!("numa_hit {hit}\nnuma_miss 0\n"),
        );
        machine.add_file(
            &format!("{folder}/meminfo"),
            format!("Node {node} MemTotal:  {total_kib} kB\nNode {node} MemFree: 0 kB\n"),
        );
    }
    for (pid, name, maps) in [
        (
            1,
            "init",
            Some(
                "1 default heap N0=1 N2=3 kernelpagesize_kB=1024\n2 default N0=4 kernelpagesize_kB=1024\n",
            ),
        ),
        (
            70,
            "db",
            Some("1 default huge N2=8 kernelpagesize_kB=2048\n"),
        ),
        (90, "secret", None),
    ] {
        machine.add_file(&format!("/proc/{pid}/status"), format!("Name:\t{name}\n"));
        machine.add_file(&format!("/proc/{pid}/cmdline"), format!("/bin/{name}\0"));
        if let Some(maps) = maps {
            machine.add_file(&format!("/proc/{pid}/numa_maps"), maps);
        }
    }
    machine
}

#[test]
fn without_arguments_pages_are_counted() {
    let expected = "                           node0           node2\n\
                    numa_hit                     512             128\n\
                    numa_miss                      0               0\n";
    let found = answer(&machine(), "");
    assert_eq!((found.code, found.out.as_str()), (0, expected));
    assert_eq!(found.err, "");
}

#[test]
fn meminfo_comes_before_counters_in_megabytes() {
    let expected = "
Per-node system memory usage (in MBs):
                          Node 0          Node 2           Total
                 --------------- --------------- ---------------
MemTotal                 1024.00         4096.12         5120.12
MemFree                     0.00            0.00            0.00

Per-node numastat info (in MBs):
                          Node 0          Node 2           Total
                 --------------- --------------- ---------------
Numa_Hit                    2.00            0.50            2.50
Numa_Miss                   0.00            0.00            0.00
";
    assert_eq!(answer(&machine(), "-nm").out, expected);
    // Flags that ask for no table show the counters.
    let counters = &expected[expected.rfind("\nPer").unwrap()..];
    assert_eq!(answer(&machine(), "-v").out, counters);
    assert_eq!(answer(&machine(), "--").out, counters);
}

#[test]
fn a_process_is_shown_by_category() {
    let expected = "
Per-node process memory usage (in MBs) for PID 1 (init)
                           Node 0          Node 2           Total
                  --------------- --------------- ---------------
Huge                         0.00            0.00            0.00
Heap                         1.00            3.00            4.00
Stack                        0.00            0.00            0.00
Private                      4.00            0.00            4.00
----------------  --------------- --------------- ---------------
Total                        5.00            3.00            8.00
";
    for line in ["1", "-p1", "init", "-p 1 init 1"] {
        assert_eq!(answer(&machine(), line).out, expected, "{line}");
    }
}

#[test]
fn several_processes_are_rows_unless_verbose() {
    let expected = "
Per-node process memory usage (in MBs)
PID       Node 0 Node 2 Total
--------  ------ ------ -----
70 (db)        0     16    16
1 (init)       5      3     8
--------  ------ ------ -----
Total          5     19    24
";
    assert_eq!(answer(&machine(), "-cs 70 db 1 -p1").out, expected);
    // A row that holds nothing stands for what cannot be read, as upstream has it.
    let found = answer(&machine(), "bin").out;
    assert!(
        found.contains("\n90 (secret)                  0.00 "),
        "{found}"
    );
    let verbose = answer(&machine(), "-v 70 1").out;
    let titles: Vec<&str> = verbose
        .lines()
        .filter(|line| line.contains("PID"))
        .collect();
    assert_eq!(
        titles,
        [
            "Per-node process memory usage (in MBs) for PID 1 (init)",
            "Per-node process memory usage (in MBs) for PID 70 (db)"
        ]
    );
}

#[test]
fn an_unreadable_process_leaves_the_others() {
    for line in ["1 90", "90 1", "1 90 91"] {
        let found = answer(&machine(), line);
        assert_eq!(found.code, 0, "{line}");
        assert!(
            found
                .err
                .starts_with("Can't read /proc/90/numa_maps: No such file or directory\n"),
            "{line}: {}",
            found.err
        );
        assert!(
            found
                .out
                .contains("\n1 (init)                     5.00            3.00            8.00\n"),
            "{line}: {}",
            found.out
        );
    }
    let found = answer(&machine(), "91");
    assert_eq!(
        (found.code, found.out.as_str()),
        (
            0,
            "\nPer-node process memory usage (in MBs) for PID 91 ((null))\n"
        )
    );
    let found = answer(&machine(), "90 91");
    assert_eq!(found.out, "\nPer-node process memory usage (in MBs)\n");
    assert_eq!(found.err.lines().count(), 2);
}

#[test]
fn a_pattern_without_processes_leads_to_the_counters() {
    let found = answer(&machine(), "zork");
    assert_eq!(found.code, 0);
    assert!(
        found.out.starts_with(
            "Found no processes containing pattern: \"zork\"\n\nPer-node numastat info"
        ),
        "{}",
        found.out
    );
    let found = answer(&machine(), "zork -m").out;
    assert!(!found.contains("numastat info"), "{found}");
}

#[test]
fn errors_end_with_1_behind_what_was_printed() {
    let mut broken = machine();
    broken.remove("/sys/devices/system/node/node2/meminfo");
    broken.add_file("/proc/1/numa_maps", "1 N0 N1\n");
    let found = answer(&broken, "-m 70");
    assert_eq!(found.code, 1);
    assert!(
        found
            .out
            .ends_with("\nPer-node system memory usage (in MBs):\n")
    );
    assert_eq!(
        found.err,
        "cannot open /sys/devices/system/node/node2/meminfo: No such file or directory\n"
    );
    let found = answer(&broken, "1");
    assert_eq!(found.code, 1);
    assert_eq!(found.err, "node value parse error: Invalid argument\n");

    for nowhere in [Snapshot::default(), {
        let mut machine = Snapshot::default();
        machine.add_folder("/sys/devices/system/node");
        machine
    }] {
        let found = answer(&nowhere, "");
        assert_eq!((found.code, found.out.as_str()), (1, ""));
        assert!(
            found
                .err
                .starts_with("sysfs not mounted or system not NUMA aware: "),
            "{}",
            found.err
        );
        let found = answer(&nowhere, "-m");
        assert_eq!(found.code, 1);
        assert!(
            found
                .err
                .starts_with("Couldn't open /sys/devices/system/node: "),
            "{}",
            found.err
        );
    }
}

#[test]
fn the_width_is_that_of_the_environment_else_80_on_a_terminal() {
    let lines = |width: Option<&str>, is_terminal| {
        let surroundings = Surroundings {
            width: width.map(OsString::from),
            is_terminal,
            ..surroundings()
        };
        let found = answer_in(&machine(), "-n", &surroundings).out;
        found.matches("Numa_Hit").count()
    };
    let mut wide = machine();
    for node in 3..9 {
        let folder = format!("/sys/devices/system/node/node{node}");
        wide.add_file(&format!("{folder}/numastat"), "numa_hit 1\n");
    }
    assert_eq!([lines(None, false), lines(None, true)], [1, 1]);
    for (width, blocks) in [
        ("64", 1),
        ("63", 2),
        (" 48x", 2),
        ("1", 3),
        ("0", 1),
        ("", 1),
    ] {
        assert_eq!(lines(Some(width), false), blocks, "`{width}`");
        assert_eq!(lines(Some(width), true), blocks, "`{width}`");
    }
    let narrow = Surroundings {
        width: Some("1".into()),
        ..surroundings()
    };
    let found = answer_in(&machine(), "-cn", &narrow).out;
    assert_eq!(found.matches("Numa_Hit").count(), 1, "32 is the least");
    let blocks = |surroundings: &Surroundings| {
        answer_in(&wide, "", surroundings)
            .out
            .matches("numa_hit")
            .count()
    };
    let terminal = Surroundings {
        is_terminal: true,
        ..surroundings()
    };
    assert_eq!([blocks(&surroundings()), blocks(&terminal)], [1, 2]);
    for unusable in ["0", "", "wide", "-1", "10000001", "99999999999999999999"] {
        let surroundings = Surroundings {
            width: Some(unusable.into()),
            ..surroundings()
        };
        assert_eq!(blocks(&surroundings), 2, "`{unusable}` counts as 80");
    }
}

#[test]
fn version_and_usage_read_no_machine() {
    let nowhere = Snapshot::default();
    let found = answer(&nowhere, "-mV");
    assert_eq!(found.code, 0);
    let words: Vec<&str> = found.out.split_whitespace().collect();
    assert_eq!(words[..3], ["numastat", "version:", "2.0.19:"]);
    for (line, first) in [
        ("-?", "Usage: numastat [-c]"),
        ("--help", "Usage: numastat [-c]"),
        ("-x", "numastat: invalid option -- 'x'\nUsage: "),
        (
            "-p",
            "numastat: option requires an argument -- 'p'\nUsage: ",
        ),
    ] {
        let found = answer(&nowhere, line);
        assert_eq!((found.code, found.out.as_str()), (1, ""), "{line}");
        assert!(found.err.starts_with(first), "{line}: {}", found.err);
        assert!(
            found
                .err
                .ends_with("-z to skip rows and columns of zeros\n")
        );
    }
}

/// Words of the kernel's files, whole and broken, so that random texts reach deep.
fn texts() -> impl Strategy<Value = Vec<u8>> {
    let words = prop_oneof![
        Just("Node 0 MemTotal:".to_owned()),
        Just("Node".to_owned()),
        Just("HugePages_Total:".to_owned()),
        Just("kB\n".to_owned()),
        Just("numa_hit".to_owned()),
        Just("heap".to_owned()),
        Just("huge\n".to_owned()),
        Just("kernelpagesize_kB=".to_owned()),
        Just("Name:\t".to_owned()),
        "N[0-9]{0,25}=?[0-9]{0,25}",
        "kernelpagesize_kB=[0-9]{0,25}",
        "[0-9]{0,30}",
        any::<String>(),
    ];
    let text = prop::collection::vec(words, 0..40).prop_map(|words| words.join(" ").into_bytes());
    prop_oneof![text, prop::collection::vec(any::<u8>(), 0..200)]
}

proptest! {
    #[test]
    fn no_text_panics(
        texts in prop::array::uniform6(texts()),
        hugepages in texts(),
        line in prop_oneof![
            Just(""), Just("-mn"), Just("-cmn"), Just("-zmns0"), Just("-v 1 2"), Just("1 2"),
            Just("-cz 1"), Just("-s a"), Just("-czs2 e 1 2"),
        ],
        width in prop_oneof![Just(None), "[0-9]{0,4}".prop_map(Some)],
    ) {
        let mut machine = Snapshot::default();
        let node = "/sys/devices/system/node/node";
        for (path, text) in [
            format!("{node}0/meminfo"), format!("{node}2/meminfo"),
            format!("{node}0/numastat"), format!("{node}2/numastat"),
            "/proc/1/numa_maps".to_owned(), "/proc/2/numa_maps".to_owned(),
        ].into_iter().zip(texts.clone()) {
            machine.add_file(&path, text);
        }
        machine.add_file(&format!("{node}0/hugepages/hugepages-2048kB/nr_hugepages"), hugepages.clone());
        machine.add_file("/proc/1/status", texts[0].clone());
        machine.add_file("/proc/1/cmdline", hugepages);
        machine.add_file("/proc/meminfo", texts[1].clone());
        let surroundings = Surroundings { width: width.map(OsString::from), ..surroundings() };
        let found = answer_in(&machine, line, &surroundings);
        prop_assert!(found.code <= 1);
        prop_assert_eq!(found.code == 1, !found.err.is_empty() && !found.err.starts_with("Can't read"));
    }
}
