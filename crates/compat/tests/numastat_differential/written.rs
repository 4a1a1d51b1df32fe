//! Both programs on the same written machines, in a mount namespace of its own.

use std::fs;
use std::path::Path;
use std::process::Command;

use crate::machines::{Machine, machines};
use crate::upstream::{Answer, Release, ours, release};

/// Command lines for every machine. `-s<node>` stands apart, as it differs on machines with gaps;
/// so do those on which upstream errs (docs/drop-ins-numastat.md).
const LINES: &[&str] = &[
    "",
    "-n",
    "-m",
    "-c",
    "-z",
    "-v",
    "-cz",
    "-cm",
    "-cn",
    "-mn",
    "-nm",
    "-mncz",
    "-ms",
    "-ns",
    "-cmn -s",
    "-zcmns",
    "-sx -m",
    "-s99999 -m",
    "-msc",
    "--",
    "-- -n",
    "1",
    "-p1",
    "-p 77",
    "77 77",
    "007",
    "12",
    "5",
    "-c 12",
    "-z 12",
    "-cz 12",
    "-z 5",
    "-cz 5 1",
    "foo",
    "-c foo",
    "-z foo",
    "-cz foo",
    "-s foo",
    "-zs foo",
    "-v foo",
    "-vc foo",
    "-vs foo",
    "-cv foo 1 12 5",
    "1 init",
    "tab",
    "Content",
    "sixteen",
    "sixteen -c",
    "sixteen foo -z",
    "-s 1 77 123456 300 12",
    "-c -s 1 77 123456 300 12 4194303",
    "1 77 123456 300 12 5",
    "-pfoo -p1 300 -sz",
    "-m 1",
    "-n 1",
    "-mncz 1 foo",
    "-cmnzs foo",
    "9",
    "99",
    "9 99",
    "9 77",
    "-z 9 77",
    "-c 9 77",
    "-v 99 1",
    "-v 1 9 77",
    "3 77 -c",
    "0",
    "nomatch",
    "nomatch -c",
    "nomatch -m",
    "nomatch also 1",
    "-",
    "-p -m",
    "-p -- -n",
    "FOO",
    "-?",
    "--help",
    "--he",
    "--helpx",
    "--he=1",
    "--zork",
    "-x",
    "-xV",
    "-p",
    "-c-",
    "-:",
    "-mp",
];

const SORTED_BY_NODE: &[&str] = &[
    "-ms0",
    "-ms1",
    "-ns1",
    "-ncs7",
    "-ms01",
    "-s1 -s -m",
    "-s0 foo 1",
    "-s1 foo 1 12 300",
    "-zs1 foo 1 12 300",
    "-s1 77",
    "-mcs3 77",
];

/// Where tables fold. Not all are for every line: that would be some 14 000 runs.
const WIDTHS: [Option<&str>; 14] = [
    None,
    Some("80"),
    None,
    Some("49"),
    Some(""),
    Some("0"),
    Some("10"),
    Some("48"),
    Some("64"),
    Some("81"),
    Some("132x"),
    Some(" 100"),
    Some("10000000"),
    Some("99999999999"),
];

struct Case {
    args: Vec<&'static str>,
    width: Option<&'static str>,
}

fn cases(machine: &Machine) -> Vec<Case> {
    // Rows that are equal on one node need not be equal.
    let sorted = SORTED_BY_NODE
        .iter()
        .filter(|line| !(machine.has_gaps() || machine.has_zeros && line.contains('m')));
    let mut cases = Vec::new();
    for (at, line) in LINES.iter().chain(sorted).enumerate() {
        for turn in 0..2 {
            cases.push(Case {
                args: line.split_whitespace().collect(),
                width: WIDTHS[(at * 2 + turn * 5) % WIDTHS.len()],
            });
        }
    }
    for args in [
        vec![""],
        vec!["foo --bar"],
        vec!["Content /usr/bin/browser --type tab"],
    ] {
        cases.push(Case { args, width: None });
    }
    cases
}

/// Whether we may put other files in the place of /sys and /proc, for ourselves alone.
fn may_mount() -> bool {
    let probe = "mount --bind /tmp /sys/devices/system/node";
    let tried = Command::new("unshare")
        .args(["--mount", "sh", "-c", probe])
        .output();
    let why = match tried {
        Ok(output) if output.status.success() => return true,
        Ok(output) => Answer::from(output).err,
        Err(error) => error.to_string(),
    };
    println!("skipped: a mount namespace needs root ({})", why.trim());
    false
}

/// All cases in one shell, as making a namespace takes longer than numastat does.
fn ask_upstream(machine: &Machine, cases: &[Case], folder: &Path) -> Vec<Answer> {
    let _ = fs::remove_dir_all(folder);
    machine.snapshot.write_to(folder).unwrap();
    let place = folder.to_str().unwrap();
    let mut script = format!(
        "mount --bind '{place}/sys/devices/system/node' /sys/devices/system/node || exit 1\n\
         mount --bind '{place}/proc' /proc || exit 1\n"
    );
    for (at, case) in cases.iter().enumerate() {
        let width = match case.width {
            Some(width) => format!("NUMASTAT_WIDTH='{width}' "),
            None => String::new(),
        };
        let args: String = case.args.iter().map(|arg| format!(" '{arg}'")).collect();
        script.push_str(&format!(
            "{width}numastat{args} >'{place}/{at}.out' 2>'{place}/{at}.err'; echo $? >'{place}/{at}.code'\n"
        ));
    }
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-c", &script])
        .env_remove("NUMASTAT_WIDTH")
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let read = |at: usize, what: &str| {
        let path = folder.join(format!("{at}.{what}"));
        #[expect(
            clippy::disallowed_methods,
            reason = "a file that this test has written"
        )]
        let text = fs::read(path).unwrap();
        String::from_utf8_lossy(&text).into_owned()
    };
    let answers = (0..cases.len())
        .map(|at| Answer {
            code: read(at, "code").trim().parse().ok(),
            out: read(at, "out"),
            err: read(at, "err"),
        })
        .collect();
    fs::remove_dir_all(folder).unwrap();
    answers
}

#[test]
fn every_written_machine_looks_as_upstream_shows_it() {
    let Some(release) = release() else { return };
    if !may_mount() {
        return;
    }
    let mut compared = 0;
    for (at, machine) in machines().iter().enumerate() {
        let cases = cases(machine);
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("numastat-{at}"));
        let answers = ask_upstream(machine, &cases, &folder);
        for (case, mut expected) in cases.iter().zip(answers) {
            let mut found = ours(&machine.snapshot, &case.args, case.width);
            if release == Release::Fixed && case.args.concat().contains('m') {
                // Rows that are not here take part in its sorting, out of sight.
                found.out = with_equal_rows_by_label(&found.out);
                expected.out = with_equal_rows_by_label(&expected.out);
            }
            if release == Release::Later {
                // Written machines tell huge pages in meminfo alone.
                expected.out = without_lines(&expected.out, "invalid path: ");
            }
            assert_eq!(
                found, expected,
                "{}: NUMASTAT_WIDTH={:?} numastat {:?}\nours:\n{}upstream:\n{}",
                machine.name, case.width, case.args, found.out, expected.out
            );
            compared += 1;
        }
    }
    println!("{compared} outputs compared");
    assert!(compared > 1500, "only {compared} outputs compared");
}

fn without_lines(text: &str, start: &str) -> String {
    text.split_inclusive('\n')
        .filter(|line| !line.starts_with(start))
        .collect()
}

/// Sorts neighbours that differ in their label only.
fn with_equal_rows_by_label(text: &str) -> String {
    let numbers = |line: &&str| -> Vec<String> {
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    let mut lines: Vec<&str> = text.split_inclusive('\n').collect();
    for equal in lines.chunk_by_mut(|a, b| numbers(a) == numbers(b)) {
        equal.sort_unstable();
    }
    lines.concat()
}
