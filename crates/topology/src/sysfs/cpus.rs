//! CPUs, and what groups them: packages, dies, clusters, cores, caches.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use homenode_units::{Bytes, CpuId, CpuSet};

use super::reader::{Gap, Reader, shorten};
use crate::{Cache, CacheKind, CoreKind, CpuGroup, Cpus, Detail, GroupedBy};

const CPU: &str = "/sys/devices/system/cpu";

/// The CPUs, and which of them can be read on.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) cpus: Cpus,
    /// The online CPUs that have a folder.
    readable: CpuSet,
    /// What was read on the way.
    ids: PackageIds,
}

/// Groups between a package and a CPU, and around packages.
#[derive(Debug, Default)]
pub(super) struct Levels {
    pub(super) dies: Vec<CpuGroup>,
    pub(super) clusters: Vec<CpuGroup>,
    pub(super) books: Vec<CpuGroup>,
    pub(super) drawers: Vec<CpuGroup>,
    pub(super) cores: Vec<CpuGroup>,
}

/// Returns `None` when no CPU is online.
pub(super) fn read(reader: &mut Reader<'_>, detail: Detail) -> Option<Found> {
    let mut ids = PackageIds::default();
    let cpus = read_cpus(reader, &mut ids, detail);
    if cpus.online.is_empty() {
        return None;
    }
    let readable = readable(reader, &cpus.online, detail);
    Some(Found {
        cpus,
        readable,
        ids,
    })
}

impl Found {
    /// Packages and caches.
    pub(super) fn read_packages_and_caches(
        &self,
        reader: &mut Reader<'_>,
        detail: Detail,
    ) -> (Vec<CpuGroup>, Vec<Cache>) {
        let packages = read_packages(reader, &self.readable, self.ids.clone());
        let caches = match detail {
            Detail::Fast => read_level_3(reader, &self.readable),
            Detail::Full => read_caches(reader, &self.readable),
        };
        (packages, caches)
    }

    /// Everything else that groups CPUs, as if each mask could be trusted; see [`Self::settle`].
    pub(super) fn read_levels(&self, reader: &mut Reader<'_>) -> Levels {
        let mut read = |level| read_groups(reader, &self.readable, None, level);
        Levels {
            dies: read(&DIE),
            clusters: read(&CLUSTER),
            books: read(&BOOK),
            drawers: read(&DRAWER),
            cores: read(&CORE),
        }
    }

    /// Makes the levels fit into the packages.
    pub(super) fn settle(
        &self,
        reader: &mut Reader<'_>,
        packages: &[CpuGroup],
        levels: &mut Levels,
    ) {
        for (level, groups) in [
            (&DIE, &mut levels.dies),
            (&CLUSTER, &mut levels.clusters),
            (&CORE, &mut levels.cores),
        ] {
            let fits = |group: &CpuGroup| {
                let first = group.cpus.lowest();
                first.is_none_or(|cpu| within_package(&group.cpus, cpu, packages) == group.cpus)
            };
            // A mask that crosses packages hid CPUs that have to be asked themselves.
            if !groups.iter().all(fits) {
                *groups = read_groups(reader, &self.readable, Some(packages), level);
            }
        }
        // A die or cluster that is its whole package, or a cluster that is one core, is a level
        // the hardware does not have: kernels fill the files in all the same.
        let is_one_of = |groups: &[CpuGroup], group: &CpuGroup| {
            groups.iter().any(|other| other.cpus == group.cpus)
        };
        levels.dies.retain(|die| !is_one_of(packages, die));
        let cores = &levels.cores;
        levels
            .clusters
            .retain(|cluster| !is_one_of(packages, cluster) && !is_one_of(cores, cluster));
    }

    /// Kinds of cores.
    pub(super) fn read_core_kinds(&self, reader: &mut Reader<'_>) -> Vec<CoreKind> {
        read_core_kinds(reader, &self.readable)
    }
}

fn read_cpus(reader: &mut Reader<'_>, ids: &mut PackageIds, detail: Detail) -> Cpus {
    let online = match reader.list::<CpuId>(format_args!("{CPU}/online")) {
        Ok(online) if !online.is_empty() => online,
        _ => online_by_folder(reader, ids),
    };
    let present = reader
        .list(format_args!("{CPU}/present"))
        .unwrap_or_else(|_| folders(reader));
    let (possible, isolated) = match detail {
        Detail::Fast => (CpuSet::new(), CpuSet::new()),
        Detail::Full => (
            reader
                .list(format_args!("{CPU}/possible"))
                .unwrap_or_default(),
            reader
                .list(format_args!("{CPU}/isolated"))
                .unwrap_or_default(),
        ),
    };
    Cpus {
        offline: present.difference(&online),
        possible: possible.union(&present).union(&online),
        isolated: isolated.intersection(&online),
        online,
    }
}

/// The CPUs that have a folder.
fn folders(reader: &mut Reader<'_>) -> CpuSet {
    let numbers = reader.numbered(CPU, "cpu").unwrap_or_default();
    numbers.into_iter().map(CpuId).collect()
}

/// The online CPUs that have a folder. Containers show some without, and a list in a damaged
/// capture may name a million; a list of a likely length is not worth the look to `Detail::Fast`.
fn readable(reader: &mut Reader<'_>, online: &CpuSet, detail: Detail) -> CpuSet {
    /// As many as Linux supports (`CONFIG_NR_CPUS`, x86).
    const LIKELY_MAX: usize = 8192;
    if detail == Detail::Fast && online.len() <= LIKELY_MAX {
        return online.clone();
    }
    let folders = folders(reader);
    let missing = online.difference(&folders);
    if !missing.is_empty() {
        reader.problem(
            format!("{CPU}/online"),
            format!("expected a folder for each online CPU, found none for CPUs {missing}"),
        );
    }
    online.intersection(&folders)
}

/// Old kernels and partial captures have no lists: a CPU is then online when it has a topology
/// and no `online` file that holds 0 (CPU 0 often has none).
fn online_by_folder(reader: &mut Reader<'_>, ids: &mut PackageIds) -> CpuSet {
    let mut online = CpuSet::new();
    for cpu in folders(reader).iter() {
        let switched_off = reader.number(format_args!("{CPU}/cpu{cpu}/online")) == Ok(0u32);
        let has_topology = |reader: &mut Reader<'_>, ids: &mut PackageIds| {
            // The id is needed anyway, and shows the folder that it is in.
            ids.read(reader, cpu).is_some()
                || reader.files.is_folder(&format!("{CPU}/cpu{cpu}/topology"))
        };
        if !switched_off && has_topology(reader, ids) {
            online.insert(cpu);
        }
    }
    online
}

/// The package ids of CPUs, each read once.
#[derive(Debug, Default, Clone)]
struct PackageIds(BTreeMap<CpuId, Option<u32>>);

impl PackageIds {
    fn read(&mut self, reader: &mut Reader<'_>, cpu: CpuId) -> Option<u32> {
        *self.0.entry(cpu).or_insert_with(|| {
            reader.id(format_args!("{CPU}/cpu{cpu}/topology/physical_package_id"))
        })
    }
}

/// Packages are grouped by id where there is one, else by mask.
///
/// Neither is always right: on Cluster-on-Die machines with Linux 3.10 the masks show clusters, on
/// Madison ia64 the ids repeat. An id is read at the first and the last CPU of each mask, and at
/// every CPU of a mask whose two differ.
fn read_packages(reader: &mut Reader<'_>, online: &CpuSet, mut ids: PackageIds) -> Vec<CpuGroup> {
    let mut by_id: BTreeMap<u32, CpuSet> = BTreeMap::new();
    let mut by_mask: Vec<CpuGroup> = Vec::new();
    let mut seen = CpuSet::new();
    let mut masks = ["package_cpus", "core_siblings"];
    for cpu in online.iter() {
        if seen.contains(cpu) {
            continue;
        }
        let topology = format!("{CPU}/cpu{cpu}/topology");
        let id = ids.read(reader, cpu);
        let mask = read_mask(reader, online, cpu, &topology, &mut masks);
        let Some(id) = id else {
            if let Ok(mask) = mask {
                let cpus = mask.difference(&seen);
                seen.extend(cpus.iter());
                by_mask.push(CpuGroup {
                    id: None,
                    cpus,
                    grouped_by: GroupedBy::Mask,
                });
            }
            seen.insert(cpu);
            continue;
        };
        let mask = mask.unwrap_or_else(|_| [cpu].into_iter().collect());
        let last = mask.highest().unwrap_or(cpu);
        if last == cpu || ids.read(reader, last) == Some(id) {
            seen.extend(mask.iter());
            by_id.entry(id).or_default().extend(mask.iter());
            continue;
        }
        reader.problem(
            format!("{topology}/package_cpus"),
            format!("expected CPUs {mask} to have one package id, found {id} at CPU {cpu} and another at CPU {last}; using the ids"),
        );
        for member in mask.iter() {
            if let Some(id) = ids.read(reader, member) {
                seen.insert(member);
                by_id.entry(id).or_default().insert(member);
            }
        }
    }
    let by_id = by_id.into_iter().map(|(id, cpus)| CpuGroup {
        id: Some(id),
        cpus,
        grouped_by: GroupedBy::Id,
    });
    disjoint(by_id.chain(by_mask))
}

/// Groups in the order of their lowest CPU; CPUs that two of them claim go to the first.
fn disjoint(groups: impl Iterator<Item = CpuGroup>) -> Vec<CpuGroup> {
    let mut taken = CpuSet::new();
    let mut disjoint = Vec::new();
    for group in groups {
        let cpus = group.cpus.difference(&taken);
        taken = taken.union(&cpus);
        if !cpus.is_empty() {
            disjoint.push(CpuGroup { cpus, ..group });
        }
    }
    disjoint.sort_by_key(|group| group.cpus.lowest());
    disjoint
}

/// A level of grouping: its id file and its mask files, new name first.
#[derive(Debug)]
struct Level {
    id: &'static str,
    masks: [&'static str; 2],
}

const DIE: Level = Level {
    id: "die_id",
    masks: ["die_cpus", "die_cpus"],
};
const CLUSTER: Level = Level {
    id: "cluster_id",
    masks: ["cluster_cpus", "cluster_cpus"],
};
const CORE: Level = Level {
    id: "core_id",
    masks: ["core_cpus", "thread_siblings"],
};
const BOOK: Level = Level {
    id: "book_id",
    masks: ["book_siblings", "book_siblings"],
};
const DRAWER: Level = Level {
    id: "drawer_id",
    masks: ["drawer_siblings", "drawer_siblings"],
};

/// The online CPUs of a mask file at a CPU; a mask without the CPU itself is refused.
///
/// `names` are the file's names, new and old, the same where it never had another. What was found
/// under the second one is asked for first from then on: a kernel has one of them everywhere.
fn read_mask(
    reader: &mut Reader<'_>,
    online: &CpuSet,
    cpu: CpuId,
    folder: &str,
    names: &mut [&'static str; 2],
) -> Result<CpuSet, Gap> {
    let mut mask: Result<CpuSet, Gap> = reader.mask(format_args!("{folder}/{}", names[0]));
    if mask == Err(Gap::Missing) && names[0] != names[1] {
        mask = reader.mask(format_args!("{folder}/{}", names[1]));
        if mask.is_ok() {
            names.swap(0, 1);
        }
    }
    let mask = mask.or_else(|gap| {
        // `core_cpus` has `core_cpus_list` beside it, `shared_cpu_map` `shared_cpu_list`.
        let stem = names[0].strip_suffix("_map").unwrap_or(names[0]);
        reader
            .list(format_args!("{folder}/{stem}_list"))
            .map_err(|_| gap)
    })?;
    let cpus = mask.intersection(online);
    if cpus.contains(cpu) {
        return Ok(cpus);
    }
    reader.problem(
        format!("{folder}/{}", names[0]),
        format!("expected a mask that holds CPU {cpu}, found CPUs `{mask}`"),
    );
    Err(Gap::Bad)
}

fn read_groups(
    reader: &mut Reader<'_>,
    online: &CpuSet,
    packages: Option<&[CpuGroup]>,
    level: &Level,
) -> Vec<CpuGroup> {
    let mut groups = Vec::new();
    let mut seen = CpuSet::new();
    let mut masks = level.masks;
    for cpu in online.iter() {
        if seen.contains(cpu) {
            continue;
        }
        let folder = format!("{CPU}/cpu{cpu}/topology");
        let cpus = match read_mask(reader, online, cpu, &folder, &mut masks) {
            Ok(cpus) => cpus.difference(&seen),
            // A level that the first CPU does not have is asked for no more.
            Err(Gap::Missing) if seen.is_empty() => return groups,
            Err(_) => continue,
        };
        let cpus = match packages {
            Some(packages) => {
                let inside = within_package(&cpus, cpu, packages);
                if inside != cpus {
                    let message =
                        format!("expected CPUs of one package, found {cpus}; using {inside}");
                    reader.problem(format!("{folder}/{}", masks[0]), message);
                }
                inside
            }
            None => cpus,
        };
        seen = seen.union(&cpus);
        let id = reader.id(format_args!("{folder}/{}", level.id));
        let grouped_by = if id.is_some() {
            GroupedBy::Id
        } else {
            GroupedBy::Mask
        };
        groups.push(CpuGroup {
            id,
            cpus,
            grouped_by,
        });
    }
    disjoint(groups.into_iter())
}

/// Those of the CPUs that are in the package of this one, or in none if it is in none.
fn within_package(cpus: &CpuSet, cpu: CpuId, packages: &[CpuGroup]) -> CpuSet {
    match packages.iter().find(|package| package.cpus.contains(cpu)) {
        Some(package) => cpus.intersection(&package.cpus),
        None => packages
            .iter()
            .fold(cpus.clone(), |rest, package| rest.difference(&package.cpus)),
    }
}

/// The level 3 caches, which the verdict needs: their CPUs, kind and size.
///
/// A machine whose first CPU has none is asked no more.
fn read_level_3(reader: &mut Reader<'_>, online: &CpuSet) -> Vec<Cache> {
    /// Where it usually is comes first: behind two level 1 caches and one of level 2.
    const POSITIONS: [u8; 5] = [3, 2, 4, 1, 0];
    let mut caches = Vec::new();
    let mut seen = CpuSet::new();
    for cpu in online.iter() {
        if seen.contains(cpu) {
            continue;
        }
        let found = POSITIONS.into_iter().find_map(|position| {
            let folder = format!("{CPU}/cpu{cpu}/cache/index{position}");
            let level = reader.value(format_args!("{folder}/level"), parse_cache_level);
            (level == Ok(3)).then_some(folder)
        });
        let Some(folder) = found else {
            if seen.is_empty() {
                return caches;
            }
            continue;
        };
        seen.insert(cpu);
        if let Some(cache) = read_cache_size(reader, online, cpu, &folder, 3) {
            let cpus = cache
                .cpus
                .difference(&seen)
                .union(&[cpu].into_iter().collect());
            seen = seen.union(&cpus);
            caches.push(Cache { cpus, ..cache });
        }
    }
    caches
}

/// All caches, each read at its first CPU.
///
/// A machine whose first CPU has none is asked no more.
fn read_caches(reader: &mut Reader<'_>, online: &CpuSet) -> Vec<Cache> {
    let mut caches: Vec<Cache> = Vec::new();
    // Level, kind and lowest CPU name a cache.
    let mut starts = BTreeSet::new();
    // By position of the kernel's `index<i>` folders: the CPUs whose cache there is known.
    let mut seen: Vec<CpuSet> = Vec::new();
    for cpu in online.iter() {
        let known_positions = seen.len();
        if known_positions > 0 && seen.iter().all(|cpus| cpus.contains(cpu)) {
            continue;
        }
        for position in 0.. {
            if seen.get(position).is_some_and(|cpus| cpus.contains(cpu)) {
                continue;
            }
            let folder = format!("{CPU}/cpu{cpu}/cache/index{position}");
            let level = match reader.value(format_args!("{folder}/level"), parse_cache_level) {
                Err(Gap::Missing) if position < known_positions => continue,
                Err(Gap::Missing) => break,
                level => level,
            };
            if position >= seen.len() {
                seen.resize(position + 1, CpuSet::new());
            }
            let cache = level
                .ok()
                .and_then(|level| read_cache(reader, online, cpu, &folder, level, &caches));
            let Some(cache) = cache else {
                seen[position].insert(cpu);
                continue;
            };
            let cpus = cache.cpus.difference(&seen[position]);
            seen[position] = seen[position].union(&cpus);
            if starts.insert((cache.level, cache.kind, cpus.lowest())) {
                caches.push(Cache { cpus, ..cache });
            } else {
                reader.problem(
                    folder,
                    "expected each cache once, found it at another index too",
                );
            }
        }
        if seen.is_empty() {
            break;
        }
    }
    caches.sort_by_key(|cache| (Reverse(cache.level), cache.kind, cache.cpus.lowest()));
    caches
}

/// A cache's CPUs, kind and size.
fn read_cache_size(
    reader: &mut Reader<'_>,
    online: &CpuSet,
    cpu: CpuId,
    folder: &str,
    level: u8,
) -> Option<Cache> {
    let mut names = ["shared_cpu_map"; 2];
    let cpus = read_mask(reader, online, cpu, folder, &mut names).ok()?;
    let kind = reader.value(format_args!("{folder}/type"), |text| match text {
        "Data" => Ok(CacheKind::Data),
        "Instruction" => Ok(CacheKind::Instruction),
        "Unified" => Ok(CacheKind::Unified),
        other => Err(format!(
            "expected Data, Instruction or Unified, found `{}`",
            shorten(other)
        )),
    });
    let size = reader.value(format_args!("{folder}/size"), parse_cache_size);
    let size = reader.reading(size);
    let kind = kind.ok()?;
    Some(Cache {
        level,
        kind,
        id: None,
        size,
        line_size: None,
        ways: None,
        cpus,
    })
}

/// As [`read_cache_size`], with the rest.
fn read_cache(
    reader: &mut Reader<'_>,
    online: &CpuSet,
    cpu: CpuId,
    folder: &str,
    level: u8,
    known: &[Cache],
) -> Option<Cache> {
    let cache = read_cache_size(reader, online, cpu, folder, level)?;
    // Caches of one level, kind and size are built alike: two files less for each.
    let alike =
        |other: &&Cache| (other.level, other.kind, &other.size) == (level, cache.kind, &cache.size);
    let (line_size, ways, numbered) = match known.iter().find(alike) {
        // Where the first cache has no id, none has.
        Some(twin) => (twin.line_size, twin.ways, twin.id.is_some()),
        None => (
            reader
                .number(format_args!("{folder}/coherency_line_size"))
                .ok()
                .map(Bytes),
            reader
                .number(format_args!("{folder}/ways_of_associativity"))
                .ok(),
            true,
        ),
    };
    let id = if numbered {
        reader.id(format_args!("{folder}/id"))
    } else {
        None
    };
    Some(Cache {
        id,
        line_size,
        ways,
        ..cache
    })
}

fn parse_cache_level(text: &str) -> Result<u8, String> {
    let level = text.parse().ok().filter(|level| (1..=9).contains(level));
    level.ok_or_else(|| {
        format!(
            "expected a cache level from 1 on, found `{}`",
            shorten(text)
        )
    })
}

/// `32768K`, or `30M` in a few captures.
fn parse_cache_size(text: &str) -> Result<Bytes, String> {
    let split = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(split);
    let shift = match unit {
        "" => Some(0),
        "K" => Some(10),
        "M" => Some(20),
        _ => None,
    };
    number
        .parse::<u64>()
        .ok()
        .zip(shift)
        .and_then(|(number, shift)| number.checked_mul(1 << shift))
        .map(Bytes)
        .ok_or_else(|| format!("expected a size such as 32768K, found `{}`", shorten(text)))
}

/// Intel names its kinds by the counters they have, arm by relative capacity.
///
/// Highest frequencies are no evidence: favoured cores of one kind differ in them too.
fn read_core_kinds(reader: &mut Reader<'_>, online: &CpuSet) -> Vec<CoreKind> {
    let mut kinds: Vec<CoreKind> = Vec::new();
    for (counters, name) in [
        ("cpu_core", "performance (Intel P-core)"),
        ("cpu_atom", "efficiency (Intel E-core)"),
        ("cpu_lowpower", "low power (Intel LP E-core)"),
    ] {
        if let Ok(cpus) = reader.list(format_args!("/sys/devices/{counters}/cpus")) {
            let cpus = cpus.intersection(online);
            if !cpus.is_empty() {
                kinds.push(CoreKind {
                    cpus,
                    name: name.to_owned(),
                });
            }
        }
    }
    if kinds.is_empty() {
        let mut by_capacity: BTreeMap<u32, CpuSet> = BTreeMap::new();
        for cpu in online.iter() {
            match reader.number(format_args!("{CPU}/cpu{cpu}/cpu_capacity")) {
                Ok(capacity) => by_capacity.entry(capacity).or_default().insert(cpu),
                Err(_) if by_capacity.is_empty() => break,
                Err(_) => {}
            }
        }
        let kind = |(capacity, cpus)| CoreKind {
            cpus,
            name: format!("capacity {capacity}"),
        };
        kinds = by_capacity.into_iter().rev().map(kind).collect();
    }
    if kinds.len() < 2 { Vec::new() } else { kinds }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_sizes_are_kib_or_mib() {
        assert_eq!(parse_cache_size("32768K"), Ok(Bytes(32 << 20)));
        assert_eq!(parse_cache_size("30M"), Ok(Bytes(30 << 20)));
        assert_eq!(parse_cache_size("512"), Ok(Bytes(512)));
        for text in [
            "",
            "K",
            "-1K",
            "1G",
            "99999999999999999999K",
            "18446744073709551615M",
        ] {
            let message = parse_cache_size(text).unwrap_err();
            assert!(
                message.starts_with("expected a size such as 32768K"),
                "{text}: {message}"
            );
        }
    }
}
