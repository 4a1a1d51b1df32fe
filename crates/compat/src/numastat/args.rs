//! The command line, read as `getopt_long(3)` reads it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use homenode_units::NodeId;

/// What is shown of the tables that were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Look {
    /// `-c`: narrow columns, whole megabytes.
    pub(super) compact: bool,
    /// `-z`: without rows and columns of zeros.
    pub(super) skip_zeros: bool,
    /// `-s`: largest first.
    pub(super) sort: Option<SortKey>,
}

/// What rows are sorted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SortKey {
    Total,
    Node(NodeId),
}

/// A command line that asks for tables.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Options {
    /// No argument at all: the table of page counts.
    pub(super) bare: bool,
    /// `-m`.
    pub(super) meminfo: bool,
    /// `-n`.
    pub(super) counters: bool,
    /// `-v`.
    pub(super) verbose: bool,
    pub(super) look: Look,
    /// Arguments of `-p` in their order, then those that belong to no flag.
    pub(super) processes: Vec<Vec<u8>>,
}

/// What a command line asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Request {
    Tables(Options),
    Version,
    /// `-?`, `--help`, or an error, which the complaint names.
    Usage(Option<String>),
}

/// Flags are found anywhere on the line up to `--`; `-V` and errors count as they are met.
pub(super) fn parse(args: &[OsString]) -> Request {
    let mut parser = Parser::default();
    let mut operands = Vec::new();
    let mut rest = args.iter().map(|arg| arg.as_bytes());
    while let Some(arg) = rest.next() {
        let end = match arg {
            b"--" => {
                operands.extend(rest.by_ref().map(<[u8]>::to_vec));
                None
            }
            [b'-', b'-', name @ ..] => Some(long(name)),
            [b'-', flags @ ..] if !flags.is_empty() => parser.short(flags, &mut rest),
            operand => {
                operands.push(operand.to_vec());
                None
            }
        };
        if let Some(end) = end {
            return end;
        }
    }
    let mut options = parser.options;
    options.bare = args.is_empty();
    options.processes.append(&mut operands);
    options.look.sort = parser
        .sort
        .then(|| parser.sort_node.map_or(SortKey::Total, SortKey::Node));
    Request::Tables(options)
}

/// The one long option is `--help`; what it may be shortened to, `getopt_long(3)` decides.
fn long(name: &[u8]) -> Request {
    let shown = String::from_utf8_lossy(name);
    let (word, has_value) = match shown.split_once('=') {
        Some((word, _)) => (word, true),
        None => (shown.as_ref(), false),
    };
    if word.is_empty() || !"help".starts_with(word) {
        Request::Usage(Some(format!("unrecognized option '--{shown}'")))
    } else if has_value {
        Request::Usage(Some("option '--help' doesn't allow an argument".to_owned()))
    } else {
        Request::Usage(None)
    }
}

#[derive(Debug, Default)]
struct Parser {
    options: Options,
    sort: bool,
    /// Kept by a later `-s` without a node.
    sort_node: Option<NodeId>,
}

impl Parser {
    /// The letters of one argument; `rest` gives the argument of `-p`.
    fn short<'a>(
        &mut self,
        flags: &'a [u8],
        rest: &mut impl Iterator<Item = &'a [u8]>,
    ) -> Option<Request> {
        for (at, flag) in flags.iter().enumerate() {
            let attached = flags.get(at + 1..).filter(|text| !text.is_empty());
            match flag {
                b'c' => self.options.look.compact = true,
                b'm' => self.options.meminfo = true,
                b'n' => self.options.counters = true,
                b'v' => self.options.verbose = true,
                b'z' => self.options.look.skip_zeros = true,
                b's' => {
                    self.sort = true;
                    if let Some(node) = attached {
                        self.sort_node = parse_node(node);
                    }
                    return None;
                }
                b'p' => {
                    let Some(process) = attached.or_else(|| rest.next()) else {
                        return Some(Request::Usage(Some(
                            "option requires an argument -- 'p'".to_owned(),
                        )));
                    };
                    self.options.processes.push(process.to_vec());
                    return None;
                }
                b'V' => return Some(Request::Version),
                b'?' => return Some(Request::Usage(None)),
                _ => {
                    let shown = String::from_utf8_lossy(&flags[at..]);
                    let shown = shown.chars().next().unwrap_or('?');
                    return Some(Request::Usage(Some(format!("invalid option -- '{shown}'"))));
                }
            }
        }
        None
    }
}

/// Digits are a node; with anything else the total decides.
fn parse_node(text: &[u8]) -> Option<NodeId> {
    let text = str::from_utf8(text).ok()?;
    let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok().map(NodeId)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Request {
        let args: Vec<OsString> = line.split_whitespace().map(OsString::from).collect();
        parse(&args)
    }

    fn options(line: &str) -> Options {
        match parsed(line) {
            Request::Tables(options) => options,
            other => panic!("`{line}` is {other:?}"),
        }
    }

    fn complaint(line: &str) -> Option<String> {
        match parsed(line) {
            Request::Usage(complaint) => complaint,
            other => panic!("`{line}` is {other:?}"),
        }
    }

    #[test]
    fn flags_are_found_anywhere_and_p_takes_what_follows_it() {
        let found = options("qemu -cmz 12 -p -n -pkvm -- -v");
        assert_eq!(
            found.processes,
            [&b"-n"[..], b"kvm", b"qemu", b"12", b"-v"],
            "arguments of -p come first"
        );
        assert!(found.look.compact && found.meminfo && found.look.skip_zeros);
        assert!(!found.counters && !found.verbose && !found.bare);
        assert!(options("").bare);
        assert!(!options("--").bare);
        assert_eq!(options("-").processes, [b"-"]);
    }

    #[test]
    fn a_node_to_sort_by_is_attached() {
        let node = |id| Some(SortKey::Node(NodeId(id)));
        for (line, key) in [
            ("-m", None),
            ("-s", Some(SortKey::Total)),
            ("-s2", node(2)),
            ("-ms02", node(2)),
            ("-s1 -s", node(1)),
            ("-s1 -s0", node(0)),
            ("-s 1", Some(SortKey::Total)),
            ("-sc", Some(SortKey::Total)),
            ("-s+1", Some(SortKey::Total)),
            ("-s99999999999", Some(SortKey::Total)),
        ] {
            assert_eq!(options(line).look.sort, key, "{line}");
        }
        assert!(!options("-sc").look.compact);
    }

    #[test]
    fn version_and_errors_count_in_the_order_they_are_met() {
        assert_eq!(parsed("-mVx"), Request::Version);
        assert_eq!(parsed("-V -x"), Request::Version);
        for (line, expected) in [
            ("-xV", "invalid option -- 'x'"),
            ("-c-", "invalid option -- '-'"),
            ("-p", "option requires an argument -- 'p'"),
            ("--foo -V", "unrecognized option '--foo'"),
            ("--helpx", "unrecognized option '--helpx'"),
            ("--=", "unrecognized option '--='"),
            ("--he=x", "option '--help' doesn't allow an argument"),
        ] {
            assert_eq!(complaint(line).as_deref(), Some(expected), "{line}");
        }
        for line in ["-?", "--help", "--h"] {
            assert_eq!(complaint(line), None, "{line}");
        }
    }
}
