//! Which machine a command looks at.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use homenode_host::{Captured, Files, Live};
use homenode_topology::{
    Detail, ReadError, Source, Topology, parse_hwloc_xml, parse_synthetic, read_topology,
};

use crate::args::MachineArgs;
use crate::error::Helped;

/// A description of a machine is text; more than this is none.
const DESCRIPTION_LIMIT_BYTES: u64 = 256 << 20;

/// A machine that can be read.
#[derive(Debug)]
pub(crate) enum Machine {
    /// This one.
    Live(Live),
    /// A captured one and the name of its folder.
    Captured(Captured, String),
}

impl Machine {
    /// Opens the machine that the command line names.
    ///
    /// # Errors
    ///
    /// When the folder cannot be opened.
    pub(crate) fn open(args: &MachineArgs) -> anyhow::Result<Self> {
        let Some(folder) = args.root.clone().or_else(root_of_environment) else {
            return Ok(Self::Live(Live));
        };
        let captured = Captured::open(&folder).map_err(|error| {
            Helped::wrap(
                "cannot read a machine",
                error,
                "give --root the folder that holds sys/ and proc/, as `homenode capture` writes it",
            )
        })?;
        Ok(Self::Captured(captured, folder.display().to_string()))
    }

    /// Its files.
    pub(crate) fn files(&self) -> &(dyn Files + Sync) {
        match self {
            Self::Live(live) => live,
            Self::Captured(captured, _) => captured,
        }
    }

    /// Its name.
    pub(crate) fn source(&self) -> Source {
        match self {
            Self::Live(_) => Source::Live,
            Self::Captured(_, folder) => Source::Captured(folder.clone()),
        }
    }

    /// Its topology.
    ///
    /// # Errors
    ///
    /// When the files describe no machine.
    pub(crate) fn topology(&self, detail: Detail) -> anyhow::Result<Topology> {
        read_topology(self.files(), self.source(), detail).map_err(|error| self.explain(error))
    }

    /// Names the machine in an error of its reader.
    pub(crate) fn explain(&self, error: ReadError) -> anyhow::Error {
        match self {
            Self::Live(_) => Helped::wrap(
                "cannot read this machine",
                error,
                "check that /sys is mounted; in a container it may be masked",
            ),
            Self::Captured(_, folder) => Helped::wrap(
                format!("cannot read a machine in {folder}"),
                error,
                "give --root the folder that holds sys/ and proc/, as `homenode capture` writes it",
            ),
        }
    }
}

/// The folder that `HOMENODE_ROOT` names; an empty variable is an unset one.
fn root_of_environment() -> Option<PathBuf> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the environment is resolved here"
    )]
    let folder = std::env::var_os("HOMENODE_ROOT")?;
    (!folder.is_empty()).then(|| folder.into())
}

/// Reads an hwloc XML file; `-` is standard input.
///
/// # Errors
///
/// When the file cannot be read or is no hwloc XML.
#[expect(
    clippy::disallowed_methods,
    reason = "a file that the user names, not one of a machine"
)]
pub(crate) fn read_hwloc_xml(path: &Path) -> anyhow::Result<Topology> {
    let name = path.display().to_string();
    let mut text = Vec::new();
    let read = if name == "-" {
        std::io::stdin()
            .lock()
            .take(DESCRIPTION_LIMIT_BYTES)
            .read_to_end(&mut text)
    } else {
        std::fs::File::open(path)
            .and_then(|file| file.take(DESCRIPTION_LIMIT_BYTES).read_to_end(&mut text))
    };
    read.map_err(|error| {
        Helped::wrap(
            format!("cannot read {name}"),
            error,
            "give --from-xml a file or -",
        )
    })?;
    parse_hwloc_xml(&text, &name).map_err(|error| {
        Helped::wrap(
            format!("cannot use {name} as a machine"),
            error,
            "write one with `lstopo --of xml` (hwloc 2 or later) or `homenode topo --hwloc-xml`",
        )
    })
}

/// Makes a machine from a synthetic description.
///
/// # Errors
///
/// When the description is none.
pub(crate) fn read_synthetic(description: &str) -> anyhow::Result<Topology> {
    parse_synthetic(description).map_err(|error| {
        Helped::wrap(
            "cannot use the synthetic description",
            error,
            "a description that works: 'pack:2 [numa(memory=16GB)] l3:1 core:4 pu:2'",
        )
    })
}
