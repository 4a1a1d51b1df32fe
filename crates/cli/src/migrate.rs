//! `homenode migrate`: moves the memory of running processes.

mod errors;
mod show;

use std::io::Write;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Context as _;
use homenode_act::{
    Control, Ended, Outcome, PaceOptions, Plan, PlanError, Progress, Request, Spread, migrate,
    plan_migration,
};
use homenode_host::{Buffer, Files as _, Live, Sharing};
use homenode_units::{NodeSet, Pid};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::EXIT_FINDING;
use crate::args::{MachineArgs, MigrateArgs, SpreadArg};
use crate::error::Helped;
use crate::source::Machine;
use errors::{explain_act, explain_plan};
use show::Show;

/// Runs the command.
///
/// # Errors
///
/// When there is nothing that could be moved, or the kernel refuses to.
pub(crate) fn run(
    args: &MigrateArgs,
    machine: &MachineArgs,
    out: &mut dyn Write,
) -> anyhow::Result<ExitCode> {
    let Machine::Live(live) = Machine::open(machine)? else {
        return Err(Helped::error(
            "expected the running machine, found a captured one: nothing can be moved there",
            "leave out --root, and unset HOMENODE_ROOT",
        ));
    };
    let to = parse_nodes("--to", &args.to)?;
    let from = args
        .from
        .as_ref()
        .map(|text| parse_nodes("--from", text))
        .transpose()?;
    let stop = Arc::new(AtomicBool::new(false));
    for signal in [SIGINT, SIGTERM] {
        // The second one of a kind ends the program at once; that is safe, too.
        signal_hook::flag::register_conditional_default(signal, Arc::clone(&stop))
            .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&stop)))
            .context("cannot watch for interrupts")?;
    }
    let request = |pid| Request {
        pid,
        to: to.clone(),
        from: from.clone(),
        sharing: if args.shared {
            Sharing::Move
        } else {
            Sharing::Leave
        },
        spread: match args.spread {
            SpreadArg::Proportional => Spread::Proportional,
            SpreadArg::Nearest => Spread::Nearest,
        },
    };
    let mut show = Show::new(out, args.json);
    let plans = match (args.pid, &args.cgroup) {
        (Some(pid), _) => vec![plan_one(&live, &request(Pid(pid)))?],
        (None, Some(group)) => plan_group(&live, group, request, &mut show)?,
        (None, None) => unreachable!("the command line requires one of them"),
    };
    for plan in &plans {
        show.plan(plan)?;
    }
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let pace = PaceOptions {
        latency_budget: args.latency_budget,
        rate_per_second: args.rate,
    };
    move_all(&live, &plans, pace, &stop, &mut show)
}

fn move_all(
    live: &Live,
    plans: &[Plan],
    pace: PaceOptions,
    stop: &AtomicBool,
    show: &mut Show<'_>,
) -> anyhow::Result<ExitCode> {
    let mut found = ExitCode::SUCCESS;
    for plan in plans {
        if stop.load(Ordering::Relaxed) {
            show.not_started(plan)?;
            found = ExitCode::from(EXIT_FINDING);
            continue;
        }
        let outcome = move_one(live, plan, pace, stop, show)?;
        show.outcome(plan, &outcome)?;
        // In a group, processes come and go; what has ended needs no memory.
        let is_fine =
            outcome.is_complete() || (plans.len() > 1 && outcome.ended == Ended::ProcessEnded);
        if !is_fine {
            found = ExitCode::from(EXIT_FINDING);
        }
    }
    Ok(found)
}

fn move_one(
    live: &Live,
    plan: &Plan,
    pace: PaceOptions,
    stop: &AtomicBool,
    show: &mut Show<'_>,
) -> anyhow::Result<Outcome> {
    struct Watch<'a, 'b> {
        plan: &'a Plan,
        stop: &'a AtomicBool,
        show: &'a mut Show<'b>,
        failed: Option<std::io::Error>,
    }
    impl Control for Watch<'_, '_> {
        fn is_interrupted(&self) -> bool {
            // Nobody reads what is printed any more: `homenode migrate … --json | head`.
            self.failed.is_some() || self.stop.load(Ordering::Relaxed)
        }
        fn progress(&mut self, progress: &Progress<'_>) {
            if let Err(error) = self.show.progress(self.plan, progress) {
                self.failed = Some(error);
            }
        }
    }
    let mut watch = Watch {
        plan,
        stop,
        show,
        failed: None,
    };
    let outcome = migrate(live, plan, pace, &mut watch);
    if let Some(error) = watch.failed {
        return Err(error.into());
    }
    watch.show.clear();
    outcome.map_err(explain_act)
}

fn parse_nodes(flag: &str, text: &str) -> anyhow::Result<NodeSet> {
    let help = "write a list of nodes such as 1 or 2-3; `homenode topo` shows them";
    let nodes = NodeSet::parse_list(text)
        .map_err(|error| Helped::wrap(format!("cannot read {flag} `{text}`"), error, help))?;
    if nodes.is_empty() {
        return Err(Helped::error(
            format!("{flag} `{text}` holds no node"),
            help,
        ));
    }
    Ok(nodes)
}

fn plan_one(live: &Live, request: &Request) -> anyhow::Result<Plan> {
    if request.pid == Pid(0) {
        return Err(Helped::error(
            "expected the number of a process, found 0",
            "`homenode report` shows the processes with the most memory",
        ));
    }
    refuse_self(request.pid)
        .and_then(|()| plan_migration(live, request))
        .map_err(explain_plan)
}

/// It would move what it works with.
fn refuse_self(pid: Pid) -> Result<(), PlanError> {
    if pid.0 == std::process::id() {
        return Err(PlanError::Itself { pid });
    }
    Ok(())
}

fn plan_group(
    live: &Live,
    group: &str,
    request: impl Fn(Pid) -> Request,
    show: &mut Show<'_>,
) -> anyhow::Result<Vec<Plan>> {
    let mut plans = Vec::new();
    for pid in read_group(live, group)? {
        match refuse_self(pid).and_then(|()| plan_migration(live, &request(pid))) {
            Ok(plan) => plans.push(plan),
            Err(
                error @ (PlanError::NoProcess { .. }
                | PlanError::Zombie { .. }
                | PlanError::KernelThread { .. }
                | PlanError::Itself { .. }),
            ) => show.left_out(pid, &error)?,
            Err(error) => return Err(explain_plan(error)),
        }
    }
    if plans.is_empty() {
        return Err(Helped::error(
            format!("control group {group} has no process with memory of its own"),
            "`systemd-cgls` shows the groups and their processes",
        ));
    }
    Ok(plans)
}

const CGROUPS: &str = "/sys/fs/cgroup";

/// More groups below one are a mistake, such as `/`, on any machine.
const GROUPS_MAX: usize = 10_000;

/// The processes of a group and of all below it, in order.
fn read_group(live: &Live, group: &str) -> anyhow::Result<Vec<Pid>> {
    let relative = group.strip_prefix(CGROUPS).unwrap_or(group);
    let top = format!("{CGROUPS}/{}", relative.trim_matches('/'));
    if relative.split('/').any(|part| part == "..") {
        return Err(Helped::error(
            format!("expected the path of a control group, found `{group}`"),
            "name it as below /sys/fs/cgroup, such as system.slice/db.service",
        ));
    }
    let mut buffer = Buffer::new();
    let mut pids = Vec::new();
    let mut groups = vec![top.trim_end_matches('/').to_owned()];
    let mut seen = 0;
    while let Some(path) = groups.pop() {
        seen += 1;
        let text = match live.read(&format!("{path}/cgroup.procs"), &mut buffer) {
            Ok(text) => String::from_utf8_lossy(text).into_owned(),
            // A file, or a group that was removed meanwhile.
            Err(error) if seen > 1 && error.is_not_found() => continue,
            Err(error) => {
                return Err(Helped::wrap(
                    format!("cannot read control group {group}"),
                    error,
                    "name it as below /sys/fs/cgroup (cgroup v2), such as system.slice/db.service",
                ));
            }
        };
        pids.extend(text.lines().filter_map(|line| line.parse().ok()).map(Pid));
        if seen > GROUPS_MAX {
            break;
        }
        for name in live.list(&path).unwrap_or_default() {
            // The kernel's files have a dot and a known first part; groups may have dots, too.
            let kernels = [
                "cgroup.", "memory.", "cpu.", "cpuset.", "io.", "pids.", "hugetlb.",
            ]
            .iter()
            .any(|prefix| name.starts_with(prefix));
            if !kernels {
                groups.push(format!("{path}/{name}"));
            }
        }
    }
    pids.sort_unstable();
    pids.dedup();
    // 0 is a process outside of this PID namespace.
    pids.retain(|pid| pid.0 != 0);
    Ok(pids)
}
