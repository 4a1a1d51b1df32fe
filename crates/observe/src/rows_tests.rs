use super::*;
use crate::{Placed, PlacedOn, Workload};

const GIB: u64 = 1 << 30;

fn process(pid: u32, home: &str, memory: u64, shares: &[(u32, f64)]) -> ProcessSample {
    ProcessSample {
        id: ProcessId {
            pid: Pid(pid),
            started: 7,
        },
        parent: Pid(1),
        name: format!("p{pid}"),
        user: "u".to_owned(),
        workload: Workload {
            kind: Kind::Process,
            name: format!("p{pid}"),
            cgroup: String::new(),
        },
        vm: None,
        threads: 2,
        read_at: Duration::ZERO,
        ticks: 0,
        ticks_on: Vec::new(),
        home: NodeSet::parse_list(home).unwrap(),
        migrations: 0,
        nodes_allowed: NodeSet::parse_list("0-3").unwrap(),
        memory: Bytes(memory),
        placed: Reading::Known(Placed {
            asked_at: Duration::from_secs(9),
            nodes: shares
                .iter()
                .map(|&(node, share)| PlacedOn {
                    node: NodeId(node),
                    share,
                    guest: None,
                })
                .collect(),
            bound: 0.03,
            samples: Some(1024),
        }),
        access: Reading::absent("off"),
    }
}

fn observation(seconds: u64, mut processes: Vec<ProcessSample>) -> Observation {
    for process in &mut processes {
        process.read_at = Duration::from_secs(seconds);
    }
    Observation {
        taken_at: Duration::from_secs(seconds),
        since_epoch: Duration::from_secs(seconds),
        nodes: Vec::new(),
        pressure: Reading::absent("x"),
        processes,
        groups: Vec::new(),
        unreadable: 0,
        took: Duration::ZERO,
    }
}

fn in_group(mut process: ProcessSample, kind: Kind, cgroup: &str) -> ProcessSample {
    process.workload = Workload {
        kind,
        name: "w".to_owned(),
        cgroup: cgroup.to_owned(),
    };
    process
}

fn share(reading: &Reading<f64>) -> f64 {
    *reading.known().unwrap()
}

#[test]
fn t10_locality_is_local_of_local_and_remote() {
    let at = |processes| rows(None, &observation(10, processes), View::Processes);
    let row = &at(vec![process(7, "1", 4 * GIB, &[(0, 0.25), (1, 0.75)])])[0];
    assert_eq!(row.local, Reading::Known(Bytes(3 * GIB)));
    assert_eq!(row.remote, Reading::Known(Bytes(GIB)));
    assert!((share(&row.locality) - 0.75).abs() < 1e-9);
    assert_eq!(row.age, Duration::from_secs(1));
    // 100 % when nothing is remote.
    let row = &at(vec![process(7, "0-1", GIB, &[(0, 0.5), (1, 0.5)])])[0];
    assert_eq!(row.remote, Reading::Known(Bytes(0)));
    assert!((share(&row.locality) - 1.0).abs() < 1e-9);
    // No memory, no percentage.
    let row = &at(vec![process(7, "0", 0, &[(0, 1.0)])])[0];
    assert_eq!(row.locality.why(), Some("it has no memory"));
    assert!(row.local.known().is_none() && row.remote.known().is_none());
}

#[test]
fn cpu_use_and_migrations_are_of_the_time_between() {
    let mut before = process(7, "0", GIB, &[(0, 1.0)]);
    before.ticks = 1000;
    before.ticks_on = vec![(NodeId(0), 1000)];
    before.migrations = 3;
    let mut after = process(7, "1", GIB, &[(0, 1.0)]);
    after.ticks = 1500;
    after.ticks_on = vec![(NodeId(0), 1100), (NodeId(1), 400)];
    after.migrations = 4;
    let earlier = observation(10, vec![before]);
    let later = observation(12, vec![after.clone()]);
    let row = &rows(Some(&earlier), &later, View::Processes)[0];
    assert!((share(&row.cpu) - 2.5).abs() < 1e-9);
    assert_eq!((row.migrations, row.migrations_total), (1, 4));
    assert_eq!(row.cpu_on, [(NodeId(0), 0.2), (NodeId(1), 0.8)]);
    assert!(share(&row.locality) < 1e-9, "it ran away from its memory");
    // Looked at after a longer time, the same ticks are less.
    let mut later = later;
    later.processes[0].read_at = Duration::from_secs(20);
    let row = &rows(Some(&earlier), &later, View::Processes)[0];
    assert!((share(&row.cpu) - 0.5).abs() < 1e-9);
    // The same number with another start is somebody else.
    after.id.started = 8;
    let later = observation(12, vec![after]);
    let row = &rows(Some(&earlier), &later, View::Processes)[0];
    assert_eq!(row.cpu.why(), Some("it was not there before"));
    assert_eq!(row.migrations, 0);
}

#[test]
fn a_workload_is_judged_process_by_process() {
    // Two processes, each with its memory on the node of the other.
    let group = "/docker/x";
    let crossed = vec![
        in_group(
            process(7, "0", GIB, &[(0, 0.0), (1, 1.0)]),
            Kind::Container,
            group,
        ),
        in_group(
            process(8, "1", GIB, &[(0, 1.0), (1, 0.0)]),
            Kind::Container,
            group,
        ),
        process(9, "0", GIB, &[(0, 1.0)]),
    ];
    let mut observation = observation(10, crossed);
    let found = rows(None, &observation, View::Containers);
    let [row] = &found[..] else {
        panic!("{found:?}")
    };
    assert_eq!((row.processes, row.threads), (2, 4));
    assert_eq!(row.home.to_string(), "0-1");
    assert!(
        share(&row.locality) < 1e-9,
        "by group it would be all local"
    );
    assert_eq!(row.memory, Bytes(2 * GIB));
    assert_eq!(row.name, "w");
    // Where the group counts, shared memory is counted once.
    observation.groups.push(crate::GroupSample {
        path: group.to_owned(),
        nodes: Reading::Known(vec![(NodeId(0), Bytes(GIB / 2)), (NodeId(1), Bytes(GIB))]),
    });
    let row = &rows(None, &observation, View::Containers)[0];
    assert_eq!(row.memory, Bytes(3 * GIB / 2));
    assert_eq!(row.nodes[0].memory, Bytes(GIB / 2));
    assert_eq!(rows(None, &observation, View::Workloads).len(), 2);
    assert!(rows(None, &observation, View::Vms).is_empty());
}

#[test]
fn guest_and_overhead_add_up() {
    let mut vm = process(7, "0", 4 * GIB, &[(0, 0.75), (1, 0.25)]);
    vm.workload.kind = Kind::Vm;
    if let Reading::Known(placed) = &mut vm.placed {
        placed.nodes[0].guest = Some(0.5);
        placed.nodes[1].guest = Some(0.25);
    }
    let row = &rows(None, &observation(10, vec![vm]), View::Vms)[0];
    assert_eq!(row.nodes[0].guest, Some(Bytes(2 * GIB)));
    assert_eq!(row.nodes[0].overhead(), Some(Bytes(GIB)));
    assert_eq!(row.nodes[1].overhead(), Some(Bytes(0)));
}

#[test]
fn a_tree_is_a_child_of_the_first_process_with_all_below() {
    let mut processes: Vec<_> = [1, 5, 6, 7, 8]
        .map(|pid| process(pid, "0", GIB, &[(0, 1.0)]))
        .into();
    for (index, parent) in [(2, 5), (3, 6), (4, 99)] {
        processes[index].parent = Pid(parent);
    }
    let found = rows(None, &observation(10, processes.clone()), View::Trees);
    let counts: Vec<_> = found
        .iter()
        .map(|row| (row.id.pid.0, row.processes))
        .collect();
    assert_eq!(counts, [(5, 3), (1, 1), (8, 1)]);
    // Numbers given again can make a circle of what was read.
    processes[1].parent = Pid(7);
    let found = rows(None, &observation(10, processes), View::Trees);
    assert_eq!(found.iter().map(|row| row.processes).sum::<usize>(), 5);
}

#[test]
fn the_home_is_where_most_of_the_cpu_time_went() {
    let recent = |shares: &[(u32, f64)]| shares.iter().map(|&(n, s)| (NodeId(n), s)).collect();
    let none = NodeSet::new();
    let home = |shares, present: &NodeSet| home_of(&recent(shares), present).to_string();
    assert_eq!(home(&[(0, 90.0), (1, 10.0)], &none), "0");
    assert_eq!(home(&[(0, 50.0), (1, 45.0), (2, 5.0)], &none), "0-1");
    assert_eq!(home(&[], &none), "");
    let one = NodeSet::parse_list("1").unwrap();
    assert_eq!(home(&[(0, 15.0), (1, 85.0)], &one), "1");
    assert_eq!(home(&[(0, 70.0), (1, 30.0)], &one), "0-1");
    assert_eq!(home(&[(0, 99.0), (1, 1.0)], &one), "0");
    let both = NodeSet::parse_list("0-1").unwrap();
    assert_eq!(home(&[(0, 95.0), (1, 5.0)], &both), "0");
}

#[test]
fn what_could_not_be_located_is_no_zero() {
    let mut hidden = process(7, "0", GIB, &[]);
    hidden.placed = Reading::absent("needs ptrace permission");
    let row = &rows(None, &observation(10, vec![hidden]), View::Processes)[0];
    assert_eq!(row.locality.why(), Some("needs ptrace permission"));
    assert!(row.nodes.is_empty());
    assert_eq!(row.memory, Bytes(GIB));
}
