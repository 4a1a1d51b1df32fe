//! Controllers and links under load: queueing, and latency that grows.
//!
//! Each line that travels occupies the resources on its way for a time. What follows from that is
//! worked out once per window of a few microseconds, from the traffic of the window before:
//!
//! * Latency grows with the use of the busiest resource on the way ([`LoadCurve`]): banks and buses
//!   are shared long before they are full. What it grows by is a multiple of the lowest idle
//!   latency through that resource, the same for all who use it. An idle latency is that of one
//!   line at a time, whose own use does not count.
//! * A full resource makes lines wait for their turn. With `n` lines in flight and one line served
//!   per `s`, a line needs `n * s` from asking to having, however it is spread (Little's law); what
//!   that exceeds the latency by is the wait, the same for all who ask. So nobody gets more than
//!   there is, and who keeps equally many lines in flight gets an equal share.
//!
//! Working by windows and not by single lines is what lets CPUs be emulated one after the other:
//! in which order they were does not matter.

use crate::machine::{LoadCurve, Machine, Path};

/// The traffic of a machine, and what it makes of latencies.
#[derive(Clone, Debug)]
pub struct Load {
    curve: LoadCurve,
    pairs: Vec<Pair>,
    resources: Vec<ResourceLoad>,
    window_start: u64,
}

/// A way from CPUs to memory: its path, its latencies now, and its traffic in this window.
#[derive(Clone, Debug)]
struct Pair {
    path: Option<Path>,
    read_ps: u64,
    write_ps: u64,
    fetched: u64,
    written_back: u64,
    /// The sum over fetched lines of the time from asking to having. Unit: picoseconds.
    in_flight_ps: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct ResourceLoad {
    line_ps: f64,
    /// The lowest idle latency through it. Unit: picoseconds.
    idle_ps: f64,
    /// The part of the headroom that is used, smoothed.
    used: f64,
    /// What a line waits for its turn, smoothed. Unit: picoseconds.
    wait_ps: f64,
    lines_total: u64,
    used_max: f64,
}

/// How much traffic decides about latencies. Unit: picoseconds.
const WINDOW_PS: u64 = 2_000_000;
/// The part of a window's use that goes into the smoothed one. The curve is steep where a resource
/// is nearly full: with a tenth or more, rate and latency would chase each other for ever.
const FRESH_USE: f64 = 0.05;
/// The same for the wait.
const FRESH_WAIT: f64 = 0.25;

impl Load {
    /// An idle machine.
    #[must_use]
    pub fn new(machine: &Machine) -> Self {
        let mut load = Self {
            curve: machine.load,
            pairs: machine.paths.iter().cloned().map(Pair::new).collect(),
            resources: machine
                .resources
                .iter()
                .zip(0..)
                .map(|(resource, position)| ResourceLoad {
                    line_ps: f64::from(resource.line_ps),
                    idle_ps: f64::from(idle_ps(machine, position)),
                    ..ResourceLoad::default()
                })
                .collect(),
            window_start: 0,
        };
        load.set_latencies();
        load
    }

    /// Begins at a time, with nothing under way.
    pub fn start_at(&mut self, time: u64) {
        self.window_start = time;
        for pair in &mut self.pairs {
            pair.fetched = 0;
            pair.written_back = 0;
            pair.in_flight_ps = 0;
        }
        for load in &mut self.resources {
            load.used = 0.0;
            load.wait_ps = 0.0;
        }
        self.set_latencies();
    }

    /// What a line takes now from asking to having; 0 where there is no path. Unit: picoseconds.
    #[must_use]
    pub fn latency(&self, pair: usize, store: bool) -> u64 {
        let pair = &self.pairs[pair];
        if store { pair.write_ps } else { pair.read_ps }
    }

    /// Counts a line that travelled to a CPU, and how long it took.
    pub fn fetched(&mut self, pair: usize, latency_ps: u64) {
        let pair = &mut self.pairs[pair];
        pair.fetched += 1;
        pair.in_flight_ps += latency_ps;
    }

    /// Counts a line that travelled back to memory. Nobody waits for it.
    pub fn wrote_back(&mut self, pair: usize) {
        self.pairs[pair].written_back += 1;
    }

    /// Says that time has come this far; works the latencies out anew when a window is over.
    pub fn pass(&mut self, now: u64) {
        let window = now.saturating_sub(self.window_start);
        if window >= WINDOW_PS {
            self.end_window(window);
            self.window_start = now;
        }
    }

    /// Lines through a resource, and the highest part of its headroom that was used, since the
    /// counters were set to zero.
    #[must_use]
    pub fn totals(&self, resource: usize) -> (u64, f64) {
        let load = &self.resources[resource];
        (load.lines_total, load.used_max)
    }

    /// Sets the counters to zero.
    pub fn reset_totals(&mut self) {
        for load in &mut self.resources {
            load.lines_total = 0;
            load.used_max = 0.0;
        }
    }

    fn end_window(&mut self, window: u64) {
        let window = float(window);
        let mut traffic = vec![Traffic::default(); self.resources.len()];
        for pair in &mut self.pairs {
            if let Some(path) = &pair.path {
                for &resource in &path.fetch {
                    let sum = &mut traffic[usize::from(resource)];
                    sum.lines += pair.fetched;
                    sum.fetched += pair.fetched;
                    sum.in_flight_ps += pair.in_flight_ps;
                }
                for &resource in &path.write_back {
                    traffic[usize::from(resource)].lines += pair.written_back;
                }
            }
            pair.fetched = 0;
            pair.written_back = 0;
            pair.in_flight_ps = 0;
        }
        for (load, traffic) in self.resources.iter_mut().zip(traffic) {
            load.pass(traffic, window, self.curve.headroom);
        }
        self.set_latencies();
    }

    fn set_latencies(&mut self) {
        for pair in &mut self.pairs {
            let Some(path) = &pair.path else {
                continue;
            };
            let on_the_way = || path.fetch.iter().map(|&r| &self.resources[usize::from(r)]);
            let growth = on_the_way()
                .map(|load| {
                    (growth(self.curve, load.used_by_others(self.curve)) - 1.0) * load.idle_ps
                })
                .fold(0.0, f64::max);
            let wait: f64 = on_the_way().map(|load| load.wait_ps).sum();
            pair.read_ps = whole(f64::from(path.read_ps) + growth + wait);
            pair.write_ps = whole(f64::from(path.write_ps) + growth + wait);
        }
    }
}

impl Pair {
    fn new(path: Option<Path>) -> Self {
        Self {
            path,
            read_ps: 0,
            write_ps: 0,
            fetched: 0,
            written_back: 0,
            in_flight_ps: 0,
        }
    }
}

/// What went through a resource in a window.
#[derive(Clone, Copy, Debug, Default)]
struct Traffic {
    lines: u64,
    fetched: u64,
    in_flight_ps: u64,
}

impl ResourceLoad {
    fn pass(&mut self, traffic: Traffic, window_ps: f64, headroom: f64) {
        let lines = float(traffic.lines);
        let used = lines * self.line_ps / window_ps / headroom;
        self.used += FRESH_USE * (used - self.used);
        self.used_max = self.used_max.max(self.used);
        self.lines_total += traffic.lines;
        let wait = if traffic.fetched == 0 {
            0.0
        } else {
            // Lines that go back take turns too, and delay those that are waited for.
            let fetched = float(traffic.fetched);
            let turn_ps = self.line_ps * lines / fetched;
            let in_flight_ps = float(traffic.in_flight_ps);
            let elsewhere_ps = in_flight_ps / fetched - self.wait_ps;
            (in_flight_ps / window_ps * turn_ps - elsewhere_ps).max(0.0)
        };
        self.wait_ps += FRESH_WAIT * (wait - self.wait_ps);
    }
}

impl ResourceLoad {
    /// The part in use beside the one line that every latency was measured with.
    fn used_by_others(&self, curve: LoadCurve) -> f64 {
        if self.idle_ps <= 0.0 {
            return self.used;
        }
        let one = (self.line_ps / self.idle_ps / curve.headroom).min(0.9);
        (self.used - one).max(0.0) / (1.0 - one)
    }
}

/// The lowest idle latency of a load through a resource.
fn idle_ps(machine: &Machine, resource: u16) -> u32 {
    let paths = machine.paths.iter().flatten();
    paths
        .filter(|path| path.fetch.contains(&resource))
        .map(|path| path.read_ps)
        .min()
        .unwrap_or(0)
}

/// How much longer a line takes at a use of the busiest resource on its way.
fn growth(curve: LoadCurve, used: f64) -> f64 {
    // Beyond its limit a resource makes lines wait, which is counted apart.
    let used = used.clamp(0.0, 0.999);
    (1.0 + curve.slope * used.powf(curve.power) / (1.0 - used)).min(curve.cap)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "counts and times of a window are far below 2^53"
)]
fn float(value: u64) -> f64 {
    value as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "latencies are positive and far below 2^53; the cast saturates"
)]
fn whole(value: f64) -> u64 {
    value.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_curve_is_the_one_of_the_reference() {
        // Fitted values of the Haswell curve: use = load / headroom.
        for (load, expected) in [(0.25, 1.05), (0.5, 1.13), (0.7, 1.28), (0.95, 2.10)] {
            let curve = LoadCurve::default();
            let growth = growth(curve, load / curve.headroom);
            assert!((growth - expected).abs() < 0.01, "{load}: {growth}");
        }
        assert!((growth(LoadCurve::default(), 5.0) - 3.0).abs() < 1e-9);
        assert!((growth(LoadCurve::default(), 0.0) - 1.0).abs() < 1e-9);
    }

    /// Closed loops: each of `flows` keeps so many lines of a pair in flight. Lines per
    /// microsecond of each in the end, and the latency each sees.
    fn settle(machine: &Machine, flows: &[(usize, u64)]) -> Vec<(f64, u64)> {
        let mut load = Load::new(machine);
        let mut now = 0;
        for _window in 0..400 {
            for &(pair, in_flight) in flows {
                let latency = load.latency(pair, false);
                for _line in 0..WINDOW_PS * in_flight / latency {
                    load.fetched(pair, latency);
                }
            }
            now += WINDOW_PS;
            load.pass(now);
        }
        flows
            .iter()
            .map(|&(pair, in_flight)| {
                let latency = load.latency(pair, false);
                (float(in_flight) / float(latency) * 1e6, latency)
            })
            .collect()
    }

    #[test]
    fn one_line_at_a_time_sees_the_idle_latency() {
        assert_eq!(settle(&Machine::example(), &[(0, 1)])[0].1 / 1_000, 80);
    }

    #[test]
    fn a_controller_gives_what_it_has() {
        // 1600 ps per line: 625 lines per microsecond.
        let machine = Machine::example();
        for in_flight in [100, 200, 1_000, 5_000] {
            let (rate, latency) = settle(&machine, &[(0, in_flight)])[0];
            assert!((520.0..=630.0).contains(&rate), "{in_flight}: {rate}");
            assert!(latency > 120_000, "{in_flight}: {latency}");
        }
    }

    #[test]
    fn two_nodes_share_a_controller() {
        let mut machine = Machine::example();
        machine.resources[3].line_ps = 1_600;
        let rates = settle(&machine, &[(0, 200), (2, 200)]);
        let sum = rates[0].0 + rates[1].0;
        assert!((560.0..=630.0).contains(&sum), "{rates:?}");
        for (rate, _) in &rates {
            assert!((rate / sum - 0.5).abs() < 0.125, "{rates:?}");
        }
    }

    #[test]
    fn a_link_limits_only_those_who_use_it() {
        // 3200 ps per line on the link: 312 lines per microsecond, half of a controller.
        let machine = Machine::example();
        let remote = settle(&machine, &[(2, 400)])[0].0;
        assert!((270.0..=315.0).contains(&remote), "{remote}");
        let both = settle(&machine, &[(0, 400), (2, 400)]);
        assert!(both[0].0 > 290.0, "{both:?}");
        assert!(both[1].0 < 315.0, "{both:?}");
        let local = settle(&machine, &[(0, 400)])[0].0;
        assert!(local > 560.0, "{local}");
    }

    #[test]
    fn lines_that_go_back_take_their_part() {
        let machine = Machine::example();
        let mut load = Load::new(&machine);
        let mut fetched = 0;
        for window in 1..400 {
            let latency = load.latency(0, true);
            fetched = WINDOW_PS * 400 / latency;
            for _line in 0..fetched {
                load.fetched(0, latency);
                load.wrote_back(0);
            }
            load.pass(window * WINDOW_PS);
        }
        // Half of 1250 lines per window.
        assert!((560..=630).contains(&fetched), "{fetched}");
    }

    #[test]
    fn load_passes_away() {
        let machine = Machine::example();
        let mut load = Load::new(&machine);
        for _line in 0..10_000 {
            load.fetched(0, 80_000);
        }
        load.pass(WINDOW_PS);
        assert!(load.latency(0, false) > 200_000);
        for window in 2..400 {
            load.pass(window * WINDOW_PS);
        }
        assert_eq!(load.latency(0, false), 80_000);
    }
}
