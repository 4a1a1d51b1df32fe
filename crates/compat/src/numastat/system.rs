//! The tables of the whole system: page counters and meminfo of each node.

use homenode_host::{Buffer, FileError, Files};
use homenode_units::NodeId;

use super::amount::{ByteCount, leading_number};
use super::failure::{Failure, NODE_FOLDER, node_file, reason};
use super::table::Row;

/// The nodes, by number.
pub(super) fn list_nodes(files: &dyn Files) -> Result<Vec<NodeId>, FileError> {
    let mut nodes: Vec<NodeId> = files
        .list(NODE_FOLDER)?
        .iter()
        .filter_map(|name| {
            let digits = name.strip_prefix("node")?;
            let id = digits.parse().ok()?;
            // `parse` takes a sign and leading zeros, and so names a folder that is not there.
            (NodeId(id).to_string() == digits).then_some(NodeId(id))
        })
        .collect();
    nodes.sort_unstable();
    Ok(nodes)
}

/// Rows of all nodes, in the order of the kernel's files.
///
/// A row that only some nodes have stands where those nodes' files have it.
#[derive(Debug)]
struct JoinedRows {
    rows: Vec<Row>,
    node_count: usize,
}

impl JoinedRows {
    fn new(node_count: usize) -> Self {
        Self {
            rows: Vec::new(),
            node_count,
        }
    }

    /// Adds the file of the node that is the `column`th; of a name given twice, the last counts.
    fn add(&mut self, column: usize, lines: impl Iterator<Item = (Vec<u8>, ByteCount)>) {
        let mut next = 0;
        for (label, amount) in lines {
            let at = match self.rows.iter().position(|row| row.label == label) {
                Some(at) => at,
                None => {
                    let cells = vec![None; self.node_count];
                    self.rows.insert(next, Row { label, cells });
                    next
                }
            };
            self.rows[at].cells[column] = Some(amount);
            next = at + 1;
        }
    }
}

/// The page counters of all nodes.
///
/// Unit: pages, of the size that the machine has.
/// Source: `/sys/devices/system/node/node<n>/numastat`.
pub(super) fn read_counters(files: &dyn Files, nodes: &[NodeId]) -> Result<Vec<Row>, Failure> {
    read_rows(files, nodes, "numastat", |_, text| {
        text.split(|&byte| byte == b'\n')
            .filter_map(|line| {
                let mut words = words(line);
                let name = words.next()?.to_vec();
                let pages = words.next().map_or(0, leading_number);
                Some((name, ByteCount::from(pages)))
            })
            .collect()
    })
}

/// The same counters as memory, each word of a name capitalised: `Numa_Hit`.
///
/// Unit: bytes, with pages of `page_bytes`.
pub(super) fn read_counters_as_memory(
    files: &dyn Files,
    nodes: &[NodeId],
    page_bytes: u64,
) -> Result<Vec<Row>, Failure> {
    let mut rows = read_counters(files, nodes)?;
    for row in &mut rows {
        for word in row.label.split_mut(|&byte| byte == b'_') {
            if let Some(first) = word.first_mut() {
                first.make_ascii_uppercase();
            }
        }
        for cell in row.cells.iter_mut().flatten() {
            *cell = cell.saturating_mul(page_bytes.into());
        }
    }
    Ok(rows)
}

/// What the memory of all nodes is used for.
///
/// Unit: bytes. Source: `/sys/devices/system/node/node<n>/meminfo`; where it counts huge pages,
/// `hugepages/hugepages-<size>kB` beside it, which knows all sizes.
pub(super) fn read_meminfo(files: &dyn Files, nodes: &[NodeId]) -> Result<Vec<Row>, Failure> {
    let huge_page = default_huge_page(files);
    read_rows(files, nodes, "meminfo", |node, text| {
        text.split(|&byte| byte == b'\n')
            .filter_map(parse_meminfo_line)
            .map(|line| {
                let counts_huge_pages = line.name.starts_with(b"HugePages");
                let bytes = if counts_huge_pages {
                    huge_pages(files, node, line.name)
                        .unwrap_or(line.number.saturating_mul(huge_page))
                } else {
                    line.number.saturating_mul(line.unit)
                };
                (line.name.to_vec(), bytes)
            })
            .collect()
    })
}

fn read_rows(
    files: &dyn Files,
    nodes: &[NodeId],
    name: &str,
    parse: impl Fn(NodeId, &[u8]) -> Vec<(Vec<u8>, ByteCount)>,
) -> Result<Vec<Row>, Failure> {
    let mut joined = JoinedRows::new(nodes.len());
    let mut buffer = Buffer::new();
    for (column, &node) in nodes.iter().enumerate() {
        let path = node_file(node, name);
        let text = files
            .read(&path, &mut buffer)
            .map_err(|error| Failure::NodeFile {
                path,
                why: reason(&error),
            })?;
        joined.add(column, parse(node, text).into_iter());
    }
    Ok(joined.rows)
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace)
        .filter(|word| !word.is_empty())
}

#[derive(Debug)]
struct MeminfoLine<'a> {
    name: &'a [u8],
    number: ByteCount,
    /// Bytes in one of `number`.
    unit: ByteCount,
}

/// `Node 0 MemFree:  4518032 kB`; `None` for a line without a name.
fn parse_meminfo_line(line: &[u8]) -> Option<MeminfoLine<'_>> {
    let mut words = words(line).skip(2);
    let name = words.next()?;
    Some(MeminfoLine {
        name: name.strip_suffix(b":").unwrap_or(name),
        number: words.next().map_or(0, leading_number).into(),
        unit: if words.next() == Some(b"kB") { 1024 } else { 1 },
    })
}

/// Bytes in one huge page of the default size; 0 on a machine without any.
fn default_huge_page(files: &dyn Files) -> ByteCount {
    let mut buffer = Buffer::new();
    let Ok(text) = files.read("/proc/meminfo", &mut buffer) else {
        return 0;
    };
    text.split(|&byte| byte == b'\n')
        .find_map(|line| {
            let mut words = words(line);
            (words.next() == Some(b"Hugepagesize:")).then(|| words.next())?
        })
        .map_or(0, |kib| ByteCount::from(leading_number(kib)) * 1024)
}

/// Bytes in a node's huge pages of all sizes: those that a `HugePages_…` row of meminfo counts.
///
/// `None` where the node does not tell them by size.
fn huge_pages(files: &dyn Files, node: NodeId, row: &[u8]) -> Option<ByteCount> {
    let file = match row {
        b"HugePages_Total" => "nr_hugepages",
        b"HugePages_Free" => "free_hugepages",
        b"HugePages_Surp" => "surplus_hugepages",
        _ => return None,
    };
    let folder = node_file(node, "hugepages");
    let mut buffer = Buffer::new();
    let mut bytes: ByteCount = 0;
    for name in files.list(&folder).ok()? {
        let Some(size) = name.strip_prefix("hugepages-") else {
            continue;
        };
        let path = format!("{folder}/{name}/{file}");
        let count = leading_number(files.read(&path, &mut buffer).ok()?);
        let kib = leading_number(size.as_bytes());
        let page = ByteCount::from(kib) * 1024;
        bytes = bytes.saturating_add(page.saturating_mul(count.into()));
    }
    Some(bytes)
}

#[cfg(test)]
#[path = "system_tests.rs"]
mod tests;
