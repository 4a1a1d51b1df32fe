//! What numactl prints: its messages and how they end.

use std::io::{self, Write};

use super::options::USAGE;
use crate::spec::BadSpec;

/// Why numactl ends without doing what it was told. All end with status 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Failure {
    /// The words make no sense together; the usage text follows.
    Usage(Option<String>),
    /// Something else that numactl itself says.
    Complaint(String),
    /// A specification of nodes or CPUs; the usage text follows.
    BadSpec { spec: String, bad: BadSpec },
    /// Lines as a library would print them.
    Lines(Vec<String>),
}

impl Failure {
    pub(super) fn usage(complaint: impl Into<String>) -> Self {
        Self::Usage(Some(complaint.into()))
    }

    /// A system call that failed, and what it was for.
    pub(super) fn call(name: &str, purpose: &str, error: &io::Error) -> Self {
        let reason = reason(error);
        Self::Lines(vec![
            format!("{name}: {reason}"),
            format!("{purpose}: {reason}"),
        ])
    }

    /// Prints it where numactl does: what a script may look at on the standard output, all else on
    /// the error output. There is nobody left to tell when that fails.
    pub(super) fn print(&self, out: &mut dyn Write, err: &mut dyn Write) {
        let _ = match self {
            Self::Usage(None) => write!(err, "{USAGE}"),
            Self::Usage(Some(complaint)) => {
                writeln!(err, "numactl: {complaint}").and_then(|()| write!(err, "{USAGE}"))
            }
            Self::Complaint(complaint) => writeln!(err, "numactl: {complaint}"),
            Self::BadSpec { spec, bad } => {
                if let Some(warning) = &bad.warning {
                    let _ = writeln!(err, "libnuma: Warning: {warning}");
                }
                writeln!(out, "<{spec}> is invalid").and_then(|()| write!(err, "{USAGE}"))
            }
            Self::Lines(lines) => lines.iter().try_for_each(|line| writeln!(err, "{line}")),
        };
    }
}

/// What the system says of an error, in strerror(3)'s words.
pub(crate) fn reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rfind(" (os error ") {
        Some(end) => text[..end].to_owned(),
        None => text,
    }
}
