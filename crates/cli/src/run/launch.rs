//! Carries a plan out.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use homenode_host::Buffer;
use homenode_sys::{
    AffinityError, Policy, PolicyMode, SetPolicyError, set_affinity, set_mempolicy,
};
use homenode_units::CpuSet;

use super::plan::Plan;
use crate::error::{self, Helped};
use crate::source::Machine;

/// The shell's words for "found, and cannot be executed" and "not found".
const EXIT_NOT_EXECUTABLE: u8 = 126;
const EXIT_NOT_FOUND: u8 = 127;

/// Sets the CPUs and the memory policy of this process.
///
/// # Errors
///
/// When the kernel, or a filter before it, refuses; the message says which and why.
pub(super) fn apply(plan: &Plan, machine: &Machine) -> anyhow::Result<()> {
    if let Some(cpus) = &plan.cpus {
        set_affinity(None, cpus).map_err(|error| explain_affinity(cpus, error))?;
    }
    if let Some(policy) = &plan.policy {
        set_mempolicy(policy).map_err(|error| explain_policy(policy, error, machine))?;
    }
    Ok(())
}

fn explain_affinity(cpus: &CpuSet, error: AffinityError) -> anyhow::Error {
    let help = match error {
        AffinityError::NoUsableCpu => {
            "look at Cpus_allowed_list in /proc/self/status; widen cpuset.cpus of the control group"
        }
        AffinityError::NotPermitted => {
            "a seccomp filter blocks sched_setaffinity; use a profile that allows it"
        }
        _ => "run `homenode run --dry-run` to see what was asked for",
    };
    Helped::wrap(format!("cannot run on CPUs {cpus}"), error, help)
}

/// Errors of the kernel that mean something else for each policy.
fn explain_policy(policy: &Policy, error: SetPolicyError, machine: &Machine) -> anyhow::Error {
    let what = format!("cannot set the memory policy {}", policy.mode);
    let needs = match policy.mode {
        PolicyMode::WeightedInterleave => Some("6.9"),
        PolicyMode::PreferredMany if policy.flags.numa_balancing => Some("6.9"),
        PolicyMode::PreferredMany => Some("5.15"),
        PolicyMode::Bind if policy.flags.numa_balancing => Some("5.12"),
        _ => None,
    };
    match (&error, needs) {
        // The nodes were checked, so what is left is a mode or flag that the kernel lacks.
        (SetPolicyError::Refused, Some(version)) => {
            let flag = if policy.flags.numa_balancing {
                " with --balancing"
            } else {
                ""
            };
            Helped::error(
                format!(
                    "{what}{flag}: it needs Linux {version} or later, this is {}",
                    release(machine)
                ),
                match policy.mode {
                    PolicyMode::WeightedInterleave => {
                        "--memory interleave gives all nodes the same share"
                    }
                    PolicyMode::PreferredMany => "prefer one node",
                    _ => "leave --balancing out",
                },
            )
        }
        (SetPolicyError::Filtered, _) => Helped::wrap(
            what,
            error,
            "start the container with --cap-add SYS_NICE or a seccomp profile that allows set_mempolicy; --on and --cpus without a memory policy work as it is",
        ),
        (SetPolicyError::NotSupported, _) => Helped::wrap(
            what,
            error,
            "--on and --cpus without a memory policy work as it is",
        ),
        _ => Helped::wrap(
            what,
            error,
            "look at Mems_allowed_list in /proc/self/status; widen cpuset.mems of the control group",
        ),
    }
}

/// The kernel's release. Source: `/proc/sys/kernel/osrelease`.
fn release(machine: &Machine) -> String {
    let mut buffer = Buffer::new();
    match machine
        .files()
        .read("/proc/sys/kernel/osrelease", &mut buffer)
    {
        Ok(text) => String::from_utf8_lossy(text.trim_ascii()).into_owned(),
        Err(_) => "older".to_owned(),
    }
}

/// Turns this process into the program; returns, with the shell's status, only when that fails.
pub(super) fn become_program(words: &[OsString]) -> ExitCode {
    let Some((program, arguments)) = words.split_first() else {
        return ExitCode::from(EXIT_NOT_FOUND);
    };
    let mut failure = Command::new(program).args(arguments).exec();
    // A script without `#!` is the shell's, says POSIX of execvp; musl's does not know.
    if failure.raw_os_error() == Some(ENOEXEC)
        && let Some(script) = find(program)
    {
        let script = Command::new("/bin/sh").arg(script).args(arguments).exec();
        failure = script;
    }
    let name = program.to_string_lossy();
    let (status, help) = match failure.kind() {
        io::ErrorKind::NotFound if find(program).is_none() => (
            EXIT_NOT_FOUND,
            if name.contains('/') {
                "name a program that is there"
            } else {
                "name a program of $PATH, or give its path"
            },
        ),
        io::ErrorKind::NotFound => (
            EXIT_NOT_EXECUTABLE,
            "it is there, but its interpreter or loader is not",
        ),
        io::ErrorKind::PermissionDenied => (
            EXIT_NOT_EXECUTABLE,
            "make it executable (chmod +x), on a file system not mounted noexec",
        ),
        _ => (EXIT_NOT_EXECUTABLE, "name a program for this machine"),
    };
    error::print(&Helped::wrap(
        format!("cannot execute {name}"),
        failure,
        help,
    ));
    ExitCode::from(status)
}

/// `Exec format error`, the same on every architecture Linux knows.
const ENOEXEC: i32 = 8;

/// The file that a program's name means: a path as it is, else the first of that name in `$PATH`.
fn find(program: &OsStr) -> Option<PathBuf> {
    if program.as_encoded_bytes().contains(&b'/') {
        return Path::new(program).exists().then(|| program.into());
    }
    #[expect(
        clippy::disallowed_methods,
        reason = "the program is looked for where exec looked"
    )]
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(program))
        .find(|file| file.is_file())
}
