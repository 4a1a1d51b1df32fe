//! How much moves at once, and how long it waits then.

use std::time::Duration;

use homenode_units::Bytes;

/// How fast memory may move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PaceOptions {
    /// How long the process may be held up at once: a call, by the number of its pieces.
    pub latency_budget: Duration,
    /// At most this much per second, on average over each batch and the gap behind it; as fast as
    /// budget and gaps allow where there is none.
    pub rate_per_second: Option<Bytes>,
}

impl Default for PaceOptions {
    fn default() -> Self {
        Self {
            latency_budget: Duration::from_millis(20),
            rate_per_second: None,
        }
    }
}

/// Fewer base pages per call cost more in calls than they save in stalls: 64 took three times as
/// long as 512, whose worst touch was no shorter (kernel.md, 7.4).
const BATCH_PAGES_MIN: u64 = 512;

/// Pieces bound the stalls (see `mover`), so a call may be long; an interrupt waits for its end, 9 ms
/// on shape 2n-move. Twice as much saves less than a tenth of the time.
const BATCH_MAX: Bytes = Bytes(8 << 20);

/// The gap behind a call is this part of it: for so long the process has the memory's bandwidth for
/// itself. Locks it gets within calls too, as the kernel takes them page by page, so a longer gap
/// makes no stall shorter and is only waited for: with 5 ms, 300 MiB took 1.95 times as long as under
/// migratepages, with this 1.34 times (shape 2n-move).
const GAP_PARTS: u32 = 8;
const GAP_MIN: Duration = Duration::from_millis(1);

/// The size of the next batch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace {
    options: PaceOptions,
    smallest: Bytes,
    largest: Bytes,
    batch: Bytes,
}

impl Pace {
    /// Starts with the smallest batch.
    pub(crate) fn new(options: PaceOptions, page_size: Bytes) -> Self {
        let smallest = Bytes(page_size.0.saturating_mul(BATCH_PAGES_MIN));
        Self {
            options,
            smallest,
            largest: BATCH_MAX.max(smallest),
            batch: smallest,
        }
    }

    /// How much to move next.
    pub(crate) fn batch(&self) -> Bytes {
        self.batch
    }

    /// Learns from a call and says how long to wait before the next one.
    ///
    /// A call holds the process up once for each of its pieces; its fixed cost, which is mostly
    /// waiting for other CPUs, is counted as part of them, so this is an upper bound.
    pub(crate) fn record(&mut self, tried: Bytes, took: Duration, pieces: usize) -> Duration {
        let budget = self.options.latency_budget;
        let held = took / u32::try_from(pieces.max(1)).unwrap_or(u32::MAX);
        if held > budget {
            self.batch = Bytes(self.batch.0 / 2).max(self.smallest);
        // A call with less in it than it might have had says nothing about larger ones.
        } else if held < budget / 2 && tried.0 >= self.batch.0 / 2 {
            self.batch = Bytes(self.batch.0.saturating_mul(2)).min(self.largest);
        }
        let least = (took / GAP_PARTS).max(GAP_MIN);
        match self.options.rate_per_second {
            None => least,
            Some(rate) => time_at(rate, tried).saturating_sub(took).max(least),
        }
    }
}

/// How long this much takes at this rate.
fn time_at(rate_per_second: Bytes, bytes: Bytes) -> Duration {
    let nanoseconds = u128::from(bytes.0) * 1_000_000_000 / u128::from(rate_per_second.0.max(1));
    Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: Bytes = Bytes(4096);

    /// Runs 100 calls on a machine that moves this much per millisecond; returns the last batch.
    fn settle(pace: &mut Pace, bytes_per_ms: u64) -> Bytes {
        for _ in 0..100 {
            let batch = pace.batch();
            pace.record(batch, Duration::from_millis(batch.0 / bytes_per_ms), 1);
        }
        pace.batch()
    }

    #[test]
    fn batches_settle_where_the_budget_is_kept() {
        let mut pace = Pace::new(PaceOptions::default(), PAGE);
        assert_eq!(pace.batch(), Bytes(2 << 20));
        assert_eq!(settle(&mut pace, 1 << 20), BATCH_MAX, "fast: the largest");
        // 4 MiB take 26 ms there, 2 MiB 13 ms, which the budget allows.
        assert_eq!(settle(&mut pace, (3 << 20) / 20), Bytes(2 << 20));
        assert_eq!(
            settle(&mut pace, 1 << 10),
            pace.smallest,
            "never below the floor"
        );
    }

    #[test]
    fn a_short_batch_does_not_make_the_next_one_larger() {
        let mut pace = Pace::new(PaceOptions::default(), PAGE);
        pace.record(Bytes(4096), Duration::from_micros(10), 1);
        assert_eq!(pace.batch(), pace.smallest);
    }

    #[test]
    fn large_base_pages_have_a_larger_floor() {
        let pace = Pace::new(PaceOptions::default(), Bytes(64 << 10));
        assert_eq!(pace.batch(), Bytes(32 << 20));
    }

    #[test]
    fn gaps_keep_the_rate() {
        let options = PaceOptions {
            rate_per_second: Some(Bytes(20 << 20)),
            ..PaceOptions::default()
        };
        let mut pace = Pace::new(options, PAGE);
        let gap = pace.record(Bytes(2 << 20), Duration::from_millis(30), 1);
        assert_eq!(gap, Duration::from_millis(70));
        let mut gap = |ms| pace.record(Bytes(2 << 20), Duration::from_millis(ms), 1);
        assert_eq!(gap(96), Duration::from_millis(12), "an eighth of the call");
        let mut free = Pace::new(PaceOptions::default(), PAGE);
        let gap = free.record(Bytes(2 << 20), Duration::from_millis(2), 1);
        assert_eq!(gap, GAP_MIN, "never without a gap");
        assert_eq!(
            time_at(Bytes(0), Bytes(u64::MAX)),
            Duration::from_nanos(u64::MAX)
        );
    }
}
