//! homenode under the names `memhog` and `migratepages` does what Debian's do.

use std::fs;
use std::process::Command;

use homenode_units::NodeId;

use crate::numactl::{assert_same, compare_tools, link, run};
use crate::support::node_set;

#[test]
fn memhog_prints_the_same() {
    let mut differences = Vec::new();
    for line in [
        "15m",
        "1MB",
        "-r3 1m",
        "-H 1m",
        "1m membind 0",
        "1m --interleave all",
        "1m local x",
        "1m preferred 0",
        "1m preferred-many all",
        "1m default 0",
        "1m membind 99",
        "x",
        "0",
        "-f/nope/f 1m",
        "1m membind netdev:lo",
        "1m interleave !all",
    ] {
        let args: Vec<&str> = line.split(' ').collect();
        compare_tools("memhog", &[], &args, &mut differences);
        compare_tools(
            "memhog",
            &[],
            &[&["-r2"], &args[..]].concat(),
            &mut differences,
        );
    }
    assert_same(&differences);
}

#[test]
fn migratepages_prints_the_same() {
    let mut differences = Vec::new();
    let own = std::process::id().to_string();
    for args in [
        &[&*own, "0", "0"][..],
        &[&own, "all", "0"],
        &[&own, "99", "0"],
        &[&own, "0", "99"],
        &[&own, "0", ""],
        &[&own, "", "0"],
        &[&own, "0", "netdev:lo"],
        &["99999999", "0", "0"],
        &["x", "0", "0"],
        &["1"],
        &["-h"],
        &[],
    ] {
        compare_tools("migratepages", &[], args, &mut differences);
    }
    assert_same(&differences);
}

/// The memory of a process ends where it was sent.
#[test]
fn migratepages_moves_the_memory() {
    let nodes = node_set("has_memory");
    let (Some(from), Some(to)) = (nodes.lowest(), nodes.highest()) else {
        panic!("a machine without memory");
    };
    if from == to {
        return;
    }
    // The shell takes numactl's place, so the child's number is the shell's.
    let mut child = Command::new(link("numactl"))
        .args(["-m", &from.to_string(), "sh", "-c", "echo; read line"])
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    // Its line says that it runs.
    let mut line = [0];
    std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut line).unwrap();
    let pid = child.id().to_string();
    let on = |node: NodeId| {
        let maps = fs::read_to_string(format!("/proc/{pid}/numa_maps")).unwrap();
        maps.lines()
            .filter(|line| line.contains(" anon="))
            .filter(|line| line.contains(&format!(" N{node}=")))
            .count()
    };
    let before = on(from);
    let ran = run(
        &link("migratepages"),
        &[],
        &[&pid, &from.to_string(), &to.to_string()],
    );
    let (left, moved) = (on(from), on(to));
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(ran.status, 0, "{ran:?}");
    assert!(
        before > 0 && left == 0 && moved >= before,
        "{before} mappings on node {from}, then {left}, and {moved} on node {to}: {ran:?}"
    );
}
