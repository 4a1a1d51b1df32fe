//! How errors reach people: one line with the chain of causes, and a next step.

use std::fmt;
use std::io;
use std::process::ExitCode;

use clap::CommandFactory;

use crate::args::Arguments;

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

/// Prints what the parser of arguments has to say: help that was asked for, or a refusal with its
/// next step. Returns the status to end with.
#[expect(clippy::print_stderr, reason = "this is where errors are printed")]
pub(crate) fn print_refusal(error: &clap::Error) -> ExitCode {
    use clap::error::ErrorKind;
    let status = ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(crate::EXIT_ERROR));
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        // Nobody is left to tell when the reader has gone.
        let _ = error.print();
        return status;
    }
    let text = error.render().to_string();
    let told = text.split("\nFor more information").next().unwrap_or(&text);
    eprintln!("{}", told.trim_end());
    // The command, where the parser came that far.
    let words: Vec<String> = std::env::args().skip(1).collect();
    let commands = Arguments::command();
    let command = words
        .iter()
        .find(|word| commands.find_subcommand(word).is_some());
    let asked = command.map_or_else(String::new, |command| format!("{command} "));
    eprintln!("help: `homenode {asked}--help` shows what it takes, with examples");
    status
}

/// Prints something that is no error, to standard error.
#[expect(clippy::print_stderr, reason = "this is where warnings are printed")]
pub(crate) fn warn(message: &str) {
    eprintln!("warning: {message}");
}
