//! Memory that moves while its process lives.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use homenode_units::{Bytes, NodeId};
use serde_json::Value;

use crate::support::{node_file, shape};

/// A process with a pattern in its memory, on node 0.
struct Victim {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Victim {
    fn start(mib: u32) -> Self {
        // The victims' CPUs are not bound, so AutoNUMA would move their memory back.
        fs::write("/proc/sys/kernel/numa_balancing", "0").unwrap();
        let mut child = Command::new("numactl")
            .args(["--membind=0", "lab-victim", &mib.to_string()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let mut victim = Self {
            child,
            input,
            output,
        };
        assert_eq!(victim.line(), "ready");
        victim
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        self.output.read_line(&mut line).unwrap();
        line.trim_end().to_owned()
    }

    fn check(&mut self) -> String {
        writeln!(self.input, "check").unwrap();
        self.line()
    }

    fn pid(&self) -> String {
        self.child.id().to_string()
    }

    /// What of its plain memory lies on a node, as the kernel counts it. Not the data of its program
    /// file: pages of it that were never written are the file's, and shared.
    fn anonymous_on(&self, node: u32) -> Bytes {
        let text = fs::read_to_string(format!("/proc/{}/numa_maps", self.pid())).unwrap();
        let field = format!("N{node}=");
        let pages = text
            .lines()
            .filter(|line| line.contains("anon=") && !line.contains("file="))
            .flat_map(str::split_ascii_whitespace)
            .filter_map(|word| word.strip_prefix(&field)?.parse::<u64>().ok());
        Bytes(pages.sum::<u64>() * 4096)
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn start_migrate(arguments: &[&str]) -> Child {
    Command::new("homenode")
        .arg("migrate")
        .args(arguments)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

fn migrate(arguments: &[&str]) -> Output {
    start_migrate(arguments).wait_with_output().unwrap()
}

/// The last line of `--json`.
fn outcome(output: &Output) -> Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let last = text.lines().last().unwrap_or_default();
    let line: Value = serde_json::from_str(last)
        .unwrap_or_else(|error| panic!("{error} in {last:?}: {output:?}"));
    assert_eq!(line["event"], "outcome", "{line}");
    line["outcome"].clone()
}

fn bytes(value: &Value) -> u64 {
    value.as_u64().unwrap_or_default()
}

fn free(node: NodeId) -> Bytes {
    let meminfo = node_file(&format!("node{node}/meminfo"));
    let kib = meminfo
        .lines()
        .find_map(|line| line.split_once("MemFree:"))
        .and_then(|(_, value)| value.trim().strip_suffix(" kB"))
        .unwrap();
    Bytes::from_kib(kib.trim().parse().unwrap())
}

/// Another node with room for so much; says so where there is none.
fn target(mib: u64) -> Option<NodeId> {
    let needed = Bytes((mib + 24) << 20);
    let shape = shape();
    let target = shape
        .expected_nodes()
        .iter()
        .map(|node| node.id)
        .find(|&id| id != NodeId(0) && free_or_none(id) >= needed);
    if target.is_none() || free(NodeId(0)) < needed {
        eprintln!("skipped: no two nodes with {mib} MiB free");
        return None;
    }
    target
}

fn free_or_none(node: NodeId) -> Bytes {
    let memory = shape()
        .expected_nodes()
        .iter()
        .find(|shown| shown.id == node)
        .map_or(Bytes(0), |shown| shown.memory);
    if memory == Bytes(0) {
        Bytes(0)
    } else {
        free(node)
    }
}

/// Runs with base pages only, and with transparent huge pages.
fn with_both_page_sizes(test: impl Fn()) {
    const SETTING: &str = "/sys/kernel/mm/transparent_hugepage/enabled";
    let before = fs::read_to_string(SETTING).unwrap_or_default();
    for setting in ["never", "always"] {
        if fs::write(SETTING, setting).is_err() && setting == "always" {
            eprintln!("skipped: no transparent huge pages");
            return;
        }
        test();
    }
    let before = before.split(['[', ']']).nth(1).unwrap_or("madvise");
    fs::write(SETTING, before).unwrap();
}

#[test]
fn all_that_can_move_arrives_with_its_contents() {
    let Some(target) = target(64) else { return };
    with_both_page_sizes(|| {
        let mut victim = Victim::start(64);
        assert!(victim.anonymous_on(0) >= Bytes(64 << 20));
        let output = migrate(&[&victim.pid(), "--to", &target.to_string(), "--json"]);
        let outcome = outcome(&output);
        assert_eq!(outcome["ended"]["kind"], "done", "{outcome:#}");
        assert!(bytes(&outcome["moved"]) >= 64 << 20, "{outcome:#}");
        // What stays are pages of files that other processes have open, too.
        let left = outcome["left"].as_object().unwrap();
        assert!(left.keys().all(|why| why == "shared"), "{outcome:#}");
        assert_eq!(output.status.code(), Some(i32::from(!left.is_empty())));
        assert_eq!(victim.anonymous_on(0), Bytes(0), "{outcome:#}");
        assert_eq!(victim.check(), "intact");
        let share = &outcome["verified"]["nodes"];
        let share = share.as_array().unwrap();
        let there = share.iter().find(|node| node["node"] == target.0).unwrap();
        assert!(there["share"].as_f64().unwrap() > 0.9, "{outcome:#}");
    });
}

#[test]
fn a_dry_run_moves_nothing() {
    let Some(target) = target(32) else { return };
    let victim = Victim::start(32);
    let output = migrate(&[&victim.pid(), "--to", &target.to_string(), "--dry-run"]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    // A page of the stack or of libc may come and go.
    assert!(victim.anonymous_on(0) >= Bytes(32 << 20));
}

#[test]
fn a_killed_mover_leaves_the_process_intact() {
    let Some(target) = target(32) else { return };
    for signal in ["-KILL", "-INT"] {
        let mut victim = Victim::start(32);
        let mover = start_migrate(&[
            &victim.pid(),
            "--to",
            &target.to_string(),
            "--rate",
            "10MiB/s",
            "--json",
        ]);
        // It is somewhere in the middle.
        while victim.anonymous_on(target.0) < Bytes(8 << 20) {
            thread::sleep(Duration::from_millis(20));
        }
        let status = Command::new("busybox")
            .args(["kill", signal, &mover.id().to_string()])
            .status()
            .unwrap();
        assert!(status.success());
        let output = mover.wait_with_output().unwrap();
        assert_eq!(victim.check(), "intact");
        assert!(victim.anonymous_on(0) > Bytes(0), "it was in the middle");
        if signal == "-INT" {
            let outcome = outcome(&output);
            assert_eq!(outcome["ended"]["kind"], "interrupted", "{outcome:#}");
            assert_eq!(output.status.code(), Some(1));
        }
    }
}

#[test]
fn a_full_target_ends_the_move_and_nothing_is_lost() {
    let Some(target) = target(64) else { return };
    // A ballast leaves the target some 30 MiB.
    let room = 30 << 20;
    let ballast = free(target).saturating_sub(Bytes(room)).mib().to_string();
    let mut ballast = Command::new("numactl")
        .args([&format!("--membind={target}"), "lab-victim", &ballast])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(ballast.stdout.take().unwrap())
        .read_line(&mut line)
        .unwrap();
    if line.trim_end() == "ready" {
        let mut victim = Victim::start(64);
        let output = migrate(&[&victim.pid(), "--to", &target.to_string(), "--json"]);
        let outcome = outcome(&output);
        assert_eq!(output.status.code(), Some(1), "{outcome:#}");
        assert_eq!(outcome["ended"]["kind"], "targets-full", "{outcome:#}");
        assert!(bytes(&outcome["moved"]) < 64 << 20, "{outcome:#}");
        let left = bytes(&outcome["left"]["no-room"]);
        assert!(left > 0, "{outcome:#}");
        assert!(victim.anonymous_on(0) <= Bytes(left));
        assert_eq!(victim.check(), "intact");
    } else {
        eprintln!("skipped: no room for a ballast");
    }
    let _ = ballast.kill();
    let _ = ballast.wait();
}

#[test]
fn a_process_that_ends_meanwhile_is_reported() {
    let Some(target) = target(32) else { return };
    let mut victim = Victim::start(32);
    let mover = start_migrate(&[
        &victim.pid(),
        "--to",
        &target.to_string(),
        "--rate",
        "10MiB/s",
    ]);
    while victim.anonymous_on(target.0) < Bytes(8 << 20) {
        thread::sleep(Duration::from_millis(20));
    }
    victim.child.kill().unwrap();
    victim.child.wait().unwrap();
    let output = mover.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(text.contains("ended meanwhile"), "{text}");
}

#[test]
fn a_control_group_moves_as_a_whole() {
    let Some(target) = target(32) else { return };
    let group = "/sys/fs/cgroup/homenode-test/below";
    fs::create_dir_all(group).unwrap();
    let mut victims = [Victim::start(8), Victim::start(8)];
    for (victim, group) in victims.iter().zip(["homenode-test", "homenode-test/below"]) {
        fs::write(format!("/sys/fs/cgroup/{group}/cgroup.procs"), victim.pid()).unwrap();
    }
    let output = migrate(&["--cgroup", "homenode-test", "--to", &target.to_string()]);
    for victim in &mut victims {
        assert_eq!(victim.anonymous_on(0), Bytes(0), "{output:?}");
        assert_eq!(victim.check(), "intact");
    }
    drop(victims);
    fs::remove_dir(group).unwrap();
    fs::remove_dir("/sys/fs/cgroup/homenode-test").unwrap();
}

#[test]
fn nodes_without_memory_are_no_targets_and_nodes_without_cpus_are() {
    let shape = shape();
    let victim = Victim::start(4);
    for node in shape.expected_nodes() {
        let id = node.id.to_string();
        let output = migrate(&[&victim.pid(), "--to", &id]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        if node.memory == Bytes(0) {
            assert_eq!(output.status.code(), Some(2), "node {id}: {output:?}");
            assert!(stderr.contains("help: nodes with memory"), "{stderr}");
        } else {
            assert_ne!(output.status.code(), Some(2), "node {id}: {stderr}");
            let elsewhere: u64 = shape
                .expected_nodes()
                .iter()
                .filter(|other| other.id != node.id)
                .map(|other| victim.anonymous_on(other.id.0).0)
                .sum();
            assert_eq!(elsewhere, 0, "all is on node {id}");
        }
    }
}
