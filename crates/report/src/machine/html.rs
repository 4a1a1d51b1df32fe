//! The report as one page that needs nothing but itself: no script, no font, no request.

use std::fmt::Write;

use homenode_observe::{COUNTER_NAMES, MemoryUse};
use homenode_topology::{Certainty, Distance};
use homenode_units::{Bytes, NodeId, NodeMatrix, Reading};

use super::format::{COUNTER_MEANINGS, bound, grouped, html, nodes_named, percent, rate, shares};
use super::html_style::{NODE_COLOURS, STYLE};
use super::{MachineReport, NodeReport, ProcessReport};

/// Writes the report as one HTML page, also well-formed XML.
///
/// `drawing` is an SVG picture of the machine, as text; it is put into the page as it is, so it
/// must come from this program. Everything else is escaped: names that processes chose cannot
/// become markup, and the page forbids scripts and requests in case one did.
#[must_use]
pub fn report_html(report: &MachineReport, drawing: Option<&str>) -> String {
    let mut out = String::with_capacity(16 << 10);
    let title = report
        .host
        .name
        .known()
        .map_or("this machine", String::as_str);
    let _ = write!(
        out,
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
         style-src 'unsafe-inline'; img-src data:\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n\
         <title>Memory of {}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n",
        html(title)
    );
    head(&mut out, report);
    warnings(&mut out, report);
    if let Some(drawing) = drawing {
        let _ = writeln!(
            out,
            "<section class=\"drawing\">\n<h2>The machine</h2>\n{}\n</section>",
            svg_element(drawing)
        );
    }
    memory(&mut out, report);
    cost(&mut out, report);
    processes(&mut out, report);
    who_pays(&mut out, report);
    if let (Reading::Known(distances), None) = (&report.topology.distances, report.only_node()) {
        distance_table(&mut out, distances);
    }
    counters(&mut out, report);
    next_steps(&mut out, report);
    let _ = write!(
        out,
        "<footer>homenode {}, schema {}</footer>\n</main>\n</body>\n</html>\n",
        html(report.version),
        html(report.schema)
    );
    out
}

/// What was measured, as text and drawings.
fn cost(out: &mut String, report: &MachineReport) {
    const COLUMNS: usize = 100;
    let text = crate::measure::cost_text(&report.measured, COLUMNS);
    let text = text
        .trim_start()
        .trim_start_matches("What it costs")
        .trim_matches('\n');
    let _ = writeln!(
        out,
        "<section class=\"drawing\">\n<h2>What it costs</h2>\n<pre>{}</pre>",
        html_lines(text)
    );
    for document in &report.measured {
        out.push_str(svg_element(&crate::measure_svg(document)));
    }
    out.push_str("</section>\n");
}

/// Text of several lines, made harmless line by line.
fn html_lines(text: &str) -> String {
    let lines: Vec<String> = text.lines().map(html).collect();
    lines.join("\n")
}

/// The picture without what may stand before it only in a file of its own.
fn svg_element(drawing: &str) -> &str {
    drawing.find("<svg").map_or("", |start| &drawing[start..])
}

fn head(out: &mut String, report: &MachineReport) {
    let kernel = report
        .host
        .kernel
        .known()
        .map(|release| format!("Linux {release}"));
    let facts: Vec<String> = [
        report.host.name.known().cloned(),
        kernel,
        report.host.taken_at.known().cloned(),
    ]
    .into_iter()
    .flatten()
    .map(|fact| html(&fact))
    .collect();
    let (class, certainty) = match report.verdict.certainty {
        Certainty::Certain => ("pill", "certain"),
        Certainty::Likely => ("pill", "likely"),
        Certainty::CannotTell => ("pill unsure", "cannot tell for sure"),
    };
    let _ = write!(
        out,
        "<header>\n<p>{}</p>\n<h1>{} <span class=\"{class}\">{certainty}</span></h1>\n",
        facts.join(" · "),
        html(&report.verdict.headline)
    );
    if let Some(undecided) = &report.verdict.undecided {
        let _ = writeln!(out, "<p>{}</p>", html(undecided));
    }
    if !report.verdict.evidence.is_empty() {
        out.push_str("<details>\n<summary>What this rests on</summary>\n<ul>\n");
        for evidence in &report.verdict.evidence {
            let _ = writeln!(out, "<li>{}</li>", html(evidence));
        }
        out.push_str("</ul>\n</details>\n");
    }
    out.push_str("</header>\n");
}

fn warnings(out: &mut String, report: &MachineReport) {
    if report.findings.is_empty() && report.verdict.warnings.is_empty() {
        return;
    }
    out.push_str("<section class=\"warnings\">\n<h2>Warnings</h2>\n<ul>\n");
    let mut item = |subject: &str, message: &str| {
        let (subject, message) = (html(subject), html(message));
        let _ = writeln!(
            out,
            "<li class=\"foreign\"><strong>{subject}</strong>: {message}</li>"
        );
    };
    for finding in &report.findings {
        item(&finding.subject, &finding.message);
    }
    for warning in &report.verdict.warnings {
        match &warning.advice {
            Some(advice) => item(&warning.subject, &format!("{}: {advice}", warning.message)),
            None => item(&warning.subject, &warning.message),
        }
    }
    out.push_str("</ul>\n</section>\n");
}

fn memory(out: &mut String, report: &MachineReport) {
    out.push_str(
        "<section>\n<h2>Memory per node</h2>\n<ul class=\"key\">\
         <li><i class=\"programs\"></i>programs</li><li><i class=\"cache\"></i>file cache</li>\
         <li><i class=\"kernel\"></i>kernel</li><li><i class=\"other\"></i>other</li></ul>\n\
         <table>\n<thead><tr><th>Node</th><th>CPUs</th><th class=\"number\">Total</th>\
         <th class=\"number\">Free</th><th class=\"number\">Programs</th>\
         <th class=\"number\">File cache</th><th class=\"number\">Used</th><th></th></tr></thead>\n\
         <tbody>\n",
    );
    for node in &report.nodes {
        let cpus = report
            .topology
            .node(node.node)
            .map(|node| node.cpus.to_string());
        let cpus = cpus
            .filter(|cpus| !cpus.is_empty())
            .unwrap_or_else(|| "none".to_owned());
        let _ = write!(out, "<tr><th>{}</th><td>{}</td>", node.node, html(&cpus));
        match &node.memory {
            Reading::Known(memory) => memory_cells(out, memory),
            Reading::Absent { why } => {
                let _ = write!(out, "<td colspan=\"6\">n/a ({})</td>", html(why));
            }
        }
        out.push_str("</tr>\n");
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn memory_cells(out: &mut String, memory: &MemoryUse) {
    let known = |reading: &Reading<Bytes>| reading.known().copied().unwrap_or_default();
    let parts = [
        ("programs", known(&memory.anonymous)),
        ("cache", known(&memory.page_cache)),
        ("kernel", known(&memory.kernel)),
    ];
    let named: Bytes = parts.iter().map(|(_, bytes)| *bytes).sum();
    let other = ("other", memory.used().saturating_sub(named));
    let cell = |text: &str| format!("<td class=\"number\">{}</td>", html(text));
    out.push_str(&cell(&memory.total.to_string()));
    out.push_str(&cell(&memory.free.to_string()));
    out.push_str(&cell(&memory.anonymous.to_string()));
    out.push_str(&cell(&memory.page_cache.to_string()));
    let used = memory.used().share_of(memory.total);
    out.push_str(&cell(&used.map_or_else(|| "–".to_owned(), percent)));
    out.push_str("<td><div class=\"bar\">");
    for (class, bytes) in parts.into_iter().chain([other]) {
        if let Some(share) = bytes.share_of(memory.total) {
            segment(out, class, share, &format!("{class}: {bytes}"));
        }
    }
    out.push_str("</div></td>");
}

/// A part of a bar, left out where it would be too thin to see.
fn segment(out: &mut String, class: &str, share: f64, title: &str) {
    const VISIBLE: f64 = 0.002;
    if share >= VISIBLE {
        let _ = write!(
            out,
            "<span class=\"{class}\" style=\"width:{:.1}%\" title=\"{}\"></span>",
            share * 100.0,
            html(title)
        );
    }
}

/// The colour of a node: by its position, since ids have gaps.
fn node_class(report: &MachineReport, node: NodeId) -> String {
    let position = report
        .topology
        .nodes
        .iter()
        .position(|other| other.id == node);
    position.map_or_else(
        || "other".to_owned(),
        |position| format!("n{}", position % NODE_COLOURS),
    )
}

fn processes(out: &mut String, report: &MachineReport) {
    out.push_str("<section class=\"processes\">\n<h2>Who uses memory, and where</h2>\n");
    let shown = match &report.processes {
        Reading::Known(shown) => shown,
        Reading::Absent { why } => {
            let _ = writeln!(out, "<p>n/a ({})</p>\n</section>", html(why));
            return;
        }
    };
    if report.only_node().is_none() {
        out.push_str("<ul class=\"key\">");
        for node in &report.nodes {
            let class = node_class(report, node.node);
            let _ = write!(out, "<li><i class=\"{class}\"></i>node {}</li>", node.node);
        }
        out.push_str("</ul>\n");
    }
    out.push_str(
        "<table>\n<thead><tr><th class=\"number\">PID</th><th>Name</th><th>User</th>\
         <th class=\"number\">Threads</th><th class=\"number\">Memory</th>",
    );
    if report.only_node().is_none() {
        out.push_str("<th>May run on</th><th>Memory is on node</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for process in shown {
        process_row(out, report, process);
    }
    out.push_str("</tbody>\n</table>\n");
    let how = match report.only_node() {
        Some(node) => format!("All of it is on node {node}, the only one."),
        None => "± is the 95% bound of sampling.".to_owned(),
    };
    let _ = write!(
        out,
        "<p class=\"note\">{} of {} processes, those with most memory. {how} Memory that processes \
         share counts for each of them.",
        shown.len(),
        report.processes_total
    );
    for group in &report.unreadable {
        let processes = if group.count == 1 {
            "process"
        } else {
            "processes"
        };
        let why = html(&group.why);
        let _ = write!(
            out,
            " {} {processes} could not be read: {why}.",
            group.count
        );
    }
    out.push_str("</p>\n</section>\n");
}

/// Who has memory away from its home; nothing where that is nobody.
fn who_pays(out: &mut String, report: &MachineReport) {
    let Some(payers) = report.who_pays.known().filter(|payers| !payers.is_empty()) else {
        return;
    };
    out.push_str(
        "<section class=\"payers\">\n<h2>Who pays for remote memory</h2>\n<table>\n<thead><tr>\
         <th>Process</th><th>Name</th><th>Runs on node</th><th>Memory</th><th>Elsewhere</th>\
         <th>Local</th></tr></thead>\n<tbody>\n",
    );
    for row in payers {
        let remote = row
            .remote
            .known()
            .map_or("n/a".to_owned(), ToString::to_string);
        let local = row
            .locality
            .known()
            .map_or("n/a".to_owned(), |&share| percent(share));
        let _ = writeln!(
            out,
            "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{remote}</td><td>{local}</td></tr>",
            row.id.pid,
            html(&crate::stat::name(row)),
            row.home,
            row.memory,
        );
    }
    out.push_str("</tbody>\n</table>\n</section>\n");
}

fn process_row(out: &mut String, report: &MachineReport, process: &ProcessReport) {
    let _ = write!(
        out,
        "<tr><td class=\"number\">{}</td><td class=\"foreign\">{}</td><td>{}</td>\
         <td class=\"number\">{}</td><td class=\"number\">{}</td>",
        process.process.pid,
        html(&process.process.name),
        html(&process.process.user_shown()),
        process.process.threads,
        process.process.memory()
    );
    if report.only_node().is_some() {
        out.push_str("</tr>\n");
        return;
    }
    let _ = write!(out, "<td>{}</td><td>", nodes_named(&process.cpu_nodes));
    match &process.locality {
        Reading::Known(locality) => {
            out.push_str("<div class=\"bar\">");
            for share in &locality.nodes {
                let title = format!("node {}: {}", share.node, percent(share.share));
                segment(out, &node_class(report, share.node), share.share, &title);
            }
            let (shares, bound) = (html(&shares(locality)), html(&bound(locality)));
            let _ = write!(out, "</div><span class=\"words\">{shares} {bound}</span>");
        }
        Reading::Absent { why } => {
            let _ = write!(out, "<span class=\"words\">n/a ({})</span>", html(why));
        }
    }
    out.push_str("</td></tr>\n");
}

fn distance_table(out: &mut String, distances: &NodeMatrix<Distance>) {
    let farthest = distances
        .cells()
        .map(|(_, _, distance)| distance.0)
        .max()
        .unwrap_or(0);
    let span = f64::from(farthest.saturating_sub(Distance::LOCAL.0).max(1));
    out.push_str(
        "<section>\n<h2>Distances the firmware states</h2>\n<table class=\"heat\">\n\
         <thead><tr><th>from \\ to</th>",
    );
    for node in distances.nodes() {
        let _ = write!(out, "<th>{node}</th>");
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (from, row) in distances.rows() {
        let _ = write!(out, "<tr><th>{from}</th>");
        for distance in row {
            // Never so strong that the figures on it cannot be read, in light and in dark.
            let strength =
                0.06 + 0.44 * f64::from(distance.0.saturating_sub(Distance::LOCAL.0)) / span;
            let _ = write!(
                out,
                "<td style=\"background:rgba(var(--heat),{strength:.2})\">{distance}</td>"
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str(
        "</tbody>\n</table>\n<p class=\"note\">10 is local; the numbers are claims, not \
         measurements.</p>\n</section>\n",
    );
}

fn counters(out: &mut String, report: &MachineReport) {
    out.push_str("<section>\n<h2>Where new memory came from</h2>\n");
    match &report.interval_seconds {
        Reading::Known(seconds) => {
            let _ = writeln!(
                out,
                "<p class=\"note\">Pages per second, over {seconds:.1} s; below it pages since boot.</p>"
            );
        }
        Reading::Absent { why } => {
            let _ = writeln!(
                out,
                "<p class=\"note\">Pages since boot; no rates: {}.</p>",
                html(why)
            );
        }
    }
    out.push_str("<table>\n<thead><tr><th>Counter</th>");
    for node in &report.nodes {
        let _ = write!(out, "<th class=\"number\">Node {}</th>", node.node);
    }
    out.push_str("</tr></thead>\n<tbody>\n");
    for (index, name) in COUNTER_NAMES.into_iter().enumerate() {
        let meaning = COUNTER_MEANINGS[index];
        let _ = write!(
            out,
            "<tr><td>{name}<br/><span class=\"words\">{meaning}</span></td>"
        );
        for node in &report.nodes {
            let _ = write!(
                out,
                "<td class=\"number\">{}</td>",
                counter_cell(node, index)
            );
        }
        out.push_str("</tr>\n");
    }
    out.push_str(
        "</tbody>\n</table>\n<p class=\"note\">They count where pages were handed out, not who \
         uses them afterwards: none of them counts remote accesses.</p>\n</section>\n",
    );
}

fn counter_cell(node: &NodeReport, index: usize) -> String {
    let boot = match &node.counters {
        Reading::Known(counters) => grouped(*counters.values()[index]),
        Reading::Absent { why } => {
            return format!("n/a<br/><span class=\"words\">{}</span>", html(why));
        }
    };
    let per_second = match &node.per_second {
        Reading::Known(rates) => match rates.values()[index] {
            Reading::Known(per_second) => format!("{}/s", rate(*per_second)),
            Reading::Absent { why } => format!("n/a ({})", html(why)),
        },
        Reading::Absent { .. } => return boot,
    };
    format!("{per_second}<br/><span class=\"words\">{boot}</span>")
}

fn next_steps(out: &mut String, report: &MachineReport) {
    if report.next_steps.is_empty() {
        return;
    }
    out.push_str("<section>\n<h2>Next steps</h2>\n<ul class=\"steps\">\n");
    for step in &report.next_steps {
        let _ = write!(out, "<li>{}", html(&step.why));
        if let Some(command) = &step.command {
            let _ = write!(out, "<code>{}</code>", html(command));
        }
        out.push_str("</li>\n");
    }
    out.push_str("</ul>\n</section>\n");
}
