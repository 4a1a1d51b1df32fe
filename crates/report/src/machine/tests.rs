use std::time::Duration;

use homenode_host::{Clock, Live};
use homenode_units::Pid;

use super::fixture::{one_node, report, two_nodes};
use super::*;

#[test]
fn a_machine_with_two_nodes_on_80_columns() {
    let text = report_text(&report(two_nodes()), 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    insta::assert_snapshot!(text);
}

#[test]
fn a_machine_with_one_node_on_80_columns() {
    let text = report_text(&report(one_node()), 80);
    assert!(text.lines().all(|line| line.chars().count() <= 80));
    assert!(
        text.lines().count() <= 24,
        "a small machine fits on one screen"
    );
    insta::assert_snapshot!(text);
}

/// Every element closed, every name escaped.
fn assert_well_formed(page: &str) -> Vec<String> {
    let mut reader = quick_xml::Reader::from_str(page);
    reader.config_mut().check_end_names = true;
    let mut elements = Vec::new();
    let mut depth = 0;
    loop {
        match reader.read_event().expect("the page is well-formed XML") {
            quick_xml::events::Event::Start(element) => {
                elements.push(element.name().as_ref().to_owned());
                depth += 1;
            }
            quick_xml::events::Event::End(_) => depth -= 1,
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!(depth, 0);
    elements
}

#[test]
fn the_page_is_whole_and_holds_no_foreign_markup() {
    let drawing = "<?xml version=\"1.0\"?>\n<svg viewBox=\"0 0 1 1\"><g></g></svg>";
    for machine in [one_node(), two_nodes()] {
        let page = report_html(&report(machine), Some(drawing));
        let elements = assert_well_formed(&page);
        assert!(
            !elements
                .iter()
                .any(|name| name == "script" || name == "link")
        );
        assert!(elements.iter().any(|name| name == "svg"));
        assert!(!page.contains('\u{1b}') && !page.contains("<?xml"));
        for request in ["http:", "https:", "url(", "@import", "src="] {
            assert!(!page.contains(request), "{request}");
        }
    }
}

#[test]
fn names_are_shown_and_do_nothing() {
    let report = report(two_nodes());
    assert!(report_html(&report, None).contains("&lt;script&gt;x\\u{1b}[2J"));
    let text = report_text(&report, 160);
    assert!(!text.chars().any(|char| char.is_control() && char != '\n'));
    let json = report_json(&report).unwrap();
    assert!(
        json.contains(r#""name": "<script>x\u001b[2J""#),
        "JSON keeps the name as it is"
    );
    assert!(json.contains(r#""schema": "homenode.report/1""#));
}

/// The live machine through the eyes of this test, which may run as anybody. The topology is made
/// by hand, so on a machine with one node it sends the sampler to work all the same.
#[test]
fn the_live_machine_is_reported_in_time_whoever_asks() {
    let (_, topology, verdict) = two_nodes();
    let options = GatherOptions {
        interval: Duration::from_millis(50),
        ..GatherOptions::default()
    };
    let mut steps = Vec::new();
    let started = Live.now();
    let report = gather_live(&Live, topology, verdict, options, |step| steps.push(step));
    let elapsed = Live.now() - started;

    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    assert_eq!(steps.first(), Some(&Progress::ReadingProcesses));
    let shown = report.shown_processes();
    assert!(!shown.is_empty() && shown.len() <= options.process_count);
    assert!(shown.is_sorted_by(|a, b| a.process.memory() >= b.process.memory()));
    let myself = Pid(std::process::id());
    assert!(report.processes_total >= shown.len());
    for process in shown {
        match &process.locality {
            Reading::Known(locality) => {
                let sum: f64 = locality.nodes.iter().map(|share| share.share).sum();
                assert!((sum - 1.0).abs() < 1e-9, "{process:?}");
            }
            Reading::Absent { why } => {
                assert!(!why.is_empty());
                // Nobody is refused a look at himself for want of rights.
                let refused = why.contains("ptrace");
                assert!(process.process.pid != myself || !refused, "{why}");
            }
        }
    }
}

#[test]
fn a_captured_machine_has_no_rates_and_says_so() {
    let (machine, topology, verdict) = two_nodes();
    let report = gather_captured(&machine.files, topology, verdict, GatherOptions::default());
    assert!(report.interval_seconds.why().is_some());
    let text = report_text(&report, 80);
    assert!(text.contains("New pages since boot (no rate: a captured machine does not run)"));
    assert!(
        text.contains("812  postgres  postgres          24 GiB  node 0     n/a"),
        "{text}"
    );
    assert_well_formed(&report_html(&report, None));
}

#[test]
fn a_machine_without_proc_is_reported_with_the_reason() {
    let (mut machine, topology, verdict) = one_node();
    machine.files.remove("/proc");
    let report = report((machine, topology, verdict));
    let text = report_text(&report, 80);
    let reason = "n/a (cannot list the processes: /proc does not exist)";
    assert!(text.contains(reason), "{text}");
    assert_well_formed(&report_html(&report, None));
}
