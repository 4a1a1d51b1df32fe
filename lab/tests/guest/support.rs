//! What guest tests need: the shape they run on, /sys, and other programs' answers.

use std::fs;
use std::process::Command;

use homenode_lab::Shape;
use homenode_units::{Bytes, NodeId, NodeSet};

/// The shape of this guest.
pub(crate) fn shape() -> Shape {
    Shape::in_guest().unwrap()
}

/// A file below `/sys/devices/system/node`, without its line end.
pub(crate) fn node_file(path: &str) -> String {
    let path = format!("/sys/devices/system/node/{path}");
    match fs::read_to_string(&path) {
        Ok(text) => text.trim_end().to_owned(),
        Err(error) => panic!("cannot read {path}: {error}"),
    }
}

/// The nodes in such a file, such as `online` or `has_cpu`.
pub(crate) fn node_set(path: &str) -> NodeSet {
    NodeSet::parse_list(&node_file(path)).unwrap()
}

/// What a program prints; it must end with status 0.
pub(crate) fn output_of(program: &str, arguments: &[&str]) -> String {
    let output = Command::new(program)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {program}: {error}"));
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{program} {} ended with {}\n{stdout}{}",
        arguments.join(" "),
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    stdout
}

/// A node's memory as the kernel counts it.
pub(crate) fn memory_total(node: NodeId) -> Bytes {
    let meminfo = node_file(&format!("node{node}/meminfo"));
    let kib = meminfo
        .lines()
        .find_map(|line| line.split_once("MemTotal:"))
        .and_then(|(_, value)| value.trim().strip_suffix(" kB"))
        .unwrap_or_else(|| panic!("no MemTotal in {meminfo}"));
    Bytes::from_kib(kib.parse().unwrap())
}
