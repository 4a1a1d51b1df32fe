//! Runs on a machine without hardware.

use std::cell::Cell;
use std::time::Duration;

use homenode_host::Sharing;
use homenode_units::{Bytes, NodeId, NodeSet, Reading};

use crate::fake::{Event, Fake, Kind, PID};
use crate::{
    ActError, Control, Ended, LeftReason, Outcome, PaceOptions, Plan, PlanError, Progress, Request,
    SkipReason, Spread, migrate, plan_migration,
};

#[derive(Default)]
struct Watch {
    steps: Cell<u32>,
    stop_after: Option<u32>,
    calls: Vec<(Bytes, Duration)>,
}

impl Control for Watch {
    fn is_interrupted(&self) -> bool {
        self.stop_after
            .is_some_and(|limit| self.steps.get() >= limit)
    }

    fn progress(&mut self, progress: &Progress<'_>) {
        self.steps.set(self.steps.get() + 1);
        assert!(progress.walked <= progress.span);
        self.calls.extend(progress.call);
    }
}

fn nodes(list: &str) -> NodeSet {
    NodeSet::parse_list(list).unwrap()
}

fn request(to: &str) -> Request {
    Request {
        pid: PID,
        to: nodes(to),
        from: None,
        sharing: Sharing::Leave,
        spread: Spread::Proportional,
    }
}

fn plan(fake: &Fake, to: &str) -> Plan {
    plan_migration(fake, &request(to)).unwrap()
}

fn run_with(fake: &Fake, plan: &Plan, pace: PaceOptions) -> Outcome {
    migrate(fake, plan, pace, &mut Watch::default()).unwrap()
}

fn run(fake: &Fake, to: &str) -> Outcome {
    run_with(fake, &plan(fake, to), PaceOptions::default())
}

fn pages(count: u64) -> Bytes {
    Bytes(count * 4096)
}

#[test]
fn everything_moves_and_keeps_its_contents() {
    let fake = Fake::new(10_000);
    let outcome = run(&fake, "1");
    assert!(outcome.is_complete(), "{outcome:?}");
    assert_eq!(outcome.tally.moved, pages(10_000));
    assert_eq!(outcome.tally.vanished, Bytes(0));
    assert_eq!(fake.count_on(1), 10_000);
    assert!(fake.is_intact());
    assert_eq!(
        fake.largest_flush.get(),
        32,
        "no more is out of reach at once"
    );
    let verified = outcome.verified.known().unwrap();
    assert!(
        (verified.share(NodeId(1)) - 1.0).abs() < 1e-9,
        "{verified:?}"
    );
    let batches = fake.batches.borrow();
    // The end of a walk leaves what is left; all others are as large as they may be.
    assert!(
        batches[..batches.len() - 1]
            .iter()
            .all(|&(_, _, size)| size >= 512)
    );
}

#[test]
fn a_plan_says_what_it_is_about_and_what_it_leaves_out() {
    let fake = Fake::new(10_000);
    let plan = plan(&fake, "1");
    assert_eq!(plan.from, nodes("0,2"));
    assert_eq!(plan.expected(), Some(pages(10_000)));
    let skipped: Vec<_> = plan
        .skipped
        .iter()
        .map(|skipped| (skipped.why, skipped.mappings, skipped.size))
        .collect();
    assert_eq!(
        skipped,
        [
            (SkipReason::OfKernel, 1, pages(2)),
            (SkipReason::Reserved, 1, pages(4))
        ]
    );
    assert_eq!(plan.span(), pages(10_000));
    assert_eq!(fake.calls.get(), 0, "a plan changes nothing");
}

#[test]
fn a_second_run_finds_all_in_place() {
    let fake = Fake::new(1000);
    run(&fake, "1");
    let calls = fake.calls.get();
    let outcome = run(&fake, "1");
    assert!(outcome.is_complete());
    assert_eq!(outcome.tally.already_there, pages(1000));
    assert_eq!(outcome.tally.moved, Bytes(0));
    assert_eq!(fake.calls.get(), calls);
}

#[test]
fn pinned_and_shared_pages_stay_and_are_counted() {
    let fake = Fake::new(3000);
    fake.mark([100, 700, 701, 2999], Kind::Pinned);
    fake.mark(200..210, Kind::Shared);
    fake.mark([300, 1500], Kind::Immovable);
    fake.mark([400], Kind::Fleeting);
    let outcome = run(&fake, "1");
    assert_eq!(outcome.ended, Ended::Done);
    assert!(!outcome.is_complete());
    let left = &outcome.tally.left;
    assert_eq!(left[&LeftReason::Busy], pages(4));
    assert_eq!(left[&LeftReason::Shared], pages(10));
    assert_eq!(left[&LeftReason::NotMovable], pages(2));
    assert_eq!(outcome.tally.vanished, pages(1));
    assert_eq!(outcome.tally.moved, pages(3000 - 17));
    assert_eq!(fake.count_on(0), 16);
}

#[test]
fn shared_pages_move_where_that_was_asked_for() {
    let fake = Fake::new(1000);
    fake.mark(0..1000, Kind::Shared);
    let mut request = request("1");
    request.sharing = Sharing::Move;
    let plan = plan_migration(&fake, &request).unwrap();
    assert!(run_with(&fake, &plan, PaceOptions::default()).is_complete());
}

#[test]
fn pages_that_are_busy_for_a_while_move_in_the_end() {
    let fake = Fake::new(2000);
    fake.mark((0..2000).step_by(7), Kind::Busy(2));
    let outcome = run(&fake, "1");
    assert!(outcome.is_complete(), "{outcome:?}");
    let fake = Fake::new(2000);
    fake.mark([5], Kind::Busy(3));
    assert_eq!(run(&fake, "1").tally.left[&LeftReason::Busy], pages(1));
}

#[test]
fn pinned_memory_costs_calls_in_proportion_to_batches_not_to_pages() {
    let fake = Fake::new(50_000);
    fake.mark(0..50_000, Kind::Pinned);
    let outcome = run(&fake, "1");
    assert_eq!(outcome.tally.left[&LeftReason::Busy], pages(50_000));
    assert!(outcome.tally.calls < 3 * 50_000 / 512 + 30, "{outcome:?}");
}

#[test]
fn a_full_target_ends_the_run_and_the_rest_is_counted() {
    let fake = Fake::new(20_000);
    // 16,384 pages are its margin: 1/64 of the node, as there is no zoneinfo.
    fake.free.borrow_mut()[1] = 16_384 + 5000;
    let outcome = run(&fake, "1");
    assert_eq!(
        outcome.ended,
        Ended::TargetsFull {
            targets: nodes("1")
        }
    );
    let moved = fake.count_on(1) as u64;
    assert!((3000..=5000).contains(&moved), "{moved}");
    assert_eq!(outcome.tally.moved, pages(moved));
    assert_eq!(
        outcome.tally.left[&LeftReason::NoRoom],
        pages(20_000 - moved)
    );
    assert!(fake.free.borrow()[1] >= 16_384, "the margin is kept");
    assert!(fake.is_intact());
}

#[test]
fn what_the_kernel_calls_full_is_full_whatever_the_files_say() {
    let mut fake = Fake::new(20_000);
    fake.free.borrow_mut()[1] = 5000;
    fake.pretended = 100_000;
    let outcome = run(&fake, "1");
    assert_eq!(
        outcome.ended,
        Ended::TargetsFull {
            targets: nodes("1")
        }
    );
    assert_eq!(outcome.tally.moved, pages(5000), "all that fits has moved");
    assert_eq!(outcome.tally.left[&LeftReason::NoRoom], pages(15_000));
    assert_eq!(fake.count_on(0), 15_000);
}

#[test]
fn a_second_target_takes_over_when_the_first_is_full() {
    let mut fake = Fake::new(20_000);
    fake.free.borrow_mut()[1] = 5000;
    // Enough that a third of all would go to node 1.
    fake.pretended = 300_000;
    let outcome = run(&fake, "1-2");
    assert!(outcome.is_complete(), "{outcome:?}");
    assert_eq!(fake.count_on(1), 5000);
    assert_eq!(fake.count_on(2), 15_000);
}

#[test]
fn several_targets_share_in_proportion_or_by_distance() {
    let fake = Fake::new(40_000);
    // Room of 1 : 3 beyond the margin.
    *fake.free.borrow_mut() = vec![0, 16_384 + 50_000, 16_384 + 150_000];
    assert!(run(&fake, "1-2").is_complete());
    let first = fake.count_on(1);
    assert!((9000..11_000).contains(&first), "{first}");

    let fake = Fake::new(40_000);
    let mut request = request("1-2");
    request.spread = Spread::Nearest;
    let plan = plan_migration(&fake, &request).unwrap();
    assert!(run_with(&fake, &plan, PaceOptions::default()).is_complete());
    assert_eq!(
        fake.count_on(2),
        40_000,
        "node 2 is at distance 20, node 1 at 30"
    );
}

#[test]
fn the_process_may_end_at_any_call() {
    for call in 1..6 {
        let mut fake = Fake::new(20_000);
        fake.events.insert(call, Event::ProcessEnds);
        let outcome = run(&fake, "1");
        assert_eq!(outcome.ended, Ended::ProcessEnded, "at call {call}");
        assert_eq!(outcome.verified, Reading::absent("the process has ended"));
        assert_eq!(fake.calls.get(), call, "nothing is called afterwards");
    }
}

#[test]
fn another_process_of_the_same_number_is_not_touched() {
    let mut fake = Fake::new(5000);
    let plan = plan(&fake, "1");
    fake.start_time.set(101);
    let error = migrate(&fake, &plan, PaceOptions::default(), &mut Watch::default()).unwrap_err();
    assert!(matches!(error, ActError::Replaced { .. }), "{error:?}");
    assert_eq!(fake.calls.get(), 0);

    fake.start_time.set(100);
    fake.events.insert(2, Event::ProcessIsReplaced);
    let error = migrate(&fake, &plan, PaceOptions::default(), &mut Watch::default()).unwrap_err();
    assert!(matches!(error, ActError::Replaced { .. }), "{error:?}");
    assert_eq!(fake.calls.get(), 2);
}

#[test]
fn an_interrupt_ends_the_run_after_the_call() {
    let fake = Fake::new(50_000);
    let plan = plan(&fake, "1");
    let mut watch = Watch {
        stop_after: Some(5),
        ..Watch::default()
    };
    let outcome = migrate(&fake, &plan, PaceOptions::default(), &mut watch).unwrap();
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert_eq!(watch.steps.get(), 5);
    assert_eq!(outcome.tally.moved, pages(fake.count_on(1) as u64));
    assert!(fake.count_on(0) > 0 && fake.is_intact());
}

#[test]
fn a_long_gap_can_be_interrupted() {
    struct StopAt<'a>(&'a Fake);
    impl Control for StopAt<'_> {
        fn is_interrupted(&self) -> bool {
            self.0.time.get() > Duration::from_secs(1)
        }
        fn progress(&mut self, _progress: &Progress<'_>) {}
    }
    let fake = Fake::new(5000);
    let plan = plan(&fake, "1");
    let pace = PaceOptions {
        rate_per_second: Some(Bytes(1000)),
        ..PaceOptions::default()
    };
    let outcome = migrate(&fake, &plan, pace, &mut StopAt(&fake)).unwrap();
    assert_eq!(outcome.ended, Ended::Interrupted);
    assert!(fake.time.get() < Duration::from_millis(1100));
}

#[test]
fn the_rate_is_kept() {
    let fake = Fake::new(50_000);
    let plan = plan(&fake, "1");
    let pace = PaceOptions {
        rate_per_second: Some(Bytes(40 << 20)),
        ..PaceOptions::default()
    };
    let outcome = run_with(&fake, &plan, pace);
    // 195 MiB at 40 MiB/s are 4.9 s.
    let seconds = outcome.elapsed.as_secs_f64();
    assert!((4.8..5.1).contains(&seconds), "{seconds}");
}

#[test]
fn calls_come_to_keep_the_budget() {
    let mut fake = Fake::new(100_000);
    // The 32 pages of a piece take 26 ms: too long, so batches stay at the smallest.
    fake.page_cost = Duration::from_micros(800);
    let plan = plan(&fake, "1");
    let mut watch = Watch::default();
    migrate(&fake, &plan, PaceOptions::default(), &mut watch).unwrap();
    let sizes: Vec<Bytes> = watch.calls.iter().map(|&(size, _)| size).collect();
    assert!(
        sizes.iter().all(|&size| size <= Bytes(2 << 20)),
        "{sizes:?}"
    );

    // On a fast machine batches grow to the largest.
    fake.page_cost = Duration::from_nanos(500);
    let mut watch = Watch::default();
    *fake.pages.borrow_mut() = Fake::new(100_000).pages.into_inner();
    migrate(&fake, &plan, PaceOptions::default(), &mut watch).unwrap();
    let largest = watch.calls.iter().map(|&(size, _)| size).max().unwrap();
    assert!(
        largest > Bytes(5 << 20) && largest <= Bytes(8 << 20),
        "{largest}"
    );
}

#[test]
fn nodes_that_cannot_be_targets_are_refused() {
    let fake = Fake::new(10);
    let refused = |to: &str, from: Option<&str>| {
        let mut request = request(to);
        request.from = from.map(nodes);
        plan_migration(&fake, &request).unwrap_err()
    };
    assert!(matches!(refused("", None), PlanError::NoTarget));
    assert!(matches!(refused("7", None), PlanError::UnknownNodes { .. }));
    assert!(matches!(
        refused("1", Some("9")),
        PlanError::UnknownNodes { .. }
    ));
    assert!(matches!(
        refused("1,3", None),
        PlanError::MemorylessNodes { .. }
    ));
    assert!(matches!(
        refused("1", Some("1")),
        PlanError::SameNodes { .. }
    ));
}

#[test]
fn processes_without_memory_of_their_own_are_refused() {
    let refused = |status: &str| {
        let mut fake = Fake::new(10);
        fake.files.add_file("/proc/812/status", status);
        plan_migration(&fake, &request("1")).unwrap_err()
    };
    let ids = "Uid:\t0\t0\t0\t0\nThreads:\t1\n";
    let error = refused(&format!(
        "Name:\tkworker\nState:\tI (idle)\nTgid:\t812\n{ids}"
    ));
    assert!(matches!(error, PlanError::KernelThread { .. }), "{error:?}");
    let error = refused(&format!("Name:\tx\nState:\tZ (zombie)\nTgid:\t812\n{ids}"));
    assert!(matches!(error, PlanError::Zombie { .. }), "{error:?}");
    let error = refused(&format!("Name:\tx\nTgid:\t800\nVmRSS:\t4 kB\n{ids}"));
    assert!(matches!(error, PlanError::Thread { .. }), "{error:?}");
    let error = refused(&format!(
        "Name:\tx\nTgid:\t812\nVmRSS:\t4 kB\nMems_allowed_list:\t0\n{ids}"
    ));
    assert!(
        matches!(error, PlanError::NodesNotAllowed { .. }),
        "{error:?}"
    );
    let fake = Fake::new(10);
    fake.alive.set(false);
    let error = plan_migration(&fake, &request("1")).unwrap_err();
    assert!(matches!(error, PlanError::NoProcess { .. }), "{error:?}");
}

#[test]
fn explicit_huge_pages_move_whole_or_are_left_out() {
    let start = 1usize << 30;
    let end = start + 4 * (2 << 20);
    let mut fake = Fake::new(0);
    let status = "Name:\tvm\nTgid:\t812\nUid:\t5\t5\t5\t5\nThreads:\t1\nVmRSS:\t0 kB\nHugetlbPages:\t8192 kB\n";
    fake.files.add_file("/proc/812/status", status);
    let line = format!("{start:x}-{end:x} rw-s 00000000 00:0f 5 /dev/hugepages/vm\n");
    fake.files.add_file("/proc/812/maps", line.clone());
    fake.files.add_file(
        "/proc/812/smaps",
        format!("{line}KernelPageSize: 2048 kB\nVmFlags: rd wr ht\n"),
    );
    let skipped = plan(&fake, "1").skipped;
    assert_eq!(skipped[0].why, SkipReason::NoHugePages);

    let free = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB/free_hugepages";
    fake.files.add_file(free, "3\n");
    fake.pretended = 1 << 19;
    fake.free.borrow_mut()[1] = 3;
    for number in 0..4 {
        let page = crate::fake::FakePage {
            node: NodeId(0),
            kind: Kind::Plain,
            content: number,
        };
        fake.pages
            .borrow_mut()
            .insert(start + number * (2 << 20), page);
    }
    let outcome = run(&fake, "1");
    assert_eq!(outcome.tally.moved, Bytes(6 << 20), "{outcome:?}");
    assert_eq!(outcome.tally.left[&LeftReason::NoRoom], Bytes(2 << 20));
}
