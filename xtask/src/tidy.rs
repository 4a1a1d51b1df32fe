//! `cargo xtask tidy`: what the compiler does not check.

use std::collections::BTreeMap;
use std::fs;
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::host;

/// Check the direction of dependencies between crates, and the size of files
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Who may depend on whom: data flows down. A crate that is not named here may not exist.
///
/// Tests may look further, so development dependencies are free.
const ALLOWED: [(&str, &[&str]); 17] = [
    ("homenode-units", &[]),
    ("homenode-sys", &["homenode-units"]),
    ("homenode-host", &["homenode-units", "homenode-sys"]),
    ("homenode-topology", &["homenode-units", "homenode-host"]),
    ("homenode-observe", &["homenode-units", "homenode-host"]),
    ("homenode-policy", &["homenode-units", "homenode-topology"]),
    (
        "homenode-act",
        &["homenode-units", "homenode-host", "homenode-observe"],
    ),
    (
        "homenode-measure",
        &[
            "homenode-units",
            "homenode-sys",
            "homenode-host",
            "homenode-topology",
            "homenode-observe",
        ],
    ),
    (
        "homenode-report",
        &[
            "homenode-units",
            "homenode-host",
            "homenode-topology",
            "homenode-observe",
            "homenode-measure",
        ],
    ),
    (
        "homenode-compat",
        &[
            "homenode-units",
            "homenode-sys",
            "homenode-host",
            "homenode-topology",
            "homenode-observe",
            "homenode-report",
        ],
    ),
    (
        "homenode-tui",
        &["homenode-units", "homenode-host", "homenode-observe"],
    ),
    (
        "homenode",
        &[
            "homenode-tui",
            "homenode-act",
            "homenode-compat",
            "homenode-measure",
            "homenode-units",
            "homenode-sys",
            "homenode-host",
            "homenode-topology",
            "homenode-observe",
            "homenode-policy",
            "homenode-report",
        ],
    ),
    ("homenode-lab-model", &[]),
    ("homenode-lab-plugin", &["homenode-lab-model"]),
    ("homenode-lab-probe", &[]),
    ("homenode-lab", &["homenode-units", "homenode-lab-model"]),
    ("xtask", &["homenode-lab"]),
];

/// A longer file is two files.
const LINES_MAX: usize = 1000;

/// Runs the checks; prints each finding.
///
/// # Errors
///
/// When cargo or git cannot be asked.
pub(crate) fn run(_args: &Args) -> Result<ExitCode> {
    let mut findings = edges(&metadata()?);
    findings.extend(long_files()?);
    for finding in &findings {
        println!("tidy: {finding}");
    }
    Ok(if findings.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

fn metadata() -> Result<Value> {
    let output = host::cargo()
        .args(["metadata", "--format-version=1", "--no-deps"])
        .output()
        .context("cannot start cargo metadata")?;
    if !output.status.success() {
        bail!(
            "cargo metadata failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    serde_json::from_slice(&output.stdout).context("expected JSON from cargo metadata")
}

/// Edges between our crates that the table does not allow.
fn edges(metadata: &Value) -> Vec<String> {
    let allowed: BTreeMap<&str, &[&str]> = ALLOWED.into_iter().collect();
    let mut findings = Vec::new();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may_use) = allowed.get(name) else {
            findings.push(format!(
                "crate {name} is not in the table of xtask/src/tidy.rs"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let target = dependency["name"].as_str().unwrap_or_default();
            let is_for_tests = dependency["kind"] == "dev";
            if allowed.contains_key(target) && !is_for_tests && !may_use.contains(&target) {
                findings.push(format!(
                    "{name} may not depend on {target}: data flows down"
                ));
            }
        }
    }
    findings
}

fn long_files() -> Result<Vec<String>> {
    let output = std::process::Command::new("git")
        .args([
            "ls-files",
            "--cached",
            "--others",
            "--exclude-standard",
            "*.rs",
        ])
        .current_dir(host::root())
        .output()
        .context("cannot start git")?;
    let mut findings = Vec::new();
    for name in String::from_utf8_lossy(&output.stdout).lines() {
        // A file that is deleted but still in the index is not long.
        let Ok(text) = fs::read_to_string(host::root().join(name)) else {
            continue;
        };
        let lines = text.lines().count();
        if lines > LINES_MAX {
            findings.push(format!(
                "{name} has {lines} lines; more than {LINES_MAX} are two files"
            ));
        }
    }
    Ok(findings)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(name: &str, dependency: &str, kind: &Value) -> Value {
        serde_json::json!({"packages": [{
            "name": name,
            "dependencies": [{"name": dependency, "kind": kind}],
        }]})
    }

    #[test]
    fn an_edge_upwards_is_found() {
        let findings = edges(&package(
            "homenode-units",
            "homenode-topology",
            &Value::Null,
        ));
        assert_eq!(
            findings,
            ["homenode-units may not depend on homenode-topology: data flows down"]
        );
    }

    #[test]
    fn edges_downwards_and_for_tests_are_fine() {
        assert!(edges(&package("homenode-topology", "homenode-host", &Value::Null)).is_empty());
        assert!(edges(&package("homenode-units", "homenode-host", &"dev".into())).is_empty());
        assert!(edges(&package("homenode-units", "serde", &Value::Null)).is_empty());
    }

    #[test]
    fn an_unknown_crate_is_found() {
        let findings = edges(&package("homenode-new", "serde", &Value::Null));
        assert_eq!(findings.len(), 1);
    }
}
