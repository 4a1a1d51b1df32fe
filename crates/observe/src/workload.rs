//! What a process belongs to: a virtual machine, a container, a systemd unit, or nothing.

use homenode_units::Bytes;
use serde::{Deserialize, Serialize};

use crate::Mapping;

/// What kind of thing a workload is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// A virtual machine: its monitor's process, and helpers in its control group.
    Vm,
    /// A container of Docker, Podman, containerd, CRI-O, LXC or systemd-nspawn.
    Container,
    /// A systemd service or scope.
    Unit,
    /// A process that belongs to none of these.
    Process,
}

/// The workload that a process belongs to.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Workload {
    /// What it is.
    pub kind: Kind,
    /// Its name for people. May hold anything its owner chose.
    pub name: String,
    /// The control group that is its own; empty where it has none.
    pub cgroup: String,
}

/// Which program runs a virtual machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Monitor {
    /// QEMU, under any of its names: libvirt's, Proxmox's, plain.
    Qemu,
    /// Firecracker.
    Firecracker,
    /// Cloud Hypervisor.
    CloudHypervisor,
}

/// A virtual machine, as its monitor's command line describes it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vm {
    /// The program that runs it.
    pub monitor: Monitor,
    /// Its name, where one was given.
    pub name: Option<String>,
    /// Blocks of guest memory; empty where the command line does not say (Firecracker).
    pub memory: Vec<GuestMemory>,
}

/// A block of guest memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestMemory {
    /// Its size.
    pub size: Bytes,
    /// The file it is in, where one is named.
    pub path: Option<String>,
}

/// The words of `/proc/<pid>/cmdline`, each ended by a zero byte.
#[must_use]
pub fn parse_command_line(text: &[u8]) -> Vec<String> {
    let text = text.strip_suffix(b"\0").unwrap_or(text);
    text.split(|&byte| byte == 0)
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect()
}

impl Vm {
    /// The virtual machine that this command line runs, if it runs one.
    #[must_use]
    pub fn of_command(words: &[String]) -> Option<Self> {
        let program = words.first()?.rsplit('/').next()?;
        let monitor = match program {
            "qemu-kvm" | "kvm" => Monitor::Qemu,
            "firecracker" => Monitor::Firecracker,
            "cloud-hypervisor" => Monitor::CloudHypervisor,
            name if name.starts_with("qemu-system-") => Monitor::Qemu,
            _ => return None,
        };
        Some(match monitor {
            Monitor::Qemu => Self::of_qemu(words),
            Monitor::Firecracker => Self {
                monitor,
                name: value_of(words, "--id").map(str::to_owned),
                memory: Vec::new(),
            },
            Monitor::CloudHypervisor => Self {
                monitor,
                name: value_of(words, "--api-socket").map(socket_name),
                memory: sized(value_of(words, "--memory"), 0).into_iter().collect(),
            },
        })
    }

    fn of_qemu(words: &[String]) -> Self {
        const MEBIBYTES: u32 = 20;
        let name = value_of(words, "-name").map(|value| {
            let plain = properties(value).find(|(key, _)| key.is_empty() || key == "guest");
            plain.map_or_else(|| value.to_owned(), |(_, name)| name)
        });
        let mut memory: Vec<GuestMemory> = values_of(words, "-object")
            .filter(|value| value.contains("memory-backend-"))
            .filter_map(backend)
            .collect();
        if memory.is_empty() {
            let plain = sized(value_of(words, "-m"), MEBIBYTES);
            // QEMU's own default (hw/core/machine.c, 10.0).
            memory.push(plain.unwrap_or(GuestMemory {
                size: Bytes(128 << 20),
                path: None,
            }));
        }
        if let [only] = &mut memory[..] {
            only.path = only
                .path
                .take()
                .or_else(|| value_of(words, "-mem-path").map(str::to_owned));
        }
        Self {
            monitor: Monitor::Qemu,
            name,
            memory,
        }
    }

    /// Which of its monitor's mappings hold guest memory; the others are overhead.
    ///
    /// Shape: as `mappings`. A block is the file it was given, else the mappings that together
    /// have its size, else the largest that fit into it; where the command line gives no sizes,
    /// the largest mapping.
    #[must_use]
    pub fn guest_mappings(&self, mappings: &[Mapping]) -> Vec<bool> {
        let mut guest = vec![false; mappings.len()];
        let size = |mapping: &Mapping| {
            Bytes(u64::try_from(mapping.end - mapping.start).unwrap_or(u64::MAX))
        };
        for block in &self.memory {
            let mut found = false;
            for (mark, mapping) in guest.iter_mut().zip(mappings) {
                let of_path = block
                    .path
                    .as_ref()
                    .is_some_and(|path| mapping.name.starts_with(path.as_str()));
                if of_path {
                    *mark = true;
                    found = true;
                }
            }
            if !found && !mark_run(&mut guest, mappings, block.size) {
                mark_largest(&mut guest, mappings, block.size, size);
            }
        }
        if self.memory.is_empty()
            && let Some(largest) = (0..mappings.len())
                .filter(|&index| mappings[index].holds_memory())
                .max_by_key(|&index| size(&mappings[index]))
        {
            guest[largest] = true;
        }
        guest
    }
}

/// Marks neighbouring mappings that together have exactly this size: a policy or huge pages for a
/// part of a block split its mapping.
fn mark_run(guest: &mut [bool], mappings: &[Mapping], size: Bytes) -> bool {
    for first in 0..mappings.len() {
        let mut last = first;
        loop {
            let mapping = &mappings[last];
            if guest[last] || !mapping.holds_memory() {
                break;
            }
            let sum = Bytes(u64::try_from(mapping.end - mappings[first].start).unwrap_or(u64::MAX));
            if sum == size {
                guest[first..=last].fill(true);
                return true;
            }
            let joined = mappings
                .get(last + 1)
                .is_some_and(|next| next.start == mapping.end);
            if sum > size || !joined {
                break;
            }
            last += 1;
        }
    }
    false
}

/// Marks the largest mappings that fit into what is left of the size; pieces below a mebibyte are
/// not guest memory.
fn mark_largest(
    guest: &mut [bool],
    mappings: &[Mapping],
    mut left: Bytes,
    size: impl Fn(&Mapping) -> Bytes,
) {
    const PIECE_MIN: Bytes = Bytes(1 << 20);
    let mut by_size: Vec<usize> = (0..mappings.len())
        .filter(|&index| !guest[index] && mappings[index].holds_memory())
        .collect();
    by_size.sort_by_key(|&index| std::cmp::Reverse(size(&mappings[index])));
    for index in by_size {
        let size = size(&mappings[index]);
        if size >= PIECE_MIN && size <= left {
            guest[index] = true;
            left = left.saturating_sub(size);
        }
    }
}

/// The number of the vCPU that a thread with this name runs.
///
/// `CPU 3/KVM` (QEMU with `debug-threads=on`; `accel/kvm/kvm-accel-ops.c`, 10.0), `CPU 3/TCG`,
/// `fc_vcpu 3` (Firecracker), `vcpu3` (Cloud Hypervisor).
#[must_use]
pub fn vcpu_of_thread(name: &str) -> Option<u32> {
    let number = match name.strip_prefix("CPU ") {
        Some(rest) => rest
            .strip_suffix("/KVM")
            .or_else(|| rest.strip_suffix("/TCG"))?,
        None => name
            .strip_prefix("fc_vcpu ")
            .or_else(|| name.strip_prefix("vcpu"))?,
    };
    number.parse().ok()
}

/// The value behind an option: the word after `-name`, or what follows `--name=`.
fn value_of<'a>(words: &'a [String], option: &'a str) -> Option<&'a str> {
    values_of(words, option).next()
}

fn values_of<'a>(words: &'a [String], option: &'a str) -> impl Iterator<Item = &'a str> {
    words.iter().enumerate().filter_map(move |(index, word)| {
        // QEMU takes its options with one dash or two.
        let dashed = word
            .strip_prefix('-')
            .filter(|rest| rest.starts_with('-') && !option.starts_with("--"))
            .unwrap_or(word);
        let rest = dashed.strip_prefix(option)?;
        match rest.strip_prefix('=') {
            Some(value) => Some(value),
            None if rest.is_empty() => words.get(index + 1).map(String::as_str),
            None => None,
        }
    })
}

/// `key=value` pairs between commas; a first value without a key has an empty one. A doubled comma
/// is a comma of the value.
fn properties(text: &str) -> impl Iterator<Item = (String, String)> {
    let text = text.replace(",,", "\0");
    let pairs: Vec<(String, String)> = text
        .split(',')
        .map(|pair| {
            let (key, value) = pair.split_once('=').unwrap_or(("", pair));
            (key.to_owned(), value.replace('\0', ","))
        })
        .collect();
    pairs.into_iter()
}

/// `4G`, `size=4G,shared=on`, `2048`.
fn sized(value: Option<&str>, default_shift: u32) -> Option<GuestMemory> {
    let mut pairs = properties(value?);
    let (_, size) = pairs.find(|(key, _)| key.is_empty() || key == "size")?;
    Some(GuestMemory {
        size: parse_size(&size, default_shift)?,
        path: None,
    })
}

/// QEMU's and Cloud Hypervisor's sizes: `K`, `M`, `G`, `T` are powers of 1024.
fn parse_size(text: &str, default_shift: u32) -> Option<Bytes> {
    let digits = text
        .find(|char: char| !char.is_ascii_digit())
        .unwrap_or(text.len());
    let number: u64 = text[..digits].parse().ok()?;
    let shift = match text[digits..].chars().next() {
        None => default_shift,
        Some('b' | 'B') => 0,
        Some('k' | 'K') => 10,
        Some('m' | 'M') => 20,
        Some('g' | 'G') => 30,
        Some('t' | 'T') => 40,
        Some(_) => return None,
    };
    number.checked_mul(1 << shift).map(Bytes)
}

/// `memory-backend-ram,id=ram0,size=1G,…`, or the same as JSON, as libvirt writes it.
fn backend(value: &str) -> Option<GuestMemory> {
    if value.trim_start().starts_with('{') {
        let after = |key: &str| Some(value.split(key).nth(1)?.trim_start_matches([' ', ':']));
        let size = after("\"size\"")?;
        let digits = size.find(|char: char| !char.is_ascii_digit())?;
        let path = after("\"mem-path\"").and_then(|path| path.strip_prefix('"')?.split('"').next());
        return Some(GuestMemory {
            size: Bytes(size[..digits].parse().ok()?),
            path: path.map(str::to_owned),
        });
    }
    let pairs: Vec<_> = properties(value).collect();
    let find = |name: &str| pairs.iter().find(|(key, _)| key == name).map(|(_, v)| v);
    Some(GuestMemory {
        size: parse_size(find("size")?, 0)?,
        path: find("mem-path").cloned(),
    })
}

/// `/run/vm/web.sock` names `web`.
fn socket_name(path: &str) -> String {
    let path = path.strip_prefix("path=").unwrap_or(path);
    let name = path.rsplit('/').next().unwrap_or(path);
    name.split('.').next().unwrap_or(name).to_owned()
}

impl Workload {
    /// The workload of a process in this control group, whose command may run a virtual machine.
    #[must_use]
    pub fn find(cgroup: &str, vm: Option<&Vm>, process_name: &str) -> Self {
        let named = of_cgroup(cgroup);
        match (vm, named) {
            (Some(vm), named) => Self {
                kind: Kind::Vm,
                name: vm.name.clone().unwrap_or_else(|| process_name.to_owned()),
                // A virtual machine started by hand is in the group of the shell, which is not its
                // own.
                cgroup: named
                    .filter(|workload| workload.kind == Kind::Vm)
                    .map_or_else(String::new, |workload| workload.cgroup),
            },
            (None, Some(named)) => named,
            (None, None) => Self {
                kind: Kind::Process,
                name: process_name.to_owned(),
                cgroup: String::new(),
            },
        }
    }
}

/// The workload that a control group is named after: the outermost container or virtual machine,
/// else the innermost unit.
fn of_cgroup(path: &str) -> Option<Workload> {
    let mut unit = None;
    let mut end = 0;
    for part in path.split('/') {
        end += part.len();
        let found = |kind, name: &str| {
            Some(Workload {
                kind,
                name: name.to_owned(),
                cgroup: path[..end].to_owned(),
            })
        };
        if let Some(vm) = vm_name(part, &path[..end]) {
            return found(Kind::Vm, &vm);
        }
        if let Some(container) = container_name(part, &path[..end]) {
            return found(Kind::Container, &container);
        }
        let is_unit = part.ends_with(".service") || part.ends_with(".scope");
        // The manager of a user's services is itself a service.
        if is_unit && part != "init.scope" && !part.starts_with("user@") {
            unit = found(Kind::Unit, &unescape_unit(part));
        }
        end += 1;
    }
    unit
}

/// `machine-qemu\x2d1\x2dweb.scope` (libvirt), `qemu.slice/100.scope` (Proxmox).
fn vm_name(part: &str, path: &str) -> Option<String> {
    let scope = part.strip_suffix(".scope")?;
    if let Some(rest) = scope.strip_prefix("machine-qemu\\x2d") {
        let (_, name) = rest.split_once("\\x2d")?;
        return Some(unescape_unit(name));
    }
    path.contains("/qemu.slice/").then(|| scope.to_owned())
}

/// The short form of a container's id, or its name where the group carries it.
fn container_name(part: &str, path: &str) -> Option<String> {
    const SHORT: usize = 12;
    let plain = part.strip_suffix(".scope").unwrap_or(part);
    let is_id = |text: &str| text.len() == 64 && text.bytes().all(|b| b.is_ascii_hexdigit());
    for prefix in ["docker-", "cri-containerd-", "crio-", "libpod-"] {
        if let Some(id) = plain.strip_prefix(prefix).filter(|id| is_id(id)) {
            return Some(format!("{prefix}{}", &id[..SHORT]));
        }
    }
    if is_id(plain) {
        return Some(plain[..SHORT].to_owned());
    }
    if let Some(name) = part.strip_prefix("lxc.payload.") {
        return Some(name.to_owned());
    }
    if let Some(name) = plain.strip_prefix("machine-")
        && part != plain
    {
        return Some(unescape_unit(name));
    }
    let parent = path.rsplit('/').nth(1);
    (parent == Some("lxc") && !part.is_empty()).then(|| part.to_owned())
}

/// Undoes systemd's `\x2d`.
fn unescape_unit(name: &str) -> String {
    let mut parts = name.split("\\x");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let code = part
            .get(..2)
            .and_then(|hex| u8::from_str_radix(hex, 16).ok());
        match code {
            Some(code) if code.is_ascii() => {
                plain.push(char::from(code));
                plain.push_str(&part[2..]);
            }
            _ => {
                plain.push_str("\\x");
                plain.push_str(part);
            }
        }
    }
    plain
}

#[cfg(test)]
#[path = "workload_tests.rs"]
mod tests;
