//! What of a captured machine is nobody's business, and how it is taken out.

use homenode_host::Snapshot;

use crate::dmi::scrub_dmi;

/// Words of the kernel's command line that change what CPUs, nodes and memory look like.
const KERNEL_OPTIONS: [&str; 16] = [
    "numa=",
    "numa_balancing=",
    "isolcpus=",
    "nohz_full=",
    "maxcpus=",
    "nr_cpus=",
    "possible_cpus=",
    "nosmt",
    "mem=",
    "memmap=",
    "acpi=",
    "hugepages=",
    "hugepagesz=",
    "default_hugepagesz=",
    "transparent_hugepage=",
    "cgroup_disable=",
];

/// The words of a kernel command line that [`Topology::kernel_options`] keeps; the others may be
/// nobody's business.
pub(crate) fn kept_kernel_options(command_line: &str) -> impl Iterator<Item = &str> {
    command_line
        .split_ascii_whitespace()
        .filter(|word| KERNEL_OPTIONS.iter().any(|option| word.starts_with(option)))
}

/// Lines of `/proc/self/status` that the reader uses.
const STATUS_LINES: [&str; 4] = [
    "Cpus_allowed:",
    "Cpus_allowed_list:",
    "Mems_allowed:",
    "Mems_allowed_list:",
];

/// Where control groups are mounted, deepest first.
const GROUP_MOUNTS: [&str; 4] = [
    "/sys/fs/cgroup/cpuset",
    "/sys/fs/cgroup/cpu",
    "/sys/fs/cgroup/memory",
    "/sys/fs/cgroup",
];

/// Takes out of a capture what does not describe the machine: host name, serial numbers, command
/// lines, mounted file systems, names of control groups and of virtual devices.
///
/// What is left reads back as the same topology, but for those names.
pub fn scrub(machine: &mut Snapshot) {
    rename_groups(machine);
    remove_virtual_devices(machine);
    machine.rewrite(|path, content| match path {
        "/proc/self/status" => Some(keep_lines(content, |line| {
            STATUS_LINES.iter().any(|key| line.starts_with(key))
        })),
        "/proc/cpuinfo" => Some(keep_lines(content, |line| !line.starts_with("Serial"))),
        "/proc/mounts" => Some(keep_lines(content, |line| {
            let kind = line.split(' ').nth(2);
            matches!(kind, Some("cgroup" | "cgroup2" | "cpuset"))
        })),
        "/proc/cmdline" => {
            let text = String::from_utf8_lossy(content);
            let kept: Vec<&str> = kept_kernel_options(&text).collect();
            Some(format!("{}\n", kept.join(" ")).into_bytes())
        }
        _ if path.starts_with("/sys/firmware/dmi/entries/") => Some(scrub_dmi(content)),
        _ => Some(content.to_vec()),
    });
}

fn keep_lines(content: &[u8], keep: impl Fn(&str) -> bool) -> Vec<u8> {
    let text = String::from_utf8_lossy(content);
    text.split_inclusive('\n')
        .filter(|line| keep(line))
        .collect::<String>()
        .into_bytes()
}

/// `/machine.slice/vm-payroll.scope` becomes `/group1/group2`, in `/proc/self/cgroup` and in the
/// paths of the files of each group.
fn rename_groups(machine: &mut Snapshot) {
    let mut paths = Vec::new();
    machine.rewrite(|path, content| {
        if path != "/proc/self/cgroup" && path != "/proc/self/cpuset" {
            return Some(content.to_vec());
        }
        let text = String::from_utf8_lossy(content);
        let scrubbed = text.lines().map(|line| {
            let (before, group) = line.split_at(line.find('/').unwrap_or(line.len()));
            paths.push(group.to_owned());
            format!("{before}{}\n", scrubbed_group(group))
        });
        Some(scrubbed.collect::<String>().into_bytes())
    });
    paths.sort_unstable();
    paths.dedup();
    for path in &paths {
        let parts: Vec<&str> = path
            .split('/')
            .skip(1)
            .filter(|part| !part.is_empty())
            .collect();
        // Deepest first: each step renames one folder, whose parents still have their old names.
        for depth in (1..=parts.len()).rev() {
            let parent: String = parts[..depth - 1]
                .iter()
                .map(|part| format!("/{part}"))
                .collect();
            for mount in GROUP_MOUNTS {
                machine.rename(
                    &format!("{mount}{parent}/{}", parts[depth - 1]),
                    &format!("{mount}{parent}/group{depth}"),
                );
            }
        }
    }
}

fn scrubbed_group(path: &str) -> String {
    let depth = path
        .split('/')
        .skip(1)
        .filter(|part| !part.is_empty())
        .count();
    if depth == 0 {
        return path.to_owned();
    }
    (1..=depth).map(|depth| format!("/group{depth}")).collect()
}

/// Bridges, tunnels and volumes are named by people; they hang on no node.
fn remove_virtual_devices(machine: &mut Snapshot) {
    let names: Vec<String> = machine
        .links()
        .filter(|(path, target)| path.starts_with("/sys/class/") && target.contains("/virtual/"))
        .map(|(path, _)| path.to_owned())
        .collect();
    for name in names {
        machine.remove(&name);
    }
}

#[cfg(test)]
mod tests {
    use homenode_host::{Buffer, Files as _};

    use super::*;

    #[test]
    fn names_of_people_and_hosts_are_gone_and_the_rest_is_there() {
        let mut machine = Snapshot::default();
        machine.add_file(
            "/proc/cmdline",
            "BOOT_IMAGE=/secret numa=off root=UUID=secret\n",
        );
        machine.add_file(
            "/proc/self/status",
            "Name:\tsecret\nCpus_allowed_list:\t0-1\n",
        );
        machine.add_file("/proc/self/cgroup", "0::/secret.slice/vm-secret.scope\n");
        machine.add_file("/sys/fs/cgroup/secret.slice/cpu.max", "max 100000\n");
        machine.add_file(
            "/sys/fs/cgroup/secret.slice/vm-secret.scope/cpu.max",
            "1 2\n",
        );
        machine.add_file("/proc/cpuinfo", "processor : 0\nSerial : secret\n");
        machine.add_file(
            "/proc/mounts",
            "secret /secret nfs rw\nnone /m cgroup2 rw\n",
        );
        machine.add_link(
            "/sys/class/net/br-secret",
            "../../devices/virtual/net/br-secret",
        );
        machine.add_link(
            "/sys/class/net/eth0",
            "../../devices/pci0000:00/0000:00:02.0/net/eth0",
        );

        scrub(&mut machine);

        assert!(!format!("{machine:?}").contains("secret"), "{machine:#?}");
        let all: Vec<String> = machine
            .files()
            .map(|(path, content)| format!("{path} {}", String::from_utf8_lossy(content)))
            .collect();
        assert!(all.iter().all(|file| !file.contains("secret")), "{all:?}");
        let mut buffer = Buffer::new();
        let mut read =
            |path| String::from_utf8(machine.read(path, &mut buffer).unwrap().to_vec()).unwrap();
        assert_eq!(read("/proc/cmdline"), "numa=off\n");
        assert_eq!(read("/proc/self/status"), "Cpus_allowed_list:\t0-1\n");
        assert_eq!(read("/proc/self/cgroup"), "0::/group1/group2\n");
        assert_eq!(read("/sys/fs/cgroup/group1/group2/cpu.max"), "1 2\n");
        assert_eq!(read("/sys/fs/cgroup/group1/cpu.max"), "max 100000\n");
        assert_eq!(machine.links().count(), 1);
    }
}
