//! Requests against machines written by hand.

use crate::support::{four, four_with, homenode, text};

#[test]
fn a_dry_run_shows_the_calls_in_order() {
    let machine = four("dry");
    for (arguments, expected) in [
        (&["--on", "1"][..], "sched_setaffinity  CPUs 4-7\n"),
        (&["--on", "0,1"], "sched_setaffinity  CPUs 0-7\n"),
        (
            &["--on", "0", "--memory", "bind"],
            "sched_setaffinity  CPUs 0-3\nset_mempolicy      MPOL_BIND, nodes 0\n",
        ),
        (
            &["--on", "0", "--memory-on", "2"],
            "sched_setaffinity  CPUs 0-3\nset_mempolicy      MPOL_BIND, nodes 2\n",
        ),
        (
            &["--memory", "interleave"],
            "set_mempolicy      MPOL_INTERLEAVE, nodes 0-2\n",
        ),
        (
            &["-i", "all"],
            "set_mempolicy      MPOL_INTERLEAVE, nodes 0-2\n",
        ),
        (
            &["-w", "0,2"],
            "set_mempolicy      MPOL_WEIGHTED_INTERLEAVE, nodes 0,2\n",
        ),
        (&["-p", "1"], "set_mempolicy      MPOL_PREFERRED, nodes 1\n"),
        (
            &["-P", "0,1"],
            "set_mempolicy      MPOL_PREFERRED_MANY, nodes 0-1\n",
        ),
        (&["-l"], "set_mempolicy      MPOL_LOCAL\n"),
        (
            &["-b", "-m", "0-1"],
            "set_mempolicy      MPOL_BIND | MPOL_F_NUMA_BALANCING, nodes 0-1\n",
        ),
        (
            &["-N", "0-1", "-C", "3-4", "-m", "0"],
            "sched_setaffinity  CPUs 3-4\nset_mempolicy      MPOL_BIND, nodes 0\n",
        ),
        (&["--cpus", "0x30"], "sched_setaffinity  CPUs 4-5\n"),
        (&["--cpunodebind=all"], "sched_setaffinity  CPUs 0-11\n"),
    ] {
        assert_eq!(
            machine.dry_run(arguments),
            format!("{expected}execvp             job -x\n"),
            "{arguments:?}"
        );
    }
}

#[test]
fn what_no_machine_can_do_is_refused_with_a_way_out() {
    let machine = four("refused");
    for (arguments, error, help) in [
        (
            &["--on", "2"][..],
            "node 2 has no CPUs",
            "use --memory-on 2 to use its memory, and --on 0 for the nearest CPUs",
        ),
        (
            &["--memory-on", "3"],
            "node 3 has no memory",
            "use --memory-on 1, the nearest memory, or leave memory to the kernel",
        ),
        (
            &["-m", "63"],
            "this machine has no node 63",
            "this machine has nodes 0-3",
        ),
        (
            &["-N", "0,63"],
            "this machine has no node 63",
            "this machine has nodes 0-3",
        ),
        (
            &["-m", "0,63"],
            "this machine has no node 63",
            "this machine has nodes 0-3",
        ),
        (
            &["--on", ""],
            "--on `` holds no node",
            "this machine has nodes 0-3",
        ),
        (
            &["-m", "1-0"],
            "cannot read --memory-on `1-0`: expected a range from low to high, found `1-0`; did you mean 0-1?",
            "this machine has nodes 0-3",
        ),
        (
            &["-i", "!0"],
            "cannot read --memory-on `!0`: expected a number or a range such as 0-3, found `!0`",
            "this machine has nodes 0-3",
        ),
        (
            &["--on", "0", "--cpus", "4"],
            "CPUs 4 are not on the nodes of --on",
            "those nodes have CPUs 0-3",
        ),
        (
            &["--cpus", ""],
            "--cpus `` holds no CPU",
            "write a list such as 0-3,8 or a mask such as 0x10000",
        ),
        (
            &["--memory", "bind"],
            "expected the nodes to take memory from, found none",
            "add --memory-on NODES, or --on NODES to use the same nodes for both",
        ),
        (
            &["--memory", "local", "--memory-on", "0"],
            "--memory local takes no nodes: they are those of the CPUs",
            "leave --memory-on out, or use --memory prefer",
        ),
        (
            &["-b", "-i", "0"],
            "--balancing does not go with --memory interleave",
            "the kernel knows it with bind and prefer",
        ),
        (
            &["-b", "--on", "0"],
            "--balancing needs nodes that memory is bound to",
            "add --memory bind, or leave --balancing out: without a policy AutoNUMA works anyway",
        ),
        (
            &[],
            "expected a place for the program, found none",
            "--on auto chooses one; --on 0 and --memory-on 0 name one",
        ),
        (
            &["--on", "near:"],
            "--on near: names no device",
            "name one, such as near:eth0 or near:file:/var/lib/data",
        ),
    ] {
        let found = machine.refuses(arguments);
        assert_eq!(found, (error.to_owned(), help.to_owned()), "{arguments:?}");
    }
}

#[test]
fn contradicting_policies_are_refused_by_the_command_line() {
    for arguments in [
        &["run", "-m", "0", "-i", "0", "true"][..],
        &["run", "-m", "0", "--memory-on", "0", "true"],
        &["run", "-l", "--memory", "bind", "true"],
        &["run", "--on", "0", "--json", "true"],
        &["run", "--on", "0", "--need", "lots", "true"],
        &["run", "-m", "0"],
    ] {
        let output = homenode(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(text(&output.stderr).starts_with("error: "), "{arguments:?}");
    }
}

#[test]
fn a_cpuset_is_named_when_it_is_in_the_way() {
    let machine = four_with("cpuset", |machine| {
        machine.add_file(
            "/proc/self/status",
            "Name:\tx\nCpus_allowed_list:\t0-11\nMems_allowed_list:\t0,2\n",
        );
    });
    let (error, help) = machine.refuses(&["-m", "0-1"]);
    assert_eq!(
        error,
        "the cpuset of this process does not allow memory on node 1"
    );
    assert!(help.starts_with("it allows nodes 0,2;"), "{help}");
}

#[test]
fn a_need_that_the_bound_nodes_cannot_meet_is_warned_of() {
    let machine = four("need");
    let root = machine.root();
    let warned = |arguments: &[&str]| {
        let fixed = ["run", "--root", root, "--dry-run"];
        let words: Vec<&str> = fixed
            .iter()
            .chain(arguments)
            .chain(&["x"])
            .copied()
            .collect();
        let output = homenode(&words);
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stderr)
    };
    assert_eq!(
        warned(&["-m", "0", "--need", "5GiB"]),
        "warning: 5 GiB needed, node 0 has 4 GiB free and at most 4 GiB to be had: bound strictly, \
         the program will be killed when that is used up; --memory prefer lets it use other nodes\n"
    );
    assert_eq!(warned(&["-m", "0-1", "--need", "5GiB"]), "");
    assert_eq!(warned(&["-p", "0", "--need", "5GiB"]), "");
    assert_eq!(
        warned(&["-N", "0", "--need", "8cpu"]),
        "warning: 8 CPUs needed, 4 chosen: CPUs 0-3\n"
    );
    assert_eq!(
        warned(&["--on", "auto", "--need", "64cpu"]),
        "warning: it does not fit: 64 CPUs asked for, 12 may be used here\n"
    );
}

#[test]
fn autonuma_is_said_to_stop_where_it_runs() {
    for (setting, noted) in [("1\n", true), ("0\n", false)] {
        let machine = four_with("balancing", |machine| {
            machine.add_file("/proc/sys/kernel/numa_balancing", setting);
        });
        let notes = |arguments: &[&str]| {
            let fixed = ["run", "--root", machine.root(), "--dry-run"];
            let words: Vec<&str> = fixed
                .iter()
                .chain(arguments)
                .chain(&["x"])
                .copied()
                .collect();
            text(&homenode(&words).stderr)
        };
        assert_eq!(notes(&["-m", "0"]).starts_with("note: "), noted);
        assert_eq!(notes(&["-m", "0", "--quiet"]), "");
        assert_eq!(notes(&["-b", "-m", "0"]), "");
        assert_eq!(notes(&["-N", "0"]), "");
    }
}
