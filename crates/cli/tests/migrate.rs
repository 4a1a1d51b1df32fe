//! `homenode migrate`, as far as a machine with one node shows it; the lab does the rest.

#![expect(clippy::disallowed_methods, reason = "tests look at files themselves")]

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

fn homenode() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
    command
        .arg("migrate")
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null());
    command
}

fn migrate(arguments: &[&str]) -> Output {
    homenode().args(arguments).output().expect("it starts")
}

/// Standard error of a run that must fail: status 2, one `error:` line and one `help:` line.
fn refused(arguments: &[&str]) -> String {
    let output = migrate(arguments);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{arguments:?}: {stderr}");
    assert!(lines[0].starts_with("error: "), "{stderr}");
    assert!(lines[1].starts_with("help: "), "{stderr}");
    stderr
}

/// A process that lives until it is dropped.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let child = Command::new("sleep")
            .arg("1000")
            .stdin(Stdio::null())
            .spawn();
        Self(child.expect("there is a sleep"))
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn first_node_with_memory() -> Option<String> {
    let list = fs::read_to_string("/sys/devices/system/node/has_memory").ok()?;
    let first = list.trim().split([',', '-']).next()?.to_owned();
    (!first.is_empty()).then_some(first)
}

/// Whether page queries are allowed here; says so where they are not.
#[expect(clippy::print_stderr, reason = "says what was not tested")]
fn can_ask(output: &Output) -> bool {
    let stderr = String::from_utf8_lossy(&output.stderr);
    let is_blocked = stderr.contains("move_pages is blocked") || stderr.contains("no move_pages");
    if is_blocked {
        eprintln!("skipped: {stderr}");
    }
    !is_blocked
}

#[test]
fn memory_that_is_in_place_is_all_moved() {
    let Some(node) = first_node_with_memory() else {
        eprintln!("skipped: no nodes here");
        return;
    };
    let sleeper = Sleeper::start();
    let all = fs::read_to_string("/sys/devices/system/node/has_memory").expect("just read");
    let output = migrate(&[&sleeper.pid(), "--to", all.trim(), "--json"]);
    if !can_ask(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let events: Vec<Value> = String::from_utf8_lossy(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("JSON lines"))
        .collect();
    assert!(
        events
            .iter()
            .all(|event| event["schema"] == "homenode.migrate/1")
    );
    let names: Vec<_> = events.iter().map(|event| event["event"].as_str()).collect();
    assert_eq!(names, [Some("plan"), Some("outcome")]);
    assert_eq!(events[0]["plan"]["name"], "sleep");
    assert_eq!(events[1]["complete"], true);
    assert_eq!(events[1]["outcome"]["moved"], 0);
    assert!(
        events[1]["outcome"]["already_there"].as_u64() > Some(0),
        "{node}"
    );
}

#[test]
fn the_plan_comes_before_the_move() {
    let Some(node) = first_node_with_memory() else {
        return;
    };
    let sleeper = Sleeper::start();
    let output = migrate(&[&sleeper.pid(), "--to", &node, "--dry-run"]);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    for word in ["process  ", "(sleep)", "lies ", "to       node ", "skip "] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    assert!(!text.contains("moved"), "{text}");
}

#[test]
fn processes_that_cannot_be_moved_are_named_with_a_next_step() {
    let Some(node) = first_node_with_memory() else {
        return;
    };
    let refused = |pid: &str| refused(&[pid, "--to", &node]);
    assert!(refused("0").contains("expected the number of a process, found 0"));
    assert!(refused("4294967295").contains("there is no process 4294967295"));
    let mut child = Command::new("true").spawn().expect("there is a true");
    child.wait().expect("it ends");
    assert!(refused(&child.id().to_string()).contains("there is no process"));
    let is_kernel = fs::read_to_string("/proc/2/status")
        .is_ok_and(|status| status.contains("kthreadd") && !status.contains("VmRSS"));
    if is_kernel {
        assert!(refused("2").contains("kernel thread"));
    }
}

#[test]
fn a_zombie_has_given_its_memory_back() {
    let Some(node) = first_node_with_memory() else {
        return;
    };
    let mut child = Command::new("true").spawn().expect("there is a true");
    let status = format!("/proc/{}/status", child.id());
    while fs::read_to_string(&status).is_ok_and(|text| !text.contains("State:\tZ")) {
        std::thread::yield_now();
    }
    let stderr = refused(&[&child.id().to_string(), "--to", &node]);
    child.wait().expect("it has ended");
    assert!(stderr.contains("(true) has ended"), "{stderr}");
}

#[test]
fn it_does_not_move_itself() {
    let Some(node) = first_node_with_memory() else {
        return;
    };
    // The shell's number becomes the program's.
    let script = format!(
        "exec {} migrate $$ --to {node}",
        env!("CARGO_BIN_EXE_homenode")
    );
    let output = Command::new("sh").args(["-c", &script]).output();
    let stderr = String::from_utf8(output.expect("a shell").stderr).expect("text");
    assert!(stderr.contains("is homenode itself"), "{stderr}");
}

#[test]
fn nodes_that_are_none_are_refused() {
    let sleeper = Sleeper::start();
    let pid = sleeper.pid();
    assert!(refused(&[&pid, "--to", "x"]).contains("cannot read --to `x`"));
    assert!(refused(&[&pid, "--to", ""]).contains("holds no node"));
    let Some(node) = first_node_with_memory() else {
        return;
    };
    assert!(refused(&[&pid, "--to", "1000"]).contains("help: this machine has nodes"));
    assert!(refused(&[&pid, "--to", &node, "--from", "y"]).contains("cannot read --from `y`"));
    assert!(refused(&[&pid, "--to", &node, "--from", &node]).contains("from other nodes than"));
}

#[test]
fn another_machine_cannot_be_changed() {
    let stderr = refused(&["1", "--to", "0", "--root", "/"]);
    assert!(stderr.contains("captured one"), "{stderr}");
}

#[test]
fn groups_that_are_not_there_are_refused() {
    assert!(refused(&["--cgroup", "no/such", "--to", "0"]).contains("control group no/such"));
    assert!(refused(&["--cgroup", "../etc", "--to", "0"]).contains("`../etc`"));
}

#[test]
fn the_command_line_wants_a_process_and_nodes() {
    for arguments in [
        &["5"][..],
        &["--to", "0"],
        &["5", "--cgroup", "x", "--to", "0"],
        &["-5", "--to", "0"],
        &["5", "--to", "0", "--rate", "fast"],
        &["5", "--to", "0", "--latency-budget", "20"],
    ] {
        let output = migrate(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {output:?}");
    }
}

#[test]
fn the_process_of_another_user_is_not_looked_into() {
    const NOBODY: u32 = 65534;
    let Some(node) = first_node_with_memory() else {
        return;
    };
    if fs::metadata("/proc/self").expect("proc").uid() != 0 {
        eprintln!("skipped: only root can become somebody else");
        return;
    }
    let sleeper = Sleeper::start();
    let output = homenode()
        .args([&sleeper.pid(), "--to", &node])
        .uid(NOBODY)
        .gid(NOBODY)
        .output();
    let Ok(output) = output else {
        eprintln!("skipped: nobody may not enter the target folder");
        return;
    };
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("may not be looked into"), "{stderr}");
    assert!(stderr.contains("CAP_SYS_PTRACE"), "{stderr}");
}
