#![expect(
    clippy::cast_precision_loss,
    reason = "counts and times of a test are far below 2^53"
)]

use proptest::prelude::*;

use super::*;
use crate::LINE_BYTES;

const MIB_LINES: u64 = (1 << 20) / LINE_BYTES;

/// A machine on which CPUs take turns as QEMU makes them.
struct Bench {
    model: Model,
}

impl Bench {
    fn new(machine: Machine) -> Self {
        Self {
            model: Model::new(machine),
        }
    }

    /// One CPU accesses lines one by one; returns the time per access. Unit: picoseconds.
    fn alone(&mut self, cpu: usize, store: bool, lines: impl Iterator<Item = u64>) -> f64 {
        self.model.begin(cpu);
        let start = self.model.now();
        let mut count = 0;
        for line in lines {
            self.model.begin(cpu);
            self.model.execute(cpu, 1);
            self.access(cpu, line, store);
            count += 1;
        }
        (self.model.now() - start) as f64 / f64::from(count)
    }

    fn access(&mut self, cpu: usize, line: u64, store: bool) {
        self.model.access(
            cpu,
            Access {
                virtual_line: line,
                line,
                store,
            },
        );
    }

    /// Several CPUs read a stream each, from `starts`, for a while; returns lines per microsecond
    /// of each.
    fn together(&mut self, starts: &[(usize, u64)], until_us: u64) -> Vec<f64> {
        let mut lines = vec![0; starts.len()];
        let begin = {
            self.model.begin(starts[0].0);
            self.model.now()
        };
        while self.model.rounds.round_start() < begin + until_us * 1_000_000 {
            for (position, &(cpu, start)) in starts.iter().enumerate() {
                self.model.begin(cpu);
                loop {
                    let line = start + lines[position];
                    lines[position] += 1;
                    let over = self.model.execute(cpu, 1);
                    self.model.begin(cpu);
                    let access = Access {
                        virtual_line: line,
                        line,
                        store: false,
                    };
                    if over | self.model.access(cpu, access) {
                        break;
                    }
                }
            }
        }
        lines
            .iter()
            .map(|&lines| lines as f64 / until_us as f64)
            .collect()
    }
}

/// All lines of 16 MiB once, never two neighbours in a row, from `start`.
fn scattered(start: u64) -> impl Iterator<Item = u64> {
    let lines = 16 * MIB_LINES;
    (0..lines).map(move |i| start + i * 40_503 % lines)
}

fn near(value: f64, expected: f64, part: f64) -> bool {
    (value - expected).abs() <= expected * part
}

/// Node 1's first line in the example.
const NODE1: u64 = 256 * MIB_LINES;

#[test]
fn a_chase_costs_what_was_asked_for() {
    for (cpu, start, expected) in [
        (0, 0, 80_000.0),
        (0, NODE1, 136_000.0),
        (3, 0, 136_000.0),
        (3, NODE1, 80_000.0),
    ] {
        for store in [false, true] {
            let mut bench = Bench::new(Machine::example());
            let time = bench.alone(cpu, store, scattered(start));
            // Stores also send lines back, and so use more than a load does.
            let part = if store { 0.01 } else { 0.001 };
            assert!(near(time, expected, part), "{cpu} {start}: {time}");
        }
    }
}

#[test]
fn writes_may_cost_more_than_reads() {
    let mut machine = Machine::example();
    machine.paths[0].as_mut().unwrap().write_ps = 100_000;
    let mut bench = Bench::new(machine);
    let time = bench.alone(0, true, scattered(0));
    assert!(near(time, 100_000.0, 0.01), "{time}");
}

#[test]
fn what_fits_a_cache_costs_the_cache() {
    let mut bench = Bench::new(Machine::example());
    let half_mib = || (0..MIB_LINES / 2).map(|i| i * 4_051 % (MIB_LINES / 2));
    bench.alone(0, false, half_mib());
    let time = bench.alone(0, false, half_mib());
    assert!(near(time, 15_000.0, 0.01), "{time}");
    // 16 KiB fit the nearest cache, and cost the instruction.
    let nearest = || (0..256).map(|i| i * 131 % 256);
    bench.alone(0, false, nearest());
    let time = bench.alone(0, false, nearest());
    assert!(near(time, 250.0, 0.001), "{time}");
}

#[test]
fn a_stream_gets_what_is_in_flight_or_what_there_is() {
    // 64 lines per 80 ns would be 800 per microsecond; the controller has 625.
    let mut bench = Bench::new(Machine::example());
    let rate = bench.together(&[(0, 0)], 400)[0];
    assert!((500.0..630.0).contains(&rate), "{rate}");
    // 10 lines per 80 ns are 125.
    let mut machine = Machine::example();
    machine.cpus[0].lines_in_flight = 10;
    let rate = Bench::new(machine).together(&[(0, 0)], 400)[0];
    assert!(near(rate, 125.0, 0.05), "{rate}");
}

#[test]
fn all_cpus_of_a_node_get_the_controller_and_no_more() {
    let mut bench = Bench::new(Machine::example());
    let rates = bench.together(&[(0, 0), (1, 100 * MIB_LINES)], 400);
    let sum: f64 = rates.iter().sum();
    assert!(near(sum, 625.0, 0.1), "{rates:?}");
    assert!(near(rates[0], sum / 2.0, 0.05), "{rates:?}");
}

#[test]
fn remote_streams_share_the_link() {
    let mut bench = Bench::new(Machine::example());
    let rates = bench.together(&[(2, 0), (3, 100 * MIB_LINES)], 400);
    assert!(near(rates.iter().sum(), 312.5, 0.1), "{rates:?}");
}

#[test]
fn interleaved_memory_costs_the_average() {
    let mut machine = Machine::example();
    machine.interleave = vec![0, 1];
    for cpu in [0, 2] {
        let time = Bench::new(machine.clone()).alone(cpu, false, scattered(0));
        assert!(near(time, 108_000.0, 0.001), "{cpu}: {time}");
    }
}

#[test]
fn written_lines_go_back_to_their_node() {
    let mut bench = Bench::new(Machine::example());
    bench.alone(0, true, scattered(NODE1));
    let truth = bench.model.truth();
    let memory = truth.cpus[0].memory[1];
    assert_eq!(memory.stores, 16 * MIB_LINES);
    assert_eq!(memory.loads, 0);
    // All but what the caches still hold.
    let held = MIB_LINES + 512;
    assert!(memory.write_backs >= 16 * MIB_LINES - held, "{memory:?}");
    assert!(memory.write_backs < 16 * MIB_LINES, "{memory:?}");
    assert_eq!(truth.cpus[0].memory[0], NodeTruth::default());
    assert_eq!(truth.local_and_remote(), (0, 16 * MIB_LINES));
}

#[test]
fn counters_can_be_set_to_zero() {
    let mut bench = Bench::new(Machine::example());
    bench.alone(0, false, scattered(0));
    let before = bench.model.truth();
    assert_eq!(before.cpus[0].instructions, 16 * MIB_LINES);
    assert!(before.elapsed_ps > 0);
    bench.model.reset_truth();
    let after = bench.model.truth();
    assert_eq!(after.elapsed_ps, 0);
    assert_eq!(after.local_and_remote(), (0, 0));
    assert_eq!(after.cpus[0].instructions, 0);
}

#[test]
fn a_model_that_stood_still_goes_on_cold_and_idle() {
    let mut bench = Bench::new(Machine::example());
    let half_mib = || (0..MIB_LINES / 2).map(|i| i * 4_051 % (MIB_LINES / 2));
    bench.alone(0, false, half_mib());
    bench.together(&[(0, 0), (1, 100 * MIB_LINES)], 100);
    let before = bench.model.truth();
    bench.model.start_at(bench.model.latest() + 5_000_000_000);
    // The half MiB would cost a cache's latency, and loaded memory three times the idle one.
    let time = bench.alone(0, false, half_mib());
    assert!(near(time, 80_000.0, 0.01), "{time}");
    let after = bench.model.truth();
    assert_eq!(
        after.local_and_remote().0,
        before.local_and_remote().0 + MIB_LINES / 2
    );
    let counted = after.elapsed_ps - before.elapsed_ps;
    assert!(
        near(counted as f64, 80_000.0 * (MIB_LINES / 2) as f64, 0.01),
        "{counted}"
    );
}

#[test]
fn what_is_no_memory_costs_nothing() {
    let mut bench = Bench::new(Machine::example());
    let time = bench.alone(0, false, (0..1_000).map(|i| 4_096 * MIB_LINES + i * 97));
    assert!(near(time, 250.0, 0.001), "{time}");
}

#[test]
fn numbers_that_are_no_machine_are_refused() {
    let breakers: [fn(&mut Machine); 6] = [
        |machine| machine.cpus[1].node = 2,
        |machine| machine.cpus[1].caches[0] = 99,
        |machine| machine.paths[1] = None,
        |machine| machine.paths.truncate(3),
        |machine| machine.resources.truncate(1),
        |machine| machine.caches[0].sets = 0,
    ];
    for (position, breaker) in breakers.iter().enumerate() {
        let mut machine = Machine::example();
        breaker(&mut machine);
        assert!(Model::try_new(machine).is_err(), "{position}");
    }
}

#[test]
fn a_machine_survives_the_journey_to_the_plugin() {
    let machine = Machine::example();
    let text = serde_json::to_string(&machine).unwrap();
    assert_eq!(serde_json::from_str::<Machine>(&text).unwrap(), machine);
}

proptest! {
    /// Whatever is accessed: every access is counted once, and what takes time is never free.
    #[test]
    fn every_access_is_accounted_for(
        accesses in proptest::collection::vec((0usize..4, 0u64..4_000, any::<bool>()), 1..600),
    ) {
        let mut bench = Bench::new(Machine::example());
        let count = accesses.len() as u64;
        for (cpu, line, store) in accesses {
            // Half of the lines are node 1's.
            let line = if line % 2 == 0 { line } else { NODE1 + line };
            bench.model.begin(cpu);
            bench.model.execute(cpu, 1);
            let before = bench.model.now();
            let misses = bench.model.truth().local_and_remote();
            bench.access(cpu, line, store);
            let missed = bench.model.truth().local_and_remote() != misses;
            let took = bench.model.now() - before;
            prop_assert!(took <= 409_000, "at most three times 136 ns: {took}");
            prop_assert!(missed || took <= 15_000);
        }
        let truth = bench.model.truth();
        let hits: u64 = truth.cpus.iter().flat_map(|cpu| &cpu.hits).sum();
        let (local, remote) = truth.local_and_remote();
        prop_assert_eq!(hits + local + remote, count);
        let instructions: u64 = truth.cpus.iter().map(|cpu| cpu.instructions).sum();
        prop_assert_eq!(instructions, count);
    }
}
