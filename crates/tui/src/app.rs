//! What is shown, and how keys change it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use homenode_observe::{Observation, ProcessMaps, Row, ThreadSample, View, rows};
use homenode_units::NodeId;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};
use serde::{Deserialize, Serialize};

use crate::columns::{Column, Field};

/// Points of history that are kept of each row.
const HISTORY_MAX: usize = 120;
/// Shorter intervals would show mostly ourselves.
const INTERVAL_MIN: Duration = Duration::from_millis(200);
const INTERVAL_MAX: Duration = Duration::from_secs(3600);

/// What `W` keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Settings {
    fields: Vec<Field>,
    pub(crate) sort: Field,
    name_width: usize,
    /// Time between two looks. Unit: milliseconds.
    pub interval_ms: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            fields: Field::SHOWN.to_vec(),
            sort: Field::Remote,
            name_width: 16,
            interval_ms: 2000,
        }
    }
}

impl Settings {
    /// Reads what [`Self::to_text`] wrote; `None` when it is something else.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        let settings: Self = serde_json::from_str(text).ok()?;
        (!settings.fields.is_empty() && (1..=200).contains(&settings.name_width))
            .then_some(settings)
    }

    /// As text for a file.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "plain values can be written")]
    pub fn to_text(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain values") + "\n"
    }
}

/// What the loop has to do after a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Draw again.
    Draw,
    /// Look again now.
    Observe,
    /// Write the settings.
    Write,
    /// End.
    Quit,
}

/// What lies over the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Over {
    Nothing,
    Help,
    Fields {
        selected: usize,
    },
    /// A line to type: what for, and what was typed.
    Prompt(Prompt, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prompt {
    Filter,
    Interval,
    NameWidth,
    RowCount,
}

impl Prompt {
    pub(crate) fn question(self) -> &'static str {
        match self {
            Self::Filter => "filter (words; node=1 user=db cgroup=/x name=pg)",
            Self::Interval => "seconds between two looks",
            Self::NameWidth => "width of names",
            Self::RowCount => "rows to show (0: as many as fit)",
        }
    }
}

/// What the pane below the table shows of the selected row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    Closed,
    Maps,
    Threads,
}

/// The screen, without a terminal.
#[derive(Debug)]
pub struct App {
    pub(crate) settings: Settings,
    pub(crate) view: View,
    pub(crate) filter: String,
    pub(crate) row_count: usize,
    pub(crate) paused: bool,
    pub(crate) over: Over,
    pub(crate) detail: Detail,
    pub(crate) message: Option<String>,
    pub(crate) before: Option<Observation>,
    pub(crate) now: Option<Observation>,
    pub(crate) rows: Vec<Row>,
    pub(crate) hidden: usize,
    expanded: BTreeSet<String>,
    selected: Option<String>,
    /// Locality in percent, oldest first; 101 where it was not known.
    pub(crate) history: BTreeMap<String, VecDeque<u8>>,
    pub(crate) maps: Option<Result<ProcessMaps, String>>,
    pub(crate) threads: Option<Result<Vec<ThreadSample>, String>>,
    pub(crate) threads_before: Option<(Duration, Vec<ThreadSample>)>,
    pub(crate) threads_at: Duration,
    /// What is looked at: this machine, or a recording.
    pub(crate) title: String,
}

impl App {
    /// A screen that has nothing to show yet.
    #[must_use]
    pub fn new(settings: Settings, view: View, title: String) -> Self {
        Self {
            settings,
            view,
            filter: String::new(),
            row_count: 0,
            paused: false,
            over: Over::Nothing,
            detail: Detail::Closed,
            message: None,
            before: None,
            now: None,
            rows: Vec::new(),
            hidden: 0,
            expanded: BTreeSet::new(),
            selected: None,
            history: BTreeMap::new(),
            maps: None,
            threads: None,
            threads_before: None,
            threads_at: Duration::ZERO,
            title,
        }
    }

    /// Time between two looks.
    #[must_use]
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.settings.interval_ms).clamp(INTERVAL_MIN, INTERVAL_MAX)
    }

    /// Whether time stands still.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.paused
    }

    /// Settings as they are now.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Says something in the last line until the next key.
    pub fn say(&mut self, message: String) {
        self.message = Some(message);
    }

    /// Takes in the next observation.
    pub fn take(&mut self, observation: Observation) {
        self.before = self.now.replace(observation);
        self.rebuild();
        for row in &self.rows {
            let points = self.history.entry(row.key.clone()).or_default();
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "0 to 100"
            )]
            let point = row
                .locality
                .known()
                .map_or(101, |share| (share * 100.0).round().clamp(0.0, 100.0) as u8);
            if points.len() == HISTORY_MAX {
                points.pop_front();
            }
            points.push_back(point);
        }
        let shown: BTreeSet<&str> = self.rows.iter().map(|row| row.key.as_str()).collect();
        self.history.retain(|key, _| shown.contains(key.as_str()));
    }

    /// The process whose mappings or threads are to be read.
    #[must_use]
    pub fn wants_detail(&self) -> Option<&Row> {
        (self.detail != Detail::Closed)
            .then(|| self.selected_row())
            .flatten()
    }

    /// Takes in what was read about it.
    pub fn take_detail(
        &mut self,
        maps: Result<ProcessMaps, String>,
        threads: Result<Vec<ThreadSample>, String>,
        at: Duration,
    ) {
        self.maps = Some(maps);
        if let Some(Ok(old)) = self.threads.replace(threads) {
            self.threads_before = Some((self.threads_at, old));
        }
        self.threads_at = at;
    }

    fn rebuild(&mut self) {
        let Some(now) = &self.now else { return };
        let mut all = rows(self.before.as_ref(), now, self.view);
        let total = all.len();
        all.retain(|row| matches(row, &self.filter));
        self.hidden = total - all.len();
        let sort = self.settings.sort;
        all.sort_by(|a, b| order(a, b, sort));
        if !self.expanded.is_empty() {
            let members = rows(self.before.as_ref(), now, View::Processes);
            let mut with_members = Vec::new();
            for row in all {
                let inside: Vec<Row> = if self.expanded.contains(&row.key) && row.processes > 1 {
                    let of_row =
                        |member: &&Row| !row.cgroup.is_empty() && member.cgroup == row.cgroup;
                    members.iter().filter(of_row).cloned().collect()
                } else {
                    Vec::new()
                };
                with_members.push(row);
                with_members.extend(inside.into_iter().map(|mut member| {
                    member.name = format!("└ {}", member.name);
                    member
                }));
            }
            all = with_members;
        }
        self.rows = all;
    }

    /// Position of the selected row; the first where the selected one is gone.
    pub(crate) fn selected_index(&self) -> usize {
        let selected = self.selected.as_ref();
        let found = self.rows.iter().position(|row| Some(&row.key) == selected);
        found.unwrap_or(0)
    }

    pub(crate) fn selected_row(&self) -> Option<&Row> {
        self.rows.get(self.selected_index())
    }

    pub(crate) fn columns(&self) -> Vec<Column> {
        let nodes: Vec<NodeId> = self.now.as_ref().map_or_else(Vec::new, |now| {
            now.nodes.iter().map(|node| node.node).collect()
        });
        Column::of(&self.settings.fields, &nodes, self.settings.name_width)
    }

    /// Changes what is shown.
    pub fn press(&mut self, key: KeyEvent) -> Action {
        self.message = None;
        if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
            return Action::Quit;
        }
        match std::mem::replace(&mut self.over, Over::Nothing) {
            Over::Nothing => self.press_in_table(key.code),
            Over::Help => Action::Draw,
            Over::Fields { selected } => self.press_in_fields(key.code, selected),
            Over::Prompt(prompt, text) => self.press_in_prompt(key.code, prompt, text),
        }
    }

    fn press_in_table(&mut self, code: KeyCode) -> Action {
        let prompt = |prompt| Over::Prompt(prompt, String::new());
        match code {
            KeyCode::Char('q') => return Action::Quit,
            KeyCode::Char('W') => return Action::Write,
            KeyCode::Char(' ') => return Action::Observe,
            KeyCode::Char('h' | '?') => self.over = Over::Help,
            KeyCode::Char('f' | 'o') => self.over = Over::Fields { selected: 0 },
            KeyCode::Char('s') => self.over = prompt(Prompt::Interval),
            KeyCode::Char('/') => self.over = Over::Prompt(Prompt::Filter, self.filter.clone()),
            KeyCode::Char('L') => self.over = prompt(Prompt::NameWidth),
            KeyCode::Char('#') => self.over = prompt(Prompt::RowCount),
            KeyCode::Char('P') => self.paused = !self.paused,
            KeyCode::Char('m') => self.set_view(View::Workloads),
            KeyCode::Char('V') => self.toggle_view(View::Vms),
            KeyCode::Char('C') => self.toggle_view(View::Containers),
            KeyCode::Char('p') => self.toggle_view(View::Processes),
            KeyCode::Char('t') => self.toggle_view(View::Trees),
            KeyCode::Char('G') => self.toggle_numa(),
            KeyCode::Char('R') => self.sort_by(Field::Remote),
            KeyCode::Char('M') => self.sort_by(Field::Memory),
            KeyCode::Char('N') => self.sort_by(Field::Locality),
            KeyCode::Char('U') => self.sort_by(Field::Cpu),
            KeyCode::Char('e') => self.toggle_expanded(),
            KeyCode::Char('T') => self.toggle_detail(Detail::Threads),
            KeyCode::Enter => self.toggle_detail(Detail::Maps),
            KeyCode::Esc => self.set_detail(Detail::Closed),
            KeyCode::Up | KeyCode::Char('k') => self.select_by(-1),
            KeyCode::Down | KeyCode::Char('j') => self.select_by(1),
            KeyCode::PageUp => self.select_by(-15),
            KeyCode::PageDown => self.select_by(15),
            KeyCode::Home => self.select_by(isize::MIN),
            KeyCode::End => self.select_by(isize::MAX),
            _ => {}
        }
        Action::Draw
    }

    fn set_view(&mut self, view: View) {
        self.view = view;
        self.rebuild();
    }

    fn toggle_view(&mut self, view: View) {
        self.set_view(if self.view == view {
            View::Workloads
        } else {
            view
        });
    }

    fn sort_by(&mut self, field: Field) {
        self.settings.sort = field;
        self.rebuild();
    }

    fn toggle_numa(&mut self) {
        let fields = &mut self.settings.fields;
        if Field::NUMA.iter().all(|field| fields.contains(field)) {
            fields.retain(|field| !Field::NUMA.contains(field));
        } else {
            let missing = Field::NUMA.iter().filter(|field| !fields.contains(field));
            let missing: Vec<Field> = missing.copied().collect();
            fields.extend(missing);
        }
        if fields.is_empty() {
            fields.push(Field::Name);
        }
    }

    fn toggle_expanded(&mut self) {
        if let Some(key) = self.selected_row().map(|row| row.key.clone())
            && !self.expanded.remove(&key)
        {
            self.expanded.insert(key);
        }
        self.rebuild();
    }

    fn toggle_detail(&mut self, detail: Detail) {
        self.set_detail(if self.detail == detail {
            Detail::Closed
        } else {
            detail
        });
    }

    fn set_detail(&mut self, detail: Detail) {
        self.detail = detail;
        if detail == Detail::Closed {
            self.maps = None;
            self.threads = None;
            self.threads_before = None;
        }
    }

    fn select_by(&mut self, step: isize) {
        let last = self.rows.len().saturating_sub(1);
        let index = self.selected_index().saturating_add_signed(step).min(last);
        self.selected = self.rows.get(index).map(|row| row.key.clone());
        // What was read was about another.
        self.maps = None;
        self.threads = None;
        self.threads_before = None;
    }

    /// Fields: blank switches, `<` and `>` move, as esxtop's `o` does.
    fn press_in_fields(&mut self, code: KeyCode, selected: usize) -> Action {
        let listed = self.listed_fields();
        let Some(&(field, shown)) = listed.get(selected) else {
            return Action::Draw;
        };
        let fields = &mut self.settings.fields;
        let mut next = selected;
        match code {
            KeyCode::Up => next = selected.saturating_sub(1),
            KeyCode::Down => next = (selected + 1).min(listed.len() - 1),
            KeyCode::Char('G') => self.toggle_numa(),
            KeyCode::Char(' ') if shown && fields.len() > 1 => fields.retain(|&f| f != field),
            KeyCode::Char(' ') if !shown => fields.push(field),
            KeyCode::Char('<') | KeyCode::Left if shown && selected > 0 => {
                fields.swap(selected, selected - 1);
                next = selected - 1;
            }
            KeyCode::Char('>') | KeyCode::Right if shown && selected + 1 < fields.len() => {
                fields.swap(selected, selected + 1);
                next = selected + 1;
            }
            KeyCode::Char('S') => self.settings.sort = field,
            KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q' | 'f' | 'o') => {
                self.rebuild();
                return Action::Draw;
            }
            _ => {}
        }
        self.over = Over::Fields { selected: next };
        Action::Draw
    }

    /// The fields that are shown, in their order, then the others.
    pub(crate) fn listed_fields(&self) -> Vec<(Field, bool)> {
        let shown = self.settings.fields.iter().map(|&field| (field, true));
        let others = Field::ALL
            .into_iter()
            .filter(|field| !self.settings.fields.contains(field));
        shown.chain(others.map(|field| (field, false))).collect()
    }

    fn press_in_prompt(&mut self, code: KeyCode, prompt: Prompt, mut text: String) -> Action {
        match code {
            KeyCode::Esc => return Action::Draw,
            KeyCode::Enter => {
                self.answer(prompt, &text);
                return Action::Draw;
            }
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(char) => text.push(char),
            _ => {}
        }
        self.over = Over::Prompt(prompt, text);
        Action::Draw
    }

    fn answer(&mut self, prompt: Prompt, text: &str) {
        let text = text.trim();
        let whole = || text.parse::<usize>().ok();
        match prompt {
            Prompt::Filter => {
                text.clone_into(&mut self.filter);
                self.rebuild();
            }
            Prompt::Interval => match text.trim_end_matches('s').parse::<f64>() {
                Ok(seconds) if (0.2..=3600.0).contains(&seconds) => {
                    let interval = Duration::from_secs_f64(seconds);
                    self.settings.interval_ms =
                        u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
                }
                _ => self.say(format!("expected 0.2 to 3600 seconds, found `{text}`")),
            },
            Prompt::NameWidth => match whole() {
                Some(width @ 1..=200) => self.settings.name_width = width,
                _ => self.say(format!("expected a width of 1 to 200, found `{text}`")),
            },
            Prompt::RowCount => match whole() {
                Some(count) => self.row_count = count,
                None => self.say(format!("expected a number, found `{text}`")),
            },
        }
    }
}

/// Largest first; text and numbers of processes smallest first; of N%L the least local.
fn order(a: &Row, b: &Row, field: Field) -> std::cmp::Ordering {
    let by_float = |value: fn(&Row) -> f64| value(b).total_cmp(&value(a));
    let order = match field {
        Field::Pid => a.id.cmp(&b.id),
        Field::User => a.user.cmp(&b.user),
        Field::Name => a.name.cmp(&b.name),
        Field::Cgroup => a.cgroup.cmp(&b.cgroup),
        Field::Home => a.home.lowest().cmp(&b.home.lowest()),
        Field::Migrations => {
            (b.migrations, b.migrations_total).cmp(&(a.migrations, a.migrations_total))
        }
        Field::Cpu | Field::CpuOnNode => by_float(|row| row.cpu.known().copied().unwrap_or(-1.0)),
        Field::Remote => b.remote.known().cmp(&a.remote.known()),
        Field::Local => b.local.known().cmp(&a.local.known()),
        Field::Locality => by_float(|row| -row.locality.known().copied().unwrap_or(2.0)),
        Field::Access => by_float(|row| -row.access.known().copied().unwrap_or(2.0)),
        Field::Threads => b.threads.cmp(&a.threads),
        Field::Processes => b.processes.cmp(&a.processes),
        Field::Age => b.age.cmp(&a.age),
        Field::Memory | Field::OnNode | Field::Guest | Field::Overhead => std::cmp::Ordering::Equal,
    };
    order.then(b.memory.cmp(&a.memory)).then(a.id.cmp(&b.id))
}

/// Whether every word of a filter fits.
fn matches(row: &Row, filter: &str) -> bool {
    filter.split_whitespace().all(|word| {
        let holds = |text: &str, part: &str| text.to_lowercase().contains(&part.to_lowercase());
        match word.split_once('=') {
            Some(("node", node)) => node.parse().map(NodeId).is_ok_and(|node| {
                let there =
                    |on: &homenode_observe::NodeMemory| on.node == node && on.memory.mib() > 0;
                row.home.contains(node) || row.nodes.iter().any(there)
            }),
            Some(("user", user)) => row.user == user,
            Some(("cgroup", path)) => row.cgroup.contains(path),
            Some(("name", name)) => holds(&row.name, name),
            Some(("pid", pid)) => row.id.pid.to_string() == pid,
            _ => holds(&row.name, word) || row.user == word || row.id.pid.to_string() == word,
        }
    })
}
