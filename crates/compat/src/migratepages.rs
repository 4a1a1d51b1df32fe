//! `migratepages PID FROM TO`: moves the memory of a process.

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::process::ExitCode;

use homenode_units::{NodeSet, Pid};

use crate::numactl::named_nodes;
use crate::numactl::shm::parse_id;
use crate::numactl::text::reason;

const USAGE: &str = "\
usage: migratepages PID FROM-NODES TO-NODES

NODES: 0,2-3 | all | netdev:DEV | ip:HOST | file:PATH | block:DEV | pci:[SEG:]BUS:DEV[.FUNC]
";

/// Answers for `migratepages` with these arguments.
///
/// Pages that stay do not change the status, as upstream: scripts rely on it. They are counted on
/// the error output.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let (mut out, mut err) = (io::stdout().lock(), io::stderr().lock());
    match run(args, &mut out, &mut err) {
        Some(()) => ExitCode::SUCCESS,
        None => ExitCode::FAILURE,
    }
}

/// `None` when it failed, which has been said.
fn run(args: &[OsString], out: &mut dyn Write, err: &mut dyn Write) -> Option<()> {
    let [pid, from, to] = args else {
        let _ = write!(err, "{USAGE}");
        return None;
    };
    let Some(pid) = parse_id(pid) else {
        let _ = write!(err, "{USAGE}");
        return None;
    };
    if let Err(homenode_sys::PolicyError::NotSupported) = homenode_sys::task_policy() {
        let _ = writeln!(
            err,
            "numactl: This system does not support NUMA functionality"
        );
        return None;
    }
    let from = nodes(from, out, err)?;
    let to = nodes(to, out, err)?;
    // A number that no process can have is one that no process has.
    let pid = Pid(u32::try_from(pid).unwrap_or(u32::MAX));
    match homenode_sys::migrate_pages(pid, &from, &to) {
        Ok(0) => Some(()),
        Ok(left) => {
            let _ = writeln!(
                err,
                "migratepages: warning: {left} pages of process {pid} could not be moved"
            );
            Some(())
        }
        Err(error) => {
            let _ = writeln!(err, "migrate_pages: {}", reason(&error));
            None
        }
    }
}

/// Reads a node specification and says what is wrong with it as upstream does.
pub(crate) fn nodes(text: &OsStr, out: &mut dyn Write, err: &mut dyn Write) -> Option<NodeSet> {
    match named_nodes(text) {
        Ok(nodes) => Some(nodes),
        Err(bad) => {
            if let Some(warning) = bad.warning {
                let _ = writeln!(err, "libnuma: Warning: {warning}");
            }
            let _ = writeln!(out, "<{}> is invalid", text.display());
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(args: &[&str]) -> (bool, String, String) {
        let args: Vec<OsString> = args.iter().map(OsString::from).collect();
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let ok = run(&args, &mut out, &mut err).is_some();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (ok, text(out), text(err))
    }

    #[test]
    fn three_arguments_and_a_number_are_needed() {
        for args in [&["1", "0"][..], &["-h"], &["x", "0", "0"], &[]] {
            let (ok, out, err) = on(args);
            assert!(
                !ok && out.is_empty() && err.starts_with("usage: "),
                "{args:?}"
            );
        }
    }

    #[test]
    fn a_wrong_node_is_named_on_both_outputs() {
        let (ok, out, err) = on(&["1", "4095", "0"]);
        if err.contains("does not support") {
            return;
        }
        assert!(!ok);
        assert_eq!(out, "<4095> is invalid\n");
        assert_eq!(
            err,
            "libnuma: Warning: node argument 4095 is out of range\n\n"
        );
    }
}
