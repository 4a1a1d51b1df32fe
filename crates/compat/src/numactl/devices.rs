//! The node of a device: `netdev:eth0`, `ip:10.0.0.1`, `file:/srv`, `block:sda`, `pci:03:00.0`.

use std::ffi::OsStr;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs, UdpSocket};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use homenode_host::Files;
use homenode_units::{NodeId, NodeSet};

use super::system::System;
use super::text::reason;
use crate::spec::BadSpec;

/// A device as the kernel numbers it, and which of its two kinds it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DeviceNumber {
    /// `block` or `char`, a folder of `/sys/dev`.
    kind: &'static str,
    major: u64,
    minor: u64,
}

impl DeviceNumber {
    /// Takes the number of stat(2) apart (`gnu_dev_major(3)`).
    pub(super) fn new(kind: &'static str, number: u64) -> Self {
        Self {
            kind,
            major: (number >> 8 & 0xfff) | (number >> 32 & !0xfff),
            minor: (number & 0xff) | (number >> 12 & !0xff),
        }
    }
}

/// An address of a host, and the one of ours that packets to it would carry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) to: IpAddr,
    pub(super) from: IpAddr,
}

type Nodes = Result<NodeSet, BadSpec>;

/// The nodes of a device in words; `None` when the words name no kind of device.
pub(super) fn device_nodes<S: System + ?Sized>(system: &S, text: &OsStr) -> Option<Nodes> {
    let bytes = text.as_bytes();
    let colon = bytes.iter().position(|&byte| byte == b':')?;
    let (kind, name) = (&bytes[..colon], OsStr::from_bytes(&bytes[colon + 1..]));
    let name_text = name.to_string_lossy();
    let files = system.files();
    Some(match kind {
        b"netdev" => class_device(files, "net", &name_text),
        b"block" => class_device(files, "block", &name_text),
        b"file" => file_device(system, Path::new(name)),
        b"ip" => address_device(system, &name_text),
        b"pci" => pci_device(files, &name_text),
        _ => return None,
    })
}

/// A device of `/sys/class/net` or `/sys/class/block`.
fn class_device(files: &dyn Files, class: &str, name: &str) -> Nodes {
    let unknown = || BadSpec::device(format!("Cannot read node mask for {class} device `{name}'"));
    if name.is_empty() || name.contains('/') || name == "." || name == ".." {
        return Err(unknown());
    }
    let folder = format!("/sys/class/{class}");
    let link = files
        .link(&format!("{folder}/{name}"))
        .map_err(|_| unknown())?;
    node_above(files, &joined(&folder, &link)).unwrap_or_else(|| Err(unknown()))
}

/// A link's target, from the folder that holds the link.
fn joined(folder: &str, link: &str) -> String {
    let mut parts: Vec<&str> = match link.strip_prefix('/') {
        Some(_) => Vec::new(),
        None => folder.split('/').filter(|part| !part.is_empty()).collect(),
    };
    for part in link.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    format!("/{}", parts.join("/"))
}

/// The node of the device in this folder of `/sys/devices`, or of the nearest one above that has
/// one: a network interface has none, the card that carries it does.
fn node_above(files: &dyn Files, folder: &str) -> Option<Nodes> {
    let mut folder = folder;
    while folder.starts_with("/sys/devices/") {
        if let Some(node) = numa_node(files, folder) {
            let shown = folder.strip_prefix("/sys").unwrap_or(folder);
            return Some(to_set(node, &format!("{shown}/")));
        }
        folder = folder.rsplit_once('/')?.0;
    }
    None
}

/// The number in `numa_node`; -1 where the kernel does not know.
fn numa_node(files: &dyn Files, folder: &str) -> Option<i32> {
    let mut buffer = Vec::new();
    let text = files
        .read(&format!("{folder}/numa_node"), &mut buffer)
        .ok()?;
    std::str::from_utf8(text).ok()?.trim().parse().ok()
}

fn to_set(node: i32, device: &str) -> Nodes {
    u32::try_from(node)
        .ok()
        .filter(|&node| node < homenode_units::ID_LIMIT)
        .map(|node| std::iter::once(NodeId(node)).collect())
        .ok_or_else(|| {
            BadSpec::device(format!(
                "Kernel does not know node mask for device `{device}'"
            ))
        })
}

/// The device that a file lies on, or that it is.
fn file_device<S: System + ?Sized>(system: &S, path: &Path) -> Nodes {
    let device = system
        .device_of(path)
        .map_err(|_| BadSpec::device(format!("Cannot stat file {}", path.display())))?;
    let DeviceNumber { kind, major, minor } = device;
    let unknown = || {
        BadSpec::device(format!(
            "Cannot find {kind} device {major}:{minor} in sysfs for `{}'",
            path.display()
        ))
    };
    let folder = format!("/sys/dev/{kind}");
    let link = system
        .files()
        .link(&format!("{folder}/{major}:{minor}"))
        .map_err(|_| unknown())?;
    node_above(system.files(), &joined(&folder, &link)).unwrap_or_else(|| Err(unknown()))
}

/// The interface that packets to a host leave by.
fn address_device<S: System + ?Sized>(system: &S, host: &str) -> Nodes {
    let routes = system
        .routes_to(host)
        .map_err(|error| BadSpec::device(format!("Cannot resolve {host}: {}", reason(&error))))?;
    let interface = routes
        .iter()
        .find_map(|route| interface_of(system.files(), *route))
        .ok_or_else(|| BadSpec::device(format!("Cannot find network device for {host}")))?;
    class_device(system.files(), "net", &interface)
}

/// Resolves a host and asks the kernel for our address on the way there; nothing is sent.
pub(super) fn routes_to(host: &str) -> io::Result<Vec<Route>> {
    // A port has to be named; 9 is "discard" (RFC 863).
    const PORT: u16 = 9;
    let route = |to: SocketAddr| -> io::Result<Route> {
        let any: SocketAddr = match to {
            SocketAddr::V4(_) => ([0u8; 4], 0).into(),
            SocketAddr::V6(_) => ([0u16; 8], 0).into(),
        };
        let socket = UdpSocket::bind(any)?;
        socket.connect(to)?;
        Ok(Route {
            to: to.ip(),
            from: socket.local_addr()?.ip(),
        })
    };
    let addresses = (host, PORT).to_socket_addrs()?;
    Ok(addresses.filter_map(|to| route(to).ok()).collect())
}

/// The name of the interface of the most specific route.
fn interface_of(files: &dyn Files, route: Route) -> Option<String> {
    // What is spoken to from itself is this machine.
    if route.to == route.from || route.to.is_loopback() {
        return Some("lo".to_owned());
    }
    let mut buffer = Vec::new();
    match route.to {
        IpAddr::V4(to) => {
            let text = files.read("/proc/net/route", &mut buffer).ok()?;
            let text = String::from_utf8_lossy(text);
            most_specific(&text, |line| ipv4_route(line, u32::from(to)))
        }
        IpAddr::V6(to) => {
            let text = files.read("/proc/net/ipv6_route", &mut buffer).ok()?;
            let text = String::from_utf8_lossy(text);
            most_specific(&text, |line| ipv6_route(line, u128::from(to)))
        }
    }
}

/// The route with the longest prefix, and among those the smallest metric.
fn most_specific<'a>(
    text: &'a str,
    route: impl Fn(&'a str) -> Option<(u32, u32, &'a str)>,
) -> Option<String> {
    text.lines()
        .filter_map(route)
        .min_by_key(|&(prefix, metric, _)| (std::cmp::Reverse(prefix), metric))
        .map(|(_, _, interface)| interface.to_owned())
}

/// Prefix length, metric and interface of a line of `/proc/net/route`, if the address is behind
/// it: interface, destination, gateway, flags, references, use, metric, mask; the addresses in the
/// order of the machine's bytes.
fn ipv4_route(line: &str, to: u32) -> Option<(u32, u32, &str)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let address = |field: usize| {
        u32::from_str_radix(fields.get(field)?, 16)
            .ok()
            .map(|raw| u32::from_be_bytes(raw.to_ne_bytes()))
    };
    let (destination, mask) = (address(1)?, address(7)?);
    let metric = fields.get(6)?.parse().ok()?;
    (to & mask == destination).then_some((mask.count_ones(), metric, *fields.first()?))
}

/// The same of `/proc/net/ipv6_route`: destination, prefix length, source, its length, next hop,
/// metric, references, use, flags, interface; all numbers hexadecimal.
fn ipv6_route(line: &str, to: u128) -> Option<(u32, u32, &str)> {
    /// `RTF_UP`, include/uapi/linux/route.h.
    const UP: u32 = 1;
    let fields: Vec<&str> = line.split_whitespace().collect();
    let word = |field: usize| u32::from_str_radix(fields.get(field)?, 16).ok();
    let destination = u128::from_str_radix(fields.first()?, 16).ok()?;
    let prefix = word(1)?;
    let mask = u128::MAX.checked_shl(128 - prefix).unwrap_or_default();
    let is_up = word(8)? & UP != 0;
    (is_up && to & mask == destination & mask).then_some((prefix, word(5)?, *fields.get(9)?))
}

/// A device on a PCI bus, behind bridges too.
fn pci_device(files: &dyn Files, name: &str) -> Nodes {
    let wanted = parse_address(name)
        .ok_or_else(|| BadSpec::device(format!("Cannot parse PCI device `{name}'")))?;
    const FOLDER: &str = "/sys/bus/pci/devices";
    let unknown = || BadSpec::device(format!("Cannot read node mask for device `{name}'"));
    let found = files
        .list(FOLDER)
        .map_err(|_| unknown())?
        .into_iter()
        .find(|address| parse_address(address).is_some_and(|address| wanted.matches(address)))
        .ok_or_else(unknown)?;
    let node = numa_node(files, &format!("{FOLDER}/{found}")).ok_or_else(unknown)?;
    to_set(node, name)
}

/// A PCI address, as far as it was given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PciAddress {
    segment: u64,
    bus: u64,
    device: u64,
    function: Option<u64>,
}

impl PciAddress {
    fn matches(self, other: Self) -> bool {
        (self.segment, self.bus, self.device) == (other.segment, other.bus, other.device)
            && (self.function.is_none() || self.function == other.function)
    }
}

/// `[seg:]bus:dev[.func]`, all hexadecimal.
fn parse_address(text: &str) -> Option<PciAddress> {
    let hex = |text: &str| {
        text.bytes()
            .all(|byte| byte.is_ascii_hexdigit())
            .then(|| u64::from_str_radix(text, 16).ok())
            .flatten()
    };
    let (place, function) = match text.split_once('.') {
        Some((place, function)) => (place, Some(hex(function)?)),
        None => (text, None),
    };
    let parts: Vec<u64> = place.split(':').map(hex).collect::<Option<_>>()?;
    let (segment, bus, device) = match parts[..] {
        [bus, device] => (0, bus, device),
        [segment, bus, device] => (segment, bus, device),
        _ => return None,
    };
    Some(PciAddress {
        segment,
        bus,
        device,
        function,
    })
}
