//! Both programs on this machine, as far as its numbers stand still.

use std::process::{Child, Command, Stdio};

use homenode_host::Live;

use crate::upstream::{Answer, ours, release};

const TRIES: usize = 200;

fn upstream(args: &[&str]) -> Answer {
    Command::new("numastat")
        .args(args)
        .env_remove("NUMASTAT_WIDTH")
        .output()
        .unwrap()
        .into()
}

/// A process that does nothing, so that its memory stays where it is; ended with the test.
struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        let child = Command::new("sleep")
            .arg("1000000")
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        Self(child)
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Ours between two of upstream that agree.
fn agree(args: &[&str], same: impl Fn(&str) -> Vec<String>) {
    for _ in 0..TRIES {
        let (before, found, after) = (upstream(args), ours(&Live, args, None), upstream(args));
        if before == after {
            assert_eq!(same(&found.out), same(&before.out), "{args:?}");
            assert_eq!((found.code, &found.err), (before.code, &before.err));
            return;
        }
    }
    panic!("numastat {args:?} never stood still in {TRIES} tries");
}

fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_sleeping_process_looks_the_same() {
    if release().is_none() {
        return;
    }
    let sleeper = Sleeper::start();
    let pid = sleeper.0.id().to_string();
    for args in [
        vec![&*pid],
        vec!["-c", "-p", &pid],
        vec!["-z", &pid],
        vec!["-s", "sleep 1000000"],
        vec!["-v", "sleep 1000000"],
    ] {
        agree(&args, lines);
    }
}

/// The kernel counts while we look, and never backwards.
#[test]
fn counters_lie_between_two_of_upstream() {
    if release().is_none() {
        return;
    }
    let (before, found, after) = (upstream(&[]), ours(&Live, &[], None), upstream(&[]));
    let words = |answer: &Answer| -> Vec<String> {
        answer.out.split_whitespace().map(str::to_owned).collect()
    };
    let (low, words, high) = (words(&before), words(&found), words(&after));
    assert_eq!(words.len(), low.len(), "{}\n{}", found.out, before.out);
    for ((word, low), high) in words.iter().zip(&low).zip(&high) {
        match (word.parse::<u64>(), low.parse(), high.parse()) {
            (Ok(word), Ok(low), Ok(high)) => assert!((low..=high).contains(&word), "{word}"),
            _ => assert_eq!(word, low),
        }
    }
    assert_eq!(found.out.len(), before.out.len());
}

/// Rows that upstream lacks are ours alone (2.0.16 knows a fixed list, and shows it in an order of
/// its own); memory that others use right now never stands still to the byte, so rows are compared
/// one by one, until both show the same between two equal looks. A number may go and come back, so
/// a single difference says nothing.
#[test]
fn rows_of_meminfo_are_the_same() {
    if release().is_none() {
        return;
    }
    let row = |text: &str, label: &str| -> Option<String> {
        text.lines()
            .find(|line| line.split_whitespace().next() == Some(label))
            .map(str::to_owned)
    };
    let mut open: Vec<String> = upstream(&["-m"])
        .out
        .lines()
        .skip(2)
        .filter(|line| !line.starts_with(['T', ' ']))
        .filter_map(|line| line.split_whitespace().next().map(str::to_owned))
        .collect();
    let count = open.len();
    assert!(count > 20, "{open:?}");
    for _ in 0..TRIES {
        let answers = (
            upstream(&["-m"]),
            ours(&Live, &["-m"], None),
            upstream(&["-m"]),
        );
        open.retain(|label| {
            let [before, found, after] =
                [&answers.0, &answers.1, &answers.2].map(|answer| row(&answer.out, label));
            before != after || found != before
        });
        if open.is_empty() {
            break;
        }
    }
    assert!(open.len() * 4 < count, "never the same: {open:?}");
}
