//! The machine that xtask runs on: where things are, and what it lacks.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The repository's root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory of the repository")
        .to_owned()
}

/// The cargo that started us, or the one in the search path.
pub(crate) fn cargo() -> Command {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo.current_dir(root());
    cargo
}

/// A program we need, and the Debian package that has it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needed {
    pub(crate) program: &'static str,
    pub(crate) package: &'static str,
}

/// Installs the packages of those programs that are not here.
///
/// # Errors
///
/// When something is missing and we are not root, or apt fails.
pub(crate) fn ensure(needed: &[Needed]) -> Result<()> {
    let packages: Vec<&str> = needed
        .iter()
        .filter(|needed| !in_search_path(needed.program))
        .map(|needed| needed.package)
        .collect();
    if packages.is_empty() {
        return Ok(());
    }
    let list = packages.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!(
            "expected these packages, which are not installed: {list}\nhelp: run `apt-get install {list}` as root"
        );
    }
    eprintln!("installing {list}");
    apt_get(&["update"])?;
    apt_get(
        &[
            &["install", "--yes", "--no-install-recommends"],
            &packages[..],
        ]
        .concat(),
    )
}

fn apt_get(arguments: &[&str]) -> Result<()> {
    let output = Command::new("apt-get")
        .args(["--quiet", "--quiet"])
        .args(arguments)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(Stdio::null())
        .output()
        .context("cannot start apt-get\nhelp: the lab needs a Debian host")?;
    if !output.status.success() {
        bail!(
            "apt-get {} failed: {}",
            arguments.join(" "),
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(())
}

pub(crate) fn in_search_path(program: &str) -> bool {
    env::var_os("PATH")
        .is_some_and(|path| env::split_paths(&path).any(|part| part.join(program).is_file()))
}
