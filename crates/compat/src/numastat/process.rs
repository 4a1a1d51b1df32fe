//! Processes: which are meant, and where their memory lies.

use std::io::{self, Write};

use homenode_host::{Buffer, FileError, Files};
use homenode_units::NodeId;

use super::amount::{ByteCount, leading_number};
use super::failure::{Failure, reason};
use super::table::Row;

/// A process number as it was given: it need not be one that can exist.
pub(super) type Number = u64;

/// What a line of `numa_maps` is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Category {
    Huge,
    Heap,
    Stack,
    Private,
}

impl Category {
    /// In the order of the rows.
    const ALL: [Self; 4] = [Self::Huge, Self::Heap, Self::Stack, Self::Private];

    fn label(self) -> &'static str {
        match self {
            Self::Huge => "Huge",
            Self::Heap => "Heap",
            Self::Stack => "Stack",
            Self::Private => "Private",
        }
    }

    fn of_word(word: &[u8]) -> Option<Self> {
        [
            (&b"huge"[..], Self::Huge),
            (b"heap", Self::Heap),
            (b"stack", Self::Stack),
        ]
        .into_iter()
        .find_map(|(prefix, category)| word.starts_with(prefix).then_some(category))
    }
}

/// Where the memory of a process lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Usage {
    /// `[category][node]`, in the order of [`Category::ALL`] and of the nodes. Unit: bytes.
    amounts: [Vec<ByteCount>; 4],
}

impl Usage {
    /// Nothing anywhere, for so many nodes.
    pub(super) fn none(node_count: usize) -> Self {
        Self {
            amounts: std::array::from_fn(|_| vec![0; node_count]),
        }
    }

    fn add(&mut self, category: Category, column: usize, bytes: ByteCount) {
        for (here, amounts) in Category::ALL.into_iter().zip(&mut self.amounts) {
            if here == category {
                amounts[column] = amounts[column].saturating_add(bytes);
            }
        }
    }

    /// A row for each category.
    pub(super) fn rows(&self) -> Vec<Row> {
        let rows = Category::ALL.into_iter().zip(&self.amounts);
        rows.map(|(category, amounts)| Row {
            label: category.label().as_bytes().to_vec(),
            cells: amounts.iter().copied().map(Some).collect(),
        })
        .collect()
    }

    /// One row for all categories.
    pub(super) fn total_row(&self, label: Vec<u8>) -> Row {
        let node_count = self.amounts[0].len();
        let total = |column| {
            self.amounts
                .iter()
                .fold(0, |sum: ByteCount, row| sum.saturating_add(row[column]))
        };
        Row {
            label,
            cells: (0..node_count).map(|column| Some(total(column))).collect(),
        }
    }
}

/// Whose memory is asked for, sorted, each once. Patterns that match nothing are told to `out`.
///
/// Digits are a number, anything else is looked for in names and command lines. `own` is left
/// out of that search.
pub(super) fn select(
    wanted: &[Vec<u8>],
    own: Option<Number>,
    files: &dyn Files,
    out: &mut dyn Write,
) -> Result<Vec<Number>, Failure> {
    let mut numbers = Vec::new();
    let mut searchable = None;
    for text in wanted {
        if text.iter().all(u8::is_ascii_digit) {
            numbers.push(leading_number(text));
            continue;
        }
        let processes = match &searchable {
            Some(processes) => processes,
            None => searchable.insert(read_searchable(own, files)?),
        };
        let before = numbers.len();
        numbers.extend(
            processes
                .iter()
                .filter(|(_, words)| contains(words, text))
                .map(|&(number, _)| number),
        );
        if numbers.len() == before {
            out.write_all(b"Found no processes containing pattern: \"")?;
            out.write_all(text)?;
            out.write_all(b"\"\n")?;
        }
    }
    numbers.sort_unstable();
    numbers.dedup();
    Ok(numbers)
}

fn contains(words: &[u8], pattern: &[u8]) -> bool {
    words.windows(pattern.len()).any(|window| window == pattern)
}

/// All processes with the text that patterns are looked for in: the name, then the command line.
fn read_searchable(
    own: Option<Number>,
    files: &dyn Files,
) -> Result<Vec<(Number, Vec<u8>)>, Failure> {
    let names = files.list("/proc").map_err(|error| Failure::Folder {
        folder: "/proc",
        why: reason(&error),
    })?;
    let mut processes = Vec::new();
    let mut buffer = Buffer::new();
    for entry in names {
        let Some(number) = entry.parse().ok().filter(|&number| Some(number) != own) else {
            continue;
        };
        let mut words = read_name(number, files).unwrap_or_default();
        if let Ok(line) = files.read(&format!("/proc/{number}/cmdline"), &mut buffer) {
            words.push(b' ');
            words.extend(line.iter().map(|&byte| if byte == 0 { b' ' } else { byte }));
        }
        processes.push((number, words));
    }
    Ok(processes)
}

/// The name of a process; `None` when it is gone.
///
/// What would control a terminal is shown as `?`: a process chooses its name.
pub(super) fn read_name(number: Number, files: &dyn Files) -> Option<Vec<u8>> {
    let mut buffer = Buffer::new();
    let text = files
        .read(&format!("/proc/{number}/status"), &mut buffer)
        .ok()?;
    let name = text
        .split(|&byte| byte == b'\n')
        .find_map(|line| line.strip_prefix(b"Name:"))?;
    let is_control = |byte: u8| byte.is_ascii_control() && byte != b'\t';
    let shown = |&byte: &u8| if is_control(byte) { b'?' } else { byte };
    Some(name.trim_ascii_start().iter().map(shown).collect())
}

/// Why there is no usage of a process.
#[derive(Debug)]
pub(super) enum Unreadable {
    /// Its `numa_maps` cannot be opened, or it ended: the others are still shown.
    Closed(FileError),
    /// All ends here.
    Failed(Failure),
}

/// Where the memory of a process lies.
///
/// Source: `/proc/<pid>/numa_maps`, `proc_pid_numa_maps(5)`.
pub(super) fn read_usage(
    number: Number,
    nodes: &[NodeId],
    page_bytes: u64,
    files: &dyn Files,
) -> Result<Usage, Unreadable> {
    let path = maps_path(number);
    let mut buffer = Buffer::new();
    match files.read(&path, &mut buffer) {
        Ok(text) => parse_maps(text, nodes, page_bytes).map_err(Unreadable::Failed),
        Err(error @ FileError::Denied { .. }) => Err(Unreadable::Closed(error)),
        Err(error) if error.is_process_gone() => Err(Unreadable::Closed(error)),
        Err(error) => Err(Unreadable::Failed(Failure::Maps {
            why: reason(&error),
            path,
        })),
    }
}

pub(super) fn maps_path(number: Number) -> String {
    format!("/proc/{number}/numa_maps")
}

/// Reads the text of `numa_maps`: `N<node>=<pages>` words, in pages of the size their line names.
///
/// Nodes that are not in `nodes` came while this was running, and are left out.
fn parse_maps(text: &[u8], nodes: &[NodeId], page_bytes: u64) -> Result<Usage, Failure> {
    let mut usage = Usage::none(nodes.len());
    let mut counts: Vec<(Category, usize, u64)> = Vec::new();
    for line in text.split(|&byte| byte == b'\n') {
        let mut category = Category::Private;
        let mut page = None;
        counts.clear();
        for word in line.split(u8::is_ascii_whitespace) {
            if let Some(count) = word.strip_prefix(b"N") {
                let (node, pages) = parse_count(count).ok_or(Failure::NodeValue)?;
                if let Ok(column) = nodes.binary_search_by_key(&node, |node| node.0.into()) {
                    counts.push((category, column, pages));
                }
            } else if let Some(kib) = word.strip_prefix(b"kernelpagesize_kB=") {
                page = page.or(Some(leading_number(kib)).filter(|&kib| kib > 0));
            } else if category == Category::Private {
                category = Category::of_word(word).unwrap_or(Category::Private);
            }
        }
        let page = match page {
            Some(kib) => ByteCount::from(kib) * 1024,
            None => page_bytes.into(),
        };
        for &(category, column, pages) in &counts {
            usage.add(category, column, page.saturating_mul(pages.into()));
        }
    }
    Ok(usage)
}

/// `3=120`: a node and its pages.
fn parse_count(text: &[u8]) -> Option<(u64, u64)> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let pages = text[digits..].strip_prefix(b"=")?;
    (digits > 0).then(|| (leading_number(text), leading_number(pages)))
}

/// Prints why a process has no usage, as upstream does; goes on unless that ends all.
pub(super) fn report(
    number: Number,
    unreadable: Unreadable,
    err: &mut dyn Write,
) -> Result<(), Failure> {
    match unreadable {
        Unreadable::Failed(failure) => Err(failure),
        Unreadable::Closed(error) => {
            let written: io::Result<()> =
                writeln!(err, "Can't read {}: {}", maps_path(number), reason(&error));
            Ok(written?)
        }
    }
}

#[cfg(test)]
#[path = "process_tests.rs"]
mod tests;
