//! From a command line to what is to be done.

use homenode_host::Buffer;
use homenode_policy::{Need, Placement};
use homenode_sys::{Policy, PolicyFlags, PolicyMode};
use homenode_units::{Bytes, CpuSet, NodeSet};

use super::args::{MemoryMode, RunArgs};
use super::nodes::Nodes;
use crate::error::Helped;
use crate::load::read_memory;
use crate::place::{Wish, choose};
use crate::source::Machine;

/// What to do before the program starts, checked as far as it can be.
#[derive(Debug)]
pub(super) struct Plan {
    /// CPUs to run on.
    pub(super) cpus: Option<CpuSet>,
    /// Memory policy to set.
    pub(super) policy: Option<Policy>,
    /// How nodes were chosen, if they were.
    pub(super) placement: Option<Placement>,
    /// What may go wrong.
    pub(super) warnings: Vec<String>,
    /// What is good to know.
    pub(super) notes: Vec<String>,
}

/// What `--on` says.
enum On<'a> {
    Wish(Wish<'a>),
    Nodes(&'a str),
}

impl<'a> On<'a> {
    fn parse(text: &'a str) -> anyhow::Result<Self> {
        Ok(match text {
            "auto" => Self::Wish(Wish::Auto),
            "least-loaded" => Self::Wish(Wish::LeastLoaded),
            _ => match text.strip_prefix("near:") {
                Some("") => {
                    return Err(Helped::error(
                        "--on near: names no device",
                        "name one, such as near:eth0 or near:file:/var/lib/data",
                    ));
                }
                Some(device) => Self::Wish(Wish::Near(device)),
                None => Self::Nodes(text),
            },
        })
    }
}

impl Plan {
    /// Checks the request against the machine.
    ///
    /// # Errors
    ///
    /// When it contradicts itself or the machine; each error says what to do instead.
    pub(super) fn new(args: &RunArgs, machine: &Machine) -> anyhow::Result<Self> {
        let nodes = Nodes::new(machine);
        let mut plan = Self {
            cpus: None,
            policy: None,
            placement: None,
            warnings: Vec::new(),
            notes: Vec::new(),
        };
        let on = match (args.on.as_deref(), &args.need) {
            (Some(on), _) => Some(On::parse(on)?),
            // A need without a place asks for one.
            (None, Some(_)) if args.cpus.is_none() && args.memory().is_none() => {
                Some(On::Wish(Wish::Auto))
            }
            (None, _) => None,
        };
        let on_nodes = match on {
            Some(On::Nodes(text)) => {
                let chosen = nodes.parse("--on", text, || nodes.with_cpus())?;
                plan.cpus = Some(nodes.cpus(&chosen)?);
                Some(chosen)
            }
            Some(On::Wish(wish)) => {
                let placement = choose(machine, &wish, args.need.unwrap_or_default())?;
                plan.cpus = Some(placement.cpus.clone());
                let lacking = placement.shortfalls.iter();
                plan.warnings
                    .extend(lacking.map(|lack| format!("it does not fit: {lack}")));
                let memory = placement.memory_nodes.clone();
                plan.placement = Some(placement);
                Some(memory)
            }
            None => None,
        };
        if let Some(text) = &args.cpus {
            plan.cpus = Some(narrow(plan.cpus.as_ref(), text)?);
        }
        plan.add_policy(args, &nodes, on_nodes.as_ref())?;
        if plan.cpus.is_none() && plan.policy.is_none() {
            return Err(Helped::error(
                "expected a place for the program, found none",
                "--on auto chooses one; --on 0 and --memory-on 0 name one",
            ));
        }
        if let Some(need) = &args.need {
            plan.warn_of_need(need, machine);
        }
        plan.note_balancing(&nodes)?;
        Ok(plan)
    }

    fn add_policy(
        &mut self,
        args: &RunArgs,
        nodes: &Nodes<'_>,
        on_nodes: Option<&NodeSet>,
    ) -> anyhow::Result<()> {
        let Some((mode, named)) = args.memory() else {
            return if args.balancing {
                Err(Helped::error(
                    "--balancing needs nodes that memory is bound to",
                    "add --memory bind, or leave --balancing out: without a policy AutoNUMA works anyway",
                ))
            } else {
                Ok(())
            };
        };
        if mode == MemoryMode::Local {
            if named.is_some() {
                return Err(Helped::error(
                    "--memory local takes no nodes: they are those of the CPUs",
                    "leave --memory-on out, or use --memory prefer",
                ));
            }
            refuse_balancing(args, mode)?;
            self.policy = Some(Policy::new(PolicyMode::Local, NodeSet::new()));
            return Ok(());
        }
        let chosen = match (named, on_nodes) {
            (Some(text), _) => {
                nodes.parse("--memory-on", text, || Ok(nodes.with_memory()?.clone()))?
            }
            (None, Some(on)) => on.clone(),
            (None, None) if matches!(mode, MemoryMode::Interleave | MemoryMode::Weighted) => {
                nodes.with_memory()?.clone()
            }
            (None, None) => {
                return Err(Helped::error(
                    "expected the nodes to take memory from, found none",
                    "add --memory-on NODES, or --on NODES to use the same nodes for both",
                ));
            }
        };
        nodes.check_memory(&chosen)?;
        let many = chosen.len() > 1;
        let mode = match mode {
            MemoryMode::Bind => PolicyMode::Bind,
            // Only the newer mode goes with balancing.
            MemoryMode::Prefer if many || args.balancing => PolicyMode::PreferredMany,
            MemoryMode::Prefer => PolicyMode::Preferred,
            MemoryMode::Interleave | MemoryMode::Local => PolicyMode::Interleave,
            MemoryMode::Weighted => PolicyMode::WeightedInterleave,
        };
        if !matches!(mode, PolicyMode::Bind | PolicyMode::PreferredMany) {
            refuse_balancing(
                args,
                if mode == PolicyMode::Interleave {
                    MemoryMode::Interleave
                } else {
                    MemoryMode::Weighted
                },
            )?;
        }
        self.policy = Some(Policy {
            mode,
            nodes: chosen,
            flags: PolicyFlags {
                numa_balancing: args.balancing,
                ..PolicyFlags::default()
            },
        });
        Ok(())
    }

    /// Strict binding kills what does not fit; too few CPUs only wait.
    fn warn_of_need(&mut self, need: &Need, machine: &Machine) {
        let need_cpus = usize::try_from(need.cpus).unwrap_or(usize::MAX);
        if let Some(cpus) = &self.cpus
            && cpus.len() < need_cpus
            && self.placement.is_none()
        {
            self.warnings.push(format!(
                "{need_cpus} CPUs needed, {} chosen: CPUs {cpus}",
                cpus.len()
            ));
        }
        let Some(policy) = &self.policy else { return };
        if policy.mode != PolicyMode::Bind {
            return;
        }
        let memory: Option<Vec<_>> = policy
            .nodes
            .iter()
            .map(|node| read_memory(machine.files(), node))
            .collect();
        let Some(memory) = memory else { return };
        let free: Bytes = memory.iter().map(|node| node.free).sum();
        let obtainable: Bytes = memory.iter().map(|node| node.obtainable()).sum();
        if need.memory > obtainable {
            self.warnings.push(format!(
                "{} needed, node {} has {free} free and at most {obtainable} to be had: bound \
                 strictly, the program will be killed when that is used up; --memory prefer lets \
                 it use other nodes",
                need.memory, policy.nodes
            ));
        }
    }

    /// A policy switches AutoNUMA off for the memory it governs, and nothing else says so.
    fn note_balancing(&mut self, nodes: &Nodes<'_>) -> anyhow::Result<()> {
        let Some(policy) = &self.policy else {
            return Ok(());
        };
        if policy.flags.numa_balancing || nodes.with_memory()?.len() < 2 {
            return Ok(());
        }
        let mut buffer = Buffer::new();
        let files = nodes.machine.files();
        let is_on = files
            .read("/proc/sys/kernel/numa_balancing", &mut buffer)
            .is_ok_and(|text| text.trim_ascii() != b"0");
        if is_on {
            let mut note =
                "with a memory policy, AutoNUMA no longer moves this program's memory".to_owned();
            if policy.mode == PolicyMode::Bind {
                note.push_str("; --balancing lets it, among the nodes it is bound to");
            }
            self.notes.push(note);
        }
        Ok(())
    }
}

fn refuse_balancing(args: &RunArgs, mode: MemoryMode) -> anyhow::Result<()> {
    if !args.balancing {
        return Ok(());
    }
    let mode = match mode {
        MemoryMode::Local => "local",
        MemoryMode::Weighted => "weighted",
        _ => "interleave",
    };
    Err(Helped::error(
        format!("--balancing does not go with --memory {mode}"),
        "the kernel knows it with bind and prefer",
    ))
}

/// The CPUs of `--cpus`, which must lie within those of `--on`.
fn narrow(on: Option<&CpuSet>, text: &str) -> anyhow::Result<CpuSet> {
    let parsed = if text.starts_with("0x") || text.starts_with("0X") {
        CpuSet::parse_mask(text)
    } else {
        CpuSet::parse_list(text)
    };
    let help = "write a list such as 0-3,8 or a mask such as 0x10000";
    let cpus = parsed
        .map_err(|error| Helped::wrap(format!("cannot read --cpus `{text}`"), error, help))?;
    if cpus.is_empty() {
        return Err(Helped::error(format!("--cpus `{text}` holds no CPU"), help));
    }
    if let Some(on) = on {
        let outside = cpus.difference(on);
        if !outside.is_empty() {
            return Err(Helped::error(
                format!("CPUs {outside} are not on the nodes of --on"),
                format!("those nodes have CPUs {on}"),
            ));
        }
    }
    Ok(cpus)
}
