//! `cargo xtask bench topo`: from start to end of a program.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Result;

use super::programs::{Contender, compare, installed_homenode};
use crate::host::{self, Needed};

/// `homenode topo` against numactl on this machine, and against lstopo on a large one
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A captured machine with many CPUs: the folder that holds sys/
    #[arg(long, value_name = "DIR")]
    tree: Option<PathBuf>,
    /// Runs of each command
    #[arg(long, default_value_t = 200)]
    rounds: usize,
}

/// Prints the table.
///
/// # Errors
///
/// When a command cannot be built or fails.
pub(crate) fn run(args: &Args) -> Result<ExitCode> {
    let Args { tree, rounds } = args;
    host::ensure(&[
        Needed {
            program: "numactl",
            package: "numactl",
        },
        Needed {
            program: "strace",
            package: "strace",
        },
        Needed {
            program: "lstopo-no-graphics",
            package: "hwloc-nox",
        },
    ])?;
    let homenode = installed_homenode()?.display().to_string();
    println!("this machine, {rounds} rounds:");
    compare(
        &mut [
            Contender::new("homenode topo", &[&homenode, "topo"]),
            Contender::new("numactl -H", &["numactl", "-H"]),
            Contender::new("true", &["/bin/true"]),
        ],
        1,
        *rounds,
    )?;
    println!("this machine with its cores, caches and devices:");
    compare(
        &mut [
            Contender::new("homenode topo --full", &[&homenode, "topo", "--full"]),
            Contender::new("lstopo --of xml", &["lstopo-no-graphics", "--of", "xml"]),
        ],
        1,
        rounds / 4,
    )?;
    let Some(tree) = tree.clone().or_else(unpacked_256_cpus) else {
        println!("skipped: no captured machine with 256 CPUs; name one with --tree DIR");
        return Ok(ExitCode::SUCCESS);
    };
    let folder = tree.display().to_string();
    println!("{folder}, {} rounds:", rounds / 4);
    compare(
        &mut [
            Contender::new(
                "homenode topo --full",
                &[&homenode, "topo", "--full", "--root", &folder],
            ),
            Contender::new("homenode topo", &[&homenode, "topo", "--root", &folder]),
            Contender::new(
                "lstopo --no-io",
                &[
                    "lstopo-no-graphics",
                    "--no-io",
                    "--if",
                    "fsroot",
                    "-i",
                    &folder,
                    "--of",
                    "xml",
                ],
            ),
        ],
        2,
        rounds / 4,
    )?;
    Ok(ExitCode::SUCCESS)
}

/// The largest captured machine that the tests have unpacked.
fn unpacked_256_cpus() -> Option<PathBuf> {
    const NAME: &str = "256ia64-64n2s2c";
    let folder: &Path = &host::root().join("target/tmp/corpus").join(NAME).join(NAME);
    folder.join("sys").is_dir().then(|| folder.to_owned())
}
