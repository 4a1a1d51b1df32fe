use std::cell::RefCell;
use std::path::Path;

use homenode_host::{Files, Snapshot};
use homenode_units::NodeId;

use super::devices::{DeviceNumber, Route};
use super::*;

/// A machine that keeps a list of what was done to it.
///
/// Nodes 0 and 1 with CPUs 0-1 and 2-3, and node 4 with memory only. It may use all.
struct Fake {
    files: Snapshot,
    cpus: CpuSet,
    policy: Policy,
    numa: bool,
    /// A mode that this kernel does not have.
    refused: Option<PolicyMode>,
    done: Vec<String>,
    asked: RefCell<usize>,
}

impl Fake {
    fn new() -> Self {
        let mut files = Snapshot::default();
        for (node, mask) in [(0, "3"), (1, "c"), (4, "0")] {
            let path = format!("/sys/devices/system/node/node{node}/cpumap");
            files.add_file(&path, format!("{mask}\n"));
        }
        files.add_file(POSSIBLE_NODES, "0-7\n");
        files.add_file(POSSIBLE_CPUS, "0-7\n");
        files.add_link(
            "/sys/class/net/eth0",
            "../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/net/eth0",
        );
        files.add_file(
            "/sys/devices/pci0000:00/0000:00:01.0/0000:03:00.0/numa_node",
            "1\n",
        );
        files.add_link(
            "/sys/bus/pci/devices/0000:03:00.0",
            "../../../devices/pci0000:00/0000:00:01.0/0000:03:00.0",
        );
        files.add_link(
            "/sys/class/net/eth1",
            "../../devices/pci0000:00/0000:00:02.0/net/eth1",
        );
        files.add_file("/sys/devices/pci0000:00/0000:00:02.0/numa_node", "-1\n");
        files.add_link("/sys/class/net/lo", "../../devices/virtual/net/lo");
        files.add_link(
            "/sys/dev/char/226:128",
            "../../devices/pci0000:00/0000:00:01.0/0000:03:00.0/drm/renderD128",
        );
        files.add_file(
            "/proc/net/route",
            "\
Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\tMTU\tWindow\tIRTT
eth1\t00000000\t0100000A\t0003\t0\t0\t0\t00000000\t0\t0\t0
eth0\t0000000A\t00000000\t0001\t0\t0\t0\t000000FF\t0\t0\t0
",
        );
        Self {
            files,
            cpus: CpuSet::parse_list("0-3").unwrap(),
            policy: Policy::default(),
            numa: true,
            refused: None,
            done: Vec::new(),
            asked: RefCell::new(0),
        }
    }
}

fn refused() -> io::Error {
    io::Error::from_raw_os_error(22)
}

impl System for Fake {
    fn files(&self) -> &(dyn Files + Sync) {
        &self.files
    }

    fn has_numa(&self) -> bool {
        self.numa
    }

    fn allowed_nodes(&self) -> NodeSet {
        *self.asked.borrow_mut() += 1;
        NodeSet::parse_list("0-1,4").unwrap()
    }

    fn affinity(&self) -> io::Result<CpuSet> {
        Ok(self.cpus.clone())
    }

    fn set_affinity(&mut self, cpus: &CpuSet) -> io::Result<()> {
        if cpus.is_empty() {
            return Err(refused());
        }
        self.done.push(format!("cpus {cpus}"));
        self.cpus = cpus.clone();
        Ok(())
    }

    fn policy(&self) -> io::Result<Policy> {
        Ok(self.policy.clone())
    }

    fn set_policy(&mut self, policy: &Policy) -> io::Result<()> {
        let needs_nodes = !matches!(policy.mode, PolicyMode::Default | PolicyMode::Local);
        if needs_nodes == policy.nodes.is_empty() || self.refused == Some(policy.mode) {
            return Err(refused());
        }
        let balancing = if policy.flags.numa_balancing {
            " balancing"
        } else {
            ""
        };
        self.done
            .push(format!("{} {}{balancing}", policy.mode, policy.nodes));
        self.policy = policy.clone();
        Ok(())
    }

    fn next_interleave_node(&self) -> Option<NodeId> {
        self.policy.nodes.lowest()
    }

    fn device_of(&self, path: &Path) -> io::Result<DeviceNumber> {
        match path.to_str() {
            Some("/dev/dri/renderD128") => Ok(DeviceNumber::new("char", 226 << 8 | 128)),
            _ => Err(io::Error::from(io::ErrorKind::NotFound)),
        }
    }

    fn routes_to(&self, host: &str) -> io::Result<Vec<Route>> {
        let to = host.parse().map_err(io::Error::other)?;
        let from = [10, 0, 0, 9].into();
        Ok(vec![Route { to, from }])
    }

    fn exec(&mut self, command: &[OsString]) -> io::Error {
        let words: Vec<_> = command.iter().map(|word| word.to_string_lossy()).collect();
        self.done.push(format!("exec {}", words.join(" ")));
        io::Error::from_raw_os_error(2)
    }
}

/// What a command line does, prints and complains of. `exec` always comes back here.
fn on(system: &mut Fake, line: &str) -> (String, String, String) {
    let args: Vec<OsString> = line
        .split(' ')
        .map(|word| OsString::from(word.trim_matches('\'')))
        .collect();
    let (mut out, mut err) = (Vec::new(), Vec::new());
    assert_eq!(
        run(system, &args, &mut out, &mut err),
        u8::from(!err.is_empty())
    );
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let complaint: String = text(err)
        .lines()
        .take_while(|line| !line.starts_with("usage: "))
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ");
    (system.done.join("; "), text(out), complaint)
}

fn done(line: &str) -> String {
    let (done, out, err) = on(&mut Fake::new(), line);
    assert_eq!(out, "", "{line}");
    assert_eq!(
        err, "numactl: execution of `ls': No such file or directory",
        "{line}"
    );
    done
}

#[test]
fn options_act_in_their_order_and_then_the_command_runs() {
    for (line, expected) in [
        ("ls -m 0", "exec ls -m 0"),
        ("-m 0 ls", "MPOL_BIND 0; exec ls"),
        ("-N 1 -m same ls", "cpus 2-3; MPOL_BIND 1; exec ls"),
        ("-m 1 -N same ls", "MPOL_BIND 1; cpus 2-3; exec ls"),
        ("-b -m 0,4 ls", "MPOL_BIND 0,4 balancing; exec ls"),
        ("-b -i all ls", "MPOL_INTERLEAVE 0-1,4; exec ls"),
        ("-w 0-1 ls", "MPOL_WEIGHTED_INTERLEAVE 0-1; exec ls"),
        ("-i '' ls", "MPOL_DEFAULT ; exec ls"),
        ("-i !all ls", "MPOL_DEFAULT ; exec ls"),
        ("-p +2 ls", "MPOL_PREFERRED 4; exec ls"),
        ("-P 0,4 ls", "MPOL_PREFERRED_MANY 0,4; exec ls"),
        ("-l ls", "MPOL_LOCAL ; exec ls"),
        ("-N 0,4 ls", "cpus 0-1; exec ls"),
        ("-a -m 6 ls", "MPOL_BIND 6; exec ls"),
        ("-a -C 7 ls", "cpus 7; exec ls"),
        ("-m !0 ls", "MPOL_BIND 1,4; exec ls"),
        // CPUs are about what was inherited, not about what -N has left.
        ("-N 0 -C 3 ls", "cpus 0-1; cpus 3; exec ls"),
    ] {
        assert_eq!(done(line), expected, "{line}");
    }
}

#[test]
fn devices_are_found_behind_bridges_and_by_address() {
    for (device, expected) in [
        ("netdev:eth0", "MPOL_BIND 1; exec ls"),
        ("pci:03:00.0", "MPOL_BIND 1; exec ls"),
        ("pci:0000:03:00", "MPOL_BIND 1; exec ls"),
        ("file:/dev/dri/renderD128", "MPOL_BIND 1; exec ls"),
        ("ip:10.0.0.7", "MPOL_BIND 1; exec ls"),
        ("0,netdev:eth0", "MPOL_BIND 0-1; exec ls"),
    ] {
        assert_eq!(done(&format!("-m {device} ls")), expected, "{device}");
    }
    for (device, warning) in [
        ("netdev:lo", "Cannot read node mask for net device `lo'"),
        (
            "netdev:../eth0",
            "Cannot read node mask for net device `../eth0'",
        ),
        (
            "netdev:eth1",
            "Kernel does not know node mask for device `/devices/pci0000:00/0000:00:02.0/'",
        ),
        (
            "ip:192.0.2.1",
            "Kernel does not know node mask for device `/devices/pci0000:00/0000:00:02.0/'",
        ),
        ("ip:127.0.0.1", "Cannot read node mask for net device `lo'"),
        ("pci:04:00.0", "Cannot read node mask for device `04:00.0'"),
        ("pci:zz", "Cannot parse PCI device `zz'"),
        ("file:/nope", "Cannot stat file /nope"),
    ] {
        let (done, out, err) = on(&mut Fake::new(), &format!("-m {device} ls"));
        assert_eq!(err, format!("libnuma: Warning: {warning}"), "{device}");
        assert_eq!(
            (done, out),
            (String::new(), format!("<{device}> is invalid\n"))
        );
    }
}

/// What is complained of, after what was done and printed.
#[test]
fn complaints_go_where_upstream_puts_them() {
    for (line, expected_done, expected_out, expected_err) in [
        (
            "-m 9 ls",
            "",
            "<9> is invalid\n",
            "libnuma: Warning: node argument 9 is out of range",
        ),
        ("-m 1x ls", "", "<1x> is invalid\n", ""),
        (
            "-m '' ls",
            "",
            "",
            "set_mempolicy: Invalid argument; setting membind: Invalid argument",
        ),
        (
            "-P '' ls",
            "MPOL_PREFERRED_MANY 0; MPOL_DEFAULT ",
            "",
            "set_mempolicy: Invalid argument; setting preferred node: Invalid argument",
        ),
        (
            "-N 4 ls",
            "",
            "",
            "numa_sched_setaffinity_v2_int() failed: Invalid argument; sched_setaffinity: Invalid argument",
        ),
        ("-C '' ls", "", "", "sched_setaffinity: Invalid argument"),
        (
            "-m 0 -i 1 ls",
            "MPOL_BIND 0",
            "",
            "numactl: Conflicting policies",
        ),
        (
            "-m 0 -H",
            "MPOL_BIND 0",
            "",
            "numactl: specify policy after --shm/--file",
        ),
        (
            "-C 0 -m same",
            "cpus 0",
            "",
            "numactl: same needs previous node specification",
        ),
        (
            "-m 0 -a ls",
            "MPOL_BIND 0",
            "",
            "numactl: --all/-a option must be before all cpu/node specifications",
        ),
        ("-p 0,1 ls", "", "", ""),
        ("-m 0", "MPOL_BIND 0", "", ""),
        ("-q ls", "", "", "numactl: invalid option -- 'q'"),
        ("--help", "", "", "numactl: unrecognized option '--help'"),
        (
            "-L 1m ls",
            "",
            "",
            "numactl: shm related option --length for process",
        ),
        (
            "-u -L 1m -C 0 ls",
            "",
            "",
            "numactl: --length shm option is not allowed before -C/--physcpubind",
        ),
        (
            "-T",
            "",
            "",
            "numactl: --touch must be after shared memory specification",
        ),
        (
            "-d",
            "",
            "",
            "numactl: Cannot do --dump without shared memory.",
        ),
        ("-M 9 ls", "", "", ""),
    ] {
        let (done, out, err) = on(&mut Fake::new(), line);
        assert_eq!(
            (&*done, &*out, &*err),
            (expected_done, expected_out, expected_err),
            "{line}"
        );
    }
}

#[test]
fn kernels_without_policies_or_without_a_mode_are_named() {
    let without = || Fake {
        numa: false,
        ..Fake::new()
    };
    for line in ["-m 0 ls", "-N 0 ls", "-l ls", "-i all ls"] {
        let (done, _, err) = on(&mut without(), line);
        assert_eq!(done, "", "{line}");
        assert_eq!(err, "numactl: This system does not support NUMA policy");
    }
    assert_eq!(on(&mut without(), "-C 0 ls").0, "cpus 0; exec ls");
    let shown = |args: &[&str]| {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let status = run(&mut without(), &args, &mut out, &mut err);
        assert!(err.is_empty());
        (status, String::from_utf8(out).unwrap())
    };
    assert_eq!(
        shown(&["-H"]),
        (1, "No NUMA available on this system\n".to_owned())
    );
    assert_eq!(
        shown(&["-s"]),
        (
            1,
            "physcpubind: 0 1 2 3 \nNo NUMA support available on this system.\n".to_owned()
        )
    );
    let mut old = Fake {
        refused: Some(PolicyMode::PreferredMany),
        ..Fake::new()
    };
    assert_eq!(
        on(&mut old, "-P 0 ls").2,
        "numactl: preferred-many requested without kernel support"
    );
}

#[test]
fn a_bound_command_costs_one_question() {
    let mut system = Fake::new();
    on(&mut system, "-m 0 ls");
    assert_eq!(*system.asked.borrow(), 1);
}

#[test]
fn show_counts_what_stands_before_it() {
    for (line, expected) in [
        (
            "-s",
            "policy: default\npreferred node: current\nphyscpubind: 0 1 2 3 \ncpubind: 0 1 \nnodebind: 0 1 \nmembind: 0 1 4 \npreferred: \n",
        ),
        (
            "-N 1 -m 4 -s -m 9",
            "policy: bind\npreferred node: 4\nphyscpubind: 2 3 \ncpubind: 1 \nnodebind: 1 \nmembind: 4 \npreferred: 4 \n",
        ),
        (
            "-i 1,4 -s",
            "policy: interleave\npreferred node: 1 (interleave next)\ninterleavemask: 1 4 \ninterleavenode: 1\nphyscpubind: 0 1 2 3 \ncpubind: 0 1 \nnodebind: 0 1 \nmembind: 0 1 4 \npreferred: 1 4 \n",
        ),
        (
            "-w 0-1 -s",
            "policy: weighted-interleave\npreferred node: 0 (interleave next)\ninterleavemask: 0 1 \ninterleaveweights: 1 1\ninterleavenode: 0\nphyscpubind: 0 1 2 3 \ncpubind: 0 1 \nnodebind: 0 1 \nmembind: 0 1 4 \npreferred: 0 1 \n",
        ),
        (
            "-P 1 -s",
            "policy: preferred-many\npreferred node: 1 (preferred-many)\nphyscpubind: 0 1 2 3 \ncpubind: 0 1 \nnodebind: 0 1 \nmembind: 0 1 4 \npreferred: 1 \n",
        ),
        (
            "-l -s",
            "policy: local\npreferred node: \nphyscpubind: 0 1 2 3 \ncpubind: 0 1 \nnodebind: 0 1 \nmembind: 0 1 4 \npreferred: \n",
        ),
    ] {
        let (_, out, err) = on(&mut Fake::new(), line);
        assert_eq!((&*out, &*err), (expected, ""), "{line}");
    }
}
