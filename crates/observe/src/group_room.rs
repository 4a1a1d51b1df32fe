//! What the control groups of this process still let it have.

use homenode_host::{Buffer, Files};
use homenode_units::Bytes;

use crate::cgroup::{Version, parse_membership};

/// The tightest limit above this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupRoom {
    /// Memory until the limit, the file cache of the group given up for it. Unit: bytes.
    pub left: Bytes,
    /// The file that holds the limit.
    pub file: String,
}

/// Finds the tightest memory limit of this process's group and of all groups above it; `None` where
/// nothing limits it.
///
/// Source: `memory.max`, `memory.high`, `memory.current` and `inactive_file`, `active_file` of
/// `memory.stat` (Documentation/admin-guide/cgroup-v2.rst); `memory.limit_in_bytes`,
/// `memory.usage_in_bytes` and the same fields with `total_` in version 1.
#[must_use]
pub fn read_group_room(files: &(impl Files + ?Sized)) -> Option<GroupRoom> {
    let mut buffer = Buffer::new();
    let text = files.read("/proc/self/cgroup", &mut buffer).ok()?;
    let (version, path) = parse_membership(&String::from_utf8_lossy(text)).memory?;
    let names = Names::of(version);
    let mut rest = Some(path.trim_end_matches('/'));
    let folders = std::iter::from_fn(|| {
        let here = rest?;
        rest = here.rfind('/').map(|slash| &here[..slash]);
        Some(format!("{}{here}", names.mount))
    });
    folders
        .flat_map(|folder| rooms(files, &folder, &names))
        .min_by_key(|room| room.left)
}

/// What the files of a version are called.
struct Names {
    mount: &'static str,
    limits: &'static [&'static str],
    used: &'static str,
    cache: [&'static str; 2],
}

impl Names {
    fn of(version: Version) -> Self {
        match version {
            Version::One => Self {
                mount: "/sys/fs/cgroup/memory",
                limits: &["memory.limit_in_bytes"],
                used: "memory.usage_in_bytes",
                cache: ["total_inactive_file ", "total_active_file "],
            },
            Version::Two => Self {
                mount: "/sys/fs/cgroup",
                limits: &["memory.max", "memory.high"],
                used: "memory.current",
                cache: ["inactive_file ", "active_file "],
            },
        }
    }
}

fn rooms(files: &(impl Files + ?Sized), folder: &str, names: &Names) -> Vec<GroupRoom> {
    let mut buffer = Buffer::new();
    let mut read = |name: &str| {
        let text = files.read(&format!("{folder}/{name}"), &mut buffer).ok()?;
        Some(String::from_utf8_lossy(text).trim().to_owned())
    };
    // `max` is no number and no limit; version 1 says it with a number beyond all memory.
    let limits: Vec<(&str, u64)> = names
        .limits
        .iter()
        .filter_map(|name| Some((*name, read(name)?.parse().ok()?)))
        .filter(|&(_, limit)| limit < u64::MAX / 4)
        .collect();
    if limits.is_empty() {
        return Vec::new();
    }
    let Some(used) = read(names.used).and_then(|text| text.parse::<u64>().ok()) else {
        return Vec::new();
    };
    let stat = read("memory.stat").unwrap_or_default();
    let cache: u64 = names
        .cache
        .iter()
        .filter_map(|name| {
            let line = stat.lines().find_map(|line| line.strip_prefix(name))?;
            line.parse::<u64>().ok()
        })
        .fold(0, u64::saturating_add);
    limits
        .into_iter()
        .map(|(name, limit)| GroupRoom {
            left: Bytes(limit.saturating_sub(used.saturating_sub(cache))),
            file: format!("{folder}/{name}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use homenode_host::Snapshot;

    use super::*;

    #[test]
    fn the_tightest_group_above_counts_and_its_cache_can_go() {
        let mut machine = Snapshot::default();
        machine.add_file("/proc/self/cgroup", "0::/a.slice/b.scope\n");
        assert_eq!(read_group_room(&machine), None);
        let a = "/sys/fs/cgroup/a.slice";
        let b = "/sys/fs/cgroup/a.slice/b.scope";
        for (file, text) in [
            (format!("{b}/memory.max"), "max\n"),
            (format!("{b}/memory.high"), "9000\n"),
            (format!("{b}/memory.current"), "1000\n"),
            (format!("{a}/memory.max"), "8000\n"),
            (format!("{a}/memory.high"), "max\n"),
            (format!("{a}/memory.current"), "5000\n"),
            (
                format!("{a}/memory.stat"),
                "anon 3000\nfile 2000\ninactive_file 1500\nactive_file 500\n",
            ),
        ] {
            machine.add_file(&file, text);
        }
        let room = |left, file: String| {
            Some(GroupRoom {
                left: Bytes(left),
                file,
            })
        };
        assert_eq!(
            read_group_room(&machine),
            room(5000, format!("{a}/memory.max"))
        );
        machine.add_file(&format!("{b}/memory.high"), "900\n");
        assert_eq!(
            read_group_room(&machine),
            room(0, format!("{b}/memory.high")),
            "over it already"
        );
    }

    #[test]
    fn version_one_has_other_names_and_a_number_for_no_limit() {
        let mut machine = Snapshot::default();
        machine.add_file("/proc/self/cgroup", "4:cpu,memory:/m\n");
        let m = "/sys/fs/cgroup/memory";
        for (file, text) in [
            (format!("{m}/m/memory.limit_in_bytes"), "4096\n"),
            (format!("{m}/m/memory.usage_in_bytes"), "1024\n"),
            (
                format!("{m}/m/memory.stat"),
                "inactive_file 1\ntotal_inactive_file 24\n",
            ),
            (
                format!("{m}/memory.limit_in_bytes"),
                "9223372036854771712\n",
            ),
            (format!("{m}/memory.usage_in_bytes"), "1\n"),
        ] {
            machine.add_file(&file, text);
        }
        let room = read_group_room(&machine).unwrap();
        assert_eq!(room.left, Bytes(3096));
        assert!(
            room.file.ends_with("/m/memory.limit_in_bytes"),
            "{}",
            room.file
        );
    }
}
