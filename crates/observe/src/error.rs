use homenode_host::FileError;

/// Why a machine could not be observed at all; what is missing in part is absent in the result.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// `/proc` could not be listed.
    #[error("cannot list the processes")]
    Processes(#[source] FileError),
}

/// Why a text of the kernel was not understood.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected {expected}, found `{found}`")]
pub struct ParseError {
    /// What should stand there, with an example.
    pub expected: &'static str,
    /// What stands there, cut to a readable length and without control characters.
    pub found: String,
}

impl ParseError {
    pub(crate) fn new(expected: &'static str, found: &str) -> Self {
        const SHOWN_CHARS: usize = 60;
        let found = found
            .chars()
            .take(SHOWN_CHARS)
            .flat_map(char::escape_debug)
            .collect();
        Self { expected, found }
    }
}
