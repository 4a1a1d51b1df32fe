//! The screen: header, table, pane, last line.

use homenode_observe::{MappingUse, NodeCounters, Observation, Row, View};
use homenode_units::{Bytes, Reading};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Sparkline};

use crate::app::{App, Detail, Over};
use crate::columns::{Column, Field, harmless, percent};

/// Below this much local memory a workload is in trouble, and below the second it is worth a look
/// (the thresholds of ESX operators).
const BAD: f64 = 0.80;
const FAIR: f64 = 0.95;

/// Draws the screen. Without `colour` it is told by bold and reversed text alone.
pub fn draw(frame: &mut Frame<'_>, app: &App, colour: bool) {
    let area = frame.area();
    let header = header(app, usize::from(area.width));
    let header_height = u16::try_from(header.len()).unwrap_or(u16::MAX);
    let pane_height = match app.detail {
        Detail::Closed => 0,
        Detail::Maps | Detail::Threads => area.height.saturating_sub(header_height) / 2,
    };
    let [top, table, pane, last] = Layout::vertical([
        Constraint::Length(header_height),
        Constraint::Fill(1),
        Constraint::Length(pane_height),
        Constraint::Length(1),
    ])
    .areas(area);
    frame.render_widget(Paragraph::new(header), top);
    frame.render_widget(Paragraph::new(table_lines(app, table, colour)), table);
    if pane_height > 0 {
        draw_pane(frame, app, pane);
    }
    frame.render_widget(Paragraph::new(last_line(app)), last);
    match &app.over {
        Over::Help => draw_over(frame, "keys", help()),
        Over::Fields { selected } => draw_over(frame, "fields", fields(app, *selected)),
        Over::Nothing | Over::Prompt(..) => {}
    }
}

fn bold() -> Style {
    Style::new().add_modifier(Modifier::BOLD)
}

fn header(app: &App, width: usize) -> Vec<Line<'static>> {
    let view = match app.view {
        View::Processes => "processes",
        View::Workloads => "workloads",
        View::Vms => "virtual machines",
        View::Containers => "containers",
        View::Trees => "process trees",
    };
    let Some(now) = &app.now else {
        return vec![Line::styled(format!("{}: looking", app.title), bold())];
    };
    let mut title = format!("{}  {}  {} {view}", app.title, clock(now), app.rows.len());
    if app.hidden > 0 {
        title.push_str(&format!(" of {}", app.rows.len() + app.hidden));
    }
    if let Reading::Known(share) = now.pressure {
        title.push_str(&format!(", waiting for memory {}%", percent(share)));
    }
    if now.unreadable > 0 {
        title.push_str(&format!(", {} unreadable", now.unreadable));
    }
    if app.paused {
        title.push_str(", PAUSED");
    }
    // esxtop's line: per node its memory, and in brackets what is free.
    let numa: Vec<String> = now
        .nodes
        .iter()
        .map(|node| match &node.memory {
            Reading::Known(memory) => {
                format!(
                    "{}: {} ({})",
                    node.node,
                    memory.total.mib(),
                    memory.free.mib()
                )
            }
            Reading::Absent { .. } => format!("{}: n/a", node.node),
        })
        .collect();
    let mut lines = vec![Line::styled(title, bold())];
    lines.extend(joined("NUMA /MiB  ", &numa, width));
    lines.extend(joined("pages/s    ", &rates(app, now), width));
    lines.push(Line::default());
    lines
}

/// Hit, miss, foreign and other pages per second of each node.
fn rates(app: &App, now: &Observation) -> Vec<String> {
    let Some(before) = &app.before else {
        return vec!["needs two looks".to_owned()];
    };
    let seconds = now.taken_at.saturating_sub(before.taken_at).as_secs_f64();
    now.nodes
        .iter()
        .map(|node| {
            let earlier = before.nodes.iter().find(|old| old.node == node.node);
            let counters = earlier.and_then(|old| old.counters.known());
            match (counters, node.counters.known()) {
                (Some(old), Some(new)) if seconds > 0.0 => {
                    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
                    let rate = |count: fn(&NodeCounters) -> u64| {
                        count(new).saturating_sub(count(old)) as f64 / seconds
                    };
                    format!(
                        "{}: hit {:.0} miss {:.0} foreign {:.0} other {:.0}",
                        node.node,
                        rate(|c| c.numa_hit),
                        rate(|c| c.numa_miss),
                        rate(|c| c.numa_foreign),
                        rate(|c| c.other_node)
                    )
                }
                _ => format!("{}: n/a", node.node),
            }
        })
        .collect()
}

/// Parts on as many lines as they need, three at most.
fn joined(label: &str, parts: &[String], width: usize) -> Vec<Line<'static>> {
    const LINES_MAX: usize = 3;
    let mut lines: Vec<String> = vec![label.to_owned()];
    for (index, part) in parts.iter().enumerate() {
        let comma = if index + 1 < parts.len() { ",  " } else { "" };
        let length = lines.last().map_or(0, |line| line.chars().count());
        if length > label.len() && length + part.len() > width {
            if lines.len() == LINES_MAX {
                if let Some(line) = lines.last_mut() {
                    line.push('…');
                }
                break;
            }
            lines.push(" ".repeat(label.len()));
        }
        if let Some(line) = lines.last_mut() {
            line.push_str(part);
            line.push_str(comma);
        }
    }
    lines.into_iter().map(Line::from).collect()
}

/// `12:34:56`, in UTC.
fn clock(now: &Observation) -> String {
    let second = now.since_epoch.as_secs();
    format!(
        "{:02}:{:02}:{:02} UTC",
        second / 3600 % 24,
        second / 60 % 60,
        second % 60
    )
}

fn table_lines(app: &App, area: Rect, colour: bool) -> Vec<Line<'static>> {
    let width = usize::from(area.width);
    let mut columns = Vec::new();
    let mut used = 0;
    let mut cut_off = false;
    for column in app.columns() {
        // The widest text may be cut at the edge, numbers may not.
        if used + column.width + 1 > width {
            cut_off = true;
            continue;
        }
        used += column.width + 1;
        columns.push(column);
    }
    let titles: String = columns
        .iter()
        .map(|column| {
            let mark = if column.field == app.settings.sort && column.node.is_none() {
                "▾"
            } else {
                ""
            };
            pad(&format!("{mark}{}", column.title()), column)
        })
        .collect();
    let titles = if cut_off {
        let room = width.saturating_sub(1);
        format!("{titles:<room$.room$}>")
    } else {
        titles
    };
    let reversed = Style::new().add_modifier(Modifier::REVERSED);
    let mut lines = vec![Line::styled(format!("{titles:<width$}"), reversed)];
    let mut fit = usize::from(area.height).saturating_sub(1);
    if app.row_count > 0 {
        fit = fit.min(app.row_count);
    }
    let selected = app.selected_index();
    let first = (selected + 1).saturating_sub(fit);
    for (index, row) in app.rows.iter().enumerate().skip(first).take(fit) {
        let mut line = Line::from(
            columns
                .iter()
                .map(|column| {
                    Span::styled(pad(&column.cell(row), column), style(column, row, colour))
                })
                .collect::<Vec<_>>(),
        );
        if index == selected {
            let blank = width.saturating_sub(used);
            line.push_span(" ".repeat(blank));
            line = line.style(Style::new().add_modifier(Modifier::REVERSED));
        }
        lines.push(line);
    }
    if app.rows.is_empty() && app.now.is_some() {
        let why = if app.hidden > 0 {
            "  nothing fits the filter (/ changes it)"
        } else {
            "  nothing of this kind runs here (m shows all workloads)"
        };
        lines.push(Line::from(why));
    }
    lines
}

/// Text to the left, numbers to the right, a blank behind.
fn pad(text: &str, column: &Column) -> String {
    let width = column.width;
    // Some characters take two cells.
    let cells = |text: &str| Span::raw(text.to_owned()).width();
    if cells(text) > width {
        let mut short = String::new();
        for char in text.chars() {
            short.push(char);
            if cells(&short) + 1 > width {
                short.pop();
                break;
            }
        }
        let blank = " ".repeat(width.saturating_sub(cells(&short) + 1));
        return format!("{short}…{blank} ");
    }
    let blank = " ".repeat(width - cells(text));
    if column.field.is_text() {
        format!("{text}{blank} ")
    } else {
        format!("{blank}{text} ")
    }
}

/// What is remote stands out: in bold, and in colours that are dark enough for a light terminal.
fn style(column: &Column, row: &Row, colour: bool) -> Style {
    if !matches!(column.field, Field::Locality | Field::Remote) {
        return Style::new();
    }
    let tint = |tint| if colour { bold().fg(tint) } else { bold() };
    match row.locality.known() {
        Some(&share) if share < BAD => tint(Color::Red),
        Some(&share) if share < FAIR && column.field == Field::Locality => tint(Color::Magenta),
        _ => Style::new(),
    }
}

fn draw_pane(frame: &mut Frame<'_>, app: &App, area: Rect) {
    let Some(row) = app.selected_row() else {
        return;
    };
    let title = format!(" {} ({}) ", harmless(&row.name), row.id.pid);
    let block = Block::new()
        .borders(ratatui::widgets::Borders::TOP)
        .title(title);
    let inside = block.inner(area);
    frame.render_widget(block, area);
    let [history, rest] =
        Layout::vertical([Constraint::Length(2), Constraint::Fill(1)]).areas(inside);
    let [label, line] =
        Layout::horizontal([Constraint::Length(12), Constraint::Fill(1)]).areas(history);
    frame.render_widget(Paragraph::new("N%L 0 to 100\nover time"), label);
    let points: Vec<u64> = app
        .history
        .get(&row.key)
        .map(|points| {
            let fit = points.len().saturating_sub(usize::from(line.width));
            let points = points.iter().skip(fit);
            points
                .map(|&point| if point > 100 { 0 } else { u64::from(point) })
                .collect()
        })
        .unwrap_or_default();
    frame.render_widget(Sparkline::default().data(&points).max(100), line);
    let lines = match app.detail {
        Detail::Threads => thread_lines(app),
        Detail::Maps | Detail::Closed => map_lines(app, usize::from(rest.width)),
    };
    frame.render_widget(Paragraph::new(lines), rest);
}

fn map_lines(app: &App, width: usize) -> Vec<Line<'static>> {
    let maps = match &app.maps {
        None => return vec![Line::from("reading")],
        Some(Err(why)) => return vec![Line::from(format!("n/a ({})", harmless(why)))],
        Some(Ok(maps)) => maps,
    };
    let home = maps
        .home_by_memory
        .known()
        .map_or("n/a".to_owned(), ToString::to_string);
    let mut lines = vec![Line::styled(
        format!(
            "{:>9} {:>9}  {:<9} {:<14} {}",
            "MiB", "away MiB", "on nodes", "policy", "mapping"
        ),
        bold(),
    )];
    let away = |mapping: &MappingUse| {
        maps.home_by_memory
            .known()
            .map_or(Bytes(0), |&home| mapping.away_from(home))
    };
    lines.extend(maps.mappings.iter().map(|mapping| {
        let nodes: homenode_units::NodeSet = mapping.nodes.keys().copied().collect();
        let policy = mapping.policy.known().map_or("n/a", String::as_str);
        let mut name = harmless(&mapping.name);
        if name.is_empty() {
            name = "plain memory".to_owned();
        }
        if mapping.guest {
            name = format!("guest memory: {name}");
        }
        let text = format!(
            "{:>9} {:>9}  {:<9} {:<14.14} {name}",
            mapping.resident().mib(),
            away(mapping).mib(),
            nodes.to_string(),
            policy
        );
        Line::from(text.chars().take(width).collect::<String>())
    }));
    let how = if maps.exact { "counted" } else { "sampled" };
    lines.insert(
        1,
        Line::from(format!(
            "{:>9} {:>9}  all, {how}; home by its own pages: {home}",
            maps.memory.mib(),
            maps.mappings.iter().map(away).sum::<Bytes>().mib()
        )),
    );
    lines
}

fn thread_lines(app: &App) -> Vec<Line<'static>> {
    let threads = match &app.threads {
        None => return vec![Line::from("reading")],
        Some(Err(why)) => return vec![Line::from(format!("n/a ({})", harmless(why)))],
        Some(Ok(threads)) => threads,
    };
    let mut lines = vec![Line::styled(
        format!(
            "{:>7} {:<16} {:>5} {:>5} {:<12} {}",
            "TID", "THREAD", "%CPU", "ran", "may run on", "vCPU"
        ),
        bold(),
    )];
    let before = app.threads_before.as_ref();
    let mut rows: Vec<(u64, Line<'static>)> = threads
        .iter()
        .map(|thread| {
            let spent = before.and_then(|(at, old)| {
                let old = old.iter().find(|old| old.id == thread.id)?;
                let seconds = app.threads_at.checked_sub(*at)?.as_secs_f64();
                Some((thread.ticks.saturating_sub(old.ticks), seconds))
            });
            let cpu = match spent {
                #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
                Some((ticks, seconds)) if seconds > 0.0 => {
                    format!("{:.0}", ticks as f64 / seconds)
                }
                _ => "n/a".to_owned(),
            };
            let vcpu = thread.vcpu.map_or(String::new(), |vcpu| vcpu.to_string());
            let node = thread.node.map_or("-".to_owned(), |node| node.to_string());
            let text = format!(
                "{:>7} {:<16.16} {cpu:>5} {node:>5} {:<12} {vcpu}",
                thread.id.pid.0,
                harmless(&thread.name),
                thread.nodes_allowed.to_string()
            );
            let weight = spent.map_or(thread.ticks, |(ticks, _)| ticks);
            (weight, Line::from(text))
        })
        .collect();
    rows.sort_by_key(|&(weight, _)| std::cmp::Reverse(weight));
    lines.extend(rows.into_iter().map(|(_, line)| line));
    lines
}

fn last_line(app: &App) -> Line<'static> {
    if let Over::Prompt(prompt, text) = &app.over {
        return Line::from(format!("{}: {}▏", prompt.question(), harmless(text)));
    }
    if let Some(message) = &app.message {
        return Line::styled(harmless(message), bold());
    }
    let mut text = String::new();
    if !app.filter.is_empty() {
        text = format!("filter: {}  ", harmless(&app.filter));
    }
    text.push_str("h help  q quit  m V C p t views  R M N U sort  / filter  Enter maps  T threads");
    Line::from(text)
}

fn draw_over(frame: &mut Frame<'_>, title: &str, lines: Vec<Line<'static>>) {
    let area = frame.area();
    let height = u16::try_from(lines.len() + 2)
        .unwrap_or(u16::MAX)
        .min(area.height);
    let width = 78.min(area.width);
    let over = Rect {
        x: (area.width - width) / 2,
        y: (area.height - height) / 2,
        width,
        height,
    };
    frame.render_widget(Clear, over);
    let block = Block::bordered().title(format!(" {title} "));
    frame.render_widget(Paragraph::new(lines).block(block), over);
}

fn help() -> Vec<Line<'static>> {
    [
        "m workloads   V virtual machines   C containers   p processes   t trees",
        "R remote  M memory  N least local  U CPU: sort;  in f: S sorts by a field",
        "/ filter: words of a name, node=1 user=db cgroup=/x name=pg pid=7",
        "f fields, o their order   G NUMA statistics on and off",
        "Enter mappings   T threads   e the processes of a workload   Esc close",
        "s interval   L width of names   # rows   blank look now   P pause",
        "W keep fields, sort and interval   h help   q quit",
        "",
        "NHN home nodes: where it used most CPU time   NMIG moves of it, now/all",
        "NRMEM memory elsewhere   NLMEM memory at home   N%L part at home, in %;",
        "~ sampled  ? unsure   A%L local accesses by the kernel's hinting faults",
        "NDx memory on node x   GST_NDx of a guest   OVD_NDx its overhead",
        "bold: below 80 % local. Sizes in MiB. n/a: see homenode stat for why",
    ]
    .map(Line::from)
    .to_vec()
}

fn fields(app: &App, selected: usize) -> Vec<Line<'static>> {
    let listed = app.listed_fields();
    let height = 18;
    let first = (selected + 1).saturating_sub(height);
    let mut lines: Vec<Line<'static>> = listed
        .iter()
        .enumerate()
        .skip(first)
        .take(height)
        .map(|(index, &(field, shown))| {
            let mark = if shown { '*' } else { ' ' };
            let text = format!("{mark} {:<8} {}", field.title(), field.meaning());
            if index == selected {
                Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
            } else {
                Line::from(text)
            }
        })
        .collect();
    lines.push(Line::styled(
        "blank on/off  < > move  G NUMA  S sort by  Enter done",
        bold(),
    ));
    lines
}
