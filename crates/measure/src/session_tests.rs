use std::cell::Cell as StdCell;

use homenode_host::Live;
use homenode_topology::parse_synthetic;

use super::*;

/// Time passes only by sleeping, and by one microsecond for each look.
#[derive(Debug, Default)]
struct FakeClock(std::sync::Mutex<Duration>);

impl Clock for FakeClock {
    fn now(&self) -> Duration {
        let mut now = self.0.lock().unwrap();
        *now += Duration::from_micros(1);
        *now
    }
    fn since_epoch(&self) -> Duration {
        Duration::from_secs(1_000_000)
    }
    fn sleep(&self, time: Duration) {
        *self.0.lock().unwrap() += time;
    }
}

/// Stops after this many looks.
struct Patience {
    looks: StdCell<u32>,
    told: Vec<String>,
}

impl Patience {
    fn of(looks: u32) -> Self {
        Self {
            looks: StdCell::new(looks),
            told: Vec::new(),
        }
    }
}

impl Control for Patience {
    fn is_interrupted(&self) -> bool {
        self.looks.set(self.looks.get().saturating_sub(1));
        self.looks.get() == 0
    }
    fn progress(&mut self, progress: &Progress<'_>) {
        self.told.push(progress.step.to_owned());
    }
}

/// Gives values in turn; each takes a block.
struct Fake {
    values: Vec<f64>,
    next: usize,
    block: Duration,
    disturbed_every: usize,
    placed: Result<(), String>,
}

impl Fake {
    fn new(values: &[f64]) -> Self {
        Self {
            values: values.to_vec(),
            next: 0,
            block: Duration::ZERO,
            disturbed_every: usize::MAX,
            placed: Ok(()),
        }
    }
}

impl Subject for Fake {
    fn calibrate(&mut self, _: &(dyn Clock + Sync), block: Duration) -> Result<(), String> {
        self.block = block;
        Ok(())
    }
    fn sample(&mut self, clock: &(dyn Clock + Sync)) -> Result<Sample, String> {
        clock.sleep(self.block);
        self.next += 1;
        Ok(Sample {
            value: self.values[self.next % self.values.len()],
            disturbed: self.next.is_multiple_of(self.disturbed_every),
        })
    }
    fn verify(&self, _: &dyn Files) -> Result<(), String> {
        self.placed.clone()
    }
}

/// Runs subjects for a second of made-up time.
fn sampled(subjects: &mut [Fake], patience: u32) -> (Vec<Outcome>, Document, Duration) {
    let machine = parse_synthetic("pack:2 [numa(memory=16GB)] l3:1 core:2 pu:1").unwrap();
    let clock = FakeClock::default();
    let mut control = Patience::of(patience);
    let rule = StopRule {
        budget: Duration::from_secs(1),
        ..StopRule::default()
    };
    let sites = Sites::of(&machine);
    let mut session = Session::new(&machine, sites, &Live, &clock, rule, &mut control).unwrap();
    let outcomes = session.sample("test", subjects);
    let document = session.finish(Vec::new());
    assert!(control.told.iter().all(|step| step == "test"));
    (outcomes, document, clock.now())
}

#[test]
fn quiet_cells_end_early_and_loud_ones_take_the_time_there_is() {
    let mut quiet = [Fake::new(&[100.0, 100.1, 99.9])];
    let (outcomes, document, time) = sampled(&mut quiet, u32::MAX);
    let estimate = outcomes[0].measured().unwrap();
    assert!(estimate.converged && !document.interrupted);
    assert!((99.9..=100.1).contains(&estimate.median));
    assert!(time < Duration::from_millis(500), "{time:?}");
    let mut loud = [Fake::new(&[100.0, 150.0, 60.0, 90.0]), Fake::new(&[1.0])];
    let (outcomes, _, time) = sampled(&mut loud, u32::MAX);
    assert!(!outcomes[0].measured().unwrap().converged);
    assert!(outcomes[1].measured().unwrap().converged);
    assert!(time >= Duration::from_secs(1), "{time:?}");
}

/// A drift while sampling meets all cells: they are sampled in turn.
#[test]
fn cells_are_sampled_in_turn() {
    let mut pair = [Fake::new(&[1.0, 2.0, 3.0]), Fake::new(&[1.0, 2.0, 3.0])];
    let (outcomes, ..) = sampled(&mut pair, 60);
    let counts: Vec<usize> = outcomes
        .iter()
        .map(|outcome| outcome.measured().unwrap().samples.len())
        .collect();
    assert!(counts[0].abs_diff(counts[1]) <= 1, "{counts:?}");
}

#[test]
fn what_was_interrupted_shows_what_there_is() {
    let mut cells: Vec<Fake> = (0..5).map(|_| Fake::new(&[7.0])).collect();
    // Two of the five have had their first sample.
    let (outcomes, document, _) = sampled(&mut cells, 3);
    assert!(document.interrupted);
    assert!(outcomes[0].measured().is_some());
    assert!(matches!(&outcomes[4], Outcome::Absent { absent } if absent.contains("no time")));
}

#[test]
fn disturbed_samples_are_dropped_and_counted() {
    let mut cells = [Fake::new(&[10.0])];
    cells[0].disturbed_every = 4;
    let (outcomes, ..) = sampled(&mut cells, u32::MAX);
    let estimate = outcomes[0].measured().unwrap();
    assert!(estimate.dropped > 0);
    // Where all are, that is what the machine is like.
    cells[0].disturbed_every = 1;
    let (outcomes, ..) = sampled(&mut cells, u32::MAX);
    assert!(outcomes[0].measured().unwrap().samples.len() >= SAMPLES_MIN);
}

#[test]
fn memory_that_moved_away_refuses_its_cell() {
    let mut cells = [Fake::new(&[10.0]), Fake::new(&[10.0])];
    cells[1].placed = Err("found 60.0 % on node 1".to_owned());
    let (outcomes, ..) = sampled(&mut cells, u32::MAX);
    assert!(outcomes[0].measured().is_some());
    assert_eq!(outcomes[1], Outcome::absent("found 60.0 % on node 1"));
}

#[test]
fn runs_are_merged_and_a_refusal_stays() {
    let machine = parse_synthetic("pack:1 [numa(memory=1GB)] core:1 pu:1").unwrap();
    let clock = FakeClock::default();
    let mut control = Patience::of(u32::MAX);
    let rule = StopRule::default();
    let sites = Sites::of(&machine);
    let session = Session::new(&machine, sites, &Live, &clock, rule, &mut control).unwrap();
    let run = |values: [Outcome; 3]| -> Vec<Cell> {
        let make = |outcome| Cell {
            test: crate::Test::Latency,
            metric: crate::Metric::Latency,
            from: NodeSet::first(1),
            to: NodeSet::first(1),
            arrangement: crate::Arrangement::Pair,
            threads: 1,
            kernel: "whole".to_owned(),
            pages: crate::Pages::Base,
            size: Bytes(1 << 20),
            at: None,
            bus_factor: None,
            outcome,
        };
        values.map(make).to_vec()
    };
    let measured = |value: f64| Outcome::Measured(Estimate::of(vec![value; 10], 0.01, 1).unwrap());
    let merged = session.merged(&[
        run([measured(100.0), measured(1.0), measured(1.0)]),
        run([
            measured(110.0),
            Outcome::absent("moved away"),
            Outcome::absent(NO_TIME),
        ]),
    ]);
    let first = merged[0].outcome.measured().unwrap();
    assert_eq!((first.samples.len(), first.dropped), (20, 2));
    assert!(
        first.low <= 100.0 && first.high >= 110.0 && !first.converged,
        "{first:?}"
    );
    assert_eq!(merged[1].outcome, Outcome::absent("moved away"));
    assert_eq!(merged[2].outcome.measured().unwrap().samples.len(), 10);
    assert_eq!(session.merged(&[]), []);
}

#[test]
fn a_document_survives_its_json() {
    let mut cells = [Fake::new(&[10.0])];
    let (outcomes, mut document, _) = sampled(&mut cells, u32::MAX);
    document.cells = vec![Cell {
        test: crate::Test::Latency,
        metric: crate::Metric::Latency,
        from: NodeSet::first(1),
        to: NodeSet::first(2),
        arrangement: crate::Arrangement::Pair,
        threads: 1,
        kernel: "whole".to_owned(),
        pages: crate::Pages::Thp,
        size: Bytes(1 << 20),
        at: Some(3.5),
        bus_factor: Some((1.0, 2.0)),
        outcome: outcomes[0].clone(),
    }];
    let mut refused = document.cells[0].clone();
    refused.outcome = Outcome::absent("why");
    refused.kernel = "other".to_owned();
    document.cells.push(refused);
    let json = document.to_json();
    assert_eq!(Document::parse(json.as_bytes()).unwrap(), document);
    let other = json.replace(SCHEMA, "homenode.topology/1");
    assert!(matches!(
        Document::parse(other.as_bytes()),
        Err(crate::DocumentError::Schema { .. })
    ));
    Document::parse(b"{").unwrap_err();
    let kept = document.by_test();
    assert_eq!(kept.len(), 1);
    assert_eq!(kept[0].0, crate::Test::Latency);
    assert_eq!(kept[0].1.cells.len(), 2);
    assert!(
        kept[0].1.cells[0]
            .outcome
            .measured()
            .unwrap()
            .samples
            .is_empty()
    );
    for test in crate::Test::ALL {
        assert_eq!(serde_json::to_value(test).unwrap(), test.name());
    }
    let changes = crate::diff(&document, &document.clone());
    assert_eq!(changes.len(), 1);
    assert_eq!(changes[0].judgement, crate::Judgement::Same);
}

#[test]
fn a_machine_without_usable_memory_is_refused() {
    let machine = parse_synthetic("pack:1 [numa(memory=1GB)] core:1 pu:1").unwrap();
    let mut sites = Sites::of(&machine);
    sites.columns.clear();
    let mut control = Patience::of(u32::MAX);
    let clock = FakeClock::default();
    let refused = Session::new(
        &machine,
        sites,
        &Live,
        &clock,
        StopRule::default(),
        &mut control,
    );
    assert!(matches!(
        refused,
        Err(MeasureError::Nothing { what: "memory" })
    ));
}
