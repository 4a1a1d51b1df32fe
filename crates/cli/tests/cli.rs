//! The command line, as people and scripts meet it.

#![expect(clippy::disallowed_methods, reason = "tests look at files themselves")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

/// Runs the program; the environment names no machine.
fn homenode(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

/// Standard output of a run that must succeed.
fn stdout(arguments: &[&str]) -> String {
    let output = homenode(arguments);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{arguments:?}: {stderr}");
    String::from_utf8(output.stdout).expect("text")
}

/// Standard error of a run that must fail as all errors do: status 2, one `error:` line, one
/// `help:` line, and nothing on standard output.
fn refused(arguments: &[&str]) -> String {
    let output = homenode(arguments);
    let stderr = String::from_utf8(output.stderr).expect("text");
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {stderr}");
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    let lines: Vec<&str> = stderr.lines().collect();
    assert_eq!(lines.len(), 2, "{arguments:?}: {stderr}");
    assert!(lines[0].starts_with("error: "), "{stderr}");
    assert!(lines[1].starts_with("help: "), "{stderr}");
    stderr
}

fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).expect("JSON")
}

/// An empty folder that goes away.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("room for a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const TWO: &str = "(distances=10,21;21,10) pack:2 [numa(memory=16GiB)] l3:1 core:8 pu:2";

#[test]
fn topo_of_this_machine_answers_the_four_questions() {
    let text = stdout(&["topo"]);
    for word in ["node", "CPUs", "memory", "distance"] {
        assert!(text.contains(word), "no {word} in\n{text}");
    }
    assert!(
        text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
}

#[test]
fn topo_of_a_synthetic_machine_says_how_far_and_which_mode() {
    let machine = json(&["topo", "--json", "--synthetic", TWO]);
    assert_eq!(machine["schema"], "homenode.topology/1");
    assert_eq!(machine["verdict"]["mode"]["name"], "plain");
    assert_eq!(machine["topology"]["distances"]["rows"][0][1], 21);
    assert_eq!(machine["topology"]["nodes"][1]["cpus"], "16-31");
}

/// T15: `0x1` is CPU 0 on node 0, `0x10000` CPU 16 on node 1, `0xFFFFFFFF` CPUs 0-31.
#[test]
fn t15_masks_lists_and_nodes_translate_into_each_other() {
    for (mask, cpus, nodes) in [
        ("0x1", "0", "0"),
        ("0x10000", "16", "1"),
        ("0000000000010000h", "16", "1"),
        ("0xFFFFFFFF", "0-31", "0-1"),
    ] {
        let found = json(&["topo", "--json", "--synthetic", TWO, "--cpus", mask]);
        assert_eq!(found["cpus"], cpus, "{mask}");
        assert_eq!(found["nodes"], nodes, "{mask}");
        let back = json(&["topo", "--json", "--synthetic", TWO, "--cpus", cpus]);
        assert_eq!(back["mask"], found["mask"], "{mask}");
    }
    let node = json(&["topo", "--json", "--synthetic", TWO, "--nodes", "1"]);
    assert_eq!(node["mask"], "0xffff0000");
    assert_eq!(node["kernel_mask"], "ffff0000");
    let wide = json(&[
        "topo",
        "--json",
        "--synthetic",
        TWO,
        "--cpus",
        "0x100000000000000000",
    ]);
    assert_eq!(wide["cpus"], "68");
    assert_eq!(wide["kernel_mask"], "00000010,00000000,00000000");
    assert_eq!(wide["not_online"], "68");
}

/// T17: on two Xeon Silver 4214, SMT siblings are n and n + 24.
#[test]
fn t17_smt_siblings_are_24_apart() {
    let machine = "pack:2 [numa] core:12 pu:2(indexes=2*12:24*2:1*2)";
    let found = json(&["topo", "--json", "--synthetic", machine]);
    let cores = found["topology"]["cores"].as_array().expect("cores");
    assert_eq!(cores.len(), 24);
    for (n, core) in cores.iter().enumerate() {
        assert_eq!(core["cpus"], format!("{n},{}", n + 24));
    }
    let listing = stdout(&["topo", "--numactl", "--synthetic", machine]);
    let line = "node 0 cpus: 0 1 2 3 4 5 6 7 8 9 10 11 24 25 26 27 28 29 30 31 32 33 34 35\n";
    assert!(listing.contains(line), "{listing}");
}

#[test]
fn bad_cpus_and_nodes_are_refused_with_what_was_expected() {
    for (flag, text, expected) in [
        ("--cpus", "0xyz", "expected a mask of hexadecimal digits"),
        ("--cpus", "3-1", "did you mean 1-3?"),
        (
            "--cpus",
            "a",
            "expected a number or a range such as 0-3, found `a`",
        ),
        ("--cpus", "", "holds no CPU"),
        ("--cpus", "0x0", "holds no CPU"),
        ("--cpus", "99999999999", "expected CPU numbers below"),
        ("--nodes", "63", "expected nodes of this machine, found 63"),
        ("--nodes", "x", "expected a number or a range"),
    ] {
        let message = refused(&["topo", "--synthetic", TWO, flag, text]);
        assert!(message.contains(expected), "{text}: {message}");
    }
}

#[test]
fn bad_synthetic_descriptions_are_refused() {
    for text in [
        "",
        "pack:0",
        "pack:2 pu",
        "pack:2 [numa",
        "what:2 pu:2",
        "pack:99999999 pu:2",
    ] {
        refused(&["topo", "--synthetic", text]);
    }
}

#[test]
fn a_root_that_is_no_machine_is_refused() {
    let scratch = Scratch::new("no-machine");
    fs::write(scratch.path("file"), "text").expect("room");
    for root in [scratch.path("none"), scratch.path("file"), scratch.path("")] {
        let message = refused(&["topo", "--root", &root]);
        assert!(message.contains(&root), "{message}");
    }
}

#[test]
fn xml_that_is_no_machine_is_refused() {
    let scratch = Scratch::new("bad-xml");
    let whole = stdout(&["topo", "--hwloc-xml", "--synthetic", TWO]);
    let bomb = "<?xml version=\"1.0\"?><!DOCTYPE topology [<!ENTITY a \"aaaa\"><!ENTITY b \
                \"&a;&a;\">]><topology version=\"2.0\">&b;</topology>";
    for (name, text) in [
        ("empty", ""),
        ("text", "hello"),
        ("cut", &whole[..whole.len() / 2]),
        ("bomb", bomb),
        ("v1", "<topology><object type=\"Machine\"/></topology>"),
        ("deep", &"<object type=\"Group\">".repeat(100_000)),
    ] {
        let path = scratch.path(name);
        fs::write(&path, text).expect("room");
        let message = refused(&["topo", "--from-xml", &path]);
        assert!(message.contains(&path), "{message}");
    }
    refused(&["topo", "--from-xml", &scratch.path("missing")]);
}

#[test]
fn our_xml_reads_back_as_the_same_machine() {
    let scratch = Scratch::new("xml");
    let path = scratch.path("machine.xml");
    fs::write(&path, stdout(&["topo", "--hwloc-xml", "--synthetic", TWO])).expect("room");
    let from_xml = json(&["topo", "--json", "--from-xml", &path]);
    let from_text = json(&["topo", "--json", "--synthetic", TWO]);
    for part in ["distances", "packages", "caches", "cores", "cpus"] {
        let (a, b) = (&from_xml["topology"][part], &from_text["topology"][part]);
        assert_eq!(a, b, "{part}");
    }
    for part in ["id", "cpus", "memory_total"] {
        let of = |machine: &Value| -> Vec<Value> {
            let nodes = machine["topology"]["nodes"].as_array().expect("nodes");
            nodes.iter().map(|node| node[part].clone()).collect()
        };
        assert_eq!(of(&from_xml), of(&from_text), "{part}");
    }
}

#[test]
fn lstopo_reads_our_xml_of_this_machine() {
    let lstopo = |arguments: &[&str]| {
        let output = Command::new("lstopo-no-graphics").args(arguments).output();
        output
            .ok()
            .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let scratch = Scratch::new("lstopo");
    let path = scratch.path("machine.xml");
    fs::write(&path, stdout(&["topo", "--hwloc-xml"])).expect("room");
    let Some(ours) = lstopo(&["-i", &path, "--if", "xml", "--of", "synthetic"]) else {
        let why = "lstopo-no-graphics is not installed";
        assert!(std::env::var_os("HOMENODE_TEST_NO_SKIP").is_none(), "{why}");
        println!("skipped: {why}");
        return;
    };
    // A node's memory may still grow while a machine starts, so sizes are left out.
    let without_sizes = |text: &str| {
        let words = text
            .split(['(', ')'])
            .step_by(2)
            .map(str::trim)
            .collect::<Vec<_>>();
        words.join(" ")
    };
    let theirs = lstopo(&["--no-io", "--of", "synthetic"]).expect("it ran before");
    assert_eq!(without_sizes(&ours), without_sizes(&theirs));
    assert!(ours.contains("Core"), "{ours}");
}

#[test]
fn a_capture_is_read_as_the_machine_and_never_overwrites() {
    let scratch = Scratch::new("capture");
    let folder = scratch.path("machine");
    let said = stdout(&["capture", &folder]);
    assert!(said.contains("removed: host name"), "{said}");
    let captured = json(&["topo", "--json", "--root", &folder]);
    let live = json(&["topo", "--json"]);
    for part in ["packages", "caches", "cores", "cpus", "devices"] {
        assert_eq!(captured["topology"][part], live["topology"][part], "{part}");
    }
    let message = refused(&["capture", &folder]);
    assert!(message.contains("new or empty"), "{message}");
    let file = scratch.path("file");
    fs::write(&file, "mine").expect("room");
    refused(&["capture", &file]);
    assert_eq!(fs::read_to_string(&file).expect("still there"), "mine");
}

#[test]
fn the_environment_names_a_captured_machine_and_the_flag_wins() {
    let scratch = Scratch::new("environment");
    let folder = scratch.path("machine");
    stdout(&["capture", &folder]);
    let run = |root: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_homenode"));
        command
            .args(arguments)
            .env("HOMENODE_ROOT", root)
            .output()
            .expect("the program starts")
    };
    let source = |output: &Output| {
        let machine: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        machine["topology"]["source"]["kind"].clone()
    };
    assert_eq!(source(&run(&folder, &["topo", "--json"])), "captured");
    assert_eq!(source(&run("", &["topo", "--json"])), "live");
    assert_eq!(run("/nonexistent", &["topo"]).status.code(), Some(2));
    assert!(
        run("/nonexistent", &["topo", "--root", &folder])
            .status
            .success()
    );
}

#[test]
fn a_drawing_and_a_page_are_written_to_the_named_file() {
    let scratch = Scratch::new("files");
    let drawing = scratch.path("machine.svg");
    stdout(&["topo", "--synthetic", TWO, "--svg", &drawing]);
    assert!(
        fs::read_to_string(&drawing)
            .expect("a drawing")
            .contains("<svg")
    );
    let page = scratch.path("report.html");
    stdout(&["report", "--interval", "10ms", "--html", &page]);
    let page = fs::read_to_string(&page).expect("a page");
    assert!(page.contains("<svg") && page.contains("</html>"), "{page}");
    refused(&[
        "topo",
        "--synthetic",
        TWO,
        "--svg",
        &scratch.path("none/x.svg"),
    ]);
}

#[test]
fn report_names_what_it_found_and_its_json_has_a_schema() {
    let report = json(&["report", "--json", "--interval", "10ms", "--top", "3"]);
    assert_eq!(report["schema"], "homenode.report/1");
    let text = stdout(&["report", "--interval", "10ms"]);
    for part in ["Memory per node", "Who uses memory", "Next steps"] {
        assert!(text.contains(part), "no {part} in\n{text}");
    }
}

#[test]
fn a_reader_that_goes_away_is_no_error() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_homenode"))
        .args(["topo", "--json", "--synthetic", "pack:64 core:32 pu:2"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program starts");
    drop(child.stdout.take());
    let output = child.wait_with_output().expect("it ends");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.stderr.is_empty());
}

#[test]
fn every_command_has_help_with_an_example() {
    for command in ["topo", "report", "capture"] {
        let help = stdout(&[command, "--help"]);
        assert!(help.contains("Examples:"), "{help}");
        assert!(help.contains(&format!("homenode {command}")), "{help}");
    }
}

#[test]
fn refusals_of_the_parser_have_a_next_step() {
    for (arguments, message, help) in [
        (&["place", "--cpus", "0"][..], "at least 1", "place --help"),
        (&["place", "--cpus", "-1"], "-1", "place --help"),
        (&["migrate"], "required", "migrate --help"),
        (
            &["migrate", "x", "--to", "1"],
            "the number of a process",
            "migrate --help",
        ),
        (&["nope"], "nope", "homenode --help"),
        (&["topo", "--nope"], "--nope", "topo --help"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_homenode"))
            .args(arguments)
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(
            stderr.starts_with("error: ") && stderr.contains(message),
            "{stderr}"
        );
        let last = stderr.lines().last().unwrap();
        assert!(
            last.starts_with("help: ") && last.contains(help),
            "{stderr}"
        );
    }
}
