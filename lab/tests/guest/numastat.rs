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

/// The same lines, of which at least so many are the same to the byte.
///
/// Each program takes memory of its own while it runs, so some numbers only come near.
fn assert_same_lines(arguments: &[&str], same_at_least: usize) {
    let look = |text: (Option<i32>, String, String)| -> Vec<String> {
        text.1.lines().map(str::to_owned).collect()
    };
    let count = look(upstream(arguments)).len();
    let mut open: Vec<usize> = (0..count).collect();
    for _ in 0..TRIES {
        let (expected, found) = (look(upstream(arguments)), look(ours(arguments)));
        assert_eq!(found.len(), count, "{arguments:?} {found:#?} {expected:#?}");
        open.retain(|&at| {
            assert_near(&found[at], &expected[at]);
            found[at] != expected[at]
        });
        if count - open.len() >= same_at_least {
            return;
        }
    }
    panic!(
        "{} of {count} lines of numastat {arguments:?} were never the same",
        open.len()
    );
}

/// What one of the two programs, or the kernel meanwhile, may take. Unit: megabytes.
const TAKEN_MEANWHILE: f64 = 8.0;

fn assert_near(found: &str, expected: &str) {
    let context = format!("{found}\n{expected}");
    let (found, expected): (Vec<&str>, Vec<&str>) = (
        found.split_whitespace().collect(),
        expected.split_whitespace().collect(),
    );
    assert_eq!(found.len(), expected.len(), "{context}");
    for (found, expected) in found.into_iter().zip(expected) {
        match (found.parse::<f64>(), expected.parse::<f64>()) {
            (Ok(found), Ok(expected)) => {
                assert!((found - expected).abs() <= TAKEN_MEANWHILE, "{context}");
            }
            _ => assert_eq!(found, expected, "{context}"),
        }
    }
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
    assert_same_lines(&["-m"], 25);
    assert_same_lines(&["-n"], 4);
    assert_same_lines(&["-c"], 6);
    assert_same_lines(&["-cm"], 30);
}
