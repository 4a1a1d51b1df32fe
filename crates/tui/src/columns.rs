//! The columns: esxtop's fields by their names, and what each says about a row.

use homenode_observe::Row;
use homenode_units::{Bytes, NodeId, Reading};
use serde::{Deserialize, Serialize};

/// With a bound above this, a number says little: most of the memory could not be seen.
const UNSURE: f64 = 0.1;

/// A field that can be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Field {
    Pid,
    User,
    Name,
    Home,
    Migrations,
    Cpu,
    Memory,
    Remote,
    Local,
    Locality,
    Access,
    OnNode,
    Guest,
    Overhead,
    CpuOnNode,
    Threads,
    Processes,
    Age,
    Cgroup,
}

impl Field {
    /// In the order in which they are shown at first.
    pub(crate) const ALL: [Self; 19] = [
        Self::Pid,
        Self::User,
        Self::Name,
        Self::Home,
        Self::Migrations,
        Self::Cpu,
        Self::Memory,
        Self::Remote,
        Self::Locality,
        Self::Local,
        Self::OnNode,
        Self::Access,
        Self::Guest,
        Self::Overhead,
        Self::CpuOnNode,
        Self::Threads,
        Self::Processes,
        Self::Age,
        Self::Cgroup,
    ];

    /// Shown unless the user says otherwise.
    pub(crate) const SHOWN: [Self; 11] = [
        Self::Pid,
        Self::User,
        Self::Name,
        Self::Home,
        Self::Migrations,
        Self::Cpu,
        Self::Memory,
        Self::Remote,
        Self::Locality,
        Self::Local,
        Self::OnNode,
    ];

    /// esxtop's `G`: the NUMA statistics, which are switched together.
    pub(crate) const NUMA: [Self; 7] = [
        Self::Home,
        Self::Migrations,
        Self::Remote,
        Self::Local,
        Self::Locality,
        Self::Guest,
        Self::Overhead,
    ];

    pub(crate) fn title(self) -> &'static str {
        match self {
            Self::Pid => "PID",
            Self::User => "USER",
            Self::Name => "NAME",
            Self::Home => "NHN",
            Self::Migrations => "NMIG",
            Self::Cpu => "%CPU",
            Self::Memory => "MEM",
            Self::Remote => "NRMEM",
            Self::Local => "NLMEM",
            Self::Locality => "N%L",
            Self::Access => "A%L",
            Self::OnNode => "ND",
            Self::Guest => "GST_ND",
            Self::Overhead => "OVD_ND",
            Self::CpuOnNode => "%CPU_ND",
            Self::Threads => "THR",
            Self::Processes => "PROC",
            Self::Age => "AGE",
            Self::Cgroup => "CGROUP",
        }
    }

    /// What it is, for the list of fields.
    pub(crate) fn meaning(self) -> &'static str {
        match self {
            Self::Pid => "number of the (main) process",
            Self::User => "its user",
            Self::Name => "name of the workload or process",
            Self::Home => "home nodes: where it runs",
            Self::Migrations => "changes of the home since the last look, and in all",
            Self::Cpu => "CPU use, 100 is one CPU",
            Self::Memory => "memory in use",
            Self::Remote => "memory away from its home",
            Self::Local => "memory on its home",
            Self::Locality => "local memory, % (~ sampled, ? unsure by 10 and more)",
            Self::Access => "local accesses, %, by the kernel's hinting faults",
            Self::OnNode => "memory on each node",
            Self::Guest => "guest memory on each node",
            Self::Overhead => "a virtual machine's other memory on each node",
            Self::CpuOnNode => "part of its CPU time on each node, %",
            Self::Threads => "threads",
            Self::Processes => "processes",
            Self::Age => "age of what is said about memory, seconds",
            Self::Cgroup => "control group",
        }
    }

    /// Whether there is one of it for each node.
    fn is_by_node(self) -> bool {
        matches!(
            self,
            Self::OnNode | Self::Guest | Self::Overhead | Self::CpuOnNode
        )
    }

    /// Unit: characters.
    fn width(self, name_width: usize) -> usize {
        match self {
            Self::Pid => 7,
            Self::User => 8,
            Self::Name => name_width,
            Self::Home | Self::Threads | Self::Processes => 4,
            Self::Migrations => 5,
            Self::Cpu => 5,
            Self::Locality | Self::Access | Self::Age => 4,
            Self::Memory | Self::Remote | Self::Local => 7,
            Self::OnNode | Self::CpuOnNode => 8,
            Self::Guest | Self::Overhead => 9,
            Self::Cgroup => 40,
        }
    }

    pub(crate) fn is_text(self) -> bool {
        matches!(self, Self::User | Self::Name | Self::Cgroup)
    }
}

/// A column: a field, of one node where there is one for each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Column {
    pub(crate) field: Field,
    pub(crate) node: Option<NodeId>,
    /// Unit: characters.
    pub(crate) width: usize,
}

impl Column {
    /// The columns of these fields.
    pub(crate) fn of(fields: &[Field], nodes: &[NodeId], name_width: usize) -> Vec<Self> {
        let mut columns = Vec::new();
        for &field in fields {
            let width = field.width(name_width);
            let column = |node| Self { field, node, width };
            if field.is_by_node() {
                columns.extend(nodes.iter().map(|&node| column(Some(node))));
            } else {
                columns.push(column(None));
            }
        }
        columns
    }

    pub(crate) fn title(&self) -> String {
        let title = self.field.title();
        self.node
            .map_or_else(|| title.to_owned(), |node| format!("{title}{node}"))
    }

    /// What it says about a row.
    pub(crate) fn cell(&self, row: &Row) -> String {
        let on_node = || row.nodes.iter().find(|on| Some(on.node) == self.node);
        match self.field {
            Field::Pid => row.id.pid.to_string(),
            Field::User => harmless(&row.user),
            Field::Name => match row.processes {
                0 | 1 => harmless(&row.name),
                count => format!("{} ×{count}", harmless(&row.name)),
            },
            Field::Home => row.home.to_string(),
            Field::Migrations => match row.migrations_total {
                0 => "0".to_owned(),
                total => format!("{}/{total}", row.migrations),
            },
            Field::Cpu => of(&row.cpu, |cpu| format!("{:.0}", cpu * 100.0)),
            Field::Memory => mib(row.memory),
            Field::Remote => of(&row.remote, |&bytes| mib(bytes)),
            Field::Local => of(&row.local, |&bytes| mib(bytes)),
            Field::Locality => of(&row.locality, |&share| {
                let mark = match row.bound {
                    bound if bound > UNSURE => "?",
                    bound if bound > 0.0 => "~",
                    _ => "",
                };
                format!("{mark}{}", percent(share))
            }),
            Field::Access => of(&row.access, |&share| percent(share)),
            Field::OnNode => on_node().map_or("-".to_owned(), |on| mib(on.memory)),
            Field::Guest => on_node()
                .and_then(|on| on.guest)
                .map_or("-".to_owned(), mib),
            Field::Overhead => on_node()
                .and_then(homenode_observe::NodeMemory::overhead)
                .map_or("-".to_owned(), mib),
            Field::CpuOnNode => row
                .cpu_on
                .iter()
                .find(|&&(node, _)| Some(node) == self.node)
                .map_or("-".to_owned(), |&(_, share)| percent(share)),
            Field::Threads => row.threads.to_string(),
            Field::Processes => row.processes.to_string(),
            Field::Age => row.age.as_secs().to_string(),
            Field::Cgroup => harmless(&row.cgroup),
        }
    }
}

fn of<T>(reading: &Reading<T>, show: impl Fn(&T) -> String) -> String {
    reading.known().map_or("n/a".to_owned(), show)
}

/// Whole mebibytes; what is there is never 0.
fn mib(bytes: Bytes) -> String {
    match bytes {
        Bytes(0) => "0".to_owned(),
        bytes if bytes.mib() == 0 => "<1".to_owned(),
        bytes => bytes.mib().to_string(),
    }
}

/// What is neither none nor all never looks so.
pub(crate) fn percent(share: f64) -> String {
    let whole = (share * 100.0).round();
    if share > 0.0 && whole < 1.0 {
        "<1".to_owned()
    } else if share < 1.0 && whole >= 100.0 && share < 0.9999 {
        ">99".to_owned()
    } else {
        format!("{whole:.0}")
    }
}

/// Text that others chose, without what could steer a terminal.
pub(crate) fn harmless(text: &str) -> String {
    text.chars()
        .flat_map(|char| {
            let steers = char.is_control()
                || matches!(char, '\u{061c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}' | '\u{feff}');
            let escaped = steers.then(|| char.escape_default());
            let plain = (!steers).then_some(char);
            escaped.into_iter().flatten().chain(plain)
        })
        .collect()
}
