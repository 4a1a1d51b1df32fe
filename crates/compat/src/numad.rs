//! `numad -w CPUS[:MB]`: which nodes to start a process of that size on, for libvirt.
//!
//! The original's daemon is not replaced; its other options say so.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use homenode_host::Live;
use homenode_topology::{Detail, Node, Source, Topology, read_topology};
use homenode_units::NodeSet;

/// Answers for `numad` with these arguments.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    let topology = || read_topology(&Live, Source::Live, Detail::Fast).ok();
    match run(args, topology, &mut out, &mut err) {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

/// `None` when it failed, which has been said.
fn run(
    args: &[OsString],
    topology: impl FnOnce() -> Option<Topology>,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> Option<()> {
    let request = match args {
        [flag, request] if flag == "-w" => request.clone(),
        [joined] => joined
            .to_str()
            .and_then(|joined| joined.strip_prefix("-w"))
            .map(OsString::from)
            .unwrap_or_default(),
        _ => OsString::new(),
    };
    if request.is_empty() {
        let _ = writeln!(
            err,
            "numad: only -w CPUS[:MB] is answered here; no daemon runs\n\
             help: let the kernel balance memory: sysctl kernel.numa_balancing=1"
        );
        return None;
    }
    let Some(request) = parse(&request) else {
        let _ = writeln!(err, "Can't parse arg value(s): {}", request.display());
        return None;
    };
    let Some(topology) = topology() else {
        let _ = writeln!(err, "numad: cannot read this machine");
        return None;
    };
    let _ = writeln!(out, "{}", advise(&topology, request));
    Some(())
}

/// The size of a process to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Request {
    /// Unit: hundredths of a CPU.
    cpu_percent: u64,
    /// Unit: mebibytes.
    memory_mib: u64,
}

/// `CPUS[.FRACTION][:MB]`.
fn parse(text: &OsStr) -> Option<Request> {
    let text = text.to_str()?;
    let (cpus, memory) = text.split_once(':').unwrap_or((text, "0"));
    let (whole, fraction) = cpus.split_once('.').unwrap_or((cpus, "0"));
    let is_number = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if ![whole, fraction, memory].into_iter().all(is_number) {
        return None;
    }
    let hundredths: u64 = format!("{fraction:0<2}").get(..2)?.parse().ok()?;
    let cpu_percent = whole
        .parse::<u64>()
        .ok()?
        .checked_mul(100)?
        .checked_add(hundredths)?;
    Some(Request {
        cpu_percent,
        memory_mib: memory.parse().ok()?,
    })
}

/// The fewest nodes that hold the request, near to each other, and of those the ones with the most
/// free memory. A node without CPUs is only taken for memory that the others do not have.
fn advise(topology: &Topology, request: Request) -> NodeSet {
    let allowed = |node: &&Node| topology.allowed.nodes.contains(node.id);
    let nodes: Vec<&Node> = topology.nodes.iter().filter(allowed).collect();
    nodes
        .iter()
        .filter(|node| !node.cpus.is_empty())
        .map(|start| grow(topology, &nodes, start, request))
        .min_by_key(|choice| {
            (
                choice.nodes.len(),
                choice.distance,
                u64::MAX - choice.free_mib,
            )
        })
        .map(|choice| choice.nodes)
        .unwrap_or_default()
}

/// Nodes that were chosen together.
struct Choice {
    nodes: NodeSet,
    /// The sum of those to the first node.
    distance: u64,
    free_mib: u64,
}

/// Takes a node and its nearest ones until the request is met or no node is left that would help.
fn grow(topology: &Topology, nodes: &[&Node], start: &Node, request: Request) -> Choice {
    let distance = |node: &Node| {
        let table = topology.distances.known();
        let found = table.and_then(|table| table.get(start.id, node.id));
        found.map_or(0, |distance| u64::from(distance.0))
    };
    let mut near: Vec<&Node> = nodes.to_vec();
    near.sort_by_key(|node| (node.id != start.id, distance(node), node.id));
    let mut choice = Choice {
        nodes: NodeSet::new(),
        distance: 0,
        free_mib: 0,
    };
    let mut cpu_percent = 0u64;
    // First for CPUs, then for memory.
    for for_cpus in [true, false] {
        for node in &near {
            let met = if for_cpus {
                !choice.nodes.is_empty() && cpu_percent >= request.cpu_percent
            } else {
                choice.free_mib >= request.memory_mib
            };
            if met || choice.nodes.contains(node.id) || (for_cpus && node.cpus.is_empty()) {
                continue;
            }
            choice.nodes.insert(node.id);
            choice.distance += distance(node);
            choice.free_mib += node.memory_free.known().map_or(0, |free| free.mib());
            cpu_percent += 100 * u64::try_from(node.cpus.len()).unwrap_or(u64::MAX / 100);
        }
    }
    choice
}

#[cfg(test)]
mod tests {
    use homenode_host::Snapshot;

    use super::*;

    /// The reference's guest: nodes 0 and 1 with two CPUs each, node 2 with memory only.
    fn guest() -> Topology {
        let mut files = Snapshot::default();
        for (node, cpus, free_mib, row) in [
            (0, "0-1", 1300, "10 21 17"),
            (1, "2-3", 1400, "21 10 28"),
            (2, "", 1500, "17 28 10"),
        ] {
            let folder = format!("/sys/devices/system/node/node{node}");
            files.add_file(&format!("{folder}/cpulist"), format!("{cpus}\n"));
            files.add_file(&format!("{folder}/distance"), format!("{row}\n"));
            let meminfo = format!(
                "Node {node} MemTotal: 1572864 kB\nNode {node} MemFree: {} kB\n",
                free_mib * 1024
            );
            files.add_file(&format!("{folder}/meminfo"), meminfo);
        }
        files.add_file("/sys/devices/system/node/online", "0-2\n");
        for list in ["online", "present", "possible"] {
            files.add_file(&format!("/sys/devices/system/cpu/{list}"), "0-3\n");
        }
        for cpu in 0..4 {
            files.add_folder(&format!("/sys/devices/system/cpu/cpu{cpu}"));
        }
        read_topology(&files, Source::Live, Detail::Fast).unwrap()
    }

    fn advice(request: &str) -> String {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        run(
            &["-w".into(), request.into()],
            || Some(guest()),
            &mut out,
            &mut err,
        );
        String::from_utf8([out, err].concat()).unwrap()
    }

    #[test]
    fn nodes_without_cpus_are_taken_for_memory_only() {
        for (request, nodes) in [
            ("1", "1"),
            ("2", "1"),
            ("2:100", "1"),
            ("2.5:500", "0-1"),
            ("3", "0-1"),
            ("4", "0-1"),
            ("8", "0-1"),
            ("2:1350", "1"),
            ("2:2000", "0,2"),
            ("4:4000", "0-2"),
            ("8:99999", "0-2"),
        ] {
            assert_eq!(advice(request), format!("{nodes}\n"), "{request}");
        }
    }

    #[test]
    fn other_options_say_what_to_use() {
        for args in [&["-d"][..], &["-w"], &["-i", "0"], &[]] {
            let args: Vec<OsString> = args.iter().map(OsString::from).collect();
            let (mut out, mut err) = (Vec::new(), Vec::new());
            assert_eq!(run(&args, || None, &mut out, &mut err), None);
            assert!(
                out.is_empty() && err.starts_with(b"numad: only -w"),
                "{args:?}"
            );
        }
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let joined = [OsString::from("-w2:100")];
        run(&joined, || Some(guest()), &mut out, &mut err);
        assert_eq!(out, b"1\n");
    }

    #[test]
    fn what_is_no_request_is_named() {
        for request in ["x", "1:x", "1.x", "-1"] {
            let found = advice(request);
            assert_eq!(found, format!("Can't parse arg value(s): {request}\n"));
        }
    }
}
