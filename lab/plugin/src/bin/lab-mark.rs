//! Tells the lab's model something from inside a guest: `lab-mark start|stop|report|reset [COMMAND…]`.
//!
//! With a command, the mark is made before it runs, and `report` when it has ended; the exit status
//! is the command's.

#![expect(
    unsafe_code,
    reason = "marks are instructions that no compiler emits; see homenode_lab_model::mark"
)]
use std::arch::asm;
use std::env;
use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let words: Vec<String> = env::args().skip(1).collect();
    match words.split_first() {
        Some((mark, command)) => match make(mark) {
            Ok(()) => run(command),
            Err(problem) => fail(&problem),
        },
        None => fail("expected start, stop, report or reset, found nothing"),
    }
}

fn make(mark: &str) -> Result<(), String> {
    match mark {
        // SAFETY: a no-op on every CPU.
        "start" => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 1, 0, 0x4e, 0x48") },
        // SAFETY: as above.
        "stop" => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 4, 0, 0x4e, 0x48") },
        // SAFETY: as above.
        "report" => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 2, 0, 0x4e, 0x48") },
        // SAFETY: as above.
        "reset" => unsafe { asm!(".byte 0x0f, 0x1f, 0x80, 3, 0, 0x4e, 0x48") },
        other => {
            return Err(format!(
                "expected start, stop, report or reset, found `{other}`"
            ));
        }
    }
    Ok(())
}

fn run(command: &[String]) -> ExitCode {
    let Some((program, arguments)) = command.split_first() else {
        return ExitCode::SUCCESS;
    };
    let status = match Command::new(program).args(arguments).status() {
        Ok(status) => status,
        Err(error) => {
            // A shell's status for a program that cannot be found.
            let _ = writeln!(io::stderr(), "lab-mark: cannot run {program}: {error}");
            return ExitCode::from(127);
        }
    };
    let _ = make("report");
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX))
}

fn fail(problem: &str) -> ExitCode {
    let _ = writeln!(io::stderr(), "lab-mark: {problem}");
    ExitCode::from(2)
}
