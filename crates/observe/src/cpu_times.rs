//! How busy each CPU is.

use std::collections::BTreeMap;

use homenode_host::{Buffer, Files};
use homenode_units::{CpuId, ID_LIMIT, Reading};

use crate::ParseError;

/// What each CPU did since boot.
///
/// Source: the lines `cpu<n>` of `/proc/stat`, `proc_stat(5)`; all users may read it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuTimes {
    by_cpu: BTreeMap<CpuId, Times>,
}

/// Unit: ticks of 10 ms (`USER_HZ`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Times {
    /// `idle` and `iowait`: time in which another program could have run.
    idle: u64,
    /// All states together.
    total: u64,
}

impl CpuTimes {
    /// Reads the text of `/proc/stat`. CPUs that are offline have no line.
    ///
    /// # Errors
    ///
    /// [`ParseError`] when a line of a CPU holds something else, or there is none.
    pub fn parse(text: &str) -> Result<Self, ParseError> {
        let mut by_cpu = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            let Some(number) = words.next().and_then(|word| word.strip_prefix("cpu")) else {
                continue;
            };
            // The sum of all CPUs comes first.
            if number.is_empty() {
                continue;
            }
            let (cpu, times) = parse_cpu(number, words)
                .ok_or_else(|| ParseError::new("times, such as cpu0 1 2 3 4", line))?;
            by_cpu.insert(cpu, times);
        }
        if by_cpu.is_empty() {
            return Err(ParseError::new("a line for each CPU", text));
        }
        Ok(Self { by_cpu })
    }

    /// The share of time for which each CPU was busy since `earlier`, from 0 to 1.
    ///
    /// A CPU of which no tick was counted is left out. The kernel counts in ticks of 10 ms, so
    /// over a short time the share of one CPU is rough and the sum over a node's is better.
    #[must_use]
    pub fn busy_since(&self, earlier: &Self) -> BTreeMap<CpuId, f64> {
        self.by_cpu
            .iter()
            .filter_map(|(&cpu, now)| {
                let before = earlier.by_cpu.get(&cpu)?;
                // `iowait` may run backwards (proc_stat(5)).
                let total = now.total.saturating_sub(before.total);
                let idle = now.idle.saturating_sub(before.idle);
                Some((cpu, share(total.saturating_sub(idle), total)?))
            })
            .collect()
    }

    /// The same since boot: a habit, not the moment.
    #[must_use]
    pub fn busy_since_boot(&self) -> BTreeMap<CpuId, f64> {
        let boot = Self {
            by_cpu: self
                .by_cpu
                .keys()
                .map(|&cpu| (cpu, Times::default()))
                .collect(),
        };
        self.busy_since(&boot)
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for a comparison")]
fn share(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// `user nice system idle iowait irq softirq steal guest guest_nice`; the last two are counted in
/// the first two already, and old kernels have fewer.
fn parse_cpu<'a>(number: &str, words: impl Iterator<Item = &'a str>) -> Option<(CpuId, Times)> {
    const STATES: usize = 8;
    let cpu = number.parse().ok().filter(|&cpu: &u32| cpu < ID_LIMIT)?;
    let states: Vec<u64> = words
        .take(STATES)
        .map(|word| word.parse().ok())
        .collect::<Option<_>>()?;
    let idle = states.get(3)?;
    let iowait = states.get(4).copied().unwrap_or_default();
    let total = states
        .iter()
        .fold(0u64, |sum, &state| sum.saturating_add(state));
    Some((
        CpuId(cpu),
        Times {
            idle: idle.saturating_add(iowait),
            total,
        },
    ))
}

/// Reads what each CPU did since boot.
pub fn read_cpu_times(files: &(impl Files + ?Sized)) -> Reading<CpuTimes> {
    let mut buffer = Buffer::new();
    let parsed = match files.read("/proc/stat", &mut buffer) {
        Ok(bytes) => CpuTimes::parse(&String::from_utf8_lossy(bytes)),
        Err(error) => return Reading::absent(error.reason()),
    };
    match parsed {
        Ok(times) => Reading::Known(times),
        Err(error) => Reading::absent(format!("/proc/stat: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use homenode_host::Snapshot;
    use proptest::prelude::*;

    use super::*;

    const BEFORE: &str = "\
cpu  300 0 0 700 0 0 0 0 0 0
cpu0 100 0 0 100 0 0 0 0 50 0
cpu2 0 0 0 100 100 0 0 0 0 0
cpu4 0 0 0 100 100 0 0 0 0 0
intr 5 6
";
    const AFTER: &str = "\
cpu  300 0 0 700 0 0 0 0 0 0
cpu0 104 0 1 105 0 0 0 0 50 0
cpu2 0 0 0 120 105 0 0 0 0 0
cpu4 0 0 0 120 95 0 0 0 0 0
cpu3 9 0 0 9 0 0 0 0 0 0
";

    fn times(text: &str) -> CpuTimes {
        CpuTimes::parse(text).unwrap()
    }

    #[test]
    fn busy_is_what_was_neither_idle_nor_waiting_for_a_disk() {
        let busy = times(AFTER).busy_since(&times(BEFORE));
        assert_eq!(
            busy,
            BTreeMap::from([(CpuId(0), 0.5), (CpuId(2), 0.0), (CpuId(4), 0.0)]),
            "CPU 3 came later"
        );
    }

    #[test]
    fn since_boot_guests_are_not_counted_twice() {
        let busy = times(BEFORE).busy_since_boot();
        assert_eq!(busy.get(&CpuId(0)), Some(&0.5));
        assert!(times(BEFORE).busy_since(&times(BEFORE)).is_empty());
    }

    #[test]
    fn other_texts_are_refused() {
        for text in [
            "",
            "cpu 1 2 3 4\n",
            "cpu0 1 2 3\n",
            "cpu0 a b c d\n",
            "cpux 1 2 3 4\n",
        ] {
            CpuTimes::parse(text).unwrap_err();
        }
    }

    #[test]
    fn a_machine_without_the_file_says_so() {
        let mut machine = Snapshot::default();
        assert_eq!(read_cpu_times(&machine).why(), Some("no /proc/stat"));
        machine.add_file("/proc/stat", BEFORE);
        assert_eq!(read_cpu_times(&machine).known(), Some(&times(BEFORE)));
        machine.add_file("/proc/stat", "cpu0 1\n");
        assert!(read_cpu_times(&machine).why().is_some());
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in "(cpu[0-9]{0,12}|[0-9]{1,21}|[ \\n]|\\PC){0,40}") {
            if let Ok(times) = CpuTimes::parse(&text) {
                for share in times.busy_since_boot().values() {
                    prop_assert!((0.0..=1.0).contains(share));
                }
            }
        }
    }
}
