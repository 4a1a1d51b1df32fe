//! What was measured, as text, CSV and drawings.

mod cost;
mod curves;
mod figures;
mod firmware;
mod matrix;
mod sections;
mod tables;
#[cfg(test)]
pub(crate) mod tests;

use std::fmt::Write as _;
use std::time::Duration;

use homenode_measure::{Change, Document, Judgement, Metric, Test};
use homenode_topology::Topology;

use crate::machine::{timestamp, wrap};

pub(crate) use cost::cost_text;
pub use cost::measured_latency_text;
pub use figures::measure_svg;

/// Writes a run for a terminal of this many columns: tables first, what may have disturbed them
/// last. The topology is for what the firmware claims beside.
#[must_use]
pub fn measure_text(document: &Document, topology: Option<&Topology>, width: usize) -> String {
    let mut out = String::new();
    let tests: [(Test, Section); 8] = [
        (Test::Latency, sections::latency),
        (Test::Bandwidth, sections::bandwidth),
        (Test::WorkingSet, curves::working_set),
        (Test::LoadedLatency, curves::loaded_latency),
        (Test::Interleave, tables::interleave),
        (Test::FirstTouch, tables::first_touch),
        (Test::CoreToCore, tables::core_to_core),
        (Test::Rmma, tables::rmma),
    ];
    for (test, section) in tests {
        if document.of(test).next().is_none() {
            continue;
        }
        if !out.is_empty() {
            out.push('\n');
        }
        section(&mut out, document, topology, width);
        if test == Test::Latency
            && let Some(topology) = topology
        {
            firmware::compare(&mut out, document, topology, width);
        }
    }
    remarks(&mut out, document, width);
    out
}

/// Writes the tables of a test.
type Section = fn(&mut String, &Document, sections::Known<'_>, usize);

/// Why cells are missing, notes, conditions.
fn remarks(out: &mut String, document: &Document, width: usize) {
    let mut lines: Vec<String> = Vec::new();
    let measured = document
        .cells
        .iter()
        .filter_map(|cell| cell.outcome.measured());
    let open = measured
        .clone()
        .filter(|estimate| !estimate.converged)
        .count();
    if open > 0 {
        let all = measured.clone().count();
        lines.push(format!(
            "* not converged: the 95 % interval of {open} of {all} numbers is wider than asked for; \
             give more time with --budget"
        ));
    }
    let dropped: u32 = measured.map(|estimate| estimate.dropped).sum();
    if dropped > 0 {
        lines.push(format!(
            "{dropped} samples were dropped: another program had interrupted them"
        ));
    }
    lines.extend(document.conditions.disturbances());
    lines.extend(document.notes.iter().cloned());
    if document.interrupted {
        lines.push("it was cut short: what is not shown was not reached".to_owned());
    }
    if !lines.is_empty() {
        out.push('\n');
    }
    for line in lines {
        let (first, rest) = match line.strip_prefix("* ") {
            Some(rest) => ("* ", rest.to_owned()),
            None => ("note  ", line),
        };
        out.push_str(&wrap(&rest, width, first, "      "));
    }
    out.push_str(&wrap(&conditions(document), width, "on    ", "      "));
}

/// The machine and its settings in one sentence.
fn conditions(document: &Document) -> String {
    let found = &document.conditions;
    let mut words = vec![if document.machine.processor.is_empty() {
        "an unnamed processor".to_owned()
    } else {
        document.machine.processor.clone()
    }];
    if let Some((before, after)) = found.core_hertz {
        words.push(format!("{:.2} GHz", before.min(after) / 1e9));
    }
    match found.hypervisor {
        Some(true) => words.push("in a virtual machine".to_owned()),
        Some(false) => words.push("no hypervisor".to_owned()),
        None => {}
    }
    for (name, value) in [
        ("Linux", &found.kernel),
        ("governor", &found.governor),
        ("transparent huge pages", &found.transparent_huge_pages),
        ("NUMA balancing", &found.numa_balancing),
    ] {
        if let Some(value) = value {
            words.push(format!("{name} {value}"));
        }
    }
    words.push("prefetchers as the machine has them".to_owned());
    let when = timestamp(Duration::from_secs(document.taken_at_unix));
    words.push(format!("{when}, {:.0} s", found.seconds));
    words.join(", ")
}

/// Writes every cell as a line of CSV, with a line of names first.
#[must_use]
pub fn measure_csv(document: &Document) -> String {
    let mut out = String::from(
        "test,cpu_nodes,memory_nodes,arrangement,threads,kernel,pages,size_bytes,at,metric,unit,\
         min,median,max,ci_low,ci_high,p99,samples,dropped,flags\n",
    );
    for cell in &document.cells {
        let list = |text: String| format!("\"{text}\"");
        let _ = write!(
            out,
            "{},{},{},{},{},{},{},{},{},{},{},",
            cell.test.name(),
            list(cell.from.to_string()),
            list(cell.to.to_string()),
            cell.arrangement.name(),
            cell.threads,
            cell.kernel,
            cell.pages.name(),
            cell.size.0,
            cell.at.map_or_else(String::new, |at| at.to_string()),
            json_name(&cell.metric),
            cell.metric.unit(),
        );
        let _ = match &cell.outcome {
            homenode_measure::Outcome::Measured(found) => writeln!(
                out,
                "{},{},{},{},{},{},{},{},{}",
                found.min,
                found.median,
                found.max,
                found.low,
                found.high,
                found.p99.map_or_else(String::new, |p99| p99.to_string()),
                found.samples.len(),
                found.dropped,
                if found.converged { "" } else { "not-converged" },
            ),
            homenode_measure::Outcome::Absent { absent } => {
                writeln!(out, ",,,,,,0,0,\"absent: {}\"", absent.replace('"', "'"))
            }
        };
    }
    out
}

/// The name that a value has in JSON.
fn json_name(value: &impl serde::Serialize) -> String {
    serde_json::to_value(value)
        .ok()
        .and_then(|value| value.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// Writes what changed between two runs: what is certain first.
#[must_use]
pub fn measure_diff_text(changes: &[Change], width: usize) -> String {
    let mut out = String::new();
    let mut sorted: Vec<&Change> = changes.iter().collect();
    let ratio = |change: &Change| change.after.median / change.before.median;
    sorted.sort_by(|a, b| ratio(b).ln().abs().total_cmp(&ratio(a).ln().abs()));
    let count = |judgement| changes.iter().filter(|c| c.judgement == judgement).count();
    for change in sorted
        .iter()
        .filter(|change| change.judgement != Judgement::Same)
    {
        let word = match change.judgement {
            Judgement::Better => "better",
            _ => "worse",
        };
        let cell = &change.cell;
        let line = format!(
            "{word:<7}{:>+7.1} %  {} to {} {}  {} {}{}, {} thread{}, {}",
            (ratio(change) - 1.0) * 100.0,
            shown(cell.metric, change.before.median),
            shown(cell.metric, change.after.median),
            unit(cell.metric),
            cell.test.name(),
            cell.kernel,
            match cell.at {
                Some(at) => format!(" at {at}"),
                None => String::new(),
            },
            cell.threads,
            if cell.threads == 1 { "" } else { "s" },
            format_args!(
                "node {} to {}, {}, {}",
                cell.from, cell.to, cell.pages, cell.size
            ),
        );
        out.push_str(&wrap(&line, width, "", "        "));
    }
    let _ = writeln!(
        out,
        "{} better, {} worse, {} cannot be told apart",
        count(Judgement::Better),
        count(Judgement::Worse),
        count(Judgement::Same)
    );
    out
}

/// A number in the unit of tables for people.
fn shown(metric: Metric, value: f64) -> String {
    match metric {
        Metric::UsefulBandwidth => format!("{:.1}", value / 1e9),
        Metric::PageShare => format!("{:.1}", value * 100.0),
        Metric::Latency | Metric::OneWay => format!("{value:.1}"),
    }
}

/// The unit of tables for people.
const fn unit(metric: Metric) -> &'static str {
    match metric {
        Metric::UsefulBandwidth => "GB/s",
        Metric::PageShare => "%",
        Metric::Latency | Metric::OneWay => "ns",
    }
}
