//! Homenode under the name numastat against numastat itself, 2.0.19, on several real nodes.
//!
//! Written machines are compared in `crates/compat/tests/numastat_differential`; here it is the
//! kernel's own files.

use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Output};

use crate::support::shape;

/// Each look takes some 0.2 s in an emulated machine.
const TRIES: usize = 20;

fn outcome(command: &mut Command, arguments: &[&str]) -> (Option<i32>, String, String) {
    let Output {
        status,
        stdout,
        stderr,
    } = command.args(arguments).output().unwrap();
    (
        status.code(),
        String::from_utf8_lossy(&stdout).into_owned(),
        String::from_utf8_lossy(&stderr).into_owned(),
    )
}

fn upstream(arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(&mut Command::new("numastat"), arguments)
}

fn ours(arguments: &[&str]) -> (Option<i32>, String, String) {
    outcome(Command::new("homenode").arg0("numastat"), arguments)
}

/// Ours is what upstream says before and after, as soon as that is the same.
fn assert_same(arguments: &[&str]) {
    for _ in 0..TRIES {
        let (before, found, after) = (upstream(arguments), ours(arguments), upstream(arguments));
        if before == after {
            assert_eq!(found, before, "{arguments:?}\n{}\n{}", found.1, before.1);
            return;
        }
    }
    panic!("numastat {arguments:?} never stood still in {TRIES} tries");
}

/// The same lines, where those with numbers are compared while they stand still.
fn assert_same_lines(arguments: &[&str], still_at_least: usize) {
    let mut open: Option<Vec<usize>> = None;
    let mut lines = 0;
    for _ in 0..TRIES {
        let (before, found, after) = (upstream(arguments), ours(arguments), upstream(arguments));
        let [before, found, after] =
            [&before, &found, &after].map(|(_, text, _)| text.lines().collect::<Vec<_>>());
        lines = before.len();
        assert_eq!(found.len(), lines, "{arguments:?}\n{found:#?}\n{before:#?}");
        let open = open.get_or_insert_with(|| (0..lines).collect());
        open.retain(|&at| {
            if before[at] != after[at] {
                let label = |line: &str| line.split_whitespace().next().map(str::to_owned);
                assert_eq!(label(found[at]), label(before[at]));
                assert_eq!(found[at].len(), before[at].len());
                return true;
            }
            assert_eq!(found[at], before[at], "{arguments:?}");
            false
        });
        if open.is_empty() {
            return;
        }
    }
    let moving = open.map_or(lines, |open| open.len());
    assert!(
        lines - moving >= still_at_least,
        "{moving} of {lines} lines of numastat {arguments:?} never stood still"
    );
}

/// A process that stays as it is; ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let mut busybox = Command::new("busybox");
        Self(busybox.args(["sleep", "100000"]).spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn numastat_shows_a_process_as_upstream_does() {
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id().to_string();
    assert_same(&["-p", &pid]);
    assert_same(&["-cz", &pid]);
    assert_same(&["-s", "sleep 100000"]);
    let (code, text, _) = ours(&[&pid]);
    assert_eq!(code, Some(0));
    let header = text.lines().nth(2).unwrap();
    assert_eq!(
        header.matches("Node ").count(),
        shape().expected_nodes().len()
    );
    let total = text.lines().last().unwrap();
    let total: f64 = total.split_whitespace().last().unwrap().parse().unwrap();
    assert!(total > 0.0, "{text}");
}

#[test]
fn numastat_tells_errors_as_upstream_does() {
    assert_same(&["999999"]);
    assert_same(&["-x"]);
    // A name may hold what follows it on both command lines, so this asks for nobody's.
    assert_same(&["-cz", "-p", "999999", "999998"]);
}

/// Counters grow while we look, and never shrink.
#[test]
fn numastat_counts_between_two_of_upstream() {
    let (before, found, after) = (upstream(&[]).1, ours(&[]).1, upstream(&[]).1);
    assert_eq!(found.lines().count(), before.lines().count());
    let triples = found
        .split_whitespace()
        .zip(before.split_whitespace())
        .zip(after.split_whitespace());
    for ((word, low), high) in triples {
        match (word.parse::<u64>(), low.parse(), high.parse()) {
            (Ok(word), Ok(low), Ok(high)) => assert!((low..=high).contains(&word), "{found}"),
            _ => assert_eq!(word, low),
        }
    }
}

#[test]
fn numastat_shows_the_system_as_upstream_does() {
    // The title, the heading, and rows of what is not in use.
    assert_same_lines(&["-m"], 20);
    assert_same_lines(&["-n"], 4);
    assert_same_lines(&["-c"], 4);
    assert_same_lines(&["-cm"], 20);
}
