use homenode_units::Bytes;

use super::*;
use crate::fake::Machine;
use crate::{View, rows};

impl Machine {
    fn watcher(&self, options: WatchOptions) -> Watcher {
        let cpus = |list| CpuSet::parse_list(list).unwrap();
        Watcher::new(
            vec![(NodeId(0), cpus("0-1")), (NodeId(1), cpus("2-3"))],
            options,
        )
    }
}

fn home(observation: &Observation) -> String {
    observation.processes[0].home.to_string()
}

#[test]
fn a_process_that_goes_to_its_memory_becomes_local() {
    let mut machine = Machine::new();
    machine.process(7, "pg", [50, 400, 1, 0]);
    let mut watcher = machine.watcher(WatchOptions::default());
    let first = watcher.observe(&machine).unwrap();
    assert_eq!(home(&first), "0");
    assert_eq!(first.processes[0].user, "db");
    let row = &rows(None, &first, View::Processes)[0];
    assert_eq!(row.remote, Reading::Known(Bytes(10 << 20)));
    machine.sleep(Duration::from_secs(60));
    machine.process(7, "pg", [50, 1400, 1, 3]);
    let second = watcher.observe(&machine).unwrap();
    assert_eq!(home(&second), "1");
    let row = &rows(Some(&first), &second, View::Processes)[0];
    assert_eq!(row.migrations, 1);
    assert_eq!(row.remote, Reading::Known(Bytes(0)));
    assert!((row.cpu.known().unwrap() - 10.0 / 60.0).abs() < 0.01);
}

#[test]
fn a_number_given_again_is_a_new_process() {
    let mut machine = Machine::new();
    machine.process(7, "old", [50, 400, 1, 0]);
    let mut watcher = machine.watcher(WatchOptions::default());
    let first = watcher.observe(&machine).unwrap();
    machine.sleep(Duration::from_secs(2));
    machine.process(7, "new", [90, 1, 1, 3]);
    let second = watcher.observe(&machine).unwrap();
    assert_eq!(second.processes.len(), 1);
    let process = &second.processes[0];
    assert_eq!((process.name.as_str(), process.id.started), ("new", 90));
    assert_eq!(home(&second), "1", "nothing of the old one's past");
    assert_eq!(process.migrations, 0);
    let row = &rows(Some(&first), &second, View::Processes)[0];
    assert_eq!(row.cpu.why(), Some("it was not there before"));
}

#[test]
fn a_number_given_again_while_it_is_asked_about_tells_nothing_of_either() {
    let mut machine = Machine::new();
    machine.process(7, "new", [90, 1, 1, 3]);
    let later = machine.files.clone();
    machine.process(7, "old", [50, 400, 1, 0]);
    machine.later = Some(later);
    let mut watcher = machine.watcher(WatchOptions::default());
    let first = watcher.observe(&machine).unwrap();
    assert!(machine.asked.get() > 0);
    let process = &first.processes[0];
    assert_eq!((process.name.as_str(), process.id.started), ("old", 50));
    assert_eq!(process.placed.why(), Some("not asked yet"));
    let second = watcher.observe(&machine).unwrap();
    let process = &second.processes[0];
    assert_eq!((process.name.as_str(), process.id.started), ("new", 90));
    assert!(process.placed.known().is_some());
}

#[test]
fn threads_tell_where_a_process_runs() {
    let mut machine = Machine::new();
    machine.process(7, "wide", [50, 400, 3, 0]);
    for (tid, ticks, cpu) in [(7, 10, 0), (8, 290, 2), (9, 100, 1)] {
        machine.task(
            &format!("/proc/7/task/{tid}"),
            tid,
            "t",
            [50, ticks, 3, cpu],
        );
    }
    let first = machine
        .watcher(WatchOptions::default())
        .observe(&machine)
        .unwrap();
    assert_eq!(home(&first), "0-1");
    assert_eq!(
        first.processes[0].ticks_on,
        [(NodeId(0), 110), (NodeId(1), 290)]
    );
}

#[test]
fn page_queries_are_spread_over_rounds_and_all_get_their_turn() {
    let mut machine = Machine::new();
    for pid in 100..200 {
        machine.process(pid, "p", [50, 1, 1, 0]);
    }
    let mut watcher = machine.watcher(WatchOptions {
        first_budget: Duration::from_millis(10),
        locate_budget: Duration::from_millis(10),
        ..WatchOptions::default()
    });
    let located = |observation: &Observation| {
        let known = observation.processes.iter();
        known
            .filter(|process| process.placed.known().is_some())
            .count()
    };
    let first = watcher.observe(&machine).unwrap();
    assert_eq!(located(&first), machine.asked.get() as usize);
    assert!(
        (5..20).contains(&machine.asked.get()),
        "{}",
        machine.asked.get()
    );
    let why = first
        .processes
        .iter()
        .find_map(|process| process.placed.why());
    assert_eq!(why, Some("not asked yet"));
    let mut last = first;
    for _round in 0..30 {
        let before = machine.asked.get();
        machine.sleep(Duration::from_secs(2));
        last = watcher.observe(&machine).unwrap();
        assert!(machine.asked.get() - before < 20);
    }
    assert_eq!(located(&last), 100);
}

#[test]
fn an_idle_process_is_looked_at_seldom_and_wakes_up() {
    let mut machine = Machine::new();
    machine.process(7, "pg", [50, 400, 1, 0]);
    let mut watcher = machine.watcher(WatchOptions::default());
    for _round in 0..8 {
        watcher.observe(&machine).unwrap();
        machine.sleep(Duration::from_secs(2));
    }
    assert_eq!(watcher.idle.len(), 1);
    machine.process(7, "pg", [50, 900, 1, 0]);
    let ticks = [(); 3].map(|()| watcher.observe(&machine).unwrap().processes[0].ticks);
    assert_eq!(ticks[2], 900, "{ticks:?}");
    assert!(watcher.idle.is_empty());
    // What ended is gone at once, idle or not.
    for _round in 0..8 {
        watcher.observe(&machine).unwrap();
    }
    machine.files = Machine::new().files;
    machine.files.add_folder("/proc");
    assert!(watcher.observe(&machine).unwrap().processes.is_empty());
    assert!(watcher.idle.is_empty());
}

#[test]
fn a_node_that_goes_offline_is_left_out() {
    let mut machine = Machine::new();
    machine.process(7, "pg", [50, 400, 1, 0]);
    let mut watcher = machine.watcher(WatchOptions::default());
    assert_eq!(watcher.observe(&machine).unwrap().nodes.len(), 2);
    machine
        .files
        .add_file("/sys/devices/system/node/online", "1\n");
    let mut last = None;
    for _round in 0..9 {
        last = Some(watcher.observe(&machine).unwrap());
    }
    let nodes = last.unwrap().nodes;
    assert_eq!(nodes.len(), 1);
    assert_eq!(nodes[0].node, NodeId(1));
}

#[test]
fn kernel_threads_and_what_ended_are_left_out() {
    let mut machine = Machine::new();
    machine.process(7, "pg", [50, 1, 1, 0]);
    machine.files.add_file(
        "/proc/2/stat",
        "2 (kthreadd) S 0 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0 1 1 1 0 0 0 0 0 0 0 0 0 0 17 0 0 0",
    );
    machine.files.add_folder("/proc/9");
    machine.files.add_file("/proc/11/stat", "11 (odd");
    let mut watcher = machine.watcher(WatchOptions::default());
    let first = watcher.observe(&machine).unwrap();
    assert_eq!(first.processes.len(), 1);
    assert_eq!(first.unreadable, 1);
    assert_eq!(watcher.kernel.len(), 1);
}

#[test]
fn what_came_and_went_leaves_nothing_behind() {
    let mut machine = Machine::new();
    let mut watcher = machine.watcher(WatchOptions::default());
    let mut kept = |round: u32| {
        machine.files = Machine::new().files;
        for pid in [3, 4, 5].map(|pid| 10 * round + pid) {
            machine.process(pid, "brief", [u64::from(round), 1, 1, 0]);
            let group = format!("0::/system.slice/{pid}.service\n");
            machine
                .files
                .add_file(&format!("/proc/{pid}/cgroup"), group);
        }
        let worker = 10 * round + 7;
        machine.files.add_file(
            &format!("/proc/{worker}/stat"),
            format!(
                "{worker} (kworker) S 2 0 0 0 -1 2129984 0 0 0 0 0 0 0 0 20 0 1 0 2 0 0 1 1 1 0 0 \
                 0 0 0 0 0 0 0 0 17 0 0 0"
            ),
        );
        machine.sleep(Duration::from_secs(2));
        let observed = watcher.observe(&machine).unwrap();
        assert_eq!(observed.processes.len(), 3);
        [
            watcher.known.len(),
            watcher.idle.len(),
            watcher.groups.len(),
            watcher.kernel.len(),
        ]
    };
    let early = (0..50).map(&mut kept).last().unwrap();
    let late = (50..500).map(&mut kept).last().unwrap();
    assert_eq!(early, late);
}

#[test]
fn on_one_node_nothing_is_asked() {
    let mut machine = Machine::new();
    machine.process(7, "pg", [50, 1, 1, 0]);
    machine
        .files
        .add_file("/sys/devices/system/node/online", "0\n");
    let mut watcher = machine.watcher(WatchOptions::default());
    let first = watcher.observe(&machine).unwrap();
    assert_eq!(machine.asked.get(), 0);
    assert_eq!(first.processes[0].placed.known().unwrap().nodes.len(), 1);
}

#[test]
fn an_observation_can_be_stored() {
    let mut machine = Machine::new();
    machine.process(7, "a b\u{1b}", [50, 1, 1, 0]);
    let first = machine
        .watcher(WatchOptions::default())
        .observe(&machine)
        .unwrap();
    let text = serde_json::to_string(&first).unwrap();
    assert_eq!(serde_json::from_str::<Observation>(&text).unwrap(), first);
}
