//! What the terminal can show.

use std::io::{IsTerminal as _, stdout};

/// Columns where there is no terminal to ask.
const WIDTH_DEFAULT: usize = 80;

/// The terminal behind standard output.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terminal {
    /// Unit: columns.
    pub(crate) width: usize,
    /// Whether to use colours: a terminal, and `NO_COLOR` (no-color.org) is not set.
    pub(crate) colour: bool,
}

impl Terminal {
    /// Asks the terminal.
    pub(crate) fn ask() -> Self {
        let is_terminal = stdout().is_terminal();
        let width = rustix::termios::tcgetwinsize(stdout())
            .ok()
            .map(|size| usize::from(size.ws_col))
            .filter(|&columns| columns > 0)
            .unwrap_or(WIDTH_DEFAULT);
        #[expect(
            clippy::disallowed_methods,
            reason = "the environment is resolved here"
        )]
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self {
            width,
            colour: is_terminal && !no_color,
        }
    }
}
