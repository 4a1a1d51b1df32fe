//! The distribution's numastat, and ours, as a test calls them.

use std::ffi::OsString;
use std::process::{Command, Output};

use homenode_compat::numastat::{Surroundings, run};
use homenode_host::Files;

/// What a command line gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Answer {
    fn from(output: Output) -> Self {
        Self {
            code: output.status.code(),
            out: String::from_utf8_lossy(&output.stdout).into_owned(),
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }
}

/// The releases whose output differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Up to 2.0.16: a fixed list of rows, huge pages of one size.
    Fixed,
    /// 2.0.19: the rows of node 0, huge pages of all sizes.
    Later,
}

/// The release that is installed; `None`, with a line that says why, when the test cannot run.
pub(crate) fn release() -> Option<Release> {
    match Command::new("numastat").arg("-V").output() {
        Ok(output) => {
            let version = Answer::from(output).out;
            Some(if version.contains("version: 2013") {
                Release::Fixed
            } else {
                Release::Later
            })
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "a switch for whoever runs the tests"
        )]
        Err(error) => {
            let no_skip = std::env::var_os("HOMENODE_TEST_NO_SKIP").is_some();
            assert!(!no_skip, "cannot start numastat: {error}");
            println!("skipped: numastat is not installed ({error})");
            None
        }
    }
}

/// What is answered under these arguments and this `NUMASTAT_WIDTH`.
pub(crate) fn ours(files: &dyn Files, args: &[&str], width: Option<&str>) -> Answer {
    let args: Vec<OsString> = args.iter().map(OsString::from).collect();
    let surroundings = Surroundings {
        width: width.map(OsString::from),
        is_terminal: false,
        page_bytes: u64::try_from(rustix::param::page_size()).expect("a page fits"),
        own_pid: Some(std::process::id()),
    };
    let (mut out, mut err) = (Vec::new(), Vec::new());
    let code = run(&args, files, &surroundings, &mut out, &mut err).expect("a Vec takes all");
    Answer {
        code: Some(code.into()),
        out: String::from_utf8_lossy(&out).into_owned(),
        err: String::from_utf8_lossy(&err).into_owned(),
    }
}
