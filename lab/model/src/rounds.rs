//! How CPUs that are emulated one after the other come to run at the same time.
//!
//! Every CPU has a clock. A round starts at one time for all; each CPU then runs until its clock is
//! a slice further, and waits for the others. So no CPU is ever more than a slice (and the one
//! access that carried it over the slice's end) ahead of another that also runs: the skew of the
//! emulated machine. A CPU that halts or pauses has given its slice away, and goes on at the start
//! of the next round.

/// The clocks of all CPUs. Unit of every time: picoseconds.
#[derive(Clone, Debug)]
pub struct Rounds {
    clocks: Vec<u64>,
    state: Vec<State>,
    start: u64,
    slice: u64,
    current: Option<usize>,
    /// Whether the current CPU has used its slice up or given it away.
    over: bool,
    rounds: u64,
    /// The furthest that a clock went over the start of its round.
    skew_max: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Has not run in this round.
    Absent,
    /// Ran in this round, and could run on.
    Running,
    /// Gave its slice away.
    Yielded,
}

impl Rounds {
    /// `cpus` clocks at zero, and slices of `slice`.
    #[must_use]
    pub fn new(cpus: usize, slice: u64) -> Self {
        Self {
            clocks: vec![0; cpus],
            state: vec![State::Absent; cpus],
            start: 0,
            slice: slice.max(1),
            current: None,
            over: false,
            rounds: 0,
            skew_max: 0,
        }
    }

    /// Sets every clock.
    pub fn start_at(&mut self, time: u64) {
        self.clocks.fill(time);
        self.state.fill(State::Absent);
        self.start = time;
        self.current = None;
        self.over = false;
    }

    /// Says that `cpu` is about to run. True where a round has ended by that.
    #[inline]
    pub fn begin(&mut self, cpu: usize) -> bool {
        if self.current == Some(cpu) && !self.over {
            return false;
        }
        self.switch(cpu)
    }

    #[cold]
    fn switch(&mut self, cpu: usize) -> bool {
        // CPUs take turns in order: a number that does not rise begins a new round.
        let new_round = self.current.is_some_and(|current| cpu <= current);
        if new_round {
            self.end_round();
        }
        self.current = Some(cpu);
        self.over = false;
        self.state[cpu] = State::Running;
        self.clocks[cpu] = self.clocks[cpu].max(self.start);
        new_round
    }

    fn end_round(&mut self) {
        let clocks = || self.clocks.iter().zip(&self.state);
        let slowest = clocks()
            .filter(|(_, state)| **state == State::Running)
            .map(|(&clock, _)| clock)
            .min();
        let end = self.start + self.slice;
        self.start = slowest.unwrap_or(self.latest()).clamp(self.start, end);
        self.state.fill(State::Absent);
        self.rounds += 1;
    }

    /// Moves the current CPU's clock on. True where its slice is over, said once.
    #[inline]
    pub fn advance(&mut self, by: u64) -> bool {
        let Some(cpu) = self.current else {
            return false;
        };
        self.clocks[cpu] += by;
        if !self.over && self.clocks[cpu] >= self.start + self.slice {
            self.over = true;
            self.skew_max = self.skew_max.max(self.clocks[cpu] - self.start);
            return true;
        }
        false
    }

    /// Says that the current CPU halts or pauses.
    pub fn yields(&mut self) {
        if let Some(cpu) = self.current {
            self.state[cpu] = State::Yielded;
            self.over = true;
        }
    }

    /// The clock of the CPU that runs, or of the round before any has run.
    #[must_use]
    #[inline]
    pub fn now(&self) -> u64 {
        self.current.map_or(self.start, |cpu| self.clocks[cpu])
    }

    /// The furthest clock.
    #[must_use]
    pub fn latest(&self) -> u64 {
        self.clocks.iter().copied().max().unwrap_or(self.start)
    }

    /// When the current round began.
    #[must_use]
    pub fn round_start(&self) -> u64 {
        self.start
    }

    /// The furthest that one running CPU was ahead of another.
    #[must_use]
    pub fn skew_max(&self) -> u64 {
        self.skew_max
    }

    /// Rounds that have ended.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.rounds
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Runs a CPU in steps until its slice is over.
    fn run_slice(rounds: &mut Rounds, cpu: usize, step: u64) {
        rounds.begin(cpu);
        while !rounds.advance(step) {}
    }

    #[test]
    fn cpus_run_at_the_same_time() {
        let mut rounds = Rounds::new(3, 100);
        for _round in 0..10 {
            for cpu in 0..3 {
                run_slice(&mut rounds, cpu, 10);
            }
        }
        rounds.begin(0);
        // Thirty slices were run one after the other, and ten went by.
        assert_eq!(rounds.now(), 1_000);
        assert_eq!(rounds.count(), 10);
    }

    #[test]
    fn what_goes_over_the_slice_is_not_lost() {
        let mut rounds = Rounds::new(2, 100);
        // 250 in the first round: two more rounds pass before CPU 0 may do more than one step.
        rounds.begin(0);
        assert!(rounds.advance(250));
        run_slice(&mut rounds, 1, 10);
        rounds.begin(0);
        assert_eq!(rounds.round_start(), 100);
        assert_eq!(rounds.now(), 250);
        assert!(rounds.advance(1), "its slice is over at once");
        run_slice(&mut rounds, 1, 10);
        rounds.begin(0);
        assert_eq!(rounds.round_start(), 200);
        assert_eq!(rounds.now(), 251);
    }

    #[test]
    fn a_cpu_that_stopped_early_loses_no_time() {
        let mut rounds = Rounds::new(2, 100);
        rounds.begin(0);
        rounds.advance(30);
        run_slice(&mut rounds, 1, 10);
        rounds.begin(0);
        assert_eq!(rounds.now(), 30);
        assert_eq!(rounds.round_start(), 30);
    }

    #[test]
    fn a_cpu_that_halts_goes_on_with_the_others() {
        let mut rounds = Rounds::new(2, 100);
        rounds.begin(0);
        rounds.advance(30);
        rounds.yields();
        run_slice(&mut rounds, 1, 10);
        rounds.begin(0);
        assert_eq!(rounds.now(), 100);
        // All halt: time stands until something wakes one of them.
        rounds.yields();
        rounds.begin(1);
        rounds.advance(5);
        rounds.yields();
        rounds.begin(1);
        assert_eq!(rounds.now(), 105);
    }

    proptest! {
        /// Whatever CPUs do, none is left behind, none runs away, and no clock goes back.
        #[test]
        fn running_cpus_stay_together(
            steps in proptest::collection::vec((0usize..4, 1u64..60, 0u8..10), 1..400),
        ) {
            const SLICE: u64 = 100;
            let mut rounds = Rounds::new(4, SLICE);
            let mut last = [0; 4];
            let mut now = 0;
            for (cpu, step, dice) in steps {
                rounds.begin(cpu);
                prop_assert!(rounds.now() >= last[cpu]);
                prop_assert!(rounds.now() >= rounds.round_start());
                prop_assert!(rounds.round_start() >= now, "rounds never go back");
                now = rounds.round_start();
                while !rounds.advance(step) {
                    if dice == 0 {
                        rounds.yields();
                        break;
                    }
                }
                prop_assert!(rounds.now() < rounds.round_start().max(last[cpu]) + SLICE + step);
                last[cpu] = rounds.now();
            }
        }
    }
}
