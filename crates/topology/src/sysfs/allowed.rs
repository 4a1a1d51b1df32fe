//! What this process may use of the machine: affinity, cpusets, container limits.

use homenode_units::{Bytes, CpuSet, Id, IdSet, NodeSet};

use super::reader::{Gap, Reader};
use crate::{Allowed, CpuLimit, Node};

pub(super) fn read(reader: &mut Reader<'_>, online: &CpuSet, nodes: &[Node]) -> Allowed {
    let node_ids: NodeSet = nodes.iter().map(|node| node.id).collect();
    let groups = Groups::read(reader);
    let (cpus, nodes, evidence) = by_status(reader)
        .or_else(|| groups.cpuset(reader))
        .unwrap_or_else(|| {
            (
                online.clone(),
                node_ids.clone(),
                "nothing restricts it".to_owned(),
            )
        });
    let (cpu_limit, memory_limit) = groups.limits(reader);
    Allowed {
        cpus: cpus.intersection(online),
        nodes: nodes.intersection(&node_ids),
        evidence,
        cpu_limit,
        memory_limit,
    }
}

type Sets = (CpuSet, NodeSet, String);

/// The kernel's own answer; it has affinity, cpusets and offline CPUs in it already.
/// Source: `Cpus_allowed_list` and `Mems_allowed_list` of `/proc/self/status`.
fn by_status(reader: &mut Reader<'_>) -> Option<Sets> {
    let sets = reader.value(format_args!("/proc/self/status"), |text| {
        let field = |key: &str| {
            text.lines()
                .find_map(|line| line.strip_prefix(key)?.strip_prefix(':'))
                .ok_or_else(|| format!("expected a line `{key}:`"))
        };
        fn parse<T: Id>(list: &str) -> Result<IdSet<T>, String> {
            IdSet::parse_list(list).map_err(|error| error.to_string())
        }
        Ok((
            parse(field("Cpus_allowed_list")?)?,
            parse(field("Mems_allowed_list")?)?,
        ))
    });
    sets.ok()
        .map(|(cpus, nodes)| (cpus, nodes, "/proc/self/status".to_owned()))
}

/// The control groups of this process, as the folders that hold their files.
#[derive(Debug, Default)]
struct Groups {
    /// Version 2, and its mount point.
    unified: Option<Group>,
    /// Version 1: controller and folder.
    cpuset: Option<Group>,
    cpu: Option<Group>,
    memory: Option<Group>,
}

#[derive(Debug, Clone)]
struct Group {
    mount: String,
    /// Below the mount point; starts with `/`, ends without.
    path: String,
    /// What a file's name starts with: `cpuset.` but nothing on a `cpuset` file system.
    cpuset_prefix: &'static str,
}

impl Group {
    /// The group's folder, then its parent's, up to the mount point: limits of each apply.
    fn folders(&self) -> impl Iterator<Item = String> + '_ {
        let mut rest = Some(self.path.trim_end_matches('/'));
        std::iter::from_fn(move || {
            let here = rest?;
            rest = here.rfind('/').map(|slash| &here[..slash]);
            Some(format!("{}{here}", self.mount))
        })
    }
}

impl Groups {
    /// Sources: `/proc/self/cgroup`, `cgroups(7)`, or `/proc/self/cpuset` in old captures; mount
    /// points from `/proc/mounts` unless the usual one serves.
    fn read(reader: &mut Reader<'_>) -> Self {
        let mut groups = Self::default();
        let lines = reader
            .text(format_args!("/proc/self/cgroup"))
            .map(str::to_owned);
        let Ok(lines) = lines else {
            if let Ok(path) = reader
                .text(format_args!("/proc/self/cpuset"))
                .map(str::to_owned)
            {
                groups.find_cpuset_mounts(reader, &path);
            }
            return groups;
        };
        for line in lines.lines() {
            let mut parts = line.splitn(3, ':');
            let (Some(_), Some(controllers), Some(path)) =
                (parts.next(), parts.next(), parts.next())
            else {
                continue;
            };
            let group = |mount: &str| {
                Some(Group {
                    mount: mount.to_owned(),
                    path: path.to_owned(),
                    cpuset_prefix: "cpuset.",
                })
            };
            if controllers.is_empty() {
                groups.unified = group("/sys/fs/cgroup");
            }
            for controller in controllers.split(',') {
                match controller {
                    "cpuset" => groups.cpuset = group("/sys/fs/cgroup/cpuset"),
                    "cpu" => groups.cpu = group("/sys/fs/cgroup/cpu"),
                    "memory" => groups.memory = group("/sys/fs/cgroup/memory"),
                    _ => {}
                }
            }
        }
        groups
    }

    /// Looks for cpuset files under every mount that can have them.
    fn find_cpuset_mounts(&mut self, reader: &mut Reader<'_>, path: &str) {
        let mounts = reader.text(format_args!("/proc/mounts")).map(str::to_owned);
        for line in mounts.unwrap_or_default().lines() {
            let mut words = line.split(' ').skip(1);
            let (Some(mount), Some(kind), Some(options)) =
                (words.next(), words.next(), words.next())
            else {
                continue;
            };
            let group = |cpuset_prefix| {
                Some(Group {
                    mount: mount.to_owned(),
                    path: path.to_owned(),
                    cpuset_prefix,
                })
            };
            let has_cpuset = options.split(',').any(|option| option == "cpuset");
            match kind {
                "cgroup2" => self.unified = group("cpuset."),
                // Mounted with `noprefix`, as the old cpuset file system is, names are bare.
                "cgroup" if has_cpuset && options.split(',').any(|word| word == "noprefix") => {
                    self.cpuset = group("");
                }
                "cgroup" if has_cpuset => self.cpuset = group("cpuset."),
                "cpuset" => self.cpuset = group(""),
                _ => {}
            }
        }
    }

    fn cpuset(&self, reader: &mut Reader<'_>) -> Option<Sets> {
        if let Some(group) = &self.unified
            && let Some(found) = read_cpuset(reader, group, ".effective")
        {
            return Some(found);
        }
        read_cpuset(reader, self.cpuset.as_ref()?, "")
    }

    /// The tightest limits of the group and all above it.
    fn limits(&self, reader: &mut Reader<'_>) -> (Option<CpuLimit>, Option<Bytes>) {
        let mut cpu_limits = Vec::new();
        let mut memory_limits = Vec::new();
        // A controller is in one hierarchy only: one that has its own is not in version 2's
        // (cgroups(7), Linux 6.12).
        for folder in self.unified.iter().flat_map(Group::folders) {
            if self.cpu.is_none() {
                cpu_limits.extend(reader.value(format_args!("{folder}/cpu.max"), parse_cpu_max));
            }
            if self.memory.is_none() {
                memory_limits
                    .extend(reader.value(format_args!("{folder}/memory.max"), parse_memory_max));
            }
        }
        for folder in self.cpu.iter().flat_map(Group::folders) {
            let quota = reader.number::<i64>(format_args!("{folder}/cpu.cfs_quota_us"));
            let Some(quota_us) = quota.ok().and_then(|quota| u64::try_from(quota).ok()) else {
                continue;
            };
            let period = reader.number::<u64>(format_args!("{folder}/cpu.cfs_period_us"));
            if let Ok(period_us @ 1..) = period {
                cpu_limits.push(Some(CpuLimit {
                    quota_us,
                    period_us,
                }));
            }
        }
        for folder in self.memory.iter().flat_map(Group::folders) {
            let limit = reader.number::<u64>(format_args!("{folder}/memory.limit_in_bytes"));
            // "No limit" is the largest multiple of the page size (PAGE_COUNTER_MAX).
            memory_limits.push(limit.ok().filter(|&limit| limit < u64::MAX / 4).map(Bytes));
        }
        (
            cpu_limits
                .into_iter()
                .flatten()
                .min_by_key(|limit| limit.quota_us.saturating_mul(1000) / limit.period_us),
            memory_limits.into_iter().flatten().min(),
        )
    }
}

fn read_cpuset(reader: &mut Reader<'_>, group: &Group, suffix: &str) -> Option<Sets> {
    let prefix = group.cpuset_prefix;
    // An empty file means "as the parent" on version 2 and nothing usable on version 1.
    for folder in group.folders() {
        let cpus: Result<CpuSet, Gap> = reader.list(format_args!("{folder}/{prefix}cpus{suffix}"));
        let nodes: Result<NodeSet, Gap> =
            reader.list(format_args!("{folder}/{prefix}mems{suffix}"));
        if let (Ok(cpus), Ok(nodes)) = (cpus, nodes)
            && !cpus.is_empty()
            && !nodes.is_empty()
        {
            return Some((cpus, nodes, format!("{folder}/{prefix}cpus{suffix}")));
        }
    }
    None
}

/// `max 100000` or `200000 100000`: quota and period in microseconds.
fn parse_cpu_max(text: &str) -> Result<Option<CpuLimit>, String> {
    let bad = || format!("expected a quota and a period, such as `200000 100000`, found `{text}`");
    let (quota, period) = text.split_once(' ').ok_or_else(bad)?;
    let period_us = period
        .parse()
        .ok()
        .filter(|&period: &u64| period > 0)
        .ok_or_else(bad)?;
    if quota == "max" {
        return Ok(None);
    }
    let quota_us = quota.parse().map_err(|_| bad())?;
    Ok(Some(CpuLimit {
        quota_us,
        period_us,
    }))
}

/// `max` or bytes.
fn parse_memory_max(text: &str) -> Result<Option<Bytes>, String> {
    if text == "max" {
        return Ok(None);
    }
    text.parse()
        .map(|bytes| Some(Bytes(bytes)))
        .map_err(|_| format!("expected bytes or `max`, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_of_a_group() {
        assert_eq!(parse_cpu_max("max 100000"), Ok(None));
        let limit = CpuLimit {
            quota_us: 150_000,
            period_us: 100_000,
        };
        assert_eq!(parse_cpu_max("150000 100000"), Ok(Some(limit)));
        parse_cpu_max("1 0").unwrap_err();
        assert_eq!(parse_memory_max("max"), Ok(None));
        assert_eq!(parse_memory_max("1048576"), Ok(Some(Bytes(1 << 20))));
        parse_memory_max("-1").unwrap_err();
    }

    #[test]
    fn limits_are_looked_for_up_to_the_mount_point() {
        let group = |path: &str| Group {
            mount: "/m".to_owned(),
            path: path.to_owned(),
            cpuset_prefix: "cpuset.",
        };
        assert!(group("/a/b").folders().eq(["/m/a/b", "/m/a", "/m"]));
        assert!(group("/").folders().eq(["/m"]));
    }
}
