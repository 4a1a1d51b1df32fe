//! What numactl asks of the kernel, so that tests can answer in its place.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use homenode_host::{Files, Live};
use homenode_sys::Policy;
use homenode_units::{CpuSet, NodeId, NodeSet};

use super::devices::{self, DeviceNumber, Route};

/// The kernel, seen and acted upon.
pub(super) trait System {
    /// Its files.
    fn files(&self) -> &(dyn Files + Sync);

    /// Whether it has memory policies at all.
    fn has_numa(&self) -> bool;

    /// The nodes that this task may take memory from.
    fn allowed_nodes(&self) -> NodeSet;

    /// The CPUs that this task may run on.
    fn affinity(&self) -> io::Result<CpuSet>;

    /// Sets them.
    fn set_affinity(&mut self, cpus: &CpuSet) -> io::Result<()>;

    /// The policy of this task.
    fn policy(&self) -> io::Result<Policy>;

    /// Sets it.
    fn set_policy(&mut self, policy: &Policy) -> io::Result<()>;

    /// The node that an interleaving policy takes next.
    fn next_interleave_node(&self) -> Option<NodeId>;

    /// The device that a file is or lies on.
    fn device_of(&self, path: &Path) -> io::Result<DeviceNumber>;

    /// The addresses of a host, and for each, the address that we would speak from.
    fn routes_to(&self, host: &str) -> io::Result<Vec<Route>>;

    /// Becomes the command; returns only when that failed.
    fn exec(&mut self, command: &[OsString]) -> io::Error;
}

/// This kernel.
#[derive(Debug)]
pub(super) struct LiveSystem;

impl System for LiveSystem {
    fn files(&self) -> &(dyn Files + Sync) {
        &Live
    }

    fn has_numa(&self) -> bool {
        !matches!(
            homenode_sys::task_policy(),
            Err(homenode_sys::PolicyError::NotSupported)
        )
    }

    fn allowed_nodes(&self) -> NodeSet {
        // A filter may forbid the question; the file says the same.
        homenode_sys::allowed_nodes()
            .ok()
            .or_else(|| status_list("Mems_allowed_list"))
            .unwrap_or_default()
    }

    fn affinity(&self) -> io::Result<CpuSet> {
        homenode_sys::affinity(None).map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }

    fn set_affinity(&mut self, cpus: &CpuSet) -> io::Result<()> {
        homenode_sys::set_affinity(None, cpus)
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }

    fn policy(&self) -> io::Result<Policy> {
        homenode_sys::task_policy().map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }

    fn set_policy(&mut self, policy: &Policy) -> io::Result<()> {
        homenode_sys::set_mempolicy(policy)
            .map_err(|error| io::Error::from_raw_os_error(error.errno()))
    }

    fn next_interleave_node(&self) -> Option<NodeId> {
        homenode_sys::next_interleave_node().ok().flatten()
    }

    fn device_of(&self, path: &Path) -> io::Result<DeviceNumber> {
        let file = std::fs::metadata(path)?;
        let kind = file.file_type();
        Ok(if kind.is_char_device() {
            DeviceNumber::new("char", file.rdev())
        } else if kind.is_block_device() {
            DeviceNumber::new("block", file.rdev())
        } else {
            DeviceNumber::new("block", file.dev())
        })
    }

    fn routes_to(&self, host: &str) -> io::Result<Vec<Route>> {
        devices::routes_to(host)
    }

    fn exec(&mut self, command: &[OsString]) -> io::Error {
        let Some((program, arguments)) = command.split_first() else {
            return io::Error::from(io::ErrorKind::InvalidInput);
        };
        let error = Command::new(program).args(arguments).exec();
        // execvp(3) of the GNU C library runs a file without `#!` as a script; musl's does not.
        if error.raw_os_error() == Some(ENOEXEC)
            && let Some(script) = find_program(program)
        {
            return Command::new("/bin/sh").arg(script).args(arguments).exec();
        }
        error
    }
}

/// "Exec format error", in the kernel's numbering on every architecture.
const ENOEXEC: i32 = 8;

fn status_list(key: &str) -> Option<NodeSet> {
    let mut buffer = Vec::new();
    let text = Live.read("/proc/self/status", &mut buffer).ok()?;
    let text = String::from_utf8_lossy(text);
    let list = text
        .lines()
        .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))?;
    NodeSet::parse_list(list).ok()
}

/// The file that a command's name means.
fn find_program(name: &OsStr) -> Option<PathBuf> {
    if name.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(name));
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "this is the command line's end: execvp looks at PATH here too"
    )]
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| {
            std::fs::metadata(file)
                .is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
        })
}
