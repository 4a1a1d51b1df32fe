//! Nodes that are chosen.

use std::fmt::Write as _;

use homenode_host::Snapshot;
use serde_json::Value;

use crate::support::{four, four_with, stdout};

/// A network card behind a bridge on node 1, a disk on node 0, a volume on both.
fn add_devices(machine: &mut Snapshot) {
    for (address, class, node, below) in [
        ("0000:80:01.0", "0x060400", 1, "pci0000:80"),
        ("0000:81:00.0", "0x020000", -1, "pci0000:80/0000:80:01.0"),
        ("0000:01:00.0", "0x010802", 0, "pci0000:00"),
        ("0000:82:00.0", "0x010802", 1, "pci0000:80"),
        ("0000:02:00.0", "0x020000", -1, "pci0000:00"),
    ] {
        let real = format!("/sys/devices/{below}/{address}");
        machine.add_file(&format!("{real}/class"), format!("{class}\n"));
        machine.add_file(&format!("{real}/numa_node"), format!("{node}\n"));
        let link = format!("../../../devices/{below}/{address}");
        machine.add_link(&format!("/sys/bus/pci/devices/{address}"), &link);
    }
    for (class, name, path) in [
        (
            "net",
            "eth0",
            "pci0000:80/0000:80:01.0/0000:81:00.0/net/eth0",
        ),
        ("net", "eth9", "pci0000:00/0000:02:00.0/net/eth9"),
        (
            "block",
            "nvme0n1",
            "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1",
        ),
        (
            "block",
            "nvme0n1p1",
            "pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1",
        ),
        (
            "block",
            "nvme1n1",
            "pci0000:80/0000:82:00.0/nvme/nvme1/nvme1n1",
        ),
        ("block", "dm-0", "virtual/block/dm-0"),
    ] {
        machine.add_folder(&format!("/sys/devices/{path}"));
        let link = format!("../../devices/{path}");
        machine.add_link(&format!("/sys/class/{class}/{name}"), &link);
    }
    // What has a queue is a disk; what has none is a part of one.
    for disk in [
        "0000:01:00.0/nvme/nvme0/nvme0n1",
        "0000:82:00.0/nvme/nvme1/nvme1n1",
    ] {
        let bus = if disk.starts_with("0000:01") {
            "00"
        } else {
            "80"
        };
        machine.add_folder(&format!("/sys/devices/pci0000:{bus}/{disk}/queue"));
    }
    for disk in ["nvme0n1p1", "nvme1n1"] {
        machine.add_folder(&format!("/sys/devices/virtual/block/dm-0/slaves/{disk}"));
    }
}

#[test]
fn a_dry_run_in_json_says_how_nodes_were_chosen() {
    let machine = four("dry-json");
    let shown = machine.dry_run(&[
        "--on",
        "auto",
        "--need",
        "2cpu,5GiB",
        "--memory",
        "bind",
        "--json",
    ]);
    let shown: Value = serde_json::from_str(&shown).expect("JSON");
    assert_eq!(shown["schema"], "homenode.run/1");
    assert_eq!(shown["calls"][0]["call"], "sched_setaffinity");
    assert_eq!(shown["calls"][0]["cpus"], "4-7");
    assert_eq!(shown["calls"][1]["mode"], "MPOL_BIND");
    assert_eq!(shown["calls"][1]["nodes"], "1");
    assert_eq!(shown["calls"][2]["arguments"][0], "-x");
    assert_eq!(shown["placement"]["cpu_nodes"], "1");
}

#[test]
fn near_finds_devices_behind_bridges_partitions_and_volumes() {
    let machine = four_with("near", add_devices);
    for (device, cpus) in [
        ("eth0", "4-7"),
        ("81:00.0", "4-7"),
        ("pci:0000:81:00.0", "4-7"),
        ("netdev:eth0", "4-7"),
        ("nvme0n1", "0-3"),
        ("nvme0n1p1", "0-3"),
        ("block:nvme1n1", "4-7"),
        // On nodes 0 and 1; 1 has more memory left.
        ("dm-0", "4-7"),
    ] {
        let shown = machine.dry_run(&["--on", &format!("near:{device}")]);
        let first = shown.lines().next().unwrap_or_default();
        assert_eq!(first, format!("sched_setaffinity  CPUs {cpus}"), "{device}");
        let placed = machine.place(0, &["--near", device]);
        assert_eq!(placed["placement"]["cpus"], cpus, "{device}");
    }
    let shown = machine.dry_run(&["--on", "near:eth0"]);
    assert!(
        shown.contains("because            eth0 is on node 1\n"),
        "{shown}"
    );
}

#[test]
fn near_says_what_it_cannot_find() {
    let machine = four_with("not-near", add_devices);
    let (error, help) = machine.refuses(&["--on", "near:eth1"]);
    assert_eq!(error, "expected a device of this machine, found `eth1`");
    assert_eq!(
        help,
        "this machine has nvme0n1, eth9, eth0, nvme1n1; file:PATH is the disk of a file"
    );
    let (error, _) = machine.refuses(&["--on", "near:eth9"]);
    assert_eq!(
        error,
        "the machine does not say on which node eth9 is: the firmware does not say"
    );
    let (error, _) = machine.refuses(&["--on", "near:file:/etc/passwd"]);
    assert_eq!(
        error,
        "a captured machine does not hold the files of its disks"
    );
    machine.refuses(&["--on", "near:../../etc"]);
}

#[test]
fn place_names_nodes_and_says_when_nothing_fits() {
    let machine = four("place");
    for (cpus, memory, expected, status) in [
        ("4", "2GiB", ("1", "1"), 0),
        ("4", "7GiB", ("0", "0,2"), 0),
        ("8", "1GiB", ("0-1", "0-1"), 0),
        ("12", "1GiB", ("0-1,3", "0-1"), 0),
        ("2", "25GiB", ("0-1", "0-2"), 0),
        ("13", "1GiB", ("0-1,3", "0-1"), 1),
        ("1", "27GiB", ("0-1", "0-2"), 1),
    ] {
        let placed = machine.place(status, &["--cpus", cpus, "--memory", memory]);
        let found = &placed["placement"];
        assert_eq!(placed["fits"], status == 0);
        assert_eq!(
            (found["cpu_nodes"].as_str(), found["memory_nodes"].as_str()),
            (Some(expected.0), Some(expected.1)),
            "{cpus} CPUs, {memory}: {found:#}"
        );
    }
    let shown = stdout(&[
        "place",
        "--root",
        machine.root(),
        "--cpus",
        "4",
        "--memory",
        "7GiB",
    ]);
    assert!(
        shown.starts_with("nodes    0,2\nCPUs     0-3 of node 0\nmemory   of node 0,2\n"),
        "{shown}"
    );
    assert!(
        shown.ends_with("start it homenode run --on 0 --memory prefer --memory-on 0,2 -- CMD\n"),
        "{shown}"
    );
}

/// cpuset.mems, cpuset.cpus, cpu.max and memory.high of the groups above the one who asks.
#[test]
fn limits_of_the_control_group_count() {
    let machine = four_with("group", |machine| {
        for (file, text) in [
            (
                "/proc/self/status",
                "Cpus_allowed_list:\t4-6\nMems_allowed_list:\t1-2\n",
            ),
            ("/proc/self/cgroup", "0::/job.slice/one\n"),
            ("/sys/fs/cgroup/job.slice/cpu.max", "200000 100000\n"),
            ("/sys/fs/cgroup/job.slice/memory.high", "3221225472\n"),
            ("/sys/fs/cgroup/job.slice/memory.current", "1073741824\n"),
        ] {
            machine.add_file(file, text);
        }
    });
    let placed = machine.place(0, &["--cpus", "2", "--memory", "2GiB"]);
    assert_eq!(placed["placement"]["cpus"], "4-6");
    assert_eq!(placed["placement"]["memory_nodes"], "1");
    let placed = machine.place(1, &["--cpus", "3", "--memory", "4GiB"]);
    let lacking = placed["placement"]["shortfalls"].to_string();
    assert!(
        lacking.contains("200 ms of CPU time in 100 ms"),
        "{lacking}"
    );
    assert!(
        lacking.contains(
            "2 GiB left of the control group's limit in /sys/fs/cgroup/job.slice/memory.high"
        ),
        "{lacking}"
    );
    let warned = machine.dry_run(&["--need", "1cpu,4GiB"]);
    assert!(
        warned.starts_with("sched_setaffinity  CPUs 4-6\n"),
        "{warned}"
    );
}

#[test]
fn least_loaded_goes_by_what_the_cpus_did() {
    let machine = four_with("load", |machine| {
        let mut stat = String::from("cpu  1 1 1 1\n");
        for cpu in 0..12 {
            let busy = if cpu == 5 || cpu == 6 { 900 } else { 10 };
            writeln!(stat, "cpu{cpu} {busy} 0 0 {} 0 0 0 0 0 0", 1000 - busy).expect("a String");
        }
        machine.add_file("/proc/stat", stat);
    });
    assert!(
        machine
            .dry_run(&["--on", "least-loaded"])
            .starts_with("sched_setaffinity  CPUs 0-3\n")
    );
    // Without a word about load, node 1 has more room.
    let quiet = four("no-load");
    assert!(
        quiet
            .dry_run(&["--on", "auto"])
            .starts_with("sched_setaffinity  CPUs 4-7\n")
    );
}
