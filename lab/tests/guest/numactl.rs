//! homenode under the name `numactl` does what Debian's numactl does.
//!
//! Both run the same command lines. The command that they start tells its own policy and CPUs, so
//! that effects are compared and not only words. Where ours differs on purpose: differences.rs.

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::node_set;

/// Debian's.
const THEIRS: &str = "/usr/bin/numactl";

/// What is started under the policy: it tells its own.
const TELL: &str = "/usr/bin/numactl -s; grep _allowed_list /proc/self/status";

/// A link to homenode under a name that it answers to.
pub(crate) fn link(name: &str) -> PathBuf {
    let path = std::env::var("PATH").unwrap_or_else(|_| "/bin:/usr/bin:/sbin:/usr/sbin".into());
    let homenode = path
        .split(':')
        .map(|folder| Path::new(folder).join("homenode"))
        .find(|file| file.exists())
        .unwrap_or_else(|| panic!("no homenode in {path}"));
    let link = Path::new("/tmp/drop-ins").join(name);
    fs::create_dir_all("/tmp/drop-ins").unwrap();
    if !link.exists() {
        symlink(homenode, &link).unwrap();
    }
    link
}

/// What a run left: status, standard output without empty lines (docs/drop-ins.md, "usage"), and
/// the error output up to the usage text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ran {
    pub(crate) status: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

/// The node that interleaving takes next depends on how many pages the program took for itself.
fn without_next_node(line: &str) -> String {
    match line.split_once(" (interleave next)") {
        Some(_) => "preferred node: N (interleave next)".to_owned(),
        None if line.starts_with("interleavenode: ") => "interleavenode: N".to_owned(),
        None => line.to_owned(),
    }
}

pub(crate) fn run(program: &Path, before: &[&str], args: &[&str]) -> Ran {
    let mut command = match before.split_first() {
        Some((first, rest)) => {
            let mut command = Command::new(first);
            command.args(rest).arg(program);
            command
        }
        None => Command::new(program),
    };
    if before.is_empty() {
        // Messages begin with what the program was called as.
        command.arg0(program.file_name().unwrap());
    }
    let output = command.args(args).output().unwrap();
    let lines = |text: &[u8]| -> String {
        let text = String::from_utf8_lossy(text).replace("usage: ", "\nusage: ");
        text.lines()
            .take_while(|line| !line.starts_with("usage: "))
            .filter(|line| !line.is_empty())
            .map(|line| format!("{}\n", without_next_node(line)))
            .collect()
    };
    Ran {
        status: output.status.code().unwrap_or(-1),
        out: lines(&output.stdout),
        err: lines(&output.stderr),
    }
}

/// Compares a command line; says what differs.
fn compare(before: &[&str], args: &[&str], differences: &mut Vec<String>) {
    compare_tools("numactl", before, args, differences);
}

pub(crate) fn compare_tools(
    name: &str,
    before: &[&str],
    args: &[&str],
    differences: &mut Vec<String>,
) {
    let theirs = run(&Path::new("/usr/bin").join(name), before, args);
    let ours = run(&link(name), before, args);
    if theirs != ours {
        differences.push(format!(
            "{before:?} {args:?}\n theirs {theirs:?}\n ours   {ours:?}"
        ));
    }
}

pub(crate) fn assert_same(differences: &[String]) {
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

/// Node specifications of the reference's table (drop-in.md, 3) and their neighbours.
const NODE_SPECS: [&str; 34] = [
    "0",
    "1",
    "3",
    "0-1",
    "1-0",
    "0,1",
    "0,2",
    "all",
    "",
    "+0",
    "+1",
    "+0-1",
    "0,all",
    "all,0",
    "1,",
    ",1",
    "1,,0",
    "0-",
    "1x",
    "0x",
    "-1",
    "0x1",
    "01",
    "08",
    " 1",
    "0- 1",
    "1-x",
    "same",
    "netdev:lo",
    "netdev:nope",
    "file:/nope",
    "block:nope",
    "pci:zz",
    "foo:bar",
];

const FEW_SPECS: [&str; 6] = ["0", "1", "all", "0,1", "1-0", ""];

const INVERTED: [&str; 4] = ["!0", "!1", "!all", "!+0"];

fn tell<'a>(flags: &[&'a str]) -> Vec<&'a str> {
    [flags, &["sh", "-c", TELL]].concat()
}

#[test]
fn node_specifications_have_the_same_effect() {
    let mut differences = Vec::new();
    let is_one = node_set("has_memory").len() == 1;
    for spec in NODE_SPECS {
        // Beyond the last node the warnings differ: docs/drop-ins.md, "relative-number".
        if is_one && spec.starts_with('+') && spec.contains('1') {
            continue;
        }
        compare(&[], &tell(&["-m", spec]), &mut differences);
    }
    for spec in FEW_SPECS {
        for flag in ["-i", "-N", "-p", "-P", "-a -m"] {
            let flags: Vec<&str> = flag.split(' ').chain([spec]).collect();
            compare(&[], &tell(&flags), &mut differences);
        }
    }
    // Where a node has no memory, upstream's `!` names it: docs/drop-ins.md, "inverted".
    if node_set("online") == node_set("has_memory") {
        for spec in INVERTED {
            compare(&[], &tell(&["-m", spec]), &mut differences);
            compare(&[], &tell(&["-N", spec]), &mut differences);
        }
    }
    assert_same(&differences);
}

#[test]
fn cpu_specifications_have_the_same_effect() {
    let mut differences = Vec::new();
    for spec in [
        "0",
        "1",
        "0-1",
        "1-0",
        "all",
        "!0",
        "!all",
        "+1",
        "+0-1",
        "",
        "99",
        "0-99",
        "same",
        "netdev:lo",
        "0-",
        "x",
    ] {
        compare(&[], &tell(&["-C", spec]), &mut differences);
    }
    // The same under an affinity that leaves CPU 1.
    if node_set("online").len() > 1 {
        for flags in [
            "-C +0",
            "-C 0",
            "-C 1",
            "-C all",
            "-a -C 0",
            "-a -C all",
            "-a -C +0",
            "-N 0",
            "-N all",
        ] {
            let flags: Vec<&str> = flags.split(' ').collect();
            compare(&["taskset", "2"], &tell(&flags), &mut differences);
        }
    }
    assert_same(&differences);
}

#[test]
fn policies_and_their_order_have_the_same_effect() {
    let mut differences = Vec::new();
    for flags in [
        "-l",
        "-b -m 0",
        "-b -i 0",
        "-b -p 0",
        "-N 0 -m same",
        "-m 0 -N same",
        "-C 0 -m same",
        "-N 0 -C 1",
        "-C 1 -N 0",
        "-N 0 -C 1 -p 0",
        "--membind=0",
        "--mem=0",
        "--interleave 0",
        "--preferred-many=0",
        "--localalloc",
        "--cpubind=0",
        "--physcpubind=0",
        "-m 0 -i 0",
        "-l -l",
        "-m 0 -a",
        "-a -m 0",
        "-m 0 -b",
        "-m 0 -H",
        "-m 0 -S /tmp/x",
        "-m 0 --version",
        "-t -m 0",
        "-x",
        "--foo",
        "--mem",
        "--s",
        "--balancing=1",
        "-h",
        "--help",
        "-L 5",
        "-o 5",
        "-M 600",
        "-M 9",
        "-I x",
        "-I 5",
        "-u",
        "-T",
        "-d",
        "-D",
        "-V",
        "-L 5 -C 0",
        "-u -N 0",
        "-m 0 -- ",
        "--",
    ] {
        let flags: Vec<&str> = flags.split_whitespace().collect();
        compare(&[], &tell(&flags), &mut differences);
        compare(&[], &flags, &mut differences);
    }
    assert_same(&differences);
}

#[test]
fn show_hardware_and_version_print_the_same() {
    let mut differences = Vec::new();
    for flags in [
        "-s",
        "-m 0 -s",
        "-m 0,1 -s",
        "-i all -s",
        "-p 1 -s",
        "-P 0 -s",
        "-N 0 -s",
        "-C 0 -s",
        "-a -s",
        "-s -m 9",
        "--show",
        "--version",
        "-H -s",
        "--cpu-compress",
    ] {
        let flags: Vec<&str> = flags.split(' ').collect();
        compare(&[], &flags, &mut differences);
    }
    assert_same(&differences);
    for flags in [
        &["-H"][..],
        &["--hardware", "--cpu-compress"],
        &["-H", "ls"],
    ] {
        listing_is_theirs(flags);
    }
}

/// Free memory changes from one moment to the next, also by what a listing itself takes: ours must
/// be theirs in one of several tries.
fn listing_is_theirs(flags: &[&str]) {
    const TRIES: usize = 20;
    let mut last = None;
    for _ in 0..TRIES {
        let theirs = run(Path::new(THEIRS), &[], flags);
        let ours = run(&link("numactl"), &[], flags);
        if ours == theirs {
            return;
        }
        last = Some((theirs, ours));
    }
    panic!("{flags:?} differs in each of {TRIES} tries: {last:?}");
}

#[test]
fn commands_keep_pid_status_and_arguments() {
    let mut differences = Vec::new();
    for args in [
        &["true"][..],
        &["sh", "-c", "exit 7"],
        &["-m", "0", "sh", "-c", "echo $0 $1", "a b", "-s"],
        &["nope"],
        &["-m", "0", "/etc"],
        &["-m", "0", "/nope/nope"],
        &["-N", "0", "--", "echo", "-m"],
    ] {
        compare(&[], args, &mut differences);
    }
    assert_same(&differences);
    let child = Command::new(link("numactl"))
        .args(["-m", "0", "sh", "-c", "echo $$"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let pid = child.id();
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout).trim(),
        pid.to_string()
    );
}

/// A script without `#!` runs as with the GNU C library's execvp.
#[test]
fn scripts_without_a_first_line_run() {
    use std::os::unix::fs::PermissionsExt;
    fs::write("/tmp/script", "echo script $1\n").unwrap();
    fs::set_permissions("/tmp/script", fs::Permissions::from_mode(0o755)).unwrap();
    let ran = run(&link("numactl"), &[], &["-N", "0", "/tmp/script", "x"]);
    assert_eq!((ran.status, ran.out.as_str()), (0, "script x\n"));
}

#[test]
fn shared_memory_is_treated_the_same() {
    let mut differences = Vec::new();
    for (index, line) in [
        "-L 1m -f F -m 0 -T -V -D -d",
        "-L 1m -f F -i 0 -d",
        "-L 64k -f F -l -d",
        "-L 64k -f F -p 0 -d -V",
        "-L 64k -f F -m 0 -s",
        "-L 64k -f F -m 0 true",
        "-L 64k -f F -N 0",
        "-L 64k -f F -C 0",
        "-C 0 -L 64k -f F",
        "-L 64k -f F -m 99",
        "-L 64k -f F -m 0 -i 0",
        "-L 64k -f F -m 0 -f F",
        "-L 5 -f F -m 0",
        "-L 4k -o 5 -f F",
        "-f F -m 0",
        "-f F -L 1m",
        "-L 64kb -M 0644 -f F",
        "-L 1m -o 1m -f F -i 0 -d",
        "-L 64k -f /nope/F",
        "-L 64k -t -f F -m 0 -V",
        "-S F",
        "-L 1m -S F -m 0 -d -T -D",
        "-L 64k -I 3 -S F -i 0 -d",
        "-L 64k -o 64k -S F -m 0 -d",
    ]
    .into_iter()
    .enumerate()
    {
        let mut ran = Vec::new();
        for (who, program) in [("theirs", Path::new(THEIRS)), ("ours", &link("numactl"))] {
            let file = format!("/tmp/region-{index}-{who}");
            let args: Vec<&str> = line
                .split(' ')
                .map(|word| if word == "F" { &file } else { word })
                .collect();
            let mut result = run(program, &[], &args);
            for text in [&mut result.out, &mut result.err] {
                *text = text.replace(&file, "F");
            }
            let left = fs::metadata(&file).ok().map(|file| {
                use std::os::unix::fs::PermissionsExt;
                (file.len(), file.permissions().mode())
            });
            // What was put into the file stays in memory.
            let _ = fs::remove_file(&file);
            ran.push((result, left));
        }
        if ran[0] != ran[1] {
            differences.push(format!(
                "{line}\n theirs {:?}\n ours   {:?}",
                ran[0], ran[1]
            ));
        }
    }
    assert_same(&differences);
}
