//! `numactl`: runs a command under a memory policy and on chosen CPUs, or shows both.
//!
//! Options act in the order in which they stand, each at once; the command then takes the place
//! of this process. Made to the description in the reference and to what numactl 2.0.19 was seen
//! to do; differences on purpose are in `docs/drop-ins.md`.

mod devices;
mod options;
pub(crate) mod shm;
mod show;
mod system;
pub(crate) mod text;

use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use homenode_sys::{Policy, PolicyMode};
use homenode_units::{CpuId, CpuSet, Id, IdSet, NodeSet};

use crate::getopt::Getopt;
use crate::spec::{BadSpec, Universe, parse_cpus, parse_nodes};
use options::{Flag, OPTIONS};
use shm::{Region, RegionOptions};
use system::{LiveSystem, System};
use text::{Failure, reason};

/// The version whose behaviour this is.
const VERSION: &str = "2.0.19";

const POSSIBLE_NODES: &str = "/sys/devices/system/node/possible";
const POSSIBLE_CPUS: &str = "/sys/devices/system/cpu/possible";

/// Answers for `numactl` with these arguments.
#[must_use]
pub fn main(args: &[OsString]) -> ExitCode {
    let mut out = io::stdout().lock();
    let mut err = io::stderr().lock();
    let status = run(&mut LiveSystem, args, &mut out, &mut err);
    let _ = out.flush();
    ExitCode::from(status)
}

/// Reads a node specification as the other tools of the package do: no `same`, no `--all`.
pub(crate) fn named_nodes(text: &OsStr) -> Result<NodeSet, BadSpec> {
    let universe = Universe {
        allowed: LiveSystem.allowed_nodes(),
        noun: "node",
    };
    parse_nodes(text, &universe, &|device| {
        devices::device_nodes(&LiveSystem, device)
    })
}

fn run<S: System>(
    system: &mut S,
    args: &[OsString],
    out: &mut dyn Write,
    err: &mut dyn Write,
) -> u8 {
    let mut session = Session {
        system,
        out,
        err,
        all: false,
        named: None,
        specified: false,
        policy: false,
        balancing: false,
        hardware: false,
        compress_cpus: false,
        bound_cpus: false,
        inherited: None,
        strict: false,
        verify_failed: false,
        options: RegionOptions::default(),
        region: None,
    };
    match session.run(args) {
        Ok(status) => status,
        Err(failure) => {
            failure.print(session.out, session.err);
            1
        }
    }
}

/// What the options so far have set.
struct Session<'a, S> {
    system: &'a mut S,
    out: &'a mut dyn Write,
    err: &'a mut dyn Write,
    /// Nodes and CPUs are any possible ones, not only allowed ones.
    all: bool,
    /// The last node specification, which `same` means.
    named: Option<OsString>,
    /// Whether any node or CPU specification was read.
    specified: bool,
    /// Whether a policy was set.
    policy: bool,
    balancing: bool,
    hardware: bool,
    compress_cpus: bool,
    /// Whether the affinity of this process was set.
    bound_cpus: bool,
    /// The CPUs that this process was started on, which CPU specifications are about, whatever an
    /// earlier option has made of them.
    inherited: Option<CpuSet>,
    strict: bool,
    /// Whether `--verify` found a page where it should not be.
    verify_failed: bool,
    options: RegionOptions,
    /// Shared memory that policies are set on, in place of this process.
    region: Option<Region>,
}

impl<S: System> Session<'_, S> {
    fn run(&mut self, args: &[OsString]) -> Result<u8, Failure> {
        let mut options = Getopt::new(&OPTIONS, args);
        for option in options.by_ref() {
            let (flag, argument) = option.map_err(|wrong| Failure::usage(wrong.to_string()))?;
            if let Some(status) = self.act(flag, argument.unwrap_or_default())? {
                return Ok(status);
            }
        }
        self.finish(options.rest())
    }

    /// Does what an option asks for; a status where that is all.
    fn act(&mut self, flag: Flag, argument: &OsStr) -> Result<Option<u8>, Failure> {
        match flag {
            Flag::Show => return Ok(Some(show::show(self.system, self.out, self.err))),
            Flag::Version => {
                self.before_policy()?;
                let _ = writeln!(self.out, "{VERSION}");
                return Ok(Some(0));
            }
            Flag::Hardware => {
                self.before_policy()?;
                self.hardware = true;
            }
            Flag::CpuCompress => self.compress_cpus = true,
            Flag::All => {
                if self.specified {
                    return Err(Failure::usage(
                        "--all/-a option must be before all cpu/node specifications",
                    ));
                }
                self.all = true;
            }
            Flag::Balancing => {
                self.before_policy()?;
                self.balancing = true;
            }
            Flag::PhysCpuBind => self.bind_cpus(argument)?,
            Flag::CpuNodeBind => self.bind_to_nodes(argument)?,
            Flag::Interleave => self.interleave(argument, PolicyMode::Interleave)?,
            Flag::Weighted => self.interleave(argument, PolicyMode::WeightedInterleave)?,
            Flag::Preferred => self.prefer(argument)?,
            Flag::PreferredMany => self.prefer_many(argument)?,
            Flag::Bind => self.bind_memory(argument)?,
            Flag::Local => {
                self.needs_numa()?;
                self.set(
                    &Policy::new(PolicyMode::Local, NodeSet::new()),
                    "local allocation",
                )?;
            }
            _ => self.act_on_region(flag, argument)?,
        }
        Ok(None)
    }

    /// The options of shared memory.
    fn act_on_region(&mut self, flag: Flag, argument: &OsStr) -> Result<(), Failure> {
        let options = &mut self.options;
        match flag {
            Flag::Length => {
                options.length_bytes = shm::parse_size(argument);
                options.last = Some("--length");
            }
            Flag::Offset => {
                options.offset_bytes = shm::parse_size(argument);
                options.last = Some("--offset");
            }
            Flag::ShmMode => {
                options.mode = shm::parse_mode(argument).ok_or(Failure::Usage(None))?;
                options.last = Some("--shmmode");
            }
            Flag::Huge => {
                options.huge = true;
                options.last = Some("--huge");
            }
            Flag::ShmId => options.id = shm::parse_id(argument).ok_or(Failure::Usage(None))?,
            Flag::Strict => self.strict = true,
            Flag::Shm | Flag::File => self.open_region(flag, Path::new(argument))?,
            Flag::Touch => self.region_for("--touch")?.touch()?,
            Flag::Verify => {
                let region = self.region.as_ref();
                let region = region.ok_or_else(|| misplaced("--verify"))?;
                self.verify_failed |= region.verify(self.out)?;
            }
            Flag::Dump => {
                let region = self.region.as_ref();
                region.ok_or_else(|| without("--dump"))?.dump(self.out)?;
            }
            Flag::DumpNodes => {
                let region = self.region.as_ref();
                let region = region.ok_or_else(|| without("--dump-nodes"))?;
                region.dump_nodes(self.out)?;
            }
            other => unreachable!("{other:?} acts on no region"),
        }
        Ok(())
    }

    fn region_for(&self, action: &str) -> Result<&Region, Failure> {
        self.region.as_ref().ok_or_else(|| misplaced(action))
    }

    fn open_region(&mut self, flag: Flag, path: &Path) -> Result<(), Failure> {
        self.before_policy()?;
        if self.bound_cpus {
            return Err(Failure::usage("cannot do --cpubind on shared memory"));
        }
        self.region = None;
        self.region = Some(if flag == Flag::File {
            Region::of_file(path, &self.options)?
        } else {
            Region::of_segment(path, &self.options, self.err)?
        });
        Ok(())
    }

    /// Runs the command, or says what there is.
    fn finish(&mut self, command: &[OsString]) -> Result<u8, Failure> {
        if self.hardware {
            let compress = self.compress_cpus;
            return Ok(show::hardware(self.system, compress, self.out, self.err));
        }
        if self.region.is_some() {
            return match command {
                [] => Ok(self.verify_failed.into()),
                _ => Err(Failure::Usage(None)),
            };
        }
        if let Some(option) = self.options.last {
            let complaint = format!("shm related option {option} for process");
            return Err(Failure::usage(complaint));
        }
        if self.strict {
            let warning = "numactl: warning. Strict flag for process ignored.";
            let _ = writeln!(self.err, "{warning}");
        }
        let Some(program) = command.first() else {
            return Err(Failure::Usage(None));
        };
        let _ = self.out.flush();
        let error = self.system.exec(command);
        Err(Failure::Complaint(format!(
            "execution of `{}': {}\n",
            program.display(),
            reason(&error)
        )))
    }

    /// Refuses an option that may not follow a policy.
    fn before_policy(&self) -> Result<(), Failure> {
        if self.policy {
            return Err(Failure::usage("specify policy after --shm/--file"));
        }
        Ok(())
    }

    /// Refuses options of shared memory before one that is about the process.
    fn about_process(&mut self, option: &str) -> Result<(), Failure> {
        if let Some(last) = self.options.last {
            return Err(Failure::usage(format!(
                "{last} shm option is not allowed before {option}"
            )));
        }
        if self.region.is_some() {
            return Err(Failure::usage("cannot do --cpubind on shared memory"));
        }
        self.bound_cpus = true;
        Ok(())
    }

    fn needs_numa(&self) -> Result<(), Failure> {
        if self.system.has_numa() {
            Ok(())
        } else {
            Err(Failure::Complaint(
                "This system does not support NUMA policy".to_owned(),
            ))
        }
    }

    /// Reads a node specification.
    fn nodes(&mut self, text: &OsStr) -> Result<NodeSet, Failure> {
        self.specified = true;
        let text = if text == "same" {
            self.named
                .clone()
                .ok_or_else(|| Failure::usage("same needs previous node specification"))?
        } else {
            text.to_owned()
        };
        let possible = self.all.then(|| self.possible(POSSIBLE_NODES)).flatten();
        let universe = Universe {
            allowed: possible.unwrap_or_else(|| self.system.allowed_nodes()),
            noun: "node",
        };
        let system: &S = self.system;
        let read = parse_nodes(&text, &universe, &|device| {
            devices::device_nodes(system, device)
        });
        let nodes = read.map_err(|bad| bad_spec(&text, bad))?;
        self.named = Some(text);
        Ok(nodes)
    }

    /// Reads a CPU specification.
    fn cpus(&mut self, text: &OsStr) -> Result<CpuSet, Failure> {
        self.specified = true;
        let possible = self.all.then(|| self.possible(POSSIBLE_CPUS)).flatten();
        let universe: Universe<CpuId> = Universe {
            allowed: possible.unwrap_or_else(|| self.inherited()),
            noun: "cpu",
        };
        parse_cpus(text, &universe).map_err(|bad| bad_spec(text, bad))
    }

    fn inherited(&mut self) -> CpuSet {
        let system: &S = self.system;
        self.inherited
            .get_or_insert_with(|| system.affinity().unwrap_or_default())
            .clone()
    }

    fn possible<T: Id>(&self, path: &str) -> Option<IdSet<T>> {
        let mut buffer = Vec::new();
        let text = self.system.files().read(path, &mut buffer).ok()?;
        IdSet::parse_list(std::str::from_utf8(text).ok()?).ok()
    }

    fn bind_cpus(&mut self, text: &OsStr) -> Result<(), Failure> {
        self.about_process("-C/--physcpubind")?;
        let cpus = self.cpus(text)?;
        self.system
            .set_affinity(&cpus)
            .map_err(|error| Failure::Lines(vec![format!("sched_setaffinity: {}", reason(&error))]))
    }

    fn bind_to_nodes(&mut self, text: &OsStr) -> Result<(), Failure> {
        self.about_process("-c/--cpubind/--cpunodebind")?;
        self.needs_numa()?;
        let nodes = self.nodes(text)?;
        let cpus = nodes.iter().fold(CpuSet::new(), |cpus, node| {
            cpus.union(&show::node_cpus(self.system, node))
        });
        self.inherited();
        self.system.set_affinity(&cpus).map_err(|error| {
            let reason = reason(&error);
            Failure::Lines(vec![
                format!("numa_sched_setaffinity_v2_int() failed: {reason}"),
                format!("sched_setaffinity: {reason}"),
            ])
        })
    }

    fn interleave(&mut self, text: &OsStr, mode: PolicyMode) -> Result<(), Failure> {
        self.needs_numa()?;
        let nodes = self.nodes(text)?;
        let policy = if nodes.is_empty() && self.region.is_none() {
            Policy::default()
        } else {
            Policy::new(mode, nodes)
        };
        self.set(&policy, "setting interleave mask")
    }

    fn prefer(&mut self, text: &OsStr) -> Result<(), Failure> {
        self.needs_numa()?;
        let nodes = self.nodes(text)?;
        if nodes.len() != 1 {
            return Err(Failure::Usage(None));
        }
        // On shared memory upstream prefers through the newer mode, and --dump shows it.
        let mode = if self.region.is_some() && self.kernel_prefers_many() {
            PolicyMode::PreferredMany
        } else {
            PolicyMode::Preferred
        };
        self.set(&Policy::new(mode, nodes), "setting preferred node")
    }

    fn prefer_many(&mut self, text: &OsStr) -> Result<(), Failure> {
        self.needs_numa()?;
        let nodes = self.nodes(text)?;
        self.set(
            &Policy::new(PolicyMode::PreferredMany, nodes),
            "setting preferred node",
        )
        .map_err(|failure| {
            if failure_is_policy_conflict(&failure) || self.kernel_prefers_many() {
                failure
            } else {
                Failure::Complaint("preferred-many requested without kernel support".to_owned())
            }
        })
    }

    /// Asks the kernel, not its version, and leaves the policy as it was.
    fn kernel_prefers_many(&mut self) -> bool {
        let before = self.system.policy();
        let lowest = self.system.allowed_nodes().lowest();
        let policy = Policy::new(PolicyMode::PreferredMany, lowest.into_iter().collect());
        let does = self.system.set_policy(&policy).is_ok();
        if let Ok(before) = before {
            let _ = self.system.set_policy(&before);
        }
        does
    }

    fn bind_memory(&mut self, text: &OsStr) -> Result<(), Failure> {
        self.needs_numa()?;
        let nodes = self.nodes(text)?;
        let mut policy = Policy::new(PolicyMode::Bind, nodes);
        policy.flags.numa_balancing = self.balancing && self.region.is_none();
        self.set(&policy, "setting membind")
    }

    /// Sets the policy of this process, or of the region; there is one.
    fn set(&mut self, policy: &Policy, purpose: &str) -> Result<(), Failure> {
        if self.policy {
            return Err(Failure::usage("Conflicting policies"));
        }
        self.policy = true;
        match &self.region {
            Some(region) => region
                .set(policy, self.strict)
                .map_err(|error| Failure::call("mbind", purpose, &error)),
            None => self
                .system
                .set_policy(policy)
                .map_err(|error| Failure::call("set_mempolicy", purpose, &error)),
        }
    }
}

/// An action before there is a region.
fn misplaced(action: &str) -> Failure {
    Failure::usage(format!(
        "{action} must be after shared memory specification"
    ))
}

fn without(action: &str) -> Failure {
    Failure::Complaint(format!("Cannot do {action} without shared memory."))
}

fn failure_is_policy_conflict(failure: &Failure) -> bool {
    matches!(failure, Failure::Usage(_))
}

fn bad_spec(text: &OsStr, bad: BadSpec) -> Failure {
    Failure::BadSpec {
        spec: text.to_string_lossy().into_owned(),
        bad,
    }
}

#[cfg(test)]
mod tests;
