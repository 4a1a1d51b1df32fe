//! `homenode measure`, on whatever machine the tests run on. Nothing here judges a speed.

#![expect(
    clippy::disallowed_methods,
    clippy::print_stderr,
    reason = "tests look at files themselves, and say what they skip"
)]

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// A state folder of its own for each test.
fn state(name: &str) -> PathBuf {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("measure-{name}"));
    let _ = fs::remove_dir_all(&path);
    path
}

fn homenode(name: &str, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .env("XDG_STATE_HOME", state(name))
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

/// Policies may be forbidden where the tests run; then nothing can be placed.
fn may_place() -> bool {
    let allowed = homenode_sys::allowed_nodes().is_ok_and(|nodes| !nodes.is_empty());
    if !allowed {
        eprintln!("skipped: memory policies are not to be had here");
    }
    allowed
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// JSON of a run. A busy machine may run out of time, and nothing else may be missing.
fn json(name: &str, arguments: &[&str]) -> Value {
    let output = homenode(name, &[arguments, &["--json"]].concat());
    let value: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{arguments:?}: {error}: {}", text(&output.stderr)));
    assert_eq!(value["schema"], "homenode.measure/1");
    let mut missing = 0;
    for cell in value["cells"].as_array().expect("cells") {
        let median = cell["outcome"]["median"].as_f64();
        if !median.is_some_and(|median| median > 0.0) {
            assert_eq!(
                cell["outcome"]["absent"], "no time was left for it",
                "{cell}"
            );
            missing += 1;
        }
    }
    assert_eq!(
        output.status.code(),
        Some(i32::from(missing > 0)),
        "{arguments:?}"
    );
    value
}

/// Small buffers and a short time: the machinery is tested, not the machine.
#[test]
fn every_test_runs_to_its_end() {
    if !may_place() {
        return;
    }
    let small = ["--size", "2MiB", "--budget", "2s", "--quick"];
    for test in [
        "latency",
        "bandwidth",
        "working-set",
        "loaded-latency",
        "interleave",
        "first-touch",
        "rmma",
    ] {
        let value = json("every", &[&["measure", test], &small[..]].concat());
        let cells = value["cells"].as_array().unwrap();
        assert!(!cells.is_empty(), "{test}");
        assert!(cells.iter().all(|cell| cell["test"] == test), "{test}");
    }
    let value = json(
        "every",
        &["measure", "core-to-core", "--quick", "--budget", "2s"],
    );
    let cores = homenode_sys::affinity(None).unwrap().len();
    assert_eq!(value["cells"].as_array().unwrap().is_empty(), cores < 2);
}

#[test]
fn text_csv_and_drawing_are_written() {
    if !may_place() {
        return;
    }
    let small = [
        "measure", "latency", "--size", "1MiB", "--budget", "1s", "--quick",
    ];
    let output = homenode("forms", &small);
    let shown = text(&output.stdout);
    assert!(shown.starts_with("Idle latency in ns"), "{shown}");
    assert!(
        shown.lines().all(|line| line.chars().count() <= 80),
        "{shown}"
    );
    let output = homenode("forms", &[&small[..], &["--csv"]].concat());
    assert!(text(&output.stdout).starts_with("test,cpu_nodes,memory_nodes,"));
    let output = homenode("forms", &[&small[..], &["--svg", "-"]].concat());
    let svg = text(&output.stdout);
    assert!(
        svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"),
        "{svg}"
    );
}

/// What was measured is shown by `topo` and `report`, and only on the machine it is of.
#[test]
fn numbers_are_kept_and_shown() {
    if !may_place() {
        return;
    }
    let state = state("kept");
    let run = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .env_remove("HOMENODE_ROOT")
            .env("XDG_STATE_HOME", &state)
            .output()
            .expect("the program starts");
        text(&output.stdout)
    };
    assert!(!run(&["topo"]).contains("idle latency"));
    assert!(run(&["report", "--interval", "10ms"]).contains("not measured yet"));
    let small = [
        "measure", "latency", "--size", "1MiB", "--budget", "3s", "--quick",
    ];
    run(&[&small[..], &["--no-save"]].concat());
    assert!(!run(&["topo"]).contains("idle latency"));
    run(&small);
    assert!(
        run(&["topo"]).contains("idle latency"),
        "{}",
        run(&["topo"])
    );
    let report = run(&["report", "--interval", "10ms"]);
    assert!(report.contains("idle latency") && !report.contains("not measured yet"));
    assert!(run(&["topo", "--hwloc-xml"]).contains("name=\"ReadLatency\""));
    let file = state.join("homenode/latency.json");
    let kept = fs::read_to_string(&file).unwrap();
    assert!(
        kept.contains("\"samples\": []"),
        "samples are not worth keeping"
    );
    fs::write(&file, kept.replace("\"cpus\": \"0", "\"cpus\": \"7000,0")).unwrap();
    assert!(
        !run(&["topo"]).contains("idle latency"),
        "of another machine"
    );
    fs::write(&file, "{").unwrap();
    assert!(!run(&["topo"]).contains("idle latency"), "not readable");
}

#[test]
fn two_runs_are_compared() {
    if !may_place() {
        return;
    }
    let folder = state("diff");
    fs::create_dir_all(&folder).unwrap();
    let small = [
        "measure", "latency", "--size", "1MiB", "--budget", "3s", "--quick", "--json",
    ];
    let before = homenode("diff-state", &small).stdout;
    let path = |name: &str| folder.join(name).display().to_string();
    fs::write(path("before"), &before).unwrap();
    let mut slower: Value = serde_json::from_slice(&before).unwrap();
    for cell in slower["cells"].as_array_mut().unwrap() {
        for name in ["median", "low", "high"] {
            if let Some(value) = cell["outcome"][name].as_f64() {
                cell["outcome"][name] = (value * 100.0).into();
            }
        }
    }
    fs::write(path("after"), slower.to_string()).unwrap();
    let same = homenode(
        "diff-state",
        &["measure", "--diff", &path("before"), &path("before")],
    );
    assert!(
        text(&same.stdout).contains("0 better, 0 worse"),
        "{}",
        text(&same.stdout)
    );
    assert_eq!(same.status.code(), Some(0));
    let worse = homenode(
        "diff-state",
        &["measure", "--diff", &path("before"), &path("after")],
    );
    assert!(
        text(&worse.stdout).starts_with("worse"),
        "{}",
        text(&worse.stdout)
    );
    assert_eq!(worse.status.code(), Some(1));
}

/// Another program begins in the middle: it is in the result, with its time.
#[test]
fn a_load_that_comes_in_the_middle_is_reported() {
    if !may_place() {
        return;
    }
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let measured = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(800));
            while !is_over.load(std::sync::atomic::Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        });
        let small = [
            "measure",
            "bandwidth",
            "--size",
            "1MiB",
            "--budget",
            "2500ms",
        ];
        let measured = homenode("load", &[&small[..], &["--json"]].concat());
        is_over.store(true, std::sync::atomic::Ordering::Relaxed);
        measured
    });
    let value: Value = serde_json::from_slice(&measured.stdout).expect("JSON");
    let conditions = &value["conditions"];
    assert!(
        conditions["other_busy_cpus"].as_f64() > Some(0.1),
        "{conditions}"
    );
    assert!(
        conditions["other_busy_peak"][0].as_f64() > Some(0.5),
        "{conditions}"
    );
}

/// An interrupt ends it in order: what is complete is printed, and nothing stays behind.
#[test]
fn an_interrupt_prints_what_there_is() {
    if !may_place() {
        return;
    }
    let state = state("interrupt");
    let child = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args([
            "measure",
            "bandwidth",
            "--size",
            "1MiB",
            "--budget",
            "60s",
            "--json",
        ])
        .env_remove("HOMENODE_ROOT")
        .env("XDG_STATE_HOME", &state)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let pid = rustix::process::Pid::from_child(&child);
    let start = Instant::now();
    // It may not watch yet, and would die of the signal: give it time.
    std::thread::sleep(Duration::from_millis(700));
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let output = child.wait_with_output().unwrap();
    // Either it was certain of everything before the interrupt, or it was cut short.
    let value: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert!(
        matches!(output.status.code(), Some(0 | 1)),
        "{:?}",
        output.status
    );
    assert_eq!(value["interrupted"], output.status.code() == Some(1));
    assert!(start.elapsed() < Duration::from_secs(30), "it went on");
    let kept = state.join("homenode/bandwidth.json").exists();
    assert_eq!(
        kept,
        output.status.code() == Some(0),
        "half a run is not kept"
    );
}

#[test]
fn bad_requests_are_refused_before_anything_is_done() {
    let refused = |arguments: &[&str], expected: &str| {
        let output = homenode("refused", &[&["measure"], arguments].concat());
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
        assert!(output.stdout.is_empty(), "{arguments:?} printed something");
        assert!(stderr.contains(expected), "{arguments:?}: {stderr}");
    };
    refused(&["latency", "--budget", "0"], "expected a time");
    refused(&["latency", "--budget", "0s"], "100ms to 60m");
    refused(&["latency", "--from", "999"], "expected nodes with CPUs");
    refused(&["latency", "--to", "999"], "expected nodes with memory");
    refused(&["latency", "--to", ""], "holds no node");
    refused(&["latency", "--from", "x"], "cannot read --from `x`");
    refused(&["latency", "--size", "1PiB"], "half of what it could give");
    refused(&["latency", "--size", "64"], "expected a size of at least");
    refused(&["bandwidth", "--threads", "0"], "expected 1 to");
    refused(&["bandwidth", "--threads", "100000"], "expected 1 to");
    refused(&["bandwidth", "--kernel", "reed"], "expected one of read");
    refused(&["bandwidth", "--isa", "sse9"], "expected one of scalar");
    let missing = if cfg!(target_arch = "x86_64") {
        "neon"
    } else {
        "avx512"
    };
    refused(
        &["bandwidth", "--isa", missing],
        "instructions that this processor has",
    );
    refused(
        &["bandwidth", "--kernel", "triad", "--isa", "libc"],
        "there is no loop for triad",
    );
    refused(&["--diff", "/nope", "/nope"], "/nope does not exist");
    refused(
        &["--diff", "/proc/version", "/proc/version"],
        "expected JSON",
    );
    refused(&["latency", "--root", "/"], "expected the running machine");
    refused(&["latency", "--json", "--svg", "-"], "standard output");
}
