//! What ends numastat with status 1.

use std::io;

use homenode_host::FileError;
use homenode_units::NodeId;

/// Why the rest of the output does not come. The words are upstream's.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The bare table found no nodes.
    #[error("sysfs not mounted or system not NUMA aware: {why}")]
    NotNuma {
        /// What the system said.
        why: String,
    },
    /// A folder that everything starts from.
    #[error("Couldn't open {folder}: {why}")]
    Folder {
        /// Its path.
        folder: &'static str,
        /// What the system said.
        why: String,
    },
    /// A file of a node that must be there.
    #[error("cannot open {path}: {why}")]
    NodeFile {
        /// Its path.
        path: String,
        /// What the system said.
        why: String,
    },
    /// `numa_maps` could be opened and not read.
    #[error("Can't read {path}: {why}")]
    Maps {
        /// Its path.
        path: String,
        /// What the system said.
        why: String,
    },
    /// `numa_maps` holds what is no count of pages.
    #[error("node value parse error: Invalid argument")]
    NodeValue,
    /// Our own output failed.
    #[error(transparent)]
    Output(#[from] io::Error),
}

/// Where the nodes are.
pub(super) const NODE_FOLDER: &str = "/sys/devices/system/node";

/// The path of a file of a node.
pub(super) fn node_file(node: NodeId, name: &str) -> String {
    format!("{NODE_FOLDER}/node{node}/{name}")
}

/// The system's words, as strerror(3) has them.
pub(super) fn reason(error: &FileError) -> String {
    match error {
        FileError::NotFound { .. } => "No such file or directory".to_owned(),
        FileError::Denied { .. } => "Permission denied".to_owned(),
        FileError::Other { source, .. } => {
            let text = source.to_string();
            match text.split_once(" (os error ") {
                Some((words, _)) => words.to_owned(),
                None => text,
            }
        }
    }
}
