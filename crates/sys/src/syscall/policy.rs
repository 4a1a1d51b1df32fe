//! What a memory policy is: the mode, nodes and flags of `set_mempolicy(2)`.

use std::ffi::c_int;
use std::fmt;

use homenode_units::NodeSet;

/// The libc crate has the modes up to `MPOL_LOCAL`; these are newer.
const MPOL_PREFERRED_MANY: c_int = 5;
const MPOL_WEIGHTED_INTERLEAVE: c_int = 6;

/// The flags that travel in the same word as the mode (`MPOL_MODE_FLAGS`).
const MODE_FLAGS: c_int =
    libc::MPOL_F_STATIC_NODES | libc::MPOL_F_RELATIVE_NODES | libc::MPOL_F_NUMA_BALANCING;

/// How the kernel chooses the node of a new page.
///
/// Source of the numbers: include/uapi/linux/mempolicy.h, Linux 7.2. "Since" is the kernel's
/// version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PolicyMode {
    /// `MPOL_DEFAULT`: the node of the CPU that touches the page; for memory, what the task has.
    #[default]
    Default,
    /// `MPOL_PREFERRED`: one node first, then others.
    Preferred,
    /// `MPOL_BIND`: these nodes and no other; when they are full, the kernel kills.
    Bind,
    /// `MPOL_INTERLEAVE`: page by page in turn.
    Interleave,
    /// `MPOL_LOCAL`, since 3.8: as the default, but said, and so no longer balanced.
    Local,
    /// `MPOL_PREFERRED_MANY`, since 5.15: a set of nodes first, then others.
    PreferredMany,
    /// `MPOL_WEIGHTED_INTERLEAVE`, since 6.9: in turn, by the weights of the machine.
    WeightedInterleave,
    /// A mode that this program does not know.
    Other(i32),
}

impl PolicyMode {
    fn number(self) -> c_int {
        match self {
            Self::Default => libc::MPOL_DEFAULT,
            Self::Preferred => libc::MPOL_PREFERRED,
            Self::Bind => libc::MPOL_BIND,
            Self::Interleave => libc::MPOL_INTERLEAVE,
            Self::Local => libc::MPOL_LOCAL,
            Self::PreferredMany => MPOL_PREFERRED_MANY,
            Self::WeightedInterleave => MPOL_WEIGHTED_INTERLEAVE,
            Self::Other(number) => number,
        }
    }

    fn from_number(number: c_int) -> Self {
        match number {
            libc::MPOL_DEFAULT => Self::Default,
            libc::MPOL_PREFERRED => Self::Preferred,
            libc::MPOL_BIND => Self::Bind,
            libc::MPOL_INTERLEAVE => Self::Interleave,
            libc::MPOL_LOCAL => Self::Local,
            MPOL_PREFERRED_MANY => Self::PreferredMany,
            MPOL_WEIGHTED_INTERLEAVE => Self::WeightedInterleave,
            other => Self::Other(other),
        }
    }
}

/// The kernel's name: `MPOL_BIND`.
impl fmt::Display for PolicyMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Default => "MPOL_DEFAULT",
            Self::Preferred => "MPOL_PREFERRED",
            Self::Bind => "MPOL_BIND",
            Self::Interleave => "MPOL_INTERLEAVE",
            Self::Local => "MPOL_LOCAL",
            Self::PreferredMany => "MPOL_PREFERRED_MANY",
            Self::WeightedInterleave => "MPOL_WEIGHTED_INTERLEAVE",
            Self::Other(number) => return write!(f, "mode {number}"),
        })
    }
}

/// Additions to a mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PolicyFlags {
    /// `MPOL_F_STATIC_NODES`: a change of the cpuset does not renumber the nodes.
    pub static_nodes: bool,
    /// `MPOL_F_RELATIVE_NODES`: the nodes count within the cpuset.
    pub relative_nodes: bool,
    /// `MPOL_F_NUMA_BALANCING`: AutoNUMA may still move pages among the nodes. Since 5.12 with
    /// [`PolicyMode::Bind`]; with [`PolicyMode::PreferredMany`] since 6.9.
    pub numa_balancing: bool,
}

/// Where the pages of a task or a mapping go.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Policy {
    /// How the node is chosen.
    pub mode: PolicyMode,
    /// Among which; empty for [`PolicyMode::Default`] and [`PolicyMode::Local`].
    pub nodes: NodeSet,
    /// Additions.
    pub flags: PolicyFlags,
}

impl Policy {
    /// A policy without flags.
    #[must_use]
    pub fn new(mode: PolicyMode, nodes: NodeSet) -> Self {
        Self {
            mode,
            nodes,
            flags: PolicyFlags::default(),
        }
    }

    /// Mode and flags in one word, as the kernel takes them.
    pub(crate) fn word(&self) -> c_int {
        let flag = |set: bool, bit: c_int| if set { bit } else { 0 };
        self.mode.number()
            | flag(self.flags.static_nodes, libc::MPOL_F_STATIC_NODES)
            | flag(self.flags.relative_nodes, libc::MPOL_F_RELATIVE_NODES)
            | flag(self.flags.numa_balancing, libc::MPOL_F_NUMA_BALANCING)
    }

    /// Takes such a word apart.
    pub(crate) fn from_word(word: c_int, nodes: NodeSet) -> Self {
        Self {
            mode: PolicyMode::from_number(word & !MODE_FLAGS),
            nodes,
            flags: PolicyFlags {
                static_nodes: word & libc::MPOL_F_STATIC_NODES != 0,
                relative_nodes: word & libc::MPOL_F_RELATIVE_NODES != 0,
                numa_balancing: word & libc::MPOL_F_NUMA_BALANCING != 0,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MODES: [(PolicyMode, c_int); 7] = [
        (PolicyMode::Default, 0),
        (PolicyMode::Preferred, 1),
        (PolicyMode::Bind, 2),
        (PolicyMode::Interleave, 3),
        (PolicyMode::Local, 4),
        (PolicyMode::PreferredMany, 5),
        (PolicyMode::WeightedInterleave, 6),
    ];

    #[test]
    fn mode_and_flags_share_a_word_and_come_apart_again() {
        for (mode, number) in MODES {
            let mut policy = Policy::new(mode, NodeSet::first(2));
            assert_eq!(policy.word(), number);
            policy.flags.numa_balancing = true;
            assert_eq!(policy.word(), number | 0x2000);
            policy.flags.static_nodes = true;
            assert_eq!(policy.word(), number | 0xA000);
            assert_eq!(Policy::from_word(policy.word(), NodeSet::first(2)), policy);
        }
        let relative = Policy::from_word(0x4002, NodeSet::new());
        assert!(relative.flags.relative_nodes);
        assert_eq!(relative.mode, PolicyMode::Bind);
    }

    #[test]
    fn a_mode_from_the_future_is_kept() {
        let policy = Policy::from_word(0x2000 | 77, NodeSet::new());
        assert_eq!(policy.mode, PolicyMode::Other(77));
        assert_eq!(policy.word(), 0x2000 | 77);
        assert_eq!(policy.mode.to_string(), "mode 77");
        assert_eq!(
            Policy::from_word(-1, NodeSet::new()).mode,
            PolicyMode::Other(!MODE_FLAGS)
        );
    }

    /// Old headers lack the newest modes, so what is not there is not compared.
    #[test]
    fn the_numbers_are_those_of_the_kernels_header() {
        #[expect(
            clippy::disallowed_methods,
            reason = "compared with this host's header"
        )]
        let header = std::fs::read_to_string("/usr/include/linux/mempolicy.h");
        let Ok(header) = header else {
            eprintln!("skipped: no linux/mempolicy.h here");
            return;
        };
        let modes: Vec<&str> = header
            .lines()
            .map(str::trim)
            .skip_while(|line| !line.starts_with("enum {"))
            .skip(1)
            .take_while(|line| !line.starts_with('}'))
            .filter_map(|line| line.split(',').next())
            .filter(|name| *name != "MPOL_MAX")
            .collect();
        assert!(modes.len() >= 5, "{modes:?}");
        for (name, (mode, _)) in modes.iter().zip(MODES) {
            assert_eq!(*name, mode.to_string());
        }
        for (name, bit) in [
            ("MPOL_F_STATIC_NODES", 15),
            ("MPOL_F_RELATIVE_NODES", 14),
            ("MPOL_F_NUMA_BALANCING", 13),
            ("MPOL_F_NODE", 0),
            ("MPOL_F_ADDR", 1),
            ("MPOL_F_MEMS_ALLOWED", 2),
            ("MPOL_MF_STRICT", 0),
            ("MPOL_MF_MOVE", 1),
            ("MPOL_MF_MOVE_ALL", 2),
        ] {
            let defined = header.lines().any(|line| {
                let packed: String = line.split_whitespace().skip(1).collect();
                line.starts_with("#define") && (packed.starts_with(&format!("{name}(1<<{bit})")))
            });
            assert!(defined, "{name}");
        }
    }
}
