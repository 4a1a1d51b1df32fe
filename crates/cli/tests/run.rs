//! `homenode run` and `homenode place`, as people and scripts meet them.
//!
//! The machine here may have one node; machines with more are written by hand, and real kernels
//! with more run lab/tests/guest/run.rs.

#![expect(clippy::disallowed_methods, reason = "tests look at files themselves")]

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use homenode_host::Snapshot;
use homenode_units::CpuSet;
use serde_json::Value;

const HOMENODE: &str = env!("CARGO_BIN_EXE_homenode");
const NODE: &str = "/sys/devices/system/node";
const CPU: &str = "/sys/devices/system/cpu";

fn homenode(arguments: &[&str]) -> Output {
    Command::new(HOMENODE)
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn stdout(arguments: &[&str]) -> String {
    let output = homenode(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The `error:` and the `help:` line of a run that must fail with this status.
fn refused(status: i32, arguments: &[&str]) -> (String, String) {
    let output = homenode(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}: {stderr}"
    );
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    let lines: Vec<&str> = stderr.lines().collect();
    let [error, help] = lines[..] else {
        panic!("{arguments:?}: {stderr}");
    };
    let strip = |line: &str, label: &str| line.strip_prefix(label).expect(label).to_owned();
    (strip(error, "error: "), strip(help, "help: "))
}

/// A folder that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("room for a folder");
        Self(path)
    }

    fn file(&self, name: &str, content: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("room for a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
        path.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A machine on disk: nodes with their CPUs, MiB in all and free, and distances.
struct Captured(Scratch);

impl Captured {
    fn new(name: &str, nodes: &[(&str, u64, u64, &str)], change: impl Fn(&mut Snapshot)) -> Self {
        let mut machine = Snapshot::default();
        let mut all = CpuSet::new();
        let mut meminfo = (0, 0);
        for (id, &(list, total, free, distances)) in nodes.iter().enumerate() {
            let cpus = CpuSet::parse_list(list).expect("a list");
            let folder = format!("{NODE}/node{id}");
            machine.add_file(&format!("{folder}/cpumap"), cpus.to_mask());
            machine.add_file(&format!("{folder}/distance"), format!("{distances}\n"));
            let mut text = String::new();
            for (key, mib) in [("MemTotal", total), ("MemFree", free)] {
                writeln!(text, "Node {id} {key}:  {} kB", mib * 1024).expect("a String");
            }
            machine.add_file(&format!("{folder}/meminfo"), text);
            meminfo = (meminfo.0 + total, meminfo.1 + free);
            for cpu in cpus.iter() {
                let topology = format!("{CPU}/cpu{cpu}/topology");
                machine.add_file(
                    &format!("{topology}/physical_package_id"),
                    format!("{id}\n"),
                );
                machine.add_file(&format!("{topology}/core_siblings"), cpus.to_mask());
            }
            all = all.union(&cpus);
        }
        let last = nodes.len() - 1;
        machine.add_file(&format!("{NODE}/online"), format!("0-{last}\n"));
        machine.add_file(&format!("{CPU}/online"), format!("{all}\n"));
        let (total, free) = meminfo;
        machine.add_file(
            "/proc/meminfo",
            format!(
                "MemTotal: {} kB\nMemFree: {} kB\n",
                total * 1024,
                free * 1024
            ),
        );
        change(&mut machine);
        let scratch = Scratch::new(name);
        machine.write_to(&scratch.0).expect("room for a machine");
        Self(scratch)
    }

    fn root(&self) -> &str {
        self.0.0.to_str().expect("a path of text")
    }

    fn dry_run(&self, arguments: &[&str]) -> String {
        let arguments: Vec<&str> = ["run", "--root", self.root(), "--dry-run"]
            .iter()
            .chain(arguments)
            .chain(&["--", "job", "-x"])
            .copied()
            .collect();
        stdout(&arguments)
    }

    fn refuses(&self, arguments: &[&str]) -> (String, String) {
        let arguments: Vec<&str> = ["run", "--root", self.root(), "--dry-run"]
            .iter()
            .chain(arguments)
            .chain(&["--", "job"])
            .copied()
            .collect();
        refused(2, &arguments)
    }

    fn place(&self, status: i32, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = ["place", "--json", "--root", self.root()]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let output = homenode(&arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// Two packages, a memory expander (node 2) and a package without memory (node 3).
fn four(name: &str) -> Captured {
    four_with(name, |_| {})
}

fn four_with(name: &str, change: impl Fn(&mut Snapshot)) -> Captured {
    Captured::new(
        name,
        &[
            ("0-3", 8192, 4096, "10 21 17 31"),
            ("4-7", 8192, 6144, "21 10 28 21"),
            ("", 16384, 16384, "17 28 10 31"),
            ("8-11", 0, 0, "31 21 31 10"),
        ],
        change,
    )
}

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
fn a_dry_run_shows_the_calls_in_order() {
    let machine = four("dry");
    for (arguments, expected) in [
        (&["--on", "1"][..], "sched_setaffinity  CPUs 4-7\n"),
        (&["--on", "0,1"], "sched_setaffinity  CPUs 0-7\n"),
        (
            &["--on", "0", "--memory", "bind"],
            "sched_setaffinity  CPUs 0-3\nset_mempolicy      MPOL_BIND, nodes 0\n",
        ),
        (
            &["--on", "0", "--memory-on", "2"],
            "sched_setaffinity  CPUs 0-3\nset_mempolicy      MPOL_BIND, nodes 2\n",
        ),
        (
            &["--memory", "interleave"],
            "set_mempolicy      MPOL_INTERLEAVE, nodes 0-2\n",
        ),
        (
            &["-i", "all"],
            "set_mempolicy      MPOL_INTERLEAVE, nodes 0-2\n",
        ),
        (
            &["-w", "0,2"],
            "set_mempolicy      MPOL_WEIGHTED_INTERLEAVE, nodes 0,2\n",
        ),
        (&["-p", "1"], "set_mempolicy      MPOL_PREFERRED, nodes 1\n"),
        (
            &["-P", "0,1"],
            "set_mempolicy      MPOL_PREFERRED_MANY, nodes 0-1\n",
        ),
        (&["-l"], "set_mempolicy      MPOL_LOCAL\n"),
        (
            &["-b", "-m", "0-1"],
            "set_mempolicy      MPOL_BIND | MPOL_F_NUMA_BALANCING, nodes 0-1\n",
        ),
        (
            &["-N", "0-1", "-C", "3-4", "-m", "0"],
            "sched_setaffinity  CPUs 3-4\nset_mempolicy      MPOL_BIND, nodes 0\n",
        ),
        (&["--cpus", "0x30"], "sched_setaffinity  CPUs 4-5\n"),
        (&["--cpunodebind=all"], "sched_setaffinity  CPUs 0-11\n"),
    ] {
        assert_eq!(
            machine.dry_run(arguments),
            format!("{expected}execvp             job -x\n"),
            "{arguments:?}"
        );
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
fn what_no_machine_can_do_is_refused_with_a_way_out() {
    let machine = four("refused");
    for (arguments, error, help) in [
        (
            &["--on", "2"][..],
            "node 2 has no CPUs",
            "use --memory-on 2 to use its memory, and --on 0 for the nearest CPUs",
        ),
        (
            &["--memory-on", "3"],
            "node 3 has no memory",
            "use --memory-on 1, the nearest memory, or leave memory to the kernel",
        ),
        (
            &["-m", "63"],
            "this machine has no node 63",
            "this machine has nodes 0-3",
        ),
        (
            &["-N", "0,63"],
            "this machine has no node 63",
            "this machine has nodes 0-3",
        ),
        (
            &["-m", "0,63"],
            "this machine has no node 63",
            "this machine has nodes 0-3",
        ),
        (
            &["--on", ""],
            "--on `` holds no node",
            "this machine has nodes 0-3",
        ),
        (
            &["-m", "1-0"],
            "cannot read --memory-on `1-0`: expected a range from low to high, found `1-0`; did you mean 0-1?",
            "this machine has nodes 0-3",
        ),
        (
            &["-i", "!0"],
            "cannot read --memory-on `!0`: expected a number or a range such as 0-3, found `!0`",
            "this machine has nodes 0-3",
        ),
        (
            &["--on", "0", "--cpus", "4"],
            "CPUs 4 are not on the nodes of --on",
            "those nodes have CPUs 0-3",
        ),
        (
            &["--cpus", ""],
            "--cpus `` holds no CPU",
            "write a list such as 0-3,8 or a mask such as 0x10000",
        ),
        (
            &["--memory", "bind"],
            "expected the nodes to take memory from, found none",
            "add --memory-on NODES, or --on NODES to use the same nodes for both",
        ),
        (
            &["--memory", "local", "--memory-on", "0"],
            "--memory local takes no nodes: they are those of the CPUs",
            "leave --memory-on out, or use --memory prefer",
        ),
        (
            &["-b", "-i", "0"],
            "--balancing does not go with --memory interleave",
            "the kernel knows it with bind and prefer",
        ),
        (
            &["-b", "--on", "0"],
            "--balancing needs nodes that memory is bound to",
            "add --memory bind, or leave --balancing out: without a policy AutoNUMA works anyway",
        ),
        (
            &[],
            "expected a place for the program, found none",
            "--on auto chooses one; --on 0 and --memory-on 0 name one",
        ),
        (
            &["--on", "near:"],
            "--on near: names no device",
            "name one, such as near:eth0 or near:file:/var/lib/data",
        ),
    ] {
        let found = machine.refuses(arguments);
        assert_eq!(found, (error.to_owned(), help.to_owned()), "{arguments:?}");
    }
}

#[test]
fn contradicting_policies_are_refused_by_the_command_line() {
    for arguments in [
        &["run", "-m", "0", "-i", "0", "true"][..],
        &["run", "-m", "0", "--memory-on", "0", "true"],
        &["run", "-l", "--memory", "bind", "true"],
        &["run", "--on", "0", "--json", "true"],
        &["run", "--on", "0", "--need", "lots", "true"],
        &["run", "-m", "0"],
    ] {
        let output = homenode(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).starts_with("error: "), "{arguments:?}");
    }
}

#[test]
fn a_cpuset_is_named_when_it_is_in_the_way() {
    let machine = four_with("cpuset", |machine| {
        machine.add_file(
            "/proc/self/status",
            "Name:\tx\nCpus_allowed_list:\t0-11\nMems_allowed_list:\t0,2\n",
        );
    });
    let (error, help) = machine.refuses(&["-m", "0-1"]);
    assert_eq!(
        error,
        "the cpuset of this process does not allow memory on node 1"
    );
    assert!(help.starts_with("it allows nodes 0,2;"), "{help}");
}

#[test]
fn a_need_that_the_bound_nodes_cannot_meet_is_warned_of() {
    let machine = four("need");
    let root = machine.root();
    let warned = |arguments: &[&str]| {
        let fixed = ["run", "--root", root, "--dry-run"];
        let words: Vec<&str> = fixed
            .iter()
            .chain(arguments)
            .chain(&["x"])
            .copied()
            .collect();
        let output = homenode(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(
        warned(&["-m", "0", "--need", "5GiB"]),
        "warning: 5 GiB needed, node 0 has 4 GiB free and at most 4 GiB to be had: bound strictly, \
         the program will be killed when that is used up; --memory prefer lets it use other nodes\n"
    );
    assert_eq!(warned(&["-m", "0-1", "--need", "5GiB"]), "");
    assert_eq!(warned(&["-p", "0", "--need", "5GiB"]), "");
    assert_eq!(
        warned(&["-N", "0", "--need", "8cpu"]),
        "warning: 8 CPUs needed, 4 chosen: CPUs 0-3\n"
    );
    assert_eq!(
        warned(&["--on", "auto", "--need", "64cpu"]),
        "warning: it does not fit: 64 CPUs asked for, 12 may be used here\n"
    );
}

#[test]
fn autonuma_is_said_to_stop_where_it_runs() {
    for (setting, noted) in [("1\n", true), ("0\n", false)] {
        let machine = four_with("balancing", |machine| {
            machine.add_file("/proc/sys/kernel/numa_balancing", setting);
        });
        let notes = |arguments: &[&str]| {
            let fixed = ["run", "--root", machine.root(), "--dry-run"];
            let words: Vec<&str> = fixed
                .iter()
                .chain(arguments)
                .chain(&["x"])
                .copied()
                .collect();
            text(&homenode(&words).stderr)
        };
        assert_eq!(notes(&["-m", "0"]).starts_with("note: "), noted);
        assert_eq!(notes(&["-m", "0", "--quiet"]), "");
        assert_eq!(notes(&["-b", "-m", "0"]), "");
        assert_eq!(notes(&["-N", "0"]), "");
    }
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

#[test]
fn a_captured_machine_runs_nothing() {
    let machine = four("captured");
    let (error, help) = refused(2, &["run", "--root", machine.root(), "--on", "0", "true"]);
    assert_eq!(error, "a captured machine runs nothing");
    assert!(help.starts_with("add --dry-run"), "{help}");
}

/// The lowest CPU that this process may use, which is on some node.
fn a_cpu() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("a live machine");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("a list");
    let cpus = CpuSet::parse_list(list).expect("a list");
    cpus.lowest().expect("a CPU").to_string()
}

#[test]
fn the_program_gets_its_cpus_policy_arguments_and_process_id() {
    let cpu = a_cpu();
    let script =
        "echo $$; grep -h Cpus_allowed_list /proc/self/status; cat; echo \"$0 $1\"; exit 7";
    let child = Command::new(HOMENODE)
        .args(["run", "-C", &cpu, "sh", "-c", script, "--name", "--root"])
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let id = child.id();
    let output = child.wait_with_output().expect("its output");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        text(&output.stdout),
        format!("{id}\nCpus_allowed_list:\t{cpu}\n--name --root\n")
    );
}

#[test]
fn the_policy_is_there_in_the_program() {
    let shown = homenode(&["run", "-m", "0", "cat", "/proc/self/numa_maps"]);
    if !shown.status.success() {
        eprintln!("skipped: {}", text(&shown.stderr));
        return;
    }
    let maps = text(&shown.stdout);
    assert!(!maps.is_empty());
    for line in maps.lines() {
        assert!(line.contains(" bind:0"), "{line}");
    }
}

#[test]
fn the_shells_words_for_what_cannot_be_started() {
    let scratch = Scratch::new("start");
    let cpu = a_cpu();
    let run = |program: &str, status| refused(status, &["run", "-C", &cpu, program]);
    assert_eq!(
        run("no-such-program-here", 127).0,
        "cannot execute no-such-program-here: No such file or directory (os error 2)"
    );
    run("/no/such/program", 127);
    let plain = scratch.file("plain", "text", 0o644);
    assert!(run(&plain, 126).1.starts_with("make it executable"));
    let lost = scratch.file("lost", "#!/no/such/interpreter\n", 0o755);
    assert_eq!(
        run(&lost, 126).1,
        "it is there, but its interpreter or loader is not"
    );
    // A script that does not say whose it is belongs to the shell.
    let bare = scratch.file("bare", "echo \"bare $1\"\n", 0o755);
    assert_eq!(stdout(&["run", "-C", &cpu, &bare, "x"]), "bare x\n");
}

#[test]
fn this_machine_has_no_node_1023() {
    for arguments in [
        &["run", "-m", "1023", "true"][..],
        &["run", "--on", "1023", "true"],
    ] {
        let (error, help) = refused(2, arguments);
        assert_eq!(error, "this machine has no node 1023");
        assert!(help.starts_with("this machine has nodes "), "{help}");
    }
}

#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn skipped<T>() -> Option<T> {
    eprintln!("skipped: strace cannot be used here");
    None
}

/// strace answers the call in the kernel's stead, as a seccomp filter or an old kernel would.
fn with_refused_call(errno: &str, arguments: &[&str]) -> Option<String> {
    let strace = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-e"])
        .arg(format!("inject=set_mempolicy:error={errno}"))
        .arg(HOMENODE)
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .output();
    match strace {
        Ok(output) if output.status.code() == Some(2) => Some(text(&output.stderr)),
        _ => skipped(),
    }
}

#[test]
fn a_containers_filter_is_explained() {
    let Some(stderr) = with_refused_call("EPERM", &["run", "-l", "true"]) else {
        return;
    };
    assert!(
        stderr.starts_with(
            "error: cannot set the memory policy MPOL_LOCAL: set_mempolicy is blocked, usually by \
             the seccomp filter of a container\nhelp: start the container with --cap-add SYS_NICE"
        ),
        "{stderr}"
    );
}

#[test]
fn an_old_kernel_is_told_which_one_is_needed() {
    for (arguments, version) in [
        (&["run", "-w", "0", "true"][..], "6.9"),
        (&["run", "-b", "-m", "0", "true"], "5.12"),
        (&["run", "-b", "-p", "0", "true"], "6.9"),
    ] {
        let Some(stderr) = with_refused_call("EINVAL", arguments) else {
            return;
        };
        assert!(
            stderr.contains(&format!("it needs Linux {version} or later, this is ")),
            "{stderr}"
        );
    }
}

#[test]
fn plain_nodes_are_checked_with_few_system_calls() {
    let scratch = Scratch::new("calls");
    let log = scratch.0.join("calls");
    let traced = Command::new("strace")
        .args([
            "-qq",
            "-e",
            "trace=open,openat,get_mempolicy,set_mempolicy,execve",
            "-o",
        ])
        .arg(&log)
        .args([HOMENODE, "run", "-m", "0", "true"])
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace cannot be used here");
        return;
    }
    let calls = fs::read_to_string(&log).expect("what strace wrote");
    let ours = calls.split("execve(").nth(1).expect("our own calls");
    assert!(!ours.contains("/sys/"), "the topology is not read:\n{ours}");
    assert_eq!(ours.matches("set_mempolicy(MPOL_BIND").count(), 1, "{ours}");
}
