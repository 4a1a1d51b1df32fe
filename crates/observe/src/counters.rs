use std::time::Duration;

use homenode_units::Reading;
use serde::{Deserialize, Serialize};

use crate::ParseError;

/// A value for each allocation counter of a node.
///
/// They count where pages were *handed out*, not who uses them afterwards: none of them says
/// "remote access".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counters<T> {
    /// Pages placed on this node as intended.
    pub numa_hit: T,
    /// Pages placed on this node although another was wanted, because that one was full.
    pub numa_miss: T,
    /// Pages wanted on this node and placed elsewhere; the other side of a `numa_miss`.
    pub numa_foreign: T,
    /// Pages placed on this node as interleaving wanted; a part of `numa_hit`.
    pub interleave_hit: T,
    /// Pages placed on this node for a program that ran on it at that moment.
    pub local_node: T,
    /// Pages placed on this node for a program that ran on another.
    pub other_node: T,
}

/// The counters of a node.
///
/// Unit: base pages since boot. Shape: one set per node. The kernel folds what its CPUs counted
/// into them every `vm.stat_interval` (1 s), so a short interval may show too little.
/// Source: `/sys/devices/system/node/node<n>/numastat`, Documentation/admin-guide/numastat.rst.
pub type NodeCounters = Counters<u64>;

/// The kernel's names, in the order of its file.
pub const COUNTER_NAMES: [&str; 6] = [
    "numa_hit",
    "numa_miss",
    "numa_foreign",
    "interleave_hit",
    "local_node",
    "other_node",
];

impl<T> Counters<T> {
    /// Makes a set from a value per kernel name.
    ///
    /// # Errors
    ///
    /// The first error of `value`.
    pub fn try_from_names<E>(
        mut value: impl FnMut(&'static str) -> Result<T, E>,
    ) -> Result<Self, E> {
        Ok(Self {
            numa_hit: value("numa_hit")?,
            numa_miss: value("numa_miss")?,
            numa_foreign: value("numa_foreign")?,
            interleave_hit: value("interleave_hit")?,
            local_node: value("local_node")?,
            other_node: value("other_node")?,
        })
    }

    /// The values, in the order of [`COUNTER_NAMES`].
    pub fn values(&self) -> [&T; 6] {
        [
            &self.numa_hit,
            &self.numa_miss,
            &self.numa_foreign,
            &self.interleave_hit,
            &self.local_node,
            &self.other_node,
        ]
    }
}

impl NodeCounters {
    /// Reads the text of a `numastat` file; names it does not know are left out.
    ///
    /// # Errors
    ///
    /// [`ParseError`] with the line, or with the name that is missing.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        Self::try_from_names(|name| {
            let line = text
                .lines()
                .find(|line| line.split_ascii_whitespace().next() == Some(name))
                .ok_or_else(|| ParseError::new("six counters from numa_hit on", text))?;
            let mut words = line.split_ascii_whitespace().skip(1);
            words
                .next()
                .and_then(|word| word.parse().ok())
                .filter(|_| words.next().is_none())
                .ok_or_else(|| ParseError::new("a counter, such as numa_hit 123", line))
        })
    }
}

/// What was counted between two readings, per second.
///
/// Unit: base pages per second. A counter that went backwards (the node was taken away and came
/// back, or counting was switched off) is absent.
#[must_use]
pub fn rates_between_counters(
    earlier: &NodeCounters,
    later: &NodeCounters,
    elapsed: Duration,
) -> Counters<Reading<f64>> {
    let [hit, miss, foreign, interleave, local, other] =
        std::array::from_fn(|i| rate(*earlier.values()[i], *later.values()[i], elapsed));
    Counters {
        numa_hit: hit,
        numa_miss: miss,
        numa_foreign: foreign,
        interleave_hit: interleave,
        local_node: local,
        other_node: other,
    }
}

fn rate(earlier: u64, later: u64, elapsed: Duration) -> Reading<f64> {
    if elapsed.is_zero() {
        return Reading::absent("no time passed between the two readings");
    }
    match later.checked_sub(earlier) {
        Some(counted) => {
            #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
            let counted = counted as f64;
            Reading::Known(counted / elapsed.as_secs_f64())
        }
        None => Reading::absent(format!("the counter went back from {earlier} to {later}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "numa_hit 6911852\nnuma_miss 5\nnuma_foreign 7\ninterleave_hit 1123\n\
                        local_node 6911850\nother_node 2\n";

    #[test]
    fn each_counter_is_found_by_its_name() {
        let counters = NodeCounters::parse(TEXT).unwrap();
        assert_eq!(
            counters.values(),
            [&6_911_852, &5, &7, &1123, &6_911_850, &2]
        );
    }

    #[test]
    fn what_is_missing_or_no_number_is_refused() {
        for text in [
            "",
            "numa_hit 1\n",
            &TEXT.replace("_miss 5", "_miss x"),
            "numa_hit\u{1b}[2J",
        ] {
            NodeCounters::parse(text).unwrap_err();
        }
    }

    #[test]
    fn a_rate_is_the_difference_over_the_time() {
        let earlier = NodeCounters {
            numa_hit: 100,
            numa_miss: 9,
            ..NodeCounters::default()
        };
        let later = NodeCounters {
            numa_hit: 150,
            numa_miss: 3,
            ..NodeCounters::default()
        };
        let rates = rates_between_counters(&earlier, &later, Duration::from_millis(500));
        assert_eq!(rates.numa_hit, Reading::Known(100.0));
        assert_eq!(
            rates.numa_miss.why(),
            Some("the counter went back from 9 to 3")
        );
        assert_eq!(rates.local_node, Reading::Known(0.0));
        let rates = rates_between_counters(&earlier, &later, Duration::ZERO);
        assert!(rates.numa_hit.why().is_some());
    }
}
