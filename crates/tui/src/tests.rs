use std::time::Duration;

use homenode_observe::{
    Kind, NodeCounters, NodeSample, Observation, Placed, PlacedOn, ProcessId, ProcessMaps,
    ProcessSample, ThreadSample, View, Workload, parse_meminfo,
};
use homenode_units::{Bytes, NodeId, NodeSet, Pid, Reading};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::crossterm::event::{KeyCode, KeyEvent};
use ratatui::style::{Color, Modifier};

use crate::{Action, App, Settings, draw};

const GIB: u64 = 1 << 30;

fn process(pid: u32, name: &str, memory: u64, home: u32, shares: [f64; 2]) -> ProcessSample {
    ProcessSample {
        id: ProcessId {
            pid: Pid(pid),
            started: 7,
        },
        parent: Pid(1),
        name: name.to_owned(),
        user: if pid < 900 { "root" } else { "postgres" }.to_owned(),
        workload: Workload {
            kind: Kind::Process,
            name: name.to_owned(),
            cgroup: String::new(),
        },
        vm: None,
        threads: 4,
        read_at: Duration::ZERO,
        ticks: 100 * u64::from(pid),
        ticks_on: vec![(NodeId(home), 100 * u64::from(pid))],
        home: [NodeId(home)].into_iter().collect(),
        migrations: u64::from(pid % 3),
        nodes_allowed: NodeSet::parse_list("0-1").unwrap(),
        memory: Bytes(memory),
        placed: Reading::Known(Placed {
            asked_at: Duration::from_secs(9),
            nodes: [0, 1]
                .map(|node| PlacedOn {
                    node: NodeId(node),
                    share: shares[node as usize],
                    guest: (pid == 42).then_some(shares[node as usize] * 0.9),
                })
                .to_vec(),
            bound: 0.03,
            samples: Some(1024),
        }),
        access: Reading::absent("automatic balancing is off"),
    }
}

fn observation(seconds: u64) -> Observation {
    let node = |node: u32| NodeSample {
        node: NodeId(node),
        memory: Reading::Known(
            parse_meminfo(&format!(
                "MemTotal: {} kB\nMemFree: {} kB\n",
                32 << 20,
                13 << 20
            ))
            .unwrap(),
        ),
        counters: Reading::Known(NodeCounters {
            numa_hit: seconds * 1000,
            numa_miss: seconds * 5,
            ..NodeCounters::default()
        }),
    };
    let mut vm = process(42, "qemu-system-x86", 8 * GIB, 1, [0.25, 0.75]);
    vm.workload.kind = Kind::Vm;
    vm.workload.name = "web".to_owned();
    vm.vm = homenode_observe::Vm::of_command(&["kvm".to_owned()]);
    let grouped = |pid, name: &str| {
        let mut process = process(pid, name, GIB, 0, [1.0, 0.0]);
        process.workload = Workload {
            kind: Kind::Unit,
            name: "shop.service".to_owned(),
            cgroup: "/system.slice/shop.service".to_owned(),
        };
        process
    };
    let mut hidden = process(77, "secret", GIB / 4, 0, [0.0, 0.0]);
    hidden.placed = Reading::absent("needs ptrace permission");
    let mut processes = vec![
        process(7, "a\u{1b}[2J\nb 大", GIB / 2, 0, [1.0, 0.0]),
        vm,
        hidden,
        grouped(100, "shop"),
        grouped(101, "shop-worker"),
        process(901, "postgres", 16 * GIB, 0, [0.9, 0.1]),
    ];
    for process in &mut processes {
        process.ticks += seconds * 50;
        process.read_at = Duration::from_secs(seconds);
    }
    Observation {
        taken_at: Duration::from_secs(seconds),
        since_epoch: Duration::from_secs(1_785_585_600 + seconds),
        nodes: vec![node(0), node(1)],
        pressure: Reading::Known(0.02),
        processes,
        groups: Vec::new(),
        unreadable: 1,
        took: Duration::ZERO,
    }
}

fn app() -> App {
    let title = "homenode top".to_owned();
    let mut app = App::new(Settings::default(), View::Workloads, title);
    app.take(observation(10));
    app.take(observation(12));
    app
}

fn screen(app: &App, width: u16, height: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
    terminal.draw(|frame| draw(frame, app, false)).unwrap();
    terminal.backend().to_string()
}

fn press(app: &mut App, keys: &str) {
    for char in keys.chars() {
        let code = match char {
            '\n' => KeyCode::Enter,
            '↓' => KeyCode::Down,
            '⎋' => KeyCode::Esc,
            char => KeyCode::Char(char),
        };
        app.press(KeyEvent::from(code));
    }
}

fn names(app: &App) -> Vec<&str> {
    app.rows.iter().map(|row| row.name.as_str()).collect()
}

#[test]
fn the_screen_on_80_by_24() {
    insta::assert_snapshot!(screen(&app(), 80, 24));
}

#[test]
fn the_screen_on_160_by_50_with_fields_and_threads() {
    let mut app = app();
    // All of the NUMA statistics, then the threads of the virtual machine.
    press(&mut app, "G↓VT");
    let thread = |tid: u32, name: &str| ThreadSample {
        id: ProcessId {
            pid: Pid(tid),
            started: 7,
        },
        name: name.to_owned(),
        vcpu: homenode_observe::vcpu_of_thread(name),
        ticks: u64::from(tid),
        node: Some(NodeId(1)),
        nodes_allowed: NodeSet::parse_list("0-1").unwrap(),
    };
    let threads = vec![thread(42, "qemu-system-x86"), thread(43, "CPU 0/KVM")];
    app.take_detail(Err("x".to_owned()), Ok(threads), Duration::from_secs(1));
    insta::assert_snapshot!(screen(&app, 160, 50));
}

#[test]
fn the_mappings_of_a_process() {
    let mut app = app();
    press(&mut app, "\n");
    let row = app.wants_detail().unwrap();
    let maps = ProcessMaps {
        id: row.id,
        name: row.name.clone(),
        memory: row.memory,
        exact: false,
        bound: 0.01,
        home_by_memory: Reading::Known(NodeId(1)),
        runs_on: NodeSet::new(),
        mappings: Vec::new(),
        not_resident: Bytes(0),
    };
    app.take_detail(Ok(maps), Ok(Vec::new()), Duration::from_secs(1));
    insta::assert_snapshot!(screen(&app, 80, 24));
}

#[test]
fn help_and_fields_lie_over_the_table() {
    let mut app = app();
    press(&mut app, "h");
    insta::assert_snapshot!("help", screen(&app, 80, 24));
    press(&mut app, "xf");
    insta::assert_snapshot!("fields", screen(&app, 80, 24));
}

#[test]
fn views_show_what_they_name() {
    let mut app = app();
    assert_eq!(names(&app).len(), 5);
    press(&mut app, "V");
    assert_eq!(names(&app), ["web"]);
    press(&mut app, "V");
    assert_eq!(names(&app).len(), 5);
    press(&mut app, "p");
    assert_eq!(names(&app).len(), 6);
    press(&mut app, "C");
    assert!(names(&app).is_empty());
    assert!(screen(&app, 80, 24).contains("nothing of this kind"));
}

#[test]
fn sorts_filters_and_expands() {
    let mut app = app();
    assert_eq!(names(&app)[..2], ["web", "postgres"], "most remote first");
    press(&mut app, "M");
    assert_eq!(names(&app)[..2], ["postgres", "web"]);
    press(&mut app, "/user=postgres\n");
    assert_eq!(names(&app), ["postgres"]);
    assert!(screen(&app, 80, 24).contains("1 workloads of 5"));
    press(&mut app, "/");
    for _ in 0..13 {
        app.press(KeyEvent::from(KeyCode::Backspace));
    }
    press(&mut app, "shop\n");
    assert_eq!(names(&app), ["shop.service"]);
    press(&mut app, "e");
    assert_eq!(names(&app), ["shop.service", "└ shop", "└ shop-worker"]);
}

#[test]
fn bad_answers_are_said_and_change_nothing() {
    let mut app = app();
    press(&mut app, "s0\n");
    assert!(screen(&app, 80, 24).contains("expected 0.2 to 3600 seconds"));
    assert_eq!(app.interval(), Duration::from_secs(2));
    press(&mut app, "s5\n");
    assert_eq!(app.interval(), Duration::from_secs(5));
    press(&mut app, "L0\n");
    assert!(screen(&app, 80, 24).contains("expected a width"));
}

#[test]
fn the_selected_row_stays_selected_when_the_order_changes() {
    let mut app = app();
    press(&mut app, "↓");
    let selected = app.selected_row().unwrap().name.clone();
    press(&mut app, "M");
    assert_eq!(app.selected_row().unwrap().name, selected);
    let mut next = observation(14);
    next.processes.retain(|process| process.name != selected);
    app.take(next);
    assert!(app.selected_row().is_some(), "it is gone; another one is");
}

#[test]
fn settings_are_kept() {
    let mut app = app();
    assert_eq!(app.press(KeyEvent::from(KeyCode::Char('W'))), Action::Write);
    press(&mut app, "s7\nM");
    let text = app.settings().to_text();
    assert_eq!(Settings::from_text(&text).as_ref(), Some(app.settings()));
    for text in ["", "x", "{\"fields\":[]}", "{\"fields\":[\"nope\"]}"] {
        assert!(Settings::from_text(text).is_none(), "{text}");
    }
}

#[test]
fn history_grows_with_a_row_and_goes_with_it() {
    let mut app = app();
    for second in 0..200 {
        app.take(observation(14 + second));
    }
    assert!(app.history.values().all(|points| points.len() == 120));
    let mut next = observation(300);
    next.processes.truncate(1);
    app.take(next);
    assert_eq!(app.history.len(), 1);
}

#[test]
fn any_size_and_any_key_can_be_drawn() {
    let mut app = app();
    for keys in ["", "h", "xf", "\n/x", "\n\nV\n", "T", "⎋C"] {
        press(&mut app, keys);
        for (width, height) in [(1, 1), (10, 3), (80, 5), (500, 200)] {
            screen(&app, width, height);
        }
    }
    let empty = App::new(Settings::default(), View::Vms, "x".to_owned());
    screen(&empty, 80, 24);
}

#[test]
fn what_is_remote_is_bold_and_red_only_with_colours() {
    let app = app();
    for colour in [true, false] {
        let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
        terminal.draw(|frame| draw(frame, &app, colour)).unwrap();
        let cells = terminal.backend().buffer().content();
        let bad = cells
            .iter()
            .filter(|cell| cell.modifier.contains(Modifier::BOLD));
        assert!(bad.count() > 0);
        assert_eq!(cells.iter().any(|cell| cell.fg == Color::Red), colour);
        // A light terminal swallows these.
        for cell in cells {
            assert!(!matches!(
                cell.fg,
                Color::White | Color::Yellow | Color::Cyan
            ));
        }
    }
}
