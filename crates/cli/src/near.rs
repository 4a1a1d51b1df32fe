//! From the name of a device to the nodes it hangs on.

use std::path::{Path, PathBuf};

use homenode_host::{Buffer, Files};
use homenode_policy::Goal;
use homenode_topology::Topology;
use homenode_units::{NodeId, NodeSet};

use crate::error::Helped;
use crate::source::Machine;

/// Devices on devices: a logical volume on a RAID on partitions is three.
const LAYERS_MAX: u32 = 8;

/// Devices that an error names.
const NAMED_MAX: usize = 8;

/// The goal to be near a network interface, block device, PCI address or the disk of a file.
///
/// # Errors
///
/// When there is no such device, or the machine does not say where it is.
pub(crate) fn near(machine: &Machine, topology: &Topology, device: &str) -> anyhow::Result<Goal> {
    let devices = Devices {
        files: machine.files(),
        topology,
    };
    let (kind, name) = match device.split_once(':') {
        Some((kind @ ("netdev" | "block" | "pci" | "file"), name)) => (kind, name),
        _ => ("", device),
    };
    let found = match kind {
        "file" => devices.of(&disk_of_file(machine, Path::new(name))?, 0),
        _ => devices.of(name, 0),
    };
    match found {
        // Where there is one node, everything is on it, said or not.
        Found::Unplaced(_) if topology.nodes.len() == 1 => Ok(Goal::Near {
            nodes: topology.node_ids(),
            what: device.to_owned(),
        }),
        Found::OnNodes(nodes) => Ok(Goal::Near {
            nodes,
            what: device.to_owned(),
        }),
        Found::Unplaced(why) => Err(Helped::error(
            format!("the machine does not say on which node {device} is: {why}"),
            "choose nodes yourself, or let --on auto choose",
        )),
        Found::Nothing => Err(Helped::error(
            format!("expected a device of this machine, found `{device}`"),
            devices.examples(),
        )),
    }
}

/// What is known about a name.
#[derive(Debug)]
enum Found {
    OnNodes(NodeSet),
    Unplaced(String),
    Nothing,
}

struct Devices<'a> {
    files: &'a dyn Files,
    topology: &'a Topology,
}

impl Devices<'_> {
    /// Looks a name up: PCI address, PCI device by its system name, part of one, or stacked on
    /// others.
    fn of(&self, name: &str, layer: u32) -> Found {
        let address = pci_address(name);
        let devices = self.topology.devices.known().into_iter().flatten();
        for device in devices {
            if Some(&device.address) == address.as_ref()
                || device.names.iter().any(|known| known == name)
            {
                return match &device.node {
                    homenode_units::Reading::Known(node) => on(*node),
                    homenode_units::Reading::Absent { why } => Found::Unplaced(why.clone()),
                };
            }
        }
        if let Some(address) = address {
            return self.by_file(&format!("/sys/bus/pci/devices/{address}"));
        }
        // A name with a slash would lead elsewhere.
        if name.is_empty() || name.contains('/') || layer >= LAYERS_MAX {
            return Found::Nothing;
        }
        for class in ["net", "block", "infiniband", "nvme"] {
            let entry = format!("/sys/class/{class}/{name}");
            let Ok(target) = self.files.link(&entry) else {
                continue;
            };
            // A partition, or a queue of an adapter, lies below its PCI device.
            let above = target.rsplit('/').find_map(pci_address);
            if let Some(above) = above {
                return self.of(&above, layer + 1);
            }
            return match self.below(&entry, layer) {
                Found::Nothing => self.by_file(&format!("{entry}/device")),
                found => found,
            };
        }
        Found::Nothing
    }

    /// The devices that a volume, RAID, bond or bridge is made of.
    fn below(&self, entry: &str, layer: u32) -> Found {
        let slaves = self.files.list(&format!("{entry}/slaves"));
        let lower = self.files.list(entry).unwrap_or_default();
        let lower = lower
            .iter()
            .filter_map(|name| name.strip_prefix("lower_"))
            .map(str::to_owned);
        let mut all = NodeSet::new();
        let mut unplaced = None;
        for name in slaves.unwrap_or_default().into_iter().chain(lower) {
            match self.of(&name, layer + 1) {
                Found::OnNodes(nodes) => all = all.union(&nodes),
                Found::Unplaced(why) => unplaced = Some(why),
                Found::Nothing => {}
            }
        }
        match unplaced {
            _ if !all.is_empty() => Found::OnNodes(all),
            Some(why) => Found::Unplaced(why),
            None => Found::Nothing,
        }
    }

    /// Devices that are on no PCI bus, or PCI devices that move no data, have the file too.
    fn by_file(&self, device: &str) -> Found {
        let mut buffer = Buffer::new();
        let path = format!("{device}/numa_node");
        match self.files.read(&path, &mut buffer) {
            Ok(text) => {
                let node = std::str::from_utf8(text).ok();
                let node = node.and_then(|text| text.trim().parse::<u32>().ok());
                match node
                    .map(NodeId)
                    .filter(|&node| self.topology.node(node).is_some())
                {
                    Some(node) => on(node),
                    None => Found::Unplaced("the firmware does not say".to_owned()),
                }
            }
            Err(error) if self.files.list(device).is_ok() => Found::Unplaced(error.reason()),
            Err(_) => Found::Nothing,
        }
    }

    /// A help line that names what there is.
    fn examples(&self) -> String {
        let names: Vec<&str> = self
            .topology
            .devices
            .known()
            .into_iter()
            .flatten()
            .map(|device| device.names.first().unwrap_or(&device.address).as_str())
            .take(NAMED_MAX)
            .collect();
        if names.is_empty() {
            "name a network interface, a block device, a PCI address or file:PATH".to_owned()
        } else {
            format!(
                "this machine has {}; file:PATH is the disk of a file",
                names.join(", ")
            )
        }
    }
}

fn on(node: NodeId) -> Found {
    Found::OnNodes(NodeSet::from_iter([node]))
}

/// `81:00.0` or `0000:81:00.0`, with its domain; `None` for anything else.
fn pci_address(text: &str) -> Option<String> {
    let (rest, function) = text.split_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus) = (parts.next()?, parts.next()?);
    let domain = parts.next().unwrap_or("0000");
    let is_hex = |part: &str, digits: std::ops::RangeInclusive<usize>| {
        digits.contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    let good = is_hex(domain, 4..=8)
        && is_hex(bus, 2..=2)
        && is_hex(device, 2..=2)
        && is_hex(function, 1..=1)
        && parts.next().is_none();
    good.then(|| format!("{domain}:{bus}:{device}.{function}").to_ascii_lowercase())
}

/// The name of the block device that a file of this machine lies on.
fn disk_of_file(machine: &Machine, path: &Path) -> anyhow::Result<String> {
    use std::os::unix::fs::MetadataExt as _;

    let name = path.display();
    if matches!(machine, Machine::Captured(..)) {
        return Err(Helped::error(
            "a captured machine does not hold the files of its disks",
            "name the block device instead: near:nvme0n1",
        ));
    }
    let metadata = path.metadata().map_err(|error| {
        Helped::wrap(
            format!("cannot look at {name}"),
            error,
            "name a file that is there",
        )
    })?;
    let (major, minor) = (
        rustix::fs::major(metadata.dev()),
        rustix::fs::minor(metadata.dev()),
    );
    let link = machine
        .files()
        .link(&format!("/sys/dev/block/{major}:{minor}"));
    if let Some(disk) = link.ok().and_then(|link| last_part(&link)) {
        return Ok(disk);
    }
    // btrfs and others have device numbers of their own; the mount names what is below.
    let mount = path
        .canonicalize()
        .ok()
        .and_then(|path| mount_of(machine, &path));
    let Some((kind, source)) = mount else {
        return Err(Helped::error(
            format!("cannot tell on which disk {name} lies"),
            "name the block device instead: near:nvme0n1",
        ));
    };
    // `/dev/mapper/data` is a link to `/dev/dm-0`.
    let source = Path::new(&source);
    let device = source.canonicalize().unwrap_or_else(|_| source.to_owned());
    match device.strip_prefix("/dev").ok().and_then(Path::to_str) {
        Some(disk) => Ok(disk.replace('/', "!")),
        None => Err(Helped::error(
            format!("{name} lies on a file system without a disk ({kind})"),
            "name a file on a disk, or a device",
        )),
    }
}

fn last_part(link: &str) -> Option<String> {
    link.rsplit('/').next().map(str::to_owned)
}

/// Type and source of the file system that holds a path: the mount whose point is the longest.
///
/// Source: `/proc/self/mountinfo`, `proc_pid_mountinfo(5)`.
fn mount_of(machine: &Machine, path: &Path) -> Option<(String, String)> {
    let mut buffer = Buffer::new();
    let text = machine
        .files()
        .read("/proc/self/mountinfo", &mut buffer)
        .ok()?;
    mount_in(&String::from_utf8_lossy(text), path)
}

fn mount_in(mounts: &str, path: &Path) -> Option<(String, String)> {
    mounts
        .lines()
        .filter_map(|line| {
            let (before, after) = line.split_once(" - ")?;
            let point = PathBuf::from(unescape(before.split(' ').nth(4)?));
            let mut after = after.split(' ');
            let (kind, source) = (after.next()?, unescape(after.next()?));
            path.starts_with(&point)
                .then(|| (point, (kind.to_owned(), source)))
        })
        // The last of several mounts on one point is the one that is seen.
        .max_by_key(|(point, _)| point.as_os_str().len())
        .map(|(_, mount)| mount)
}

/// Blanks in paths are written as `\040`.
fn unescape(text: &str) -> String {
    [
        ("\\040", " "),
        ("\\011", "\t"),
        ("\\012", "\n"),
        ("\\134", "\\"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (escaped, plain)| {
        text.replace(escaped, plain)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_addresses_come_with_or_without_a_domain() {
        for (text, address) in [
            ("81:00.0", Some("0000:81:00.0")),
            ("10000:E1:00.0", Some("10000:e1:00.0")),
            ("eth0.100", None),
            ("enp1s0", None),
            ("0:81:00.0", None),
            ("1:2:81:00.0", None),
            ("", None),
        ] {
            assert_eq!(pci_address(text).as_deref(), address, "{text}");
        }
    }

    #[test]
    fn the_longest_mount_point_holds_a_file() {
        let mounts = "\
22 1 254:0 / / rw - ext4 /dev/vda rw
30 22 0:30 / /data rw shared:1 - btrfs /dev/mapper/big rw
31 22 0:31 / /data/my\\040tmp rw - tmpfs none rw
";
        for (path, kind, source) in [
            ("/etc/x", "ext4", "/dev/vda"),
            ("/database", "ext4", "/dev/vda"),
            ("/data/x", "btrfs", "/dev/mapper/big"),
            ("/data/my tmp/x", "tmpfs", "none"),
        ] {
            let found = mount_in(mounts, Path::new(path)).unwrap();
            assert_eq!(found, (kind.to_owned(), source.to_owned()), "{path}");
        }
        assert_eq!(mount_in("", Path::new("/x")), None);
    }
}
