//! What is known of a processor's inner structure from its maker, family and model.

use crate::{Processor, Vendor};

/// Processors that split packages into nodes in ways of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Chip {
    /// Intel Haswell-EP and Broadwell-EP: can do Cluster-on-Die.
    IntelClusterOnDie,
    /// Intel Knights Landing and Knights Mill: SNC and quadrants without any L3.
    IntelKnights,
    /// Intel Skylake-SP and later servers: sub-NUMA clustering.
    IntelSubNuma,
    /// Any other Intel.
    Intel,
    /// AMD families 10h and 15h: up to two dies in a package.
    AmdMultiDie,
    /// AMD Naples and Hygon Dhyana: four dies in a package, two L3 in each.
    Naples,
    /// AMD family 17h and later: nodes per socket are set in the firmware.
    AmdZen,
    /// Any other AMD.
    Amd,
    /// Another maker.
    Other,
    /// The maker is not known.
    Unknown,
}

impl Chip {
    /// Families and models are those of CPUID leaf 1 with the extended fields added, as
    /// `/proc/cpuinfo` shows them; names after arch/x86/include/asm/intel-family.h, Linux 6.12.
    pub(super) fn of(processor: &Processor) -> Self {
        let family = processor.family.known().copied();
        let model = processor.model.known().copied();
        match (processor.vendor.known(), family, model) {
            (None, ..) if is_known_not_x86(processor) => Self::Other,
            (None, ..) => Self::Unknown,
            (Some(Vendor::Intel), Some(6), Some(63 | 79)) => Self::IntelClusterOnDie,
            (Some(Vendor::Intel), Some(6), Some(87 | 133)) => Self::IntelKnights,
            // Skylake-X/Cascade Lake, Ice Lake, Sapphire and Emerald Rapids, Granite Rapids,
            // Sierra Forest, Clearwater Forest.
            (
                Some(Vendor::Intel),
                Some(6),
                Some(85 | 106 | 108 | 143 | 207 | 173 | 174 | 175 | 221),
            ) => Self::IntelSubNuma,
            (Some(Vendor::Intel), ..) => Self::Intel,
            (Some(Vendor::Amd), Some(0x10 | 0x15), _) => Self::AmdMultiDie,
            (Some(Vendor::Amd), Some(0x17), Some(1)) | (Some(Vendor::Hygon), Some(0x18), _) => {
                Self::Naples
            }
            (Some(Vendor::Amd), Some(0x17..), _) | (Some(Vendor::Hygon), ..) => Self::AmdZen,
            (Some(Vendor::Amd), ..) => Self::Amd,
            (Some(Vendor::Other(_)), ..) => Self::Other,
        }
    }

    /// Whether the processors of such a machine reach all memory over one bus, so that there are
    /// no nodes to be found: Intel before Nehalem.
    pub(super) fn shares_a_bus(processor: &Processor) -> bool {
        if processor.vendor.known() != Some(&Vendor::Intel) {
            return false;
        }
        match (processor.family.known(), processor.model.known()) {
            // NetBurst.
            (Some(15), _) => true,
            // Core 2, Penryn and Dunnington.
            (Some(6), Some(15 | 22 | 23 | 29)) => true,
            _ => false,
        }
    }
}

/// Of makers without a name here only those of x86 would matter.
fn is_known_not_x86(processor: &Processor) -> bool {
    let architecture = processor.architecture.known();
    architecture.is_some_and(|name| !matches!(name.as_str(), "x86_64" | "i386" | "i586" | "i686"))
}

/// How the processor calls itself, for a sentence: `GenuineIntel family 6 model 63`.
pub(super) fn describe(processor: &Processor) -> Option<String> {
    let vendor = match processor.vendor.known()? {
        Vendor::Intel => "Intel",
        Vendor::Amd => "AMD",
        Vendor::Hygon => "Hygon",
        Vendor::Other(name) => name,
    };
    let number = |name: &str, value: Option<&u32>| {
        value.map_or_else(String::new, |value| format!(" {name} {value}"))
    };
    Some(format!(
        "{vendor}{}{}",
        number("family", processor.family.known()),
        number("model", processor.model.known()),
    ))
}
