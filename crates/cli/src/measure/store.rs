//! Where the newest numbers of this machine are kept.

use std::io;
use std::path::{Path, PathBuf};

use homenode_host::{Buffer, Files as _, Live};
use homenode_measure::{Document, MachineId, Test};

use crate::error::{Helped, warn};

/// The folder: `$XDG_STATE_HOME/homenode`; for root `/var/lib/homenode`; else
/// `~/.local/state/homenode` (XDG Base Directory Specification 0.8).
fn folder() -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment is resolved here"
    )]
    let variable = |name| {
        std::env::var_os(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    if let Some(state) = variable("XDG_STATE_HOME") {
        return Some(state.join("homenode"));
    }
    if rustix::process::geteuid().is_root() {
        return Some(PathBuf::from("/var/lib/homenode"));
    }
    Some(variable("HOME")?.join(".local/state/homenode"))
}

/// The numbers of a test that were kept for this machine; `None` where there are none, or where
/// they are of another machine or another release. Costs one `open`.
pub(crate) fn kept(test: Test, machine: &MachineId) -> Option<Document> {
    let path = folder()?.join(file(test));
    let mut buffer = Buffer::new();
    let text = Live.read(path.to_str()?, &mut buffer).ok()?;
    Document::parse(text)
        .ok()
        .filter(|document| document.machine == *machine)
}

/// A file for each test, so that `topo` need not read them all.
fn file(test: Test) -> String {
    format!("{}.json", test.name())
}

/// Keeps the numbers of a run, each test's in place of its older ones. That it cannot be done is
/// no reason to fail: the numbers were shown.
pub(super) fn save(document: &Document) {
    let Some(folder) = folder() else { return };
    for (test, numbers) in document.by_test() {
        if let Err(error) = write(&folder, &file(test), &numbers.to_json()) {
            let folder = folder.display();
            warn(&format!(
                "the numbers could not be kept in {folder}: {error}"
            ));
            return;
        }
    }
}

/// Writes beside and renames, so that nobody reads half a file.
fn write(folder: &Path, name: &str, json: &str) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    let beside = folder.join(format!(".{name}.{}", std::process::id()));
    let written =
        std::fs::write(&beside, json).and_then(|()| std::fs::rename(&beside, folder.join(name)));
    if written.is_err() {
        // Nothing more can be done about it.
        let _ = std::fs::remove_file(&beside);
    }
    written
}

/// Reads a run that the user names.
pub(super) fn read_file(path: &Path) -> anyhow::Result<Document> {
    let name = path.display().to_string();
    let mut buffer = Buffer::new();
    let text = Live.read(&name, &mut buffer).map_err(|error| {
        Helped::wrap("cannot read a run", error, "name a file that --json wrote")
    })?;
    Document::parse(text).map_err(|error| {
        Helped::wrap(
            format!("cannot use {name} as a run"),
            error,
            "write one with `homenode measure latency --json > before.json`",
        )
    })
}
