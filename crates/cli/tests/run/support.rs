//! Running the program, and machines written by hand.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use homenode_host::Snapshot;
use homenode_units::CpuSet;
use serde_json::Value;

pub(crate) const HOMENODE: &str = env!("CARGO_BIN_EXE_homenode");
pub(crate) const NODE: &str = "/sys/devices/system/node";
pub(crate) const CPU: &str = "/sys/devices/system/cpu";

pub(crate) fn homenode(arguments: &[&str]) -> Output {
    Command::new(HOMENODE)
        .args(arguments)
        .env_remove("HOMENODE_ROOT")
        .stdin(Stdio::null())
        .output()
        .expect("the program starts")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

pub(crate) fn stdout(arguments: &[&str]) -> String {
    let output = homenode(arguments);
    assert!(
        output.status.success(),
        "{arguments:?}: {}",
        text(&output.stderr)
    );
    text(&output.stdout)
}

/// The `error:` and the `help:` line of a run that must fail with this status.
pub(crate) fn refused(status: i32, arguments: &[&str]) -> (String, String) {
    let output = homenode(arguments);
    let stderr = text(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(status),
        "{arguments:?}: {stderr}"
    );
    assert!(output.stdout.is_empty(), "{arguments:?} printed something");
    let lines: Vec<&str> = stderr.lines().collect();
    let [error, help] = lines[..] else {
        panic!("{arguments:?}: {stderr}");
    };
    let strip = |line: &str, label: &str| line.strip_prefix(label).expect(label).to_owned();
    (strip(error, "error: "), strip(help, "help: "))
}

/// A folder that goes away.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("run-{name}"));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("room for a folder");
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, content: &str, mode: u32) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("room for a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("our own file");
        path.display().to_string()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A machine on disk: nodes with their CPUs, MiB in all and free, and distances.
pub(crate) struct Captured(Scratch);

impl Captured {
    pub(crate) fn new(
        name: &str,
        nodes: &[(&str, u64, u64, &str)],
        change: impl Fn(&mut Snapshot),
    ) -> Self {
        let mut machine = Snapshot::default();
        let mut all = CpuSet::new();
        let mut meminfo = (0, 0);
        for (id, &(list, total, free, distances)) in nodes.iter().enumerate() {
            let cpus = CpuSet::parse_list(list).expect("a list");
            let folder = format!("{NODE}/node{id}");
            machine.add_file(&format!("{folder}/cpumap"), cpus.to_mask());
            machine.add_file(&format!("{folder}/distance"), format!("{distances}\n"));
            let mut text = String::new();
            for (key, mib) in [("MemTotal", total), ("MemFree", free)] {
                writeln!(text, "Node {id} {key}:  {} kB", mib * 1024).expect("a String");
            }
            machine.add_file(&format!("{folder}/meminfo"), text);
            meminfo = (meminfo.0 + total, meminfo.1 + free);
            for cpu in cpus.iter() {
                let topology = format!("{CPU}/cpu{cpu}/topology");
                machine.add_file(
                    &format!("{topology}/physical_package_id"),
                    format!("{id}\n"),
                );
                machine.add_file(&format!("{topology}/core_siblings"), cpus.to_mask());
            }
            all = all.union(&cpus);
        }
        let last = nodes.len() - 1;
        machine.add_file(&format!("{NODE}/online"), format!("0-{last}\n"));
        machine.add_file(&format!("{CPU}/online"), format!("{all}\n"));
        let (total, free) = meminfo;
        machine.add_file(
            "/proc/meminfo",
            format!(
                "MemTotal: {} kB\nMemFree: {} kB\n",
                total * 1024,
                free * 1024
            ),
        );
        change(&mut machine);
        let scratch = Scratch::new(name);
        machine.write_to(&scratch.0).expect("room for a machine");
        Self(scratch)
    }

    pub(crate) fn root(&self) -> &str {
        self.0.0.to_str().expect("a path of text")
    }

    pub(crate) fn dry_run(&self, arguments: &[&str]) -> String {
        let arguments: Vec<&str> = ["run", "--root", self.root(), "--dry-run"]
            .iter()
            .chain(arguments)
            .chain(&["--", "job", "-x"])
            .copied()
            .collect();
        stdout(&arguments)
    }

    pub(crate) fn refuses(&self, arguments: &[&str]) -> (String, String) {
        let arguments: Vec<&str> = ["run", "--root", self.root(), "--dry-run"]
            .iter()
            .chain(arguments)
            .chain(&["--", "job"])
            .copied()
            .collect();
        refused(2, &arguments)
    }

    pub(crate) fn place(&self, status: i32, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = ["place", "--json", "--root", self.root()]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        let output = homenode(&arguments);
        assert_eq!(
            output.status.code(),
            Some(status),
            "{arguments:?}: {}",
            text(&output.stderr)
        );
        serde_json::from_slice(&output.stdout).expect("JSON")
    }
}

/// Two packages, a memory expander (node 2) and a package without memory (node 3).
pub(crate) fn four(name: &str) -> Captured {
    four_with(name, |_| {})
}

pub(crate) fn four_with(name: &str, change: impl Fn(&mut Snapshot)) -> Captured {
    Captured::new(
        name,
        &[
            ("0-3", 8192, 4096, "10 21 17 31"),
            ("4-7", 8192, 6144, "21 10 28 21"),
            ("", 16384, 16384, "17 28 10 31"),
            ("8-11", 0, 0, "31 21 31 10"),
        ],
        change,
    )
}
