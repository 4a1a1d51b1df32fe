//! Where homenode differs from upstream on purpose: the table of docs/drop-ins.md.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::pipe::{SpliceFlags, splice};

use crate::numactl::{Ran, link, run};
use crate::support::{node_file, node_set};

/// A difference: its name there, a command line, what upstream 2.0.19 does with it and what ours
/// does; part of what is printed, and the status.
struct Difference {
    name: &'static str,
    args: &'static str,
    theirs: (i32, &'static str),
    ours: (i32, &'static str),
}

const DIFFERENCES: [Difference; 11] = [
    Difference {
        name: "show-line",
        args: "numactl -l -s",
        theirs: (0, "preferred node: physcpubind: "),
        ours: (0, "preferred node: \nphyscpubind: "),
    },
    Difference {
        name: "show-balancing",
        args: "numactl -b -m 0 -s",
        theirs: (0, "policy: [8194]\n"),
        ours: (0, "policy: bind\npreferred node: 0\n"),
    },
    Difference {
        name: "show-preferred-many",
        args: "numactl -P 1 -s",
        theirs: (0, "preferred node: 0 (preferred-many)\n"),
        ours: (0, "preferred node: 1 (preferred-many)\n"),
    },
    Difference {
        name: "large-number",
        args: "numactl -m 4294967296 echo started",
        theirs: (0, "started\n"),
        ours: (1, "<4294967296> is invalid\n"),
    },
    Difference {
        name: "abbreviation",
        args: "numactl --ver",
        theirs: (1, "option '--ver' is ambiguous"),
        ours: (1, "--verify must be after shared memory specification"),
    },
    Difference {
        name: "relative-number",
        args: "numactl -m +77 true",
        theirs: (1, "node argument 1024 is out of range"),
        ours: (1, "node argument +77 is out of range"),
    },
    Difference {
        name: "region-offset",
        args: "numactl -L 64k -o 64k -f /tmp/region-offset -m 0 -T -V -D",
        theirs: (
            1,
            "region offset 0x10000 beyond its length 0x10000 at --touch",
        ),
        ours: (0, "0000000000010000-0000000000020000: 0\n"),
    },
    Difference {
        name: "region-preferred-many",
        args: "numactl -L 64k -f /tmp/region-many -P 0,1 -d",
        theirs: (0, "preferred-many : 0 \n"),
        ours: (0, "preferred-many : 0 1 \n"),
    },
    Difference {
        name: "inverted",
        args: "taskset 2 numactl -C !1 sh -c echo\u{a0}started",
        theirs: (0, "started\n"),
        ours: (1, "sched_setaffinity: Invalid argument\n"),
    },
    Difference {
        name: "region-weighted",
        args: "numactl -L 64k -f /tmp/region-weighted -w 0,1 -d",
        theirs: (0, ": interleave : 0 1 \n"),
        ours: (0, ": weighted-interleave : 0 1 \n"),
    },
    Difference {
        name: "pid-number",
        args: "migratepages 4294967297 0 0",
        theirs: (0, ""),
        ours: (1, "migrate_pages: No such process\n"),
    },
];

fn is_written(name: &str) {
    let written = include_str!("../../../docs/drop-ins.md");
    assert!(
        written.contains(&format!("| `{name}` |")),
        "docs/drop-ins.md says nothing of {name}"
    );
}

/// Runs Debian's tool and then ours.
fn run_both(before: &[&str], tool: &str, args: &[&str]) -> [Ran; 2] {
    let theirs = run(&Path::new("/usr/bin").join(tool), before, args);
    [theirs, run(&link(tool), before, args)]
}

#[test]
fn differences_are_those_that_are_written_down() {
    for Difference {
        name,
        args,
        theirs,
        ours,
    } in &DIFFERENCES
    {
        is_written(name);
        let is_weighted_known = Path::new("/sys/kernel/mm/mempolicy/weighted_interleave").exists();
        if node_set("has_memory").len() < 2 || (*name == "region-weighted" && !is_weighted_known) {
            continue;
        }
        let words: Vec<String> = args
            .split(' ')
            .map(|word| word.replace('\u{a0}', " "))
            .collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let (before, words) = match words.as_slice() {
            ["taskset", ..] => words.split_at(2),
            _ => (&[][..], &words[..]),
        };
        let (tool, words) = words.split_first().unwrap();
        let both = run_both(before, tool, words);
        for (who, ran, (status, text)) in [("theirs", &both[0], theirs), ("ours", &both[1], ours)] {
            assert_eq!(ran.status, *status, "{name}, {who}: {ran:?}");
            assert!(
                ran.out.contains(text) || ran.err.contains(text),
                "{name}, {who}: {ran:?}"
            );
        }
    }
}

/// `device-node`: upstream compares the number of a device's node with how many nodes the task may
/// have memory from.
#[test]
fn a_device_of_a_node_without_memory_is_found() {
    is_written("device-node");
    let memory = node_set("has_memory");
    let Some(node) = node_set("has_cpu").difference(&memory).lowest() else {
        return;
    };
    assert!(usize::try_from(node.0).unwrap() >= memory.len());
    let file = "/sys/bus/pci/devices/0000:00:00.0/numa_node";
    let before = fs::read_to_string(file).unwrap();
    fs::write(file, node.to_string()).unwrap();
    let allowed = "grep Cpus_allowed_list /proc/self/status";
    let [theirs, ours] = run_both(&[], "numactl", &["-N", "pci:0:0.0", "sh", "-c", allowed]);
    fs::write(file, before.trim()).unwrap();
    assert_eq!(theirs.status, 1, "{theirs:?}");
    assert!(theirs.err.contains("Cannot read node mask"), "{theirs:?}");
    let cpus = node_file(&format!("node{node}/cpulist"));
    assert_eq!(ours.status, 0, "{ours:?}");
    assert_eq!(ours.out, format!("Cpus_allowed_list:\t{cpus}\n"));
}

/// `migrate-left`: pages that cannot move are counted, and do not change the status.
#[test]
fn migratepages_tells_what_it_left() {
    is_written("migrate-left");
    let memory = node_set("has_memory");
    let (Some(from), Some(to)) = (memory.lowest(), memory.highest()) else {
        panic!("a machine without memory");
    };
    if from == to {
        return;
    }
    let (from, to) = (from.to_string(), to.to_string());
    // Pages of its program file, which a pipe holds too: they cannot move.
    let program = "/tmp/held-victim";
    let copied = Command::new("numactl")
        .args(["-m", &from, "cp", "/lab/bin/lab-victim", program])
        .status();
    assert!(copied.unwrap().success());
    let (pipe_end, other_end) = rustix::pipe::pipe().unwrap();
    let file = File::open(program).unwrap();
    let held = splice(
        &file,
        None,
        &other_end,
        None,
        16 * 4096,
        SpliceFlags::empty(),
    )
    .unwrap();
    assert!(held > 0);
    let mut victim = Command::new(program)
        .arg("1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(victim.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    let pid = victim.id().to_string();
    let [theirs, ours] = run_both(&[], "migratepages", &[&pid, &from, &to]);
    victim.kill().unwrap();
    victim.wait().unwrap();
    drop(pipe_end);
    fs::remove_file(program).unwrap();
    assert_eq!((theirs.status, theirs.err.as_str()), (0, ""));
    assert_eq!(ours.status, 0, "{ours:?}");
    assert!(
        ours.err.starts_with("migratepages: warning: ")
            && ours
                .err
                .ends_with(&format!(" pages of process {pid} could not be moved\n")),
        "{ours:?}"
    );
}
