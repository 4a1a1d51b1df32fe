//! What the CPUs are, from the first block of `/proc/cpuinfo`.

use homenode_units::Reading;

use super::reader::Reader;
use crate::{Processor, Source, Vendor};

/// The first CPU's block and, on arm, the last lines are all that is needed; reading on costs
/// 17 µs per CPU.
const HEAD_BYTES: usize = 4096;

pub(super) fn read(reader: &mut Reader<'_>, source: &Source) -> Processor {
    let path = format_args!("/proc/cpuinfo");
    let mut processor = match reader.text_up_to(path, HEAD_BYTES) {
        Ok(text) => parse(text),
        Err(gap) => {
            let why = reader
                .reading::<()>(Err(gap))
                .why()
                .unwrap_or_default()
                .to_owned();
            Processor {
                architecture: Reading::absent(&why),
                vendor: Reading::absent(&why),
                model_name: Reading::absent(&why),
                family: Reading::absent(&why),
                model: Reading::absent(&why),
                hypervisor: Reading::absent(&why),
            }
        }
    };
    if *source == Source::Live {
        processor.architecture = Reading::Known(std::env::consts::ARCH.to_owned());
    }
    processor
}

fn parse(text: &str) -> Processor {
    // One CPU's block; on arm the fields of the machine come after the last one.
    let block = match text.split_once("\n\n") {
        Some((first, _)) if first.contains("vendor") => first,
        _ => text,
    };
    let lines: Vec<(&str, &str)> = block
        .lines()
        .filter_map(|line| line.split_once(':'))
        .map(|(key, value)| (key.trim_ascii_end(), value.trim_ascii()))
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let field = |keys: &[&str]| {
        lines
            .iter()
            .find(|(key, _)| keys.contains(key))
            .map(|&(_, value)| value)
    };
    let say = |value: Option<&str>| match value {
        Some(value) => Reading::Known(value.to_owned()),
        None => Reading::absent("/proc/cpuinfo does not tell"),
    };
    let number = |value: Option<&str>| match value.and_then(|value| value.parse().ok()) {
        Some(number) => Reading::Known(number),
        None => Reading::absent("/proc/cpuinfo does not tell"),
    };
    let architecture = if field(&["CPU implementer"]).is_some() {
        Some("aarch64 or arm")
    } else if field(&["arch"]) == Some("IA-64") {
        Some("ia64")
    } else if field(&["cpu family"]).is_some() {
        Some("x86_64")
    } else if field(&["vendor_id"]) == Some("IBM/S390") {
        Some("s390x")
    } else if field(&["cpu"]).is_some_and(|cpu| cpu.starts_with("POWER")) {
        Some("powerpc64")
    } else {
        field(&["isa"]).map(|_| "riscv64")
    };
    Processor {
        architecture: say(architecture),
        vendor: say(field(&["vendor_id", "vendor", "CPU implementer"]).map(vendor_name))
            .map(|name| vendor(&name)),
        model_name: say(field(&[
            "model name",
            "cpu model",
            "cpu",
            "Processor",
            "uarch",
        ])),
        family: number(field(&["cpu family", "family"])),
        model: number(field(&["model"])),
        hypervisor: match (architecture, field(&["flags"])) {
            (Some("x86_64"), Some(flags)) => {
                Reading::Known(flags.split(' ').any(|flag| flag == "hypervisor"))
            }
            _ => Reading::absent("only x86 CPUs tell"),
        },
    }
}

/// Arm numbers its licensees (Arm ARM, `MIDR_EL1.Implementer`).
fn vendor_name(text: &str) -> &str {
    match text {
        "0x41" => "Arm",
        "0x42" => "Broadcom",
        "0x43" => "Cavium",
        "0x46" => "Fujitsu",
        "0x48" => "HiSilicon",
        "0x4e" => "NVIDIA",
        "0x50" => "AppliedMicro",
        "0x51" => "Qualcomm",
        "0x61" => "Apple",
        "0x6d" => "Microsoft",
        "0xc0" => "Ampere",
        other => other,
    }
}

fn vendor(name: &str) -> Vendor {
    match name {
        "GenuineIntel" => Vendor::Intel,
        "AuthenticAMD" => Vendor::Amd,
        "HygonGenuine" => Vendor::Hygon,
        other => Vendor::Other(other.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_x86_block_gives_all_fields() {
        let processor = parse(
            "processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 85\n\
             model name\t: Intel(R) Xeon(R) Silver 4214 CPU @ 2.20GHz\nflags\t\t: fpu sse2\n",
        );
        assert_eq!(processor.vendor, Reading::Known(Vendor::Intel));
        assert_eq!(processor.family, Reading::Known(6));
        assert_eq!(processor.model, Reading::Known(85));
        assert_eq!(processor.hypervisor, Reading::Known(false));
        assert_eq!(processor.architecture, Reading::Known("x86_64".to_owned()));
    }

    #[test]
    fn an_arm_block_names_its_maker_and_leaves_the_hypervisor_open() {
        let processor = parse("processor\t: 0\nCPU implementer\t: 0x48\nCPU part\t: 0xd01\n");
        assert_eq!(
            processor.vendor,
            Reading::Known(Vendor::Other("HiSilicon".to_owned()))
        );
        assert!(processor.family.known().is_none());
        assert!(processor.hypervisor.known().is_none());
    }
}
