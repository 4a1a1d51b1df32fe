//! The command line of the emulator.

use std::path::PathBuf;

use homenode_units::Bytes;

use crate::{HmatEntry, NodeShape, Shape};

/// The emulator's program name.
pub const PROGRAM: &str = "qemu-system-x86_64";

/// An Intel server's identity on QEMU's fullest CPU.
///
/// `max` alone calls itself AMD, and TCG does not emulate the leaf from which AMD systems learn
/// which CPUs share a cache; as Intel the caches are shared as the topology says. Model 106 is Ice
/// Lake's: Linux accepts nodes that share an L3 (sub-NUMA clusters) only from models that have
/// them. Named models boot no faster and warn about what TCG lacks (QEMU 7.2).
///
/// Without `cmpxchg16b`: behind it, the flags of QEMU 7.2 are sometimes an operand of the comparison
/// before it. When an interrupt comes just then, the kernel panics on its return: both panics that
/// were seen, one of them in five minutes of guest's load, were there.
const CPU: &str = "max,vendor=GenuineIntel,family=6,model=106,stepping=6,-cx16";

/// One thread emulates all CPUs in turn.
///
/// With a thread for each CPU, 3 of about 185 boots crashed or hung before init (QEMU 7.2 of
/// Debian 12, Linux 6.1 and 6.12, November 2026), and none of about 200 with one thread. A likely
/// cause is the race that QEMU 8.1 closed in deba78709a, "accel/tcg: Always lock pages before
/// translation": one CPU runs code that another is changing, as Linux does to itself at boot. Boots
/// take equally long either way, as one CPU does nearly all the work.
const ACCELERATOR: &str = "tcg,thread=single";

/// What every guest's kernel is told.
///
/// `panic=-1` turns a panic into a reboot, and `-no-reboot` that into the emulator's end; without
/// mitigations a guest boots about a tenth faster.
///
/// `no_timer_check`: an emulated timer on a busy host may miss the check of it, and the kernel then
/// panics ("IO-APIC + timer doesn't work").
const KERNEL_ARGS: &str = "console=ttyS0 panic=-1 oops=panic mitigations=off no_timer_check";

/// The model keeps the TSCs of all CPUs within two microseconds of each other, and is their only
/// clock: nothing else could judge it.
const MODEL_KERNEL_ARGS: &str = " tsc=reliable";

/// Says whether a QEMU can load the model's plugin, from what it prints with `--version`.
///
/// # Errors
///
/// What was expected and found: QEMU 7.2 to 8.1 offer version 1 of the plugin interface together
/// with the physical addresses and clocks that the plugin needs.
pub fn check_models(version: &str) -> Result<(), String> {
    let found = version.split_whitespace().nth(3).unwrap_or(version.trim());
    let mut numbers = found.split('.').map_while(|part| part.parse::<u32>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(7), Some(2..)) | (Some(8), Some(0..=1)) => Ok(()),
        _ => Err(format!(
            "--timed: expected {PROGRAM} 7.2 to 8.1, whose plugins have interface version 1, found {found}\nhelp: run it where Debian 12's QEMU is, for example in a container of it"
        )),
    }
}

/// The arguments that make `shape` boot `kernel` with `initramfs`.
///
/// The kernel's console is the emulator's standard error, where it says why it cannot start, too;
/// the guest's second serial port is its standard output. `model` is what the plugin of
/// [`GuestTime::Modelled`] is told: arguments as `name=value`.
#[must_use]
pub fn arguments(
    shape: &Shape,
    kernel: &str,
    initramfs: &str,
    time: &GuestTime,
    model: &[String],
) -> Vec<String> {
    let mut arguments = Arguments::default();
    let hmat = if shape.hmat.is_empty() {
        ""
    } else {
        ",hmat=on"
    };
    arguments.pair("-accel", ACCELERATOR);
    let mut kernel_args = KERNEL_ARGS.to_owned();
    match time {
        GuestTime::Host => {}
        GuestTime::Modelled { plugin, seed } => {
            arguments.pair("-icount", "shift=0,sleep=off");
            // A comma ends an argument, a double one is a comma.
            let plugin = plugin.to_string_lossy().replace(',', ",,");
            let words = [&[plugin], model].concat();
            arguments.pair("-plugin", words.join(","));
            arguments.pair("-seed", seed.to_string());
            // Else the date would go on with the host's.
            arguments.pair("-rtc", "base=utc,clock=vm");
            kernel_args.push_str(MODEL_KERNEL_ARGS);
        }
    }
    arguments.pair("-machine", format!("q35{hmat}"));
    arguments.pair("-cpu", CPU);
    arguments.flags(&["-nodefaults", "-no-user-config", "-no-reboot"]);
    arguments.pair("-display", "none");
    arguments.pair("-chardev", "file,id=console,path=/dev/stderr");
    arguments.pair("-serial", "chardev:console");
    arguments.pair("-chardev", "stdio,id=report,signal=off");
    arguments.pair("-serial", "chardev:report");
    arguments.pair("-m", format!("{}M", shape.memory().mib()));
    let cpu = shape.cpu;
    arguments.pair(
        "-smp",
        format!(
            "{},sockets={},dies={},cores={},threads={}",
            cpu.sockets * cpu.dies * cpu.cores * cpu.threads,
            cpu.sockets,
            cpu.dies,
            cpu.cores,
            cpu.threads
        ),
    );
    for node in shape.nodes() {
        arguments.node(node, !shape.hmat.is_empty());
    }
    for (from, to, distance) in shape.distances().cells() {
        arguments.pair("-numa", format!("dist,src={from},dst={to},val={distance}"));
    }
    for entry in &shape.hmat {
        arguments.hmat(entry);
    }
    arguments.pair("-kernel", kernel);
    arguments.pair("-initrd", initramfs);
    arguments.pair(
        "-append",
        format!("{kernel_args} {}", shape.kernel_args).trim_end(),
    );
    arguments.0
}

/// What makes the clocks of a guest go on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum GuestTime {
    /// The host's time: what else the host does shows as stalls.
    #[default]
    Host,
    /// Each instruction takes 1 ns, until the guest starts the model of its machine; from
    /// then on each instruction and each access takes what the model says, and CPUs run at the same
    /// time. Only for shapes that have a [`Shape::machine`].
    Modelled {
        /// The library `homenode_lab_plugin`.
        plugin: PathBuf,
        /// What the guest's random numbers come from: the kernel's layout, for one.
        seed: u64,
    },
}

#[derive(Default)]
struct Arguments(Vec<String>);

impl Arguments {
    fn flags(&mut self, flags: &[&str]) {
        self.0.extend(flags.iter().map(|&flag| flag.to_owned()));
    }

    fn pair(&mut self, option: &str, value: impl Into<String>) {
        self.0.push(option.to_owned());
        self.0.push(value.into());
    }

    /// A node. One without memory has no memory device: QEMU then leaves its memory out of SRAT,
    /// its CPUs stay in, and Linux brings it up as memory-less.
    fn node(&mut self, node: &NodeShape, hmat: bool) {
        let id = node.id;
        let mut value = format!("node,nodeid={id}");
        if node.memory > Bytes(0) {
            let size = node.memory.0;
            self.pair(
                "-object",
                format!("memory-backend-ram,id=memory{id},size={size}"),
            );
            value.push_str(&format!(",memdev=memory{id}"));
        }
        // QEMU takes ranges as `cpus=0-3`, and several of them as repeated keys.
        for range in node
            .cpus
            .to_string()
            .split(',')
            .filter(|range| !range.is_empty())
        {
            value.push_str(&format!(",cpus={range}"));
        }
        // QEMU refuses an initiator on a machine without HMAT.
        if let Some(initiator) = node.initiator.filter(|_| hmat) {
            value.push_str(&format!(",initiator={initiator}"));
        }
        self.pair("-numa", value);
    }

    fn hmat(&mut self, entry: &HmatEntry) {
        let HmatEntry {
            from,
            to,
            latency_ns,
            bandwidth_per_second,
        } = entry;
        let pair = format!("hmat-lb,initiator={from},target={to},hierarchy=memory");
        self.pair(
            "-numa",
            format!("{pair},data-type=access-latency,latency={latency_ns}"),
        );
        let mib = bandwidth_per_second.mib();
        self.pair(
            "-numa",
            format!("{pair},data-type=access-bandwidth,bandwidth={mib}M"),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The values of every `option`.
    fn values(shape: &str, option: &str) -> Vec<String> {
        let shape = Shape::named(shape).unwrap();
        values_of(&arguments(&shape, "K", "I", &GuestTime::Host, &[]), option)
    }

    fn values_of(arguments: &[String], option: &str) -> Vec<String> {
        arguments
            .windows(2)
            .filter(|pair| pair[0] == option)
            .map(|pair| pair[1].clone())
            .collect()
    }

    #[test]
    fn cpus_and_memory() {
        assert_eq!(
            values("2n", "-smp"),
            ["4,sockets=2,dies=1,cores=1,threads=2"]
        );
        assert_eq!(values("2n", "-m"), ["768M"]);
        assert_eq!(values("2n", "-kernel"), ["K"]);
        assert_eq!(values("2n", "-initrd"), ["I"]);
        assert_eq!(values("2n", "-machine"), ["q35"]);
    }

    #[test]
    fn nodes_and_distances() {
        assert_eq!(
            values("2n", "-numa"),
            [
                "node,nodeid=0,memdev=memory0,cpus=0-1",
                "node,nodeid=1,memdev=memory1,cpus=2-3",
                "dist,src=0,dst=0,val=10",
                "dist,src=0,dst=1,val=21",
                "dist,src=1,dst=0,val=21",
                "dist,src=1,dst=1,val=10",
            ]
        );
    }

    #[test]
    fn a_memory_less_node_has_no_memory_device() {
        assert_eq!(
            values("3n-memoryless", "-numa")[2],
            "node,nodeid=2,cpus=4-5"
        );
        assert_eq!(values("3n-memoryless", "-object").len(), 2);
    }

    #[test]
    fn a_memory_only_node_has_no_cpus() {
        assert_eq!(
            values("3n-cpuless", "-numa")[2],
            "node,nodeid=2,memdev=memory2"
        );
    }

    #[test]
    fn hmat_values_and_initiators() {
        assert_eq!(values("2n-hmat", "-machine"), ["q35,hmat=on"]);
        let numa = values("2n-hmat", "-numa");
        assert_eq!(numa[1], "node,nodeid=1,memdev=memory1,initiator=0");
        assert_eq!(
            numa[8..],
            [
                "hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-latency,latency=240",
                "hmat-lb,initiator=0,target=1,hierarchy=memory,data-type=access-bandwidth,bandwidth=10240M",
            ]
        );
    }

    #[test]
    fn a_modelled_machine_gets_the_plugin_and_a_clock_of_its_own() {
        let time = GuestTime::Modelled {
            plugin: "/a,b/plugin.so".into(),
            seed: 7,
        };
        let shape = Shape::named("opteron").unwrap();
        let arguments = arguments(&shape, "K", "I", &time, &["machine=M".to_owned()]);
        let values = |option| values_of(&arguments, option);
        assert_eq!(values("-plugin"), ["/a,,b/plugin.so,machine=M"]);
        assert_eq!(values("-icount"), ["shift=0,sleep=off"]);
        assert_eq!(values("-accel"), ["tcg,thread=single"]);
        assert_eq!(values("-seed"), ["7"]);
        assert!(values("-append")[0].contains("tsc=reliable"));
    }

    #[test]
    fn only_a_qemu_that_can_load_the_plugin_is_taken() {
        for good in [
            "QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\nCopyright",
            "QEMU emulator version 8.1.5",
        ] {
            check_models(good).unwrap();
        }
        for (bad, found) in [
            (
                "QEMU emulator version 10.0.2 (Debian 1:10.0.2+ds-2)",
                "found 10.0.2\nhelp",
            ),
            ("QEMU emulator version 8.2.0", "found 8.2.0"),
            ("QEMU emulator version 7.1.0", "found 7.1.0"),
            ("", "found \n"),
        ] {
            let problem = check_models(bad).unwrap_err();
            assert!(problem.contains(found), "{problem}");
        }
    }

    #[test]
    fn kernel_arguments_follow_ours() {
        assert!(values("2n-numa-off", "-append")[0].ends_with(" numa=off"));
        assert!(values("2n", "-append")[0].ends_with(KERNEL_ARGS));
    }
}
