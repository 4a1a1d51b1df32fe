//! What could have influenced the numbers.

use homenode_host::{Buffer, Clock, Files};
use homenode_sys::kernels::add_chain;
use homenode_topology::Topology;
use serde::{Deserialize, Serialize};

/// What could have influenced the numbers; `None` is not known.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Conditions {
    /// Release of the kernel. Source: `/proc/sys/kernel/osrelease`.
    pub kernel: Option<String>,
    /// Whether the CPU reports a hypervisor: then other machines share the hardware, and where
    /// memory really is, only the host knows.
    pub hypervisor: Option<bool>,
    /// What chooses the clock of the CPUs. Source: `cpufreq/scaling_governor`.
    pub governor: Option<String>,
    /// `always`, `madvise` or `never`. Source: `/sys/kernel/mm/transparent_hugepage/enabled`.
    pub transparent_huge_pages: Option<String>,
    /// 0 off, 1 on, 2 tiering. Source: `/proc/sys/kernel/numa_balancing`.
    pub numa_balancing: Option<String>,
    /// The clock of a core before and after, from additions that wait for each other.
    ///
    /// Unit: cycles per second.
    pub core_hertz: Option<(f64, f64)>,
    /// CPUs that other programs kept busy meanwhile, on average. Source: `/proc/stat` less
    /// `/proc/self/stat`.
    pub other_busy_cpus: Option<f64>,
    /// The same in the busiest half second, and when that began: a load that came in the middle.
    ///
    /// Unit: CPUs, and seconds from the begin.
    pub other_busy_peak: Option<(f64, f64)>,
    /// CPUs that the hypervisor took away meanwhile, on average. Source: `steal` of `/proc/stat`.
    pub stolen_cpus: Option<f64>,
    /// How long it took. Unit: seconds.
    pub seconds: f64,
}

/// More than this, and other programs are named as a disturbance. Unit: CPUs.
const OTHER_BUSY_MAX: f64 = 0.1;
/// The same for its busiest half second.
const OTHER_PEAK_MAX: f64 = 0.5;
/// The same for the hypervisor.
const STOLEN_MAX: f64 = 0.02;

impl Conditions {
    /// What a reader should be warned of.
    #[must_use]
    pub fn disturbances(&self) -> Vec<String> {
        let mut found = Vec::new();
        let busy = self.other_busy_cpus.unwrap_or(0.0);
        let peak = self
            .other_busy_peak
            .filter(|&(peak, _)| peak > OTHER_PEAK_MAX && peak > 1.5 * busy);
        if busy > OTHER_BUSY_MAX || peak.is_some() {
            let when = peak.map_or_else(String::new, |(peak, at)| {
                format!(", {peak:.1} at most, {at:.1} s after the begin")
            });
            found.push(format!(
                "other programs kept {busy:.1} CPUs busy meanwhile{when}"
            ));
        }
        if let Some(stolen) = self.stolen_cpus.filter(|&stolen| stolen > STOLEN_MAX) {
            found.push(format!(
                "the hypervisor took {stolen:.2} CPUs away meanwhile"
            ));
        }
        if let Some((before, after)) = self.core_hertz
            && (before - after).abs() > 0.05 * before.max(after)
        {
            found.push(format!(
                "the clock of the cores changed from {:.2} to {:.2} GHz",
                before / 1e9,
                after / 1e9
            ));
        }
        found
    }
}

/// Watches from now on.
#[derive(Debug)]
pub(crate) struct Watch {
    begun: Conditions,
    before: Option<Ticks>,
    start: f64,
    /// When the current half second began, and the ticks then.
    window: (f64, Option<Ticks>),
    /// CPUs that others kept busy in the busiest one so far, and when it began.
    peak: Option<(f64, f64)>,
}

/// Shorter looks would see single ticks. Unit: seconds.
const WINDOW: f64 = 0.5;

/// Time of all CPUs and of ourselves. Unit: ticks of 10 ms (`USER_HZ`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Ticks {
    busy: u64,
    stolen: u64,
    own: u64,
}

const TICKS_PER_SECOND: f64 = 100.0;

impl Ticks {
    /// Seconds of CPUs that others used since then.
    fn others_since(self, before: Self) -> f64 {
        let own = self.own.saturating_sub(before.own);
        let busy = self.busy.saturating_sub(before.busy);
        tick_count(busy.saturating_sub(own)) / TICKS_PER_SECOND
    }
}

impl Watch {
    pub(crate) fn start(files: &dyn Files, clock: &dyn Clock, topology: &Topology) -> Self {
        let text = |path| {
            let mut buffer = Buffer::new();
            let text = files.read(path, &mut buffer).ok()?;
            Some(String::from_utf8_lossy(text).trim().to_owned())
        };
        let chosen = |text: String| {
            let (_, rest) = text.split_once('[')?;
            Some(rest.split_once(']')?.0.to_owned())
        };
        let begun = Conditions {
            kernel: text("/proc/sys/kernel/osrelease"),
            hypervisor: topology.processor.hypervisor.known().copied(),
            governor: text("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            transparent_huge_pages: text("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(chosen),
            numa_balancing: text("/proc/sys/kernel/numa_balancing"),
            core_hertz: core_hertz(clock).map(|hertz| (hertz, hertz)),
            ..Conditions::default()
        };
        let (before, start) = (ticks(files), clock.now().as_secs_f64());
        Self {
            begun,
            before,
            start,
            window: (start, before),
            peak: None,
        }
    }

    /// Looks at what others do, at most twice a second; to be called between samples.
    pub(crate) fn look(&mut self, files: &dyn Files, clock: &dyn Clock) {
        let now = clock.now().as_secs_f64();
        let (begin, before) = self.window;
        if now - begin < WINDOW {
            return;
        }
        let after = ticks(files);
        if let (Some(before), Some(after)) = (before, after) {
            let busy = after.others_since(before) / (now - begin);
            if self.peak.is_none_or(|(peak, _)| busy > peak) {
                self.peak = Some((busy, begin - self.start));
            }
        }
        self.window = (now, after);
    }

    pub(crate) fn end(&self, files: &dyn Files, clock: &dyn Clock) -> Conditions {
        let seconds = clock.now().as_secs_f64() - self.start;
        let mut conditions = Conditions {
            seconds,
            other_busy_peak: self.peak,
            ..self.begun.clone()
        };
        if let (Some((before, _)), Some(after)) = (conditions.core_hertz, core_hertz(clock)) {
            conditions.core_hertz = Some((before, after));
        }
        if let (Some(before), Some(after)) = (self.before, ticks(files))
            && seconds > 0.0
        {
            let stolen = after.stolen.saturating_sub(before.stolen);
            conditions.other_busy_cpus = Some(after.others_since(before) / seconds);
            conditions.stolen_cpus = Some(tick_count(stolen) / TICKS_PER_SECOND / seconds);
        }
        conditions
    }
}

#[expect(clippy::cast_precision_loss, reason = "ticks of one run")]
const fn tick_count(ticks: u64) -> f64 {
    ticks as f64
}

/// The clock of the core we are on: the best of a few short runs of additions, so that one
/// interruption does not slow it down.
fn core_hertz(clock: &dyn Clock) -> Option<f64> {
    const ADDITIONS: u64 = 1 << 19;
    let mut best: Option<f64> = None;
    for _run in 0..5 {
        let start = clock.now();
        let additions = add_chain(ADDITIONS);
        let seconds = (clock.now().saturating_sub(start)).as_secs_f64();
        if seconds > 0.0 {
            let hertz = tick_count(additions) / seconds;
            best = Some(best.map_or(hertz, |best| best.max(hertz)));
        }
    }
    best
}

fn ticks(files: &dyn Files) -> Option<Ticks> {
    let mut buffer = Buffer::new();
    let stat = String::from_utf8_lossy(files.read("/proc/stat", &mut buffer).ok()?).into_owned();
    let own =
        String::from_utf8_lossy(files.read("/proc/self/stat", &mut buffer).ok()?).into_owned();
    parse_ticks(&stat, &own)
}

/// Source: the line `cpu` of `/proc/stat` (user, nice, system, idle, iowait, irq, softirq, steal,
/// …) and fields 14 and 15 of `/proc/self/stat`, proc(5). A program's name may hold blanks, so
/// fields are counted from its closing bracket.
fn parse_ticks(stat: &str, own: &str) -> Option<Ticks> {
    let all = stat.lines().find_map(|line| line.strip_prefix("cpu "))?;
    let all: Vec<u64> = all
        .split_ascii_whitespace()
        .map_while(|word| word.parse().ok())
        .collect();
    let (_, own) = own.rsplit_once(')')?;
    let own: Vec<u64> = own
        .split_ascii_whitespace()
        .skip(11)
        .take(2)
        .map_while(|word| word.parse().ok())
        .collect();
    let [user, nice, system, _idle, _iowait, irq, softirq, stolen, ..] = all[..] else {
        return None;
    };
    let [own_user, own_system] = own[..] else {
        return None;
    };
    Some(Ticks {
        busy: user + nice + system + irq + softirq,
        stolen,
        own: own_user + own_system,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_read() {
        let stat = "cpu  100 10 20 5000 5 1 2 7 0 0\ncpu0 1 2 3\n";
        let own = "42 (a ) b) R 1 1 1 0 -1 0 0 0 0 0 30 12 0 0 20 0";
        let ticks = parse_ticks(stat, own).unwrap();
        assert_eq!(
            ticks,
            Ticks {
                busy: 133,
                stolen: 7,
                own: 42
            }
        );
        assert_eq!(parse_ticks("cpu 1 2\n", own), None);
        assert_eq!(parse_ticks(stat, "42"), None);
    }

    /// A program keeps a CPU busy for half a second in the middle of ten.
    #[test]
    fn a_load_that_comes_in_the_middle_is_noticed() {
        let clock = Steps::default();
        let machine = homenode_topology::parse_synthetic("pack:1 [numa(memory=1GB)] pu:1").unwrap();
        let at = |busy: u64| {
            let mut files = homenode_host::Snapshot::default();
            files.add_file("/proc/stat", format!("cpu  {busy} 0 0 0 0 0 0 0 0 0\n"));
            files.add_file(
                "/proc/self/stat",
                "1 (a) R 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0",
            );
            files
        };
        let mut watch = Watch::start(&at(0), &clock, &machine);
        let mut busy = 0;
        for look in 0..20 {
            clock.advance(0.5);
            busy += if look == 8 { 50 } else { 1 };
            watch.look(&at(busy), &clock);
        }
        let conditions = watch.end(&at(busy), &clock);
        let (peak, begin) = conditions.other_busy_peak.unwrap();
        assert!((peak - 1.0).abs() < 0.02, "{peak}");
        assert!((begin - 4.0).abs() < 0.1, "{begin}");
        assert!(conditions.other_busy_cpus.unwrap() < OTHER_BUSY_MAX);
        let named = conditions.disturbances().join("; ");
        assert!(
            named.contains("0.1 CPUs busy meanwhile, 1.0 at most, 4.0 s after the begin"),
            "{named}"
        );
    }

    /// Time passes by hand, and a little with each look.
    #[derive(Debug, Default)]
    struct Steps(std::sync::Mutex<f64>);

    impl Steps {
        fn advance(&self, seconds: f64) {
            *self.0.lock().unwrap() += seconds;
        }
    }

    impl Clock for Steps {
        fn now(&self) -> std::time::Duration {
            self.advance(1e-6);
            std::time::Duration::from_secs_f64(*self.0.lock().unwrap())
        }
        fn since_epoch(&self) -> std::time::Duration {
            std::time::Duration::ZERO
        }
        fn sleep(&self, _: std::time::Duration) {}
    }

    #[test]
    fn disturbances_are_named() {
        let quiet = Conditions {
            other_busy_cpus: Some(0.02),
            stolen_cpus: Some(0.0),
            core_hertz: Some((3.0e9, 2.95e9)),
            ..Conditions::default()
        };
        assert_eq!(quiet.disturbances(), Vec::<String>::new());
        let loud = Conditions {
            other_busy_cpus: Some(0.93),
            stolen_cpus: Some(0.05),
            core_hertz: Some((3.0e9, 2.0e9)),
            ..Conditions::default()
        };
        assert_eq!(
            loud.disturbances(),
            [
                "other programs kept 0.9 CPUs busy meanwhile",
                "the hypervisor took 0.05 CPUs away meanwhile",
                "the clock of the cores changed from 3.00 to 2.00 GHz",
            ]
        );
    }
}
