//! `homenode capture`: saves what the readers read.

use std::io::Write;
use std::path::Path;

use homenode_host::{FileError, Files as _, Live, Recording};
use homenode_topology::{Detail, Source, read_topology, scrub};

use crate::args::{CaptureArgs, MachineArgs};
use crate::error::Helped;
use crate::source::Machine;

/// Runs the command.
///
/// # Errors
///
/// When the machine cannot be read, or the folder is in use or cannot be written.
pub(crate) fn run(
    args: &CaptureArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let folder = &args.folder;
    refuse_used(folder)?;
    let machine = Machine::open(machine)?;
    let recording = Recording::new(machine.files());
    let topology = read_topology(&recording, machine.source(), Detail::Full)
        .map_err(|error| machine.explain(error))?;
    let mut snapshot = recording.into_snapshot();
    scrub(&mut snapshot);
    // What is written must read back as what was read; a capture that does not is worth nothing.
    let source = Source::Captured(folder.display().to_string());
    read_topology(&snapshot, source, Detail::Full).map_err(|error| machine.explain(error))?;
    snapshot.write_to(folder).map_err(|error| {
        Helped::wrap(
            "cannot save the machine",
            error,
            "name a folder that may be written",
        )
    })?;
    writeln!(
        out,
        "saved {} files to {}",
        snapshot.files().count(),
        folder.display()
    )?;
    for (what, why) in [
        ("firmware tables", topology.firmware.srat.why()),
        ("memory slots", topology.memory_slots.why()),
    ] {
        if let Some(why) = why {
            writeln!(out, "left out: {what} ({why})")?;
        }
    }
    writeln!(
        out,
        "removed: host name, serial numbers, command lines, group names"
    )?;
    writeln!(
        out,
        "look at it with: homenode topo --root {}",
        folder.display()
    )?;
    Ok(())
}

/// Refuses a folder that holds something: nothing of the user's may be mixed up or lost.
fn refuse_used(folder: &Path) -> anyhow::Result<()> {
    let name = folder.display();
    let absolute = std::path::absolute(folder)?;
    match Live.list(&absolute.display().to_string()) {
        Ok(names) if names.is_empty() => Ok(()),
        Err(FileError::NotFound { .. }) if absolute.symlink_metadata().is_err() => Ok(()),
        Ok(_) => Err(Helped::error(
            format!("expected {name} to be new or empty, found files in it"),
            "name another folder",
        )),
        Err(_) => Err(Helped::error(
            format!("expected {name} to be a new folder, found something else"),
            "name another folder",
        )),
    }
}
