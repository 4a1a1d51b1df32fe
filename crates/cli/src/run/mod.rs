//! `homenode run`: becomes a program, on chosen nodes.
//!
//! Nothing is forked: this process sets its own CPUs and memory policy, both of which survive
//! exec, and turns into the program, with the same process id.

mod args;
mod launch;
mod nodes;
mod plan;

use std::io::Write;
use std::process::ExitCode;

use homenode_policy::Placement;
use homenode_sys::Policy;
use serde::Serialize;

use crate::args::MachineArgs;
use crate::error::Helped;
use crate::source::Machine;
pub(crate) use args::RunArgs;
use plan::Plan;

/// Runs the command; returns only when the program was not started.
///
/// # Errors
///
/// When the request contradicts itself or the machine, or the kernel refuses it.
pub(crate) fn run(
    args: &RunArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let machine = Machine::open(machine)?;
    if let (Machine::Captured(..), false) = (&machine, args.dry_run) {
        return Err(Helped::error(
            "a captured machine runs nothing",
            "add --dry-run to see what would be done, or leave --root out",
        ));
    }
    let plan = Plan::new(args, &machine)?;
    for (label, sentences) in [("warning", &plan.warnings), ("note", &plan.notes)] {
        if label == "note" && args.quiet {
            continue;
        }
        for sentence in sentences {
            tell(label, sentence);
        }
    }
    if args.dry_run {
        show(args, &plan, out)?;
        return Ok(ExitCode::SUCCESS);
    }
    launch::apply(&plan, &machine)?;
    Ok(launch::become_program(&args.command))
}

#[expect(
    clippy::print_stderr,
    reason = "standard output belongs to the program that is started"
)]
fn tell(label: &str, sentence: &str) {
    eprintln!("{label}: {sentence}");
}

/// One system call of a plan.
#[derive(Debug, Serialize)]
#[serde(tag = "call", rename_all = "snake_case")]
enum Call {
    SchedSetaffinity {
        cpus: String,
    },
    SetMempolicy {
        mode: String,
        nodes: String,
        flags: Vec<&'static str>,
    },
    Execvp {
        program: String,
        arguments: Vec<String>,
    },
}

#[derive(Debug, Serialize)]
struct DryRun<'a> {
    schema: &'static str,
    calls: &'a [Call],
    /// How nodes were chosen; null where they were named.
    placement: Option<&'a Placement>,
    warnings: &'a [String],
    notes: &'a [String],
}

/// What [`launch`] does, in the order in which it does it.
fn calls(args: &RunArgs, plan: &Plan) -> Vec<Call> {
    let mut calls = Vec::new();
    calls.extend(plan.cpus.as_ref().map(|cpus| Call::SchedSetaffinity {
        cpus: cpus.to_string(),
    }));
    calls.extend(plan.policy.as_ref().map(|policy| Call::SetMempolicy {
        mode: policy.mode.to_string(),
        nodes: policy.nodes.to_string(),
        flags: flags(policy),
    }));
    let mut words = args
        .command
        .iter()
        .map(|word| word.to_string_lossy().into_owned());
    calls.push(Call::Execvp {
        program: words.next().unwrap_or_default(),
        arguments: words.collect(),
    });
    calls
}

fn flags(policy: &Policy) -> Vec<&'static str> {
    let set = [
        (policy.flags.static_nodes, "MPOL_F_STATIC_NODES"),
        (policy.flags.relative_nodes, "MPOL_F_RELATIVE_NODES"),
        (policy.flags.numa_balancing, "MPOL_F_NUMA_BALANCING"),
    ];
    set.into_iter()
        .filter(|&(is_set, _)| is_set)
        .map(|(_, name)| name)
        .collect()
}

fn show(args: &RunArgs, plan: &Plan, out: &mut dyn Write) -> anyhow::Result<()> {
    let calls = calls(args, plan);
    if args.json {
        let dry_run = DryRun {
            schema: "homenode.run/1",
            calls: &calls,
            placement: plan.placement.as_ref(),
            warnings: &plan.warnings,
            notes: &plan.notes,
        };
        return Ok(writeln!(
            out,
            "{}",
            serde_json::to_string_pretty(&dry_run)?
        )?);
    }
    for call in &calls {
        match call {
            Call::SchedSetaffinity { cpus } => writeln!(out, "sched_setaffinity  CPUs {cpus}")?,
            Call::SetMempolicy { mode, nodes, flags } => {
                let words: Vec<&str> = std::iter::once(mode.as_str())
                    .chain(flags.iter().copied())
                    .collect();
                let on = if nodes.is_empty() {
                    String::new()
                } else {
                    format!(", nodes {nodes}")
                };
                writeln!(out, "set_mempolicy      {}{on}", words.join(" | "))?;
            }
            Call::Execvp { program, arguments } => {
                let words: Vec<&str> = std::iter::once(program.as_str())
                    .chain(arguments.iter().map(String::as_str))
                    .collect();
                writeln!(out, "execvp             {}", words.join(" "))?;
            }
        }
    }
    for reason in plan.placement.iter().flat_map(|chosen| &chosen.reasons) {
        writeln!(out, "because            {reason}")?;
    }
    Ok(())
}
