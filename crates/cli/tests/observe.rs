//! stat, maps, top, record and replay, as people and scripts meet them.

#![expect(clippy::disallowed_methods, reason = "tests look at files themselves")]

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::thread;
use std::time::Duration;

use homenode_host::Live;
use homenode_observe::read_threads;
use homenode_units::Pid;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::Value;

fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

fn stdout(arguments: &[&str]) -> String {
    let output = homenode(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// The error line of a run that must fail as all do: status 2, a line `error:`, a line `help:`.
fn refused(arguments: &[&str]) -> String {
    let output = homenode(arguments);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{arguments:?}: {stderr}");
    assert!(
        lines[0].starts_with("error: ") && lines[1].starts_with("help: "),
        "{stderr}"
    );
    lines[0].to_owned()
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).unwrap_or_else(|error| panic!("{error} in {text}"))
}

fn scratch(name: &str) -> String {
    let path: PathBuf = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_file(&path);
    path.display().to_string()
}

/// Says why a test cannot run here; where everything must run, that is a failure.
#[expect(clippy::print_stdout, reason = "whoever counts skipped tests reads it")]
fn skip(why: &str) {
    assert!(std::env::var_os("HOMENODE_TEST_NO_SKIP").is_none(), "{why}");
    println!("skipped: {why}");
}

/// A child that goes away with the test.
struct Running(Child);

impl Running {
    fn start(program: &str, arguments: &[&str]) -> Option<Self> {
        let child = Command::new(program)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        child.ok().map(Self)
    }

    fn pid(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn stat_shows_nodes_and_processes() {
    let own = std::process::id().to_string();
    let text = stdout(&["stat", "--interval", "100ms", "--view", "processes"]);
    for word in ["node", "hit/s", "NRMEM", "N%L", "NHN"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let stat = json(&stdout(&["stat", &own, "--interval", "100ms", "--json"]));
    assert_eq!(stat["schema"], "homenode.stat/1");
    let rows = stat["rows"].as_array().expect("rows");
    assert_eq!(rows.len(), 1);
    assert_eq!(rows[0]["id"]["pid"].to_string(), own);
    assert!(rows[0]["memory"].as_u64().expect("bytes") > 0);
}

#[test]
fn maps_shows_what_numa_maps_counts() {
    let sleep = Running::start("sleep", &["100"]).expect("sleep");
    thread::sleep(Duration::from_millis(100));
    let maps = json(&stdout(&["maps", &sleep.pid(), "--exact", "--json"]));
    assert_eq!(maps["schema"], "homenode.maps/1");
    let text = fs::read_to_string(format!("/proc/{}/numa_maps", sleep.pid())).expect("a process");
    let pages: u64 = text
        .split_ascii_whitespace()
        .filter_map(|word| {
            word.strip_prefix('N')?
                .split_once('=')?
                .1
                .parse::<u64>()
                .ok()
        })
        .sum();
    assert_eq!(maps["memory"].as_u64(), Some(pages * 4096), "{maps:#}");
    let text = stdout(&["maps", &sleep.pid()]);
    assert!(text.contains("(sleep)") && text.contains("libc"), "{text}");
}

#[test]
fn bad_input_is_refused_by_name() {
    assert!(refused(&["maps", "99999999"]).contains("no process 99999999"));
    assert!(refused(&["stat", "99999999"]).contains("no process 99999999"));
    // Root may look at it, and finds a thread of the kernel.
    assert!(refused(&["maps", "2"]).contains("process 2"));
    assert!(refused(&["record"]).contains("expected a file"));
    assert!(refused(&["top"]).contains("no terminal"));
    assert!(refused(&["replay", "/etc/passwd"]).contains("expected a recording"));
    assert!(refused(&["replay", "/nowhere"]).contains("/nowhere"));
    let empty = scratch("empty.hnr");
    fs::write(&empty, "").expect("room");
    assert!(refused(&["replay", &empty]).contains("an empty file"));
}

#[test]
fn the_csv_opens_in_another_parser() {
    let text = stdout(&[
        "top",
        "--batch",
        "--count",
        "2",
        "--interval",
        "100ms",
        "--rows",
        "5",
    ]);
    let mut lines = text.lines();
    let header = lines.next().expect("a header");
    assert!(
        header.starts_with("\"(PDH-CSV 4.0) (UTC)(0)\",\"\\\\"),
        "{header}"
    );
    assert!(header.contains(")\\NUMA % Local\""), "{header}");
    // As Python's csv module, which is not ours, reads it.
    let script = "import csv,sys\nrows=list(csv.reader(sys.stdin))\n\
                  assert len({len(r) for r in rows})==1, [len(r) for r in rows]\n\
                  [float(c) for r in rows[1:] for c in r[1:] if c]\nprint(len(rows))";
    let python = Command::new("python3")
        .args(["-c", script])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn();
    let Ok(mut python) = python else {
        skip("no python3");
        return;
    };
    let mut input = python.stdin.take().expect("a pipe");
    input.write_all(text.as_bytes()).expect("it reads");
    drop(input);
    let output = python.wait_with_output().expect("it ends");
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        "3",
        "{text}"
    );
}

#[test]
fn json_lines_are_those_of_stat() {
    let text = stdout(&[
        "top",
        "--batch",
        "--format",
        "jsonl",
        "--count",
        "2",
        "--interval",
        "100ms",
    ]);
    let lines: Vec<Value> = text.lines().map(json).collect();
    assert_eq!(lines.len(), 2);
    assert!(lines.iter().all(|line| line["schema"] == "homenode.stat/1"));
}

#[test]
fn a_recording_is_replayed_as_the_live_machine() {
    let file = scratch("replayed.hnr");
    stdout(&["record", &file, "--count", "3", "--interval", "100ms"]);
    let stat = json(&stdout(&["replay", &file, "--json"]));
    assert_eq!(stat["schema"], "homenode.stat/1");
    assert!(!stat["rows"].as_array().expect("rows").is_empty());
    let first = stdout(&["replay", &file, "--text", "--at", "+0s"]);
    assert!(first.contains("1 of 3 observations"), "{first}");
    // It goes on behind what is there, and zcat reads it all.
    stdout(&["record", &file, "--count", "1", "--interval", "100ms"]);
    assert!(stdout(&["replay", &file]).contains("4 of 4 observations"));
    let mut zcat = Command::new("zcat");
    zcat.stdin(fs::File::open(&file).expect("it is there"));
    let Ok(output) = zcat.output() else {
        skip("no zcat");
        return;
    };
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(text.lines().map(json).count(), 5);
}

#[test]
fn a_killed_recorder_leaves_a_recording() {
    let file = scratch("killed.hnr");
    let mut recorder = Running::start(
        env!("CARGO_BIN_EXE_homenode"),
        &["record", &file, "--interval", "10ms"],
    )
    .expect("it starts");
    for _attempt in 0..500 {
        thread::sleep(Duration::from_millis(10));
        if fs::metadata(&file).is_ok_and(|file| file.len() > 20_000) {
            break;
        }
    }
    recorder.0.kill().expect("kill -9");
    recorder.0.wait().expect("it ends");
    let whole = stdout(&["replay", &file]);
    assert!(whole.contains(" observations in "), "{whole}");
    // As if killed in mid-write.
    let length = fs::metadata(&file).expect("it is there").len();
    let cut = fs::File::options()
        .write(true)
        .open(&file)
        .expect("it is there");
    cut.set_len(length - 7).expect("shorter");
    let text = stdout(&["replay", &file]);
    assert!(text.contains("is cut off"), "{text}");
    stdout(&["record", &file, "--count", "1", "--interval", "100ms"]);
    assert!(!stdout(&["replay", &file]).contains("cut off"));
    // What is there and is not understood is shown as such, and never overwritten.
    let mut foreign = fs::read(&file).expect("it is there");
    foreign.extend([7; 1000]);
    fs::write(&file, &foreign).expect("room");
    let text = stdout(&["replay", &file]);
    assert!(
        text.contains("1000 bytes behind them are damaged"),
        "{text}"
    );
    let error = refused(&["record", &file, "--count", "1"]);
    assert!(error.contains("expected an observation at byte"), "{error}");
    assert_eq!(fs::read(&file).expect("it is there"), foreign);
}

#[test]
fn a_full_disk_is_said_and_ends_the_recording() {
    let error = refused(&["record", "/dev/full", "--count", "1"]);
    assert!(
        error.contains("/dev/full") && error.contains("No space"),
        "{error}"
    );
}

/// A file system with little room, as long as it is looked at.
struct SmallDisk(String);

impl SmallDisk {
    fn mount(name: &str) -> Option<Self> {
        let folder = scratch(name);
        fs::create_dir_all(&folder).expect("room");
        let mount = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=256k", "none", &folder])
            .output();
        mount.ok()?.status.success().then_some(Self(folder))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
        let _ = fs::remove_dir(&self.0);
    }
}

#[test]
fn a_disk_that_fills_up_leaves_a_whole_recording() {
    let Some(disk) = SmallDisk::mount("small-disk") else {
        println!("skipped: this user may not mount a small disk");
        return;
    };
    let file = format!("{}/load.hnr", disk.0);
    let error = refused(&["record", &file, "--interval", "10ms", "--count", "100000"]);
    assert!(error.contains("No space"), "{error}");
    let kept = error
        .split_once('(')
        .and_then(|(_, rest)| rest.split_once(" obs"));
    let kept: usize = kept.expect("a number").0.parse().expect("a number");
    assert!(kept > 0, "{error}");
    let text = stdout(&["replay", &file]);
    assert!(
        text.contains(&format!("{kept} of {kept} observations")),
        "{text}"
    );
    assert!(!text.contains("cut off"), "{text}");
}

#[test]
fn names_may_hold_anything() {
    const NAME: &str = "a (b) [c]\nd";
    let program = scratch(NAME);
    fs::copy("/bin/sleep", &program).expect("room");
    let odd = Running::start(&program, &["100"]).expect("it starts");
    thread::sleep(Duration::from_millis(100));
    let stat = json(&stdout(&[
        "stat",
        &odd.pid(),
        "--interval",
        "100ms",
        "--json",
    ]));
    assert_eq!(stat["rows"][0]["name"], NAME);
    let maps = json(&stdout(&["maps", &odd.pid(), "--exact", "--json"]));
    assert_eq!(maps["name"], NAME);
    let mappings = maps["mappings"].as_array().expect("mappings");
    assert!(
        mappings
            .iter()
            .any(|mapping| mapping["name"] == program.as_str()),
        "{maps:#}"
    );
    // For people a line stays a line.
    for command in ["maps", "stat"] {
        let text = stdout(&[command, &odd.pid()]);
        assert!(text.contains("a (b) [c]"), "{text}");
        assert!(!text.lines().any(|line| line.starts_with('d')), "{text}");
    }
}

#[test]
fn who_may_not_look_is_told_so() {
    let mut sleep = Running::start("sleep", &["100"]).expect("sleep");
    thread::sleep(Duration::from_millis(100));
    let as_nobody = |arguments: &[&str]| {
        Command::new("setpriv")
            .args(["--reuid", "65534", "--regid", "65534", "--clear-groups"])
            .arg(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .env_remove("HOMENODE_ROOT")
            .output()
    };
    let looked = as_nobody(&["maps", &sleep.pid()]);
    let looked = looked
        .ok()
        .filter(|looked| looked.status.code() != Some(127));
    let Some(looked) = looked.filter(|looked| !looked.stderr.starts_with(b"setpriv")) else {
        println!("skipped: this user cannot become another one");
        return;
    };
    let stderr = String::from_utf8_lossy(&looked.stderr);
    assert_eq!(looked.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("ptrace permission"), "{stderr}");
    assert!(stderr.contains("help: "), "{stderr}");
    // The others can still be looked at, and what is not known is no zero.
    let stat = as_nobody(&["stat", &sleep.pid(), "--interval", "100ms", "--json"]);
    let stat = stat.expect("it started before");
    let stat = json(&String::from_utf8_lossy(&stat.stdout));
    assert_eq!(stat["rows"][0]["name"], "sleep", "{stat:#}");
    sleep.0.kill().expect("it runs");
}

#[test]
fn record_runs_a_command_and_passes_its_status_on() {
    let output = homenode(&[
        "record",
        "--interval",
        "50ms",
        "--",
        "sh",
        "-c",
        "sleep 0.3; exit 3",
    ]);
    assert_eq!(output.status.code(), Some(3));
    let text = String::from_utf8_lossy(&output.stdout);
    for words in ["run time ", "numa_miss", "N%L", "100"] {
        assert!(text.contains(words), "no {words} in {text}");
    }
    assert!(refused(&["record", "--", "/no/such/program"]).contains("/no/such/program"));
}

/// A real virtual machine: it runs its firmware, which is enough to fill some of its memory.
#[test]
fn a_virtual_machine_is_told_apart_into_guest_and_overhead() {
    let Some(qemu) = Running::start(
        "qemu-system-x86_64",
        &[
            "-accel",
            "tcg,thread=multi",
            "-smp",
            "2",
            "-m",
            "96",
            "-object",
            "memory-backend-ram,id=ram0,size=96M",
            "-machine",
            "q35,memory-backend=ram0",
            "-name",
            "guest=web (1),debug-threads=on",
            "-display",
            "none",
            "-nodefaults",
        ],
    ) else {
        skip("no qemu-system-x86_64");
        return;
    };
    thread::sleep(Duration::from_millis(1500));
    let maps = json(&stdout(&["maps", &qemu.pid(), "--exact", "--json"]));
    let mappings = maps["mappings"].as_array().expect("mappings");
    let bytes = |guest: bool| -> u64 {
        let chosen = mappings.iter().filter(|mapping| mapping["guest"] == guest);
        let nodes =
            chosen.flat_map(|mapping| mapping["nodes"].as_object().expect("nodes").values());
        nodes.map(|bytes| bytes.as_u64().expect("bytes")).sum()
    };
    let guest: Vec<&Value> = mappings
        .iter()
        .filter(|mapping| mapping["guest"] == true)
        .collect();
    assert_eq!(guest.len(), 1, "{maps:#}");
    assert_eq!(guest[0]["size"], 96 << 20);
    assert!(bytes(true) > 0 && bytes(true) <= 96 << 20);
    assert!(bytes(false) > 1 << 20);
    assert_eq!(
        bytes(true) + bytes(false),
        maps["memory"].as_u64().expect("bytes")
    );

    let stat = json(&stdout(&[
        "stat",
        &qemu.pid(),
        "--interval",
        "200ms",
        "--view",
        "vms",
        "--json",
    ]));
    let row = &stat["rows"][0];
    assert_eq!(row["kind"], "vm");
    assert_eq!(row["name"], "web (1)");
    // By samples, beside what was counted page by page a moment ago.
    let nodes = row["nodes"].as_array().expect("nodes");
    let sum = |field: &str| -> f64 {
        let values = nodes
            .iter()
            .map(|on| on[field].as_f64().expect("an amount"));
        values.sum()
    };
    let (guest_now, all_now) = (sum("guest"), sum("memory"));
    #[expect(clippy::cast_precision_loss, reason = "a comparison")]
    let (counted, all) = (bytes(true) as f64, (bytes(true) + bytes(false)) as f64);
    assert!(
        (guest_now - counted).abs() < 0.1 * all,
        "{guest_now} for {counted}"
    );
    // GST and OVD are all of its memory, as the kernel counts it.
    let resident = row["memory"].as_f64().expect("bytes");
    assert!((all_now - resident).abs() < 16.0, "{all_now} of {resident}");
    assert!((resident - all).abs() < 0.1 * all, "{resident} for {all}");
    // Its threads: two run a vCPU each, the others do not.
    let pid = Pid(qemu.0.id());
    let threads = read_threads(&Live, pid, &[]).expect("it runs");
    let vcpus: BTreeSet<u32> = threads.iter().filter_map(|thread| thread.vcpu).collect();
    assert_eq!(vcpus, BTreeSet::from([0, 1]), "{threads:?}");
    assert!(threads.len() > 2, "{threads:?}");
}

#[test]
fn top_ends_with_its_terminal() {
    // Not the child's, who would keep its own terminal alive.
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    let keyboard = openpt(flags).expect("a terminal");
    grantpt(&keyboard).expect("ours");
    unlockpt(&keyboard).expect("ours");
    let name = ptsname(&keyboard, Vec::new()).expect("a name");
    let screen = || {
        let mut options = fs::File::options();
        let terminal = options.read(true).write(true);
        terminal.open(name.to_str().expect("text")).expect("ours")
    };
    let mut top = Running(
        Command::new(env!("CARGO_BIN_EXE_homenode"))
            .arg("top")
            .env("TERM", "xterm")
            .stdin(screen())
            .stdout(screen())
            .stderr(screen())
            .spawn()
            .expect("the program starts"),
    );
    let mut screen = fs::File::from(keyboard);
    // Not before the terminal is taken over, which is when something is drawn.
    let mut drawn = [0; 64];
    assert!(screen.read(&mut drawn).expect("it draws") > 0);
    thread::sleep(Duration::from_millis(300));
    assert_eq!(top.0.try_wait().expect("ours"), None, "it runs");
    drop(screen);
    for _ in 0..300 {
        if top.0.try_wait().expect("ours").is_some() {
            return;
        }
        thread::sleep(Duration::from_millis(100));
    }
    panic!("it runs on without a terminal");
}
