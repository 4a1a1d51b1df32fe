//! `numastat`: page counters, meminfo and the memory of processes, with a column per node.
//!
//! The model is numastat 2.0.19 (of the numactl package), whose output this is byte for byte,
//! but for what docs/drop-ins.md lists. It reads through [`Files`] alone, so it also shows a
//! captured machine.
//!
//! | module | does |
//! |---|---|
//! | `args` | command line → what is asked for |
//! | `system`, `process` | files → rows |
//! | `table`, `amount` | rows → lines, folded to the width |

mod amount;
mod args;
mod failure;
mod process;
mod system;
mod table;

use std::ffi::{OsStr, OsString};
use std::io::{self, IsTerminal, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use homenode_host::{Files, Live};
use homenode_units::NodeId;

use args::{Look, Options, Request};
use failure::{Failure, NODE_FOLDER, reason};
use process::{Number, Usage};
use table::{Kind, Row, Table};

/// What a command line is answered with, apart from the files of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Surroundings {
    /// The environment's `NUMASTAT_WIDTH`.
    pub width: Option<OsString>,
    /// Whether the output goes to a terminal.
    pub is_terminal: bool,
    /// The machine's base page, in which the kernel counts. Unit: bytes.
    pub page_bytes: u64,
    /// The number of this process, which patterns do not match.
    pub own_pid: Option<u32>,
}

const EXIT_DONE: u8 = 0;
const EXIT_FAILED: u8 = 1;

const PROGRAM: &str = "numastat";
/// The upstream release whose output this is; scripts read the third word.
const UPSTREAM_VERSION: &str = "2.0.19";

const USAGE: &str = "\
Usage: numastat [-c] [-m] [-n] [-p <PID>|<pattern>] [-s[<node>]] [-v] [-V] [-z] [ <PID>|<pattern>... ]
-c to minimize column widths
-m to show meminfo-like system-wide memory usage
-n to show the numastat statistics info
-p <PID>|<pattern> to show process info
-s[<node>] to sort data by total column or <node>
-v to make some reports more verbose
-V to show the numastat code version
-z to skip rows and columns of zeros
";

/// Answers a command line on this machine.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let out = io::stdout().lock();
    let surroundings = Surroundings {
        #[expect(
            clippy::disallowed_methods,
            reason = "this is a command line: it resolves the environment, once"
        )]
        width: std::env::var_os("NUMASTAT_WIDTH"),
        is_terminal: out.is_terminal(),
        page_bytes: u64::try_from(rustix::param::page_size()).unwrap_or(4096),
        own_pid: Some(std::process::id()),
    };
    let mut out = io::BufWriter::new(out);
    let done = run(args, &Live, &surroundings, &mut out, &mut io::stderr());
    match done.and_then(|code| out.flush().map(|()| code)) {
        Ok(code) => ExitCode::from(code),
        // The reader has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(_) => ExitCode::from(EXIT_FAILED),
    }
}

/// Answers a command line (without the program's name); returns the exit status.
///
/// # Errors
///
/// When `out` or `err` cannot be written.
pub fn run(
    args: &[OsString],
    files: &dyn Files,
    surroundings: &Surroundings,
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> io::Result<u8> {
    let options = match args::parse(args) {
        Request::Tables(options) => options,
        Request::Version => {
            let ours = env!("CARGO_PKG_VERSION");
            writeln!(
                out,
                "{PROGRAM} version: {UPSTREAM_VERSION}: homenode {ours}"
            )?;
            return Ok(EXIT_DONE);
        }
        Request::Usage(complaint) => {
            if let Some(complaint) = complaint {
                writeln!(err, "{PROGRAM}: {complaint}")?;
            }
            err.write_all(USAGE.as_bytes())?;
            return Ok(EXIT_FAILED);
        }
    };
    let shown = if options.bare {
        show_bare(files, surroundings, out)
    } else {
        Session::open(&options, files, surroundings).and_then(|session| session.show(out, err))
    };
    match shown {
        Ok(()) => Ok(EXIT_DONE),
        Err(Failure::Output(error)) => Err(error),
        Err(failure) => {
            // What was printed so far comes first where both end in one place.
            out.flush()?;
            writeln!(err, "{failure}")?;
            Ok(EXIT_FAILED)
        }
    }
}

fn show_bare(
    files: &dyn Files,
    surroundings: &Surroundings,
    out: &mut dyn Write,
) -> Result<(), Failure> {
    let nodes = system::list_nodes(files).map_err(|error| Failure::NotNuma {
        why: reason(&error),
    })?;
    if nodes.is_empty() {
        let why = "no nodes".to_owned();
        return Err(Failure::NotNuma { why });
    }
    let table = Table {
        kind: Kind::Bare,
        nodes: &nodes,
        rows: system::read_counters(files, &nodes)?,
    };
    Ok(table.print(Look::default(), surroundings.line_width(), out)?)
}

impl Surroundings {
    /// How wide lines may be. Unit: characters.
    ///
    /// A terminal counts as 80 columns, however wide it is: so it is with upstream.
    fn line_width(&self) -> usize {
        const TERMINAL: usize = 80;
        const NARROWEST: usize = 32;
        const WIDEST: usize = 10_000_000;
        match &self.width {
            Some(width) => parse_width(width)
                .filter(|width| (1..=WIDEST).contains(width))
                .map_or(TERMINAL, |width| width.max(NARROWEST)),
            None if self.is_terminal => TERMINAL,
            None => WIDEST,
        }
    }
}

/// The digits behind leading blanks.
fn parse_width(text: &OsStr) -> Option<usize> {
    usize::try_from(amount::leading_number(text.as_bytes().trim_ascii_start())).ok()
}

/// Everything but the bare table: megabytes under a title.
struct Session<'a> {
    options: &'a Options,
    files: &'a dyn Files,
    surroundings: &'a Surroundings,
    nodes: Vec<NodeId>,
}

impl<'a> Session<'a> {
    fn open(
        options: &'a Options,
        files: &'a dyn Files,
        surroundings: &'a Surroundings,
    ) -> Result<Self, Failure> {
        let folder = NODE_FOLDER;
        let nodes = system::list_nodes(files).map_err(|error| Failure::Folder {
            folder,
            why: reason(&error),
        })?;
        if nodes.is_empty() {
            let why = "no nodes".to_owned();
            return Err(Failure::Folder { folder, why });
        }
        Ok(Self {
            options,
            files,
            surroundings,
            nodes,
        })
    }

    /// Processes, then `-m`, then `-n`; the last is also what comes when nothing else does.
    fn show(&self, out: &mut dyn Write, err: &mut dyn Write) -> Result<(), Failure> {
        let own = self.surroundings.own_pid.map(Number::from);
        let processes = process::select(&self.options.processes, own, self.files, out)?;
        if !processes.is_empty() {
            self.show_processes(&processes, out, err)?;
        }
        if self.options.meminfo {
            writeln!(out, "\nPer-node system memory usage (in MBs):")?;
            let rows = system::read_meminfo(self.files, &self.nodes)?;
            self.print(Kind::System, rows, out)?;
        }
        if self.options.counters || (processes.is_empty() && !self.options.meminfo) {
            writeln!(out, "\nPer-node numastat info (in MBs):")?;
            let page_bytes = self.surroundings.page_bytes;
            let rows = system::read_counters_as_memory(self.files, &self.nodes, page_bytes)?;
            self.print(Kind::System, rows, out)?;
        }
        Ok(())
    }

    fn print(&self, kind: Kind, rows: Vec<Row>, out: &mut dyn Write) -> Result<(), Failure> {
        let table = Table {
            kind,
            nodes: &self.nodes,
            rows,
        };
        let width = self.surroundings.line_width();
        Ok(table.print(self.options.look, width, out)?)
    }

    fn show_processes(
        &self,
        numbers: &[Number],
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<(), Failure> {
        let names: Vec<Vec<u8>> = numbers
            .iter()
            .map(|&number| self.described(number))
            .collect();
        let in_one_table = numbers.len() > 1 && !self.options.verbose;
        if in_one_table {
            writeln!(out, "\nPer-node process memory usage (in MBs)")?;
        }
        let mut rows = Vec::new();
        let mut some_readable = false;
        for (&number, name) in numbers.iter().zip(names) {
            if !in_one_table {
                out.write_all(b"\nPer-node process memory usage (in MBs) for PID ")?;
                out.write_all(&name)?;
                out.write_all(b"\n")?;
            }
            let usage = self.read_usage(number, out, err)?;
            match usage {
                _ if in_one_table => {
                    some_readable |= usage.is_some();
                    let usage = usage.unwrap_or_else(|| Usage::none(self.nodes.len()));
                    rows.push(usage.total_row(name));
                }
                Some(usage) => self.print(Kind::Processes { heading: "" }, usage.rows(), out)?,
                None => {}
            }
        }
        if some_readable {
            self.print(Kind::Processes { heading: "PID" }, rows, out)?;
        }
        Ok(())
    }

    /// `812 (postgres)`
    fn described(&self, number: Number) -> Vec<u8> {
        let name = process::read_name(number, self.files);
        let mut text = format!("{number} (").into_bytes();
        text.extend(name.as_deref().unwrap_or(b"(null)"));
        text.push(b')');
        text
    }

    /// `None` for a process that is gone or another user's, which is told to `err`.
    fn read_usage(
        &self,
        number: Number,
        out: &mut dyn Write,
        err: &mut dyn Write,
    ) -> Result<Option<Usage>, Failure> {
        let page_bytes = self.surroundings.page_bytes;
        match process::read_usage(number, &self.nodes, page_bytes, self.files) {
            Ok(usage) => Ok(Some(usage)),
            Err(unreadable) => {
                out.flush()?;
                process::report(number, unreadable, err)?;
                Ok(None)
            }
        }
    }
}
