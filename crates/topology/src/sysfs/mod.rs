//! From the kernel's files to a [`Topology`].
//!
//! Every file is optional. What is missing is absent with its reason, what is wrong becomes a
//! [`Problem`](crate::Problem), and the rest is still read. Masks are read before lists, and a
//! group (package, core, cache) is read once, at its first CPU: 256 CPUs then need some 2,000
//! opens, not 10,000.

mod allowed;
mod cpus;
mod devices;
mod memory_kind;
mod nodes;
mod processor;
mod reader;

use homenode_host::Files;
use homenode_units::{Bytes, Reading};

use crate::acpi::{parse_hmat, parse_slit, parse_srat};
use crate::{Cache, CheckError, CpuGroup, Detail, Firmware, MemorySlot, Source, Topology};
use reader::{Gap, Reader};

/// Why a folder is no machine.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// Neither CPUs nor nodes were found.
    #[error("expected /sys/devices/system/cpu with at least one CPU, found none")]
    NoCpus,
    /// What was read cannot be true of any machine.
    #[error("the files contradict each other")]
    Impossible(#[from] CheckError),
}

/// Reads a machine.
///
/// # Errors
///
/// [`ReadError::NoCpus`] when the files describe no machine at all, [`ReadError::Impossible`] when
/// they contradict each other so that no machine could be like that. Everything less is a
/// [`Problem`](crate::Problem) or an absence in the topology.
pub fn read_topology(
    files: &(dyn Files + Sync),
    source: Source,
    detail: Detail,
) -> Result<Topology, ReadError> {
    let reader = &mut Reader::new(files);
    let found = cpus::read(reader, detail).ok_or(ReadError::NoCpus)?;
    let machine_memory = machine_memory(reader);
    let Parts {
        packages,
        caches,
        levels,
        nodes,
    } = read_parts(reader, detail, &found, &machine_memory);
    let core_kinds = match detail {
        Detail::Fast => Vec::new(),
        Detail::Full => found.read_core_kinds(reader),
    };
    let allowed = allowed::read(reader, &found.cpus.online, &nodes.list);
    let processor = processor::read(reader, &source);
    let kernel_options = kernel_options(reader);
    let node_ids = nodes.list.iter().map(|node| node.id).collect();
    let not_read = || "not read; use --full".to_owned();
    let full = detail == Detail::Full;
    let topology = Topology {
        source,
        detail,
        processor,
        packages,
        dies: levels.dies,
        clusters: levels.clusters,
        books: levels.books,
        drawers: levels.drawers,
        cores: levels.cores,
        caches,
        core_kinds,
        memory_total: machine_memory.map(|memory| memory.total),
        tiers: if full {
            nodes::read_tiers(reader, &node_ids)
        } else {
            Reading::absent(not_read())
        },
        demotion_enabled: if full {
            nodes::read_demotion(reader)
        } else {
            Reading::absent(not_read())
        },
        devices: if full {
            devices::read(reader, &found.cpus.online, &nodes.list)
        } else {
            Reading::absent(not_read())
        },
        memory_slots: if full {
            memory_slots(reader)
        } else {
            Reading::absent(not_read())
        },
        firmware: if full {
            firmware(reader)
        } else {
            firmware_not_read(&not_read())
        },
        cpus: found.cpus,
        nodes: nodes.list,
        nodes_implied: nodes.implied,
        nodes_offline: nodes.offline,
        distances: nodes.distances,
        allowed,
        kernel_options,
        problems: std::mem::take(&mut reader.problems),
    };
    topology.check()?;
    Ok(topology)
}

/// What is most of the work on a large machine.
struct Parts {
    packages: Vec<CpuGroup>,
    caches: Vec<Cache>,
    levels: cpus::Levels,
    nodes: nodes::Found,
}

/// From here on, starting threads costs less than it saves. Unit: CPUs.
const THREADS_FROM: usize = 64;

/// Reads the parts, side by side where there are many CPUs.
fn read_parts(
    reader: &mut Reader<'_>,
    detail: Detail,
    found: &cpus::Found,
    machine_memory: &Reading<MachineMemory>,
) -> Parts {
    let files = reader.files;
    let sets = &found.cpus;
    if detail == Detail::Fast || sets.online.len() < THREADS_FROM {
        let (packages, caches) = found.read_packages_and_caches(reader, detail);
        let mut levels = cpus::Levels::default();
        if detail == Detail::Full {
            levels = found.read_levels(reader);
            found.settle(reader, &packages, &mut levels);
        }
        let nodes = nodes::read(reader, detail, sets, machine_memory);
        return Parts {
            packages,
            caches,
            levels,
            nodes,
        };
    }
    let mut for_levels = Reader::new(files);
    let mut for_nodes = Reader::new(files);
    let mut levels = cpus::Levels::default();
    let (mut packages, mut caches) = (Vec::new(), Vec::new());
    let nodes = std::thread::scope(|scope| {
        let nodes = scope.spawn(|| nodes::read(&mut for_nodes, detail, sets, machine_memory));
        let other_levels = scope.spawn(|| levels = found.read_levels(&mut for_levels));
        (packages, caches) = found.read_packages_and_caches(reader, detail);
        // A panic of another thread is one of ours.
        other_levels
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        nodes
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    reader.problems.append(&mut for_levels.problems);
    reader.problems.append(&mut for_nodes.problems);
    found.settle(reader, &packages, &mut levels);
    Parts {
        packages,
        caches,
        levels,
        nodes,
    }
}

/// The whole machine's memory, as the kernel counts it.
#[derive(Debug, Clone, Copy)]
struct MachineMemory {
    total: Bytes,
    free: Option<Bytes>,
}

/// Source: `/proc/meminfo`, `proc_meminfo(5)`.
fn machine_memory(reader: &mut Reader<'_>) -> Reading<MachineMemory> {
    let memory = reader.value(format_args!("/proc/meminfo"), |text| {
        let total = meminfo_line(text, "MemTotal").ok_or("expected a line `MemTotal: <n> kB`")?;
        Ok(MachineMemory {
            total,
            free: meminfo_line(text, "MemFree"),
        })
    });
    reader.reading(memory)
}

/// The value of a line `Key:  value kB`, in `/proc/meminfo` or behind `Node n ` in a node's.
fn meminfo_line(text: &str, key: &str) -> Option<Bytes> {
    text.lines().find_map(|line| {
        let (before, value) = line.split_once(':')?;
        if before.rsplit(' ').next() != Some(key) {
            return None;
        }
        // The kernel's kB are KiB; huge page counts of the same file have no unit.
        let kib = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
        Some(Bytes::from_kib(kib))
    })
}

fn kernel_options(reader: &mut Reader<'_>) -> Vec<String> {
    reader
        .text(format_args!("/proc/cmdline"))
        .map(|text| {
            crate::scrub::kept_kernel_options(text)
                .map(str::to_owned)
                .collect()
        })
        .unwrap_or_default()
}

fn firmware_not_read(why: &str) -> Firmware {
    Firmware {
        srat: Reading::absent(why),
        slit: Reading::absent(why),
        hmat: Reading::absent(why),
    }
}

fn firmware(reader: &mut Reader<'_>) -> Firmware {
    Firmware {
        srat: acpi_table(reader, "SRAT", parse_srat),
        slit: acpi_table(reader, "SLIT", parse_slit),
        hmat: acpi_table(reader, "HMAT", parse_hmat),
    }
}

/// Source: `/sys/firmware/acpi/tables/<name>`, readable by root.
fn acpi_table<T, E: std::fmt::Display>(
    reader: &mut Reader<'_>,
    name: &str,
    parse: impl FnOnce(&[u8]) -> Result<T, E>,
) -> Reading<T> {
    let path = format!("/sys/firmware/acpi/tables/{name}");
    match reader.bytes(format_args!("{path}")).map(parse) {
        Ok(Ok(table)) => Reading::Known(table),
        Ok(Err(error)) => {
            reader.problem(path, error.to_string());
            reader.reading(Err(Gap::Bad))
        }
        Err(gap) => reader.reading(Err(gap)),
    }
}

/// Source: `/sys/firmware/dmi/entries/17-<n>/raw`, readable by root.
fn memory_slots(reader: &mut Reader<'_>) -> Reading<Vec<MemorySlot>> {
    const ENTRIES: &str = "/sys/firmware/dmi/entries";
    let instances = reader.numbered(ENTRIES, "17-");
    let instances = match instances {
        Ok(instances) if instances.is_empty() => {
            return Reading::absent("the firmware lists no memory slots");
        }
        Ok(instances) => instances,
        Err(gap) => return reader.reading(Err(gap)),
    };
    let mut slots = Vec::with_capacity(instances.len());
    for instance in instances {
        let path = format!("{ENTRIES}/17-{instance}/raw");
        match reader
            .bytes(format_args!("{path}"))
            .map(crate::dmi::parse_memory_slot)
        {
            Ok(Ok(slot)) => slots.push(slot),
            Ok(Err(error)) => reader.problem(path, error.to_string()),
            Err(gap) => return reader.reading(Err(gap)),
        }
    }
    Reading::Known(slots)
}
