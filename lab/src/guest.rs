//! Boots a shape and follows what it reports.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use homenode_lab_model::Truth;
use rustix::fs::{MemfdFlags, memfd_create};

use crate::frame::{Decoder, Frame, FrameError};
use crate::qemu::GuestTime;
use crate::{Shape, qemu};

/// A machine about to be booted; it runs the one command that is in its initramfs.
#[derive(Clone, Copy, Debug)]
pub struct Guest<'a> {
    /// What the machine looks like.
    pub shape: &'a Shape,
    /// The kernel's image.
    pub kernel: &'a Path,
    /// The archives that the kernel unpacks, one behind the other.
    pub initramfs: &'a [&'a [u8]],
    /// How long the boot and the command may take together.
    pub timeout: Duration,
    /// What makes its clocks go on.
    pub time: &'a GuestTime,
}

/// A stream of the guest's command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

/// A command that ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The command's exit status, 128 + signal where a signal ended it.
    pub status: u8,
    /// From the start of the emulator to the guest's init.
    pub boot: Duration,
    /// From the start of the emulator to the command's end.
    pub total: Duration,
    /// What the guest's kernel printed.
    pub console: Console,
    /// The counters of [`GuestTime::Modelled`], as often as the guest asked for them.
    pub truth: Vec<Truth>,
}

/// What a guest's kernel printed, and what the emulator had to complain about.
#[derive(Clone, Default)]
pub struct Console(pub Vec<u8>);

impl Console {
    /// The last `count` lines, without the bytes that would disturb a terminal.
    #[must_use]
    pub fn tail(&self, count: usize) -> String {
        let text = String::from_utf8_lossy(&self.0);
        let lines: Vec<&str> = text.lines().collect();
        let kept = &lines[lines.len().saturating_sub(count)..];
        kept.join("\n")
            .replace(|c: char| c.is_control() && c != '\n' && c != '\t', "")
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Console({} bytes)", self.0.len())
    }
}

/// Why a guest gave no exit status.
#[derive(Debug, thiserror::Error)]
pub enum GuestError {
    /// The emulator could not be started.
    #[error("cannot start {} for shape {shape}", qemu::PROGRAM)]
    Start {
        /// The shape.
        shape: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The initramfs could not be handed to the emulator.
    #[error("cannot keep the initramfs of shape {shape} in memory")]
    Memory {
        /// The shape.
        shape: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// The command did not end in time.
    #[error(
        "shape {shape}: expected the command to end within {} s, and {}\nhelp: give it longer with --timeout",
        timeout.as_secs(),
        if *booted { "it still ran" } else { "the guest had not even booted" }
    )]
    TimedOut {
        /// The shape.
        shape: String,
        /// The time it had.
        timeout: Duration,
        /// Whether init had started.
        booted: bool,
        /// What the kernel printed.
        console: Console,
    },
    /// The emulator ended without a status: a panic, or arguments that it refuses.
    #[error(
        "shape {shape}: expected an exit status, and the machine stopped {}",
        if *booted { "while the command ran" } else { "before it had booted" }
    )]
    Stopped {
        /// The shape.
        shape: String,
        /// Whether init had started.
        booted: bool,
        /// What the kernel printed.
        console: Console,
    },
    /// The machine should be modelled, and the shape does not say what its accesses cost.
    #[error(
        "shape {shape}: expected a part [timing], found none\nhelp: `cargo xtask lab --list` marks the shapes that have one"
    )]
    NotTimed {
        /// The shape.
        shape: String,
    },
    /// The model's counters could not be read.
    #[error("shape {shape}: cannot read the model's counters: {message}")]
    Truth {
        /// The shape.
        shape: String,
        /// What was wrong.
        message: String,
    },
    /// The report line carried something other than frames.
    #[error("shape {shape}: cannot read the guest's report")]
    Report {
        /// The shape.
        shape: String,
        /// What was wrong.
        #[source]
        source: FrameError,
        /// What the kernel printed.
        console: Console,
    },
    /// The command's output could not be passed on.
    #[error("cannot pass on the output of shape {shape}")]
    Output {
        /// The shape.
        shape: String,
        /// Why.
        #[source]
        source: io::Error,
    },
}

impl GuestError {
    /// What the guest's kernel printed, where it came that far.
    #[must_use]
    pub fn console(&self) -> Option<&Console> {
        match self {
            Self::TimedOut { console, .. }
            | Self::Stopped { console, .. }
            | Self::Report { console, .. } => Some(console),
            Self::Start { .. }
            | Self::Memory { .. }
            | Self::NotTimed { .. }
            | Self::Truth { .. }
            | Self::Output { .. } => None,
        }
    }
}

/// Ends the emulator however this scope is left.
struct Emulator(Child);

impl Drop for Emulator {
    fn drop(&mut self) {
        // An error means that it has ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Guest<'_> {
    /// Boots, passes the command's output on as it comes, and returns when the command ends.
    ///
    /// The emulator dies with the calling thread, so that thread has to outlive the call's work:
    /// it does, as this call waits.
    ///
    /// # Errors
    ///
    /// [`GuestError`]: everything but an exit status.
    ///
    /// # Panics
    ///
    /// Never: the emulator is always started with pipes.
    pub fn run(
        &self,
        output: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<Outcome, GuestError> {
        let started = clock();
        let (mut emulator, truth) = self.start()?;
        let report = emulator.0.stdout.take().expect("start() asks for a pipe");
        let console = emulator.0.stderr.take().expect("start() asks for a pipe");
        let console = thread::spawn(move || read_console(console));
        let (sender, chunks) = mpsc::sync_channel(16);
        let reader = thread::spawn(move || read_chunks(report, &sender));

        let ended = self.follow(&chunks, started, output);
        drop(chunks);
        drop(emulator);
        // Both readers end with the emulator's pipes.
        let console = console.join().unwrap_or_default();
        let _ = reader.join();
        let (status, boot) = ended.map_err(|problem| self.error(problem, console.clone()))?;
        Ok(Outcome {
            status,
            boot,
            total: clock() - started,
            console,
            truth: truth.map_or(Ok(Vec::new()), |file| self.read_truth(file))?,
        })
    }

    /// Starts the emulator; for a modelled machine, with the file that its counters go to.
    fn start(&self) -> Result<(Emulator, Option<File>), GuestError> {
        let shape = || self.shape.name.clone();
        let in_memory = |parts: &[&[u8]]| {
            memory_file(parts).map_err(|source| GuestError::Memory {
                shape: shape(),
                source,
            })
        };
        let initramfs = in_memory(self.initramfs)?;
        let mut model = None;
        if let GuestTime::Modelled { .. } = self.time {
            let machine = self
                .shape
                .machine()
                .ok_or_else(|| GuestError::NotTimed { shape: shape() })?;
            let machine = serde_json::to_vec(machine).expect("numbers and names become JSON");
            model = Some((in_memory(&[&machine])?, in_memory(&[])?));
        }
        let model_words: Vec<String> = model
            .iter()
            .flat_map(|(machine, truth)| [("machine", machine), ("truth", truth)])
            .map(|(name, file)| format!("{name}={}", path_of(file)))
            .collect();
        // setpriv: the kernel kills the emulator when we die, even by a signal we cannot catch.
        let child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL", "--", qemu::PROGRAM])
            .args(qemu::arguments(
                self.shape,
                &self.kernel.to_string_lossy(),
                &path_of(&initramfs),
                self.time,
                &model_words,
            ))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|source| GuestError::Start {
                shape: shape(),
                source,
            })?;
        // The emulator inherited the memory files, so ours may close.
        Ok((Emulator(child), model.map(|(_, truth)| truth)))
    }

    /// The counters that the plugin wrote, a line of JSON each.
    fn read_truth(&self, mut file: File) -> Result<Vec<Truth>, GuestError> {
        let problem = |message: String| GuestError::Truth {
            shape: self.shape.name.clone(),
            message,
        };
        let mut text = String::new();
        file.rewind()
            .and_then(|()| file.read_to_string(&mut text))
            .map_err(|error| problem(error.to_string()))?;
        text.lines()
            .map(|line| serde_json::from_str(line).map_err(|error| problem(error.to_string())))
            .collect()
    }

    fn follow(
        &self,
        chunks: &mpsc::Receiver<Vec<u8>>,
        started: Instant,
        output: &mut dyn FnMut(Stream, &[u8]) -> io::Result<()>,
    ) -> Result<(u8, Duration), Problem> {
        let mut decoder = Decoder::default();
        let mut boot = None;
        loop {
            while let Some(frame) = decoder.next_frame().map_err(Problem::Report)? {
                match frame {
                    Frame::Started => boot = Some(started.elapsed()),
                    Frame::Stdout(bytes) => output(Stream::Stdout, &bytes)?,
                    Frame::Stderr(bytes) => output(Stream::Stderr, &bytes)?,
                    Frame::Status(status) => {
                        return Ok((status, boot.unwrap_or_else(|| started.elapsed())));
                    }
                }
            }
            let left = self.timeout.saturating_sub(started.elapsed());
            let booted = boot.is_some();
            match chunks.recv_timeout(left) {
                Ok(bytes) => decoder.push(&bytes),
                Err(RecvTimeoutError::Timeout) => return Err(Problem::TimedOut { booted }),
                Err(RecvTimeoutError::Disconnected) => return Err(Problem::Stopped { booted }),
            }
        }
    }

    fn error(&self, problem: Problem, console: Console) -> GuestError {
        let shape = self.shape.name.clone();
        match problem {
            Problem::TimedOut { booted } => GuestError::TimedOut {
                shape,
                timeout: self.timeout,
                booted,
                console,
            },
            Problem::Stopped { booted } => GuestError::Stopped {
                shape,
                booted,
                console,
            },
            Problem::Report(source) => GuestError::Report {
                shape,
                source,
                console,
            },
            Problem::Output(source) => GuestError::Output { shape, source },
        }
    }
}

/// A [`GuestError`] before the console is known.
enum Problem {
    TimedOut { booted: bool },
    Stopped { booted: bool },
    Report(FrameError),
    Output(io::Error),
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Output(error)
    }
}

/// A file in memory, which the emulator inherits: nothing to clean up, however we end.
fn memory_file(parts: &[&[u8]]) -> io::Result<File> {
    // No CLOEXEC: the emulator inherits it.
    let mut file = File::from(memfd_create("homenode-lab", MemfdFlags::empty())?);
    for part in parts {
        file.write_all(part)?;
    }
    Ok(file)
}

/// Where the emulator finds a file that it inherited.
fn path_of(file: &File) -> String {
    format!("/proc/self/fd/{}", file.as_raw_fd())
}

fn clock() -> Instant {
    Instant::now()
}

/// Sends what arrives; ends when the pipe or the receiver does.
fn read_chunks(mut pipe: impl Read, sender: &mpsc::SyncSender<Vec<u8>>) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = pipe.read(&mut buffer) {
        if sender.send(buffer[..length].to_vec()).is_err() {
            return;
        }
    }
}

/// More console than this is a kernel that repeats itself; the start tells why, the rest does not.
const CONSOLE_BYTES_MAX: u64 = 8 << 20;

fn read_console(mut pipe: impl Read) -> Console {
    let mut bytes = Vec::new();
    // What arrived before an error is all there is.
    let _ = pipe
        .by_ref()
        .take(CONSOLE_BYTES_MAX)
        .read_to_end(&mut bytes);
    let _ = io::copy(&mut pipe, &mut io::sink());
    Console(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tail_is_whole_lines_without_escapes() {
        let console = Console(b"one\r\n\x1b[2Jtwo\nthree\n".to_vec());
        assert_eq!(console.tail(2), "[2Jtwo\nthree");
        assert_eq!(console.tail(9).lines().count(), 3);
    }

    #[test]
    fn a_line_that_ends_early_is_no_status() {
        let shape = Shape::named("1n").unwrap();
        let guest = Guest {
            shape: &shape,
            kernel: Path::new("unused"),
            initramfs: &[],
            timeout: Duration::from_secs(60),
            time: &GuestTime::Host,
        };
        let (sender, chunks) = mpsc::sync_channel(4);
        let mut bytes = Frame::Started.encode();
        bytes.extend(Frame::Stdout(b"x".to_vec()).encode());
        sender.send(bytes).unwrap();
        drop(sender);
        let mut seen = Vec::new();
        let ended = guest.follow(&chunks, clock(), &mut |stream, bytes| {
            seen.push((stream, bytes.to_vec()));
            Ok(())
        });
        assert!(matches!(ended, Err(Problem::Stopped { booted: true })));
        assert_eq!(seen, [(Stream::Stdout, b"x".to_vec())]);
    }

    #[test]
    fn a_shape_without_costs_cannot_be_modelled() {
        let shape = Shape::named("1n").unwrap();
        let guest = Guest {
            shape: &shape,
            kernel: Path::new("unused"),
            initramfs: &[],
            timeout: Duration::from_secs(60),
            time: &GuestTime::Modelled {
                plugin: "unused".into(),
                seed: 0,
            },
        };
        let error = guest.run(&mut |_, _| Ok(())).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("shape 1n: expected a part [timing]")
        );
    }

    #[test]
    fn silence_times_out() {
        let shape = Shape::named("1n").unwrap();
        let guest = Guest {
            shape: &shape,
            kernel: Path::new("unused"),
            initramfs: &[],
            timeout: Duration::from_millis(1),
            time: &GuestTime::Host,
        };
        let (_sender, chunks) = mpsc::sync_channel(1);
        let ended = guest.follow(&chunks, clock(), &mut |_, _| Ok(()));
        assert!(matches!(ended, Err(Problem::TimedOut { booted: false })));
    }
}
