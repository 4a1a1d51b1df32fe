//! Which process a number means.

use homenode_host::{Buffer, FileError, Files};
use homenode_units::Pid;

/// When a process started.
///
/// Unit: clock ticks since boot. Source: field 22 of `/proc/<pid>/stat`, `proc_pid_stat(5)`. A
/// number is given away again at the earliest a tick later, in practice after all other numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StartTime(u64);

/// Reads when a process started; `None` where the file has no such field.
///
/// # Errors
///
/// [`FileError`], when the process is gone.
pub(crate) fn read_start_time(
    files: &(impl Files + ?Sized),
    pid: Pid,
) -> Result<Option<StartTime>, FileError> {
    let mut buffer = Buffer::new();
    let text = files.read(&format!("/proc/{pid}/stat"), &mut buffer)?;
    Ok(parse_start_time(&String::from_utf8_lossy(text)))
}

fn parse_start_time(text: &str) -> Option<StartTime> {
    // The name stands in parentheses and may hold some itself; it is field 2.
    let (_, fields) = text.rsplit_once(')')?;
    let ticks = fields.split_ascii_whitespace().nth(22 - 3)?;
    ticks.parse().ok().map(StartTime)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_do_not_disturb_the_start_time() {
        let text = "7 (a) 1 (b c) S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0";
        assert_eq!(parse_start_time(text), Some(StartTime(4711)));
        for text in [
            "",
            "7 (a",
            "7 (a) S 1 2",
            "7 (a) S 1 7 7 0 -1 1 1 2 3 4 5 6 7 8 20 0 1 0 x",
        ] {
            assert_eq!(parse_start_time(text), None, "{text}");
        }
    }
}
