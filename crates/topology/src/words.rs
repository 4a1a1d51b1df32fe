//! Numbers and lists in sentences.

use homenode_units::{CpuSet, Id, IdSet, NodeSet};

/// `1 node`, `2 nodes`.
pub(crate) fn count(number: usize, noun: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {noun}{ending}")
}

/// `node 3`, `nodes 0-2,7`.
pub(crate) fn nodes(ids: &NodeSet) -> String {
    format!("node{} {ids}", if ids.len() == 1 { "" } else { "s" })
}

/// Longer lists of CPUs are cut: those dealt out in turn have no ranges.
const LIST_CHARS_MAX: usize = 40;

/// `CPU 3`, `CPUs 0-2,7`, `CPUs 0,2,4,… (40 in all)`.
pub(crate) fn cpus(ids: &CpuSet) -> String {
    let list = ids.to_string();
    match list
        .get(..LIST_CHARS_MAX)
        .and_then(|start| start.rfind(','))
    {
        Some(end) if list.len() > LIST_CHARS_MAX => {
            format!("CPUs {},… ({} in all)", &list[..end], ids.len())
        }
        _ => format!("CPU{} {list}", if ids.len() == 1 { "" } else { "s" }),
    }
}

/// `14`, or `7 to 14` where the numbers differ; `none` without numbers.
pub(crate) fn range(numbers: impl IntoIterator<Item = usize> + Clone) -> String {
    let lowest = numbers.clone().into_iter().min();
    let highest = numbers.into_iter().max();
    match (lowest, highest) {
        (Some(lowest), Some(highest)) if lowest == highest => lowest.to_string(),
        (Some(lowest), Some(highest)) => format!("{lowest} to {highest}"),
        _ => "none".to_owned(),
    }
}

/// Every id of a list of things that have one.
pub(crate) fn id_set<T: Id>(ids: impl IntoIterator<Item = T>) -> IdSet<T> {
    ids.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn singular_and_plural() {
        assert_eq!(count(1, "node"), "1 node");
        assert_eq!(count(2, "node"), "2 nodes");
        assert_eq!(nodes(&NodeSet::parse_list("3").unwrap()), "node 3");
        assert_eq!(nodes(&NodeSet::parse_list("3,4").unwrap()), "nodes 3-4");
        let dealt: CpuSet = (0..40).map(|n| homenode_units::CpuId(n * 2)).collect();
        assert_eq!(
            cpus(&dealt),
            "CPUs 0,2,4,6,8,10,12,14,16,18,20,22,24,26,28,… (40 in all)"
        );
        assert_eq!(
            cpus(&CpuSet::parse_list("0-11,24-35").unwrap()),
            "CPUs 0-11,24-35"
        );
        assert_eq!(range([7, 14]), "7 to 14");
        assert_eq!(range([7, 7]), "7");
    }
}
