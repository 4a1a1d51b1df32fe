//! Programs that are started here, on whatever machine this is.

use std::fs;
use std::process::{Command, Stdio};

use homenode_units::CpuSet;

use crate::support::{HOMENODE, Scratch, four, homenode, refused, stdout, text};

#[test]
fn a_captured_machine_runs_nothing() {
    let machine = four("captured");
    let (error, help) = refused(2, &["run", "--root", machine.root(), "--on", "0", "true"]);
    assert_eq!(error, "a captured machine runs nothing");
    assert!(help.starts_with("add --dry-run"), "{help}");
}

/// The lowest CPU that this process may use, which is on some node.
fn a_cpu() -> String {
    let status = fs::read_to_string("/proc/self/status").expect("a live machine");
    let list = status
        .lines()
        .find_map(|line| line.strip_prefix("Cpus_allowed_list:"))
        .expect("a list");
    let cpus = CpuSet::parse_list(list).expect("a list");
    cpus.lowest().expect("a CPU").to_string()
}

#[test]
fn the_program_gets_its_cpus_policy_arguments_and_process_id() {
    let cpu = a_cpu();
    let script =
        "echo $$; grep -h Cpus_allowed_list /proc/self/status; cat; echo \"$0 $1\"; exit 7";
    let child = Command::new(HOMENODE)
        .args(["run", "-C", &cpu, "sh", "-c", script, "--name", "--root"])
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the program starts");
    let id = child.id();
    let output = child.wait_with_output().expect("its output");
    assert_eq!(output.status.code(), Some(7));
    assert_eq!(
        text(&output.stdout),
        format!("{id}\nCpus_allowed_list:\t{cpu}\n--name --root\n")
    );
}

#[test]
fn the_policy_is_there_in_the_program() {
    let shown = homenode(&["run", "-m", "0", "cat", "/proc/self/numa_maps"]);
    if !shown.status.success() {
        eprintln!("skipped: {}", text(&shown.stderr));
        return;
    }
    let maps = text(&shown.stdout);
    assert!(!maps.is_empty());
    for line in maps.lines() {
        assert!(line.contains(" bind:0"), "{line}");
    }
}

#[test]
fn the_shells_words_for_what_cannot_be_started() {
    let scratch = Scratch::new("start");
    let cpu = a_cpu();
    let run = |program: &str, status| refused(status, &["run", "-C", &cpu, program]);
    assert_eq!(
        run("no-such-program-here", 127).0,
        "cannot execute no-such-program-here: No such file or directory (os error 2)"
    );
    run("/no/such/program", 127);
    let plain = scratch.file("plain", "text", 0o644);
    assert!(run(&plain, 126).1.starts_with("make it executable"));
    let lost = scratch.file("lost", "#!/no/such/interpreter\n", 0o755);
    assert_eq!(
        run(&lost, 126).1,
        "it is there, but its interpreter or loader is not"
    );
    // A script that does not say whose it is belongs to the shell.
    let bare = scratch.file("bare", "echo \"bare $1\"\n", 0o755);
    assert_eq!(stdout(&["run", "-C", &cpu, &bare, "x"]), "bare x\n");
}

#[test]
fn this_machine_has_no_node_1023() {
    for arguments in [
        &["run", "-m", "1023", "true"][..],
        &["run", "--on", "1023", "true"],
    ] {
        let (error, help) = refused(2, arguments);
        assert_eq!(error, "this machine has no node 1023");
        assert!(help.starts_with("this machine has nodes "), "{help}");
    }
}

#[expect(clippy::print_stderr, reason = "a test that cannot run says so")]
fn skipped<T>() -> Option<T> {
    eprintln!("skipped: strace cannot be used here");
    None
}

/// strace answers the call in the kernel's stead, as a seccomp filter or an old kernel would.
fn with_refused_call(errno: &str, arguments: &[&str]) -> Option<String> {
    let strace = Command::new("strace")
        .args(["-qq", "-o", "/dev/null", "-e"])
        .arg(format!("inject=set_mempolicy:error={errno}"))
        .arg(HOMENODE)
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .output();
    match strace {
        Ok(output) if output.status.code() == Some(2) => Some(text(&output.stderr)),
        _ => skipped(),
    }
}

#[test]
fn a_containers_filter_is_explained() {
    let Some(stderr) = with_refused_call("EPERM", &["run", "-l", "true"]) else {
        return;
    };
    assert!(
        stderr.starts_with(
            "error: cannot set the memory policy MPOL_LOCAL: set_mempolicy is blocked, usually by \
             the seccomp filter of a container\nhelp: start the container with --cap-add SYS_NICE"
        ),
        "{stderr}"
    );
}

#[test]
fn an_old_kernel_is_told_which_one_is_needed() {
    for (arguments, version) in [
        (&["run", "-w", "0", "true"][..], "6.9"),
        (&["run", "-b", "-m", "0", "true"], "5.12"),
        (&["run", "-b", "-p", "0", "true"], "6.9"),
    ] {
        let Some(stderr) = with_refused_call("EINVAL", arguments) else {
            return;
        };
        assert!(
            stderr.contains(&format!("it needs Linux {version} or later, this is ")),
            "{stderr}"
        );
    }
}

#[test]
fn plain_nodes_are_checked_with_few_system_calls() {
    let scratch = Scratch::new("calls");
    let log = scratch.0.join("calls");
    let traced = Command::new("strace")
        .args([
            "-qq",
            "-e",
            "trace=open,openat,get_mempolicy,set_mempolicy,execve",
            "-o",
        ])
        .arg(&log)
        .args([HOMENODE, "run", "-m", "0", "true"])
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .status();
    if !traced.is_ok_and(|status| status.success()) {
        eprintln!("skipped: strace cannot be used here");
        return;
    }
    let calls = fs::read_to_string(&log).expect("what strace wrote");
    let ours = calls.split("execve(").nth(1).expect("our own calls");
    assert!(!ours.contains("/sys/"), "the topology is not read:\n{ours}");
    assert_eq!(ours.matches("set_mempolicy(MPOL_BIND").count(), 1, "{ours}");
}
