//! Static binaries: they run on every distribution, in every container, and as process 1.

use std::env;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::host;

/// Optimised or quick to build.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Quick to build: for tests in guests.
    Dev,
    /// As it is released.
    Release,
}

/// How a binary comes to need no library at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    /// Against musl: what is released.
    Musl,
    /// Against glibc's static archive, where musl's target cannot be had.
    Gnu,
}

/// Builds static binaries.
#[derive(Debug)]
pub(crate) struct StaticBuild {
    target: Target,
    profile: Profile,
}

const MUSL: &str = "x86_64-unknown-linux-musl";
const GNU: &str = "x86_64-unknown-linux-gnu";

/// Names the target, `musl` or `gnu`, instead of taking the best that can be had.
const TARGET_VARIABLE: &str = "HOMENODE_STATIC_TARGET";

impl StaticBuild {
    /// Finds a way to build statically; says so in one line when it is not the usual one.
    ///
    /// # Errors
    ///
    /// When rustc cannot be asked, or the environment names an unknown target.
    pub(crate) fn new(profile: Profile) -> Result<Self> {
        let target = match env::var(TARGET_VARIABLE).ok().as_deref() {
            None => best_target()?,
            Some("musl") => Target::Musl,
            Some("gnu") => Target::Gnu,
            Some(other) => bail!("{TARGET_VARIABLE}: expected musl or gnu, found `{other}`"),
        };
        if target == Target::Gnu {
            eprintln!("note: building static binaries with glibc, as {MUSL} is not used here");
        }
        Ok(Self { target, profile })
    }

    /// Builds a binary of a package and returns its path.
    ///
    /// # Errors
    ///
    /// When it does not build; cargo has printed why.
    pub(crate) fn binary(&self, package: &str, name: &str) -> Result<PathBuf> {
        self.cargo("build", &["--package", package, "--bin", name], name)
    }

    /// Builds an example of a package and returns its path.
    ///
    /// # Errors
    ///
    /// When it does not build; cargo has printed why.
    pub(crate) fn example(&self, package: &str, name: &str) -> Result<PathBuf> {
        self.cargo("build", &["--package", package, "--example", name], name)
    }

    /// Builds a test target of a package, without running it, and returns its path.
    ///
    /// # Errors
    ///
    /// When it does not build; cargo has printed why.
    pub(crate) fn test(&self, package: &str, name: &str) -> Result<PathBuf> {
        self.cargo(
            "test",
            &["--no-run", "--package", package, "--test", name],
            name,
        )
    }

    fn cargo(&self, subcommand: &str, arguments: &[&str], name: &str) -> Result<PathBuf> {
        let mut cargo = host::cargo();
        cargo
            .arg(subcommand)
            .args(["--quiet", "--message-format=json-render-diagnostics"])
            .args(arguments);
        match self.profile {
            Profile::Release => cargo.arg("--release"),
            // What a guest runs lies in its memory: lines of source would take a quarter of a node.
            Profile::Dev => cargo.env("CARGO_PROFILE_DEV_STRIP", "debuginfo"),
        };
        match self.target {
            Target::Musl => cargo.args(["--target", MUSL]),
            // A directory of its own: other flags would rebuild everything each time they change.
            // Naming the target keeps the flags away from macros and build scripts.
            Target::Gnu => cargo
                .args(["--target", GNU])
                .env("RUSTFLAGS", "-C target-feature=+crt-static")
                .env("CARGO_TARGET_DIR", host::root().join("target/static")),
        };
        let output = cargo
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start cargo")?;
        if !output.status.success() {
            bail!("cannot build `{name}` as a static binary");
        }
        executable(&String::from_utf8_lossy(&output.stdout), name)
            .with_context(|| format!("expected cargo to name the executable of `{name}`"))
    }
}

/// Builds a library that programs on this host load, optimised, and returns its path.
///
/// # Errors
///
/// When it does not build; cargo has printed why.
pub(crate) fn host_library(package: &str) -> Result<PathBuf> {
    let output = host::cargo()
        .args(["build", "--release", "--lib", "--quiet"])
        .args([
            "--message-format=json-render-diagnostics",
            "--package",
            package,
        ])
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start cargo")?;
    if !output.status.success() {
        bail!("cannot build the library of {package}");
    }
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == package.replace('-', "_"))
        .filter_map(|message| message["filenames"][0].as_str().map(PathBuf::from))
        .next_back()
        .with_context(|| format!("expected cargo to name the library of {package}"))
}

/// The path of the executable of a target, from cargo's messages.
fn executable(messages: &str, name: &str) -> Option<PathBuf> {
    messages
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|message| message["target"]["name"] == name)
        .filter_map(|message| message["executable"].as_str().map(PathBuf::from))
        .next_back()
}

fn best_target() -> Result<Target> {
    if musl_is_here()? {
        return Ok(Target::Musl);
    }
    // No rustup, or no way to reach its server: the distribution's own Rust, for example.
    let _ = Command::new("rustup")
        .args(["target", "add", MUSL])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    Ok(if musl_is_here()? {
        Target::Musl
    } else {
        Target::Gnu
    })
}

fn musl_is_here() -> Result<bool> {
    let rustc = env::var_os("RUSTC").unwrap_or_else(|| OsStr::new("rustc").to_owned());
    let output = Command::new(rustc)
        .args(["--print", "target-libdir", "--target", MUSL])
        .current_dir(host::root())
        .output()
        .context("cannot start rustc")?;
    let directory = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    Ok(output.status.success() && Path::new(&directory).is_dir())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_executable_is_found_among_messages() {
        let messages = r#"not json
{"reason":"compiler-artifact","target":{"name":"other"},"executable":"/t/other"}
{"reason":"compiler-artifact","target":{"name":"guest"},"executable":null}
{"reason":"compiler-artifact","target":{"name":"guest"},"executable":"/t/guest-1"}
{"reason":"build-finished","success":true}"#;
        assert_eq!(
            executable(messages, "guest"),
            Some(PathBuf::from("/t/guest-1"))
        );
        assert_eq!(executable(messages, "homenode"), None);
    }
}
