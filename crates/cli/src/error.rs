//! How errors reach people: one line with the chain of causes, and a next step.

use std::fmt;
use std::io;

/// An error that knows what to try next.
#[derive(Debug)]
pub(crate) struct Helped {
    message: String,
    help: String,
}

impl Helped {
    /// An error with its next step.
    pub(crate) fn error(message: impl Into<String>, help: impl Into<String>) -> anyhow::Error {
        anyhow::Error::new(Self {
            message: message.into(),
            help: help.into(),
        })
    }

    /// As [`Self::error`], with the whole chain of another error as the message.
    pub(crate) fn wrap(
        what: impl fmt::Display,
        error: impl std::error::Error + Send + Sync + 'static,
        help: impl Into<String>,
    ) -> anyhow::Error {
        Self::error(format!("{what}: {:#}", anyhow::Error::new(error)), help)
    }
}

impl fmt::Display for Helped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Helped {}

/// Whether the reader of our output went away, as `homenode topo | head -1` does.
pub(crate) fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error
        .chain()
        .filter_map(|cause| cause.downcast_ref::<io::Error>())
        .any(|cause| cause.kind() == io::ErrorKind::BrokenPipe)
}

/// Prints to standard error.
#[expect(clippy::print_stderr, reason = "this is where errors are printed")]
pub(crate) fn print(error: &anyhow::Error) {
    eprintln!("error: {error:#}");
    if let Some(helped) = error.downcast_ref::<Helped>() {
        eprintln!("help: {}", helped.help);
    }
}

/// Prints something that is no error, to standard error.
#[expect(clippy::print_stderr, reason = "this is where warnings are printed")]
pub(crate) fn warn(message: &str) {
    eprintln!("warning: {message}");
}
