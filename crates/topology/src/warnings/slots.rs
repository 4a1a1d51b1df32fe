//! What the firmware's list of memory slots says about empty channels and uneven modules.
//!
//! Vendors name slots as they like, and a letter is a channel here and a processor there. So
//! channels are told only where every slot's name holds both a processor and a channel, as in
//! `P0_Node0_Channel0_Dimm0` or `CPU1_DIMM_A1`; else only numbers of modules are compared.

use std::collections::{BTreeMap, BTreeSet};

use homenode_units::Bytes;

use super::warning;
use crate::verdict::Warning;
use crate::words::count;
use crate::{GroupedBy, MemorySlot, Processor, Topology, Vendor};

const ONE_PER_CHANNEL: &str = "bandwidth grows with the channels in use: give every channel of \
                               every processor the same module first";
/// The system may lack this part of what the slots hold: firmware and integrated graphics take
/// some of it.
const HELD_BACK_PART: u64 = 4;

pub(super) fn slots(topology: &Topology) -> Vec<Warning> {
    // The slots of a guest are made up, and QEMU cuts its memory into uneven pieces.
    if topology.processor.hypervisor.known() == Some(&true) {
        return Vec::new();
    }
    let Some(slots) = topology.memory_slots.known() else {
        return Vec::new();
    };
    let modules: Vec<&MemorySlot> = slots.iter().filter(|slot| is_filled(slot)).collect();
    if modules.is_empty() {
        return Vec::new();
    }
    let by_name = empty_channels(slots);
    let by_name = if by_name.is_empty() {
        empty_channels_by_count(topology, slots, modules.len())
            .into_iter()
            .collect()
    } else {
        by_name
    };
    let mut warnings = by_name;
    warnings.extend(uneven_processors(slots));
    warnings.extend(mixed_sizes(&modules));
    warnings.extend(missing_memory(topology, slots));
    warnings
}

/// Whether a module is in the slot, of known size or not.
fn is_filled(slot: &MemorySlot) -> bool {
    slot.size.known() != Some(&None)
}

fn size(slot: &MemorySlot) -> Option<Bytes> {
    slot.size.known().copied().flatten()
}

/// Where a slot is, by its names.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Place {
    /// `P0`, `CPU1`.
    pub(super) processor: String,
    /// `NODE0 CHANNEL0`, `A`; `None` where only the processor is named.
    pub(super) channel: Option<String>,
}

/// Reads a slot's place out of its bank or else its locator.
pub(super) fn parse_place(slot: &MemorySlot) -> Option<Place> {
    let places = [&slot.bank, &slot.locator].map(|text| parse_place_text(text));
    let [bank, locator] = places;
    match (bank, locator) {
        (Some(bank), _) if bank.channel.is_some() => Some(bank),
        (bank, Some(locator)) => Some(locator).filter(|place| {
            // Two names that disagree about the processor prove that one of them means
            // something else.
            bank.is_none_or(|bank| bank.processor == place.processor)
        }),
        (bank, None) => bank,
    }
}

fn parse_place_text(text: &str) -> Option<Place> {
    let upper = text.to_ascii_uppercase();
    let words = split_words(&upper);
    let mut processor = None;
    let mut channel: Vec<String> = Vec::new();
    let mut letter = None;
    let mut rest = words.as_slice();
    while let [word, tail @ ..] = rest {
        let (name, number) = split_number(word);
        // `PROC 1` is `PROC1`.
        let next = tail.first().map_or("", String::as_str);
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let (number, after) = if number.is_empty() && is_number(next) {
            (next, tail.get(1..).unwrap_or_default())
        } else {
            (number, tail)
        };
        match name {
            "P" | "CPU" | "PROC" | "PROCESSOR" | "SOCKET" if !number.is_empty() => {
                processor.get_or_insert(format!("{name}{number}"));
                rest = after;
                continue;
            }
            // A memory controller within a processor, where a channel follows.
            "NODE" | "MC" | "IMC" | "CHANNEL" | "CH" if !number.is_empty() => {
                channel.push(format!("{name}{number}"));
                rest = after;
                continue;
            }
            // `CHANNELA`, `CHANNEL A`, `DIMMA1`, `DIMM_A1`, `A1`.
            _ => {
                let tail_letter = name
                    .strip_prefix("DIMM")
                    .or_else(|| name.strip_prefix("CHANNEL"))
                    .unwrap_or(name);
                let mut letters = tail_letter.chars();
                if let (Some(only @ 'A'..='P'), None) = (letters.next(), letters.next()) {
                    letter.get_or_insert(only.to_string());
                }
            }
        }
        rest = tail;
    }
    let names_channel = channel.iter().any(|word| word.starts_with("CH"));
    Some(Place {
        processor: processor?,
        channel: if names_channel {
            Some(channel.join(" "))
        } else {
            letter
        },
    })
}

/// The words of a name: `P0_Node0_Channel0` has three.
fn split_words(text: &str) -> Vec<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// `CHANNEL0` is `CHANNEL` and `0`.
fn split_number(word: &str) -> (&str, &str) {
    let name = word.trim_end_matches(|c: char| c.is_ascii_digit());
    word.split_at(name.len())
}

/// The slots of each processor; `None` unless every slot names its own.
fn by_processor(slots: &[MemorySlot]) -> Option<BTreeMap<String, Vec<(Place, &MemorySlot)>>> {
    let mut processors: BTreeMap<String, Vec<(Place, &MemorySlot)>> = BTreeMap::new();
    for slot in slots {
        let place = parse_place(slot)?;
        let of_processor = processors.entry(place.processor.clone()).or_default();
        of_processor.push((place, slot));
    }
    Some(processors)
}

/// Channels without a module, where the names tell channels.
fn empty_channels(slots: &[MemorySlot]) -> Vec<Warning> {
    let Some(processors) = by_processor(slots) else {
        return Vec::new();
    };
    let mut warnings = Vec::new();
    for (processor, slots) in processors {
        let channel = |(place, _): &(Place, &MemorySlot)| place.channel.clone();
        let Some(channels) = slots.iter().map(channel).collect::<Option<BTreeSet<_>>>() else {
            return Vec::new();
        };
        let filled = slots.iter().filter(|(_, slot)| is_filled(slot));
        let filled: BTreeSet<_> = filled.filter_map(channel).collect();
        if filled.len() < channels.len() {
            let message = format!(
                "processor {processor} has modules in {} of its {} memory channels",
                filled.len(),
                channels.len()
            );
            warnings.push(warning("memory slots", message).advise(ONE_PER_CHANNEL));
        }
    }
    warnings
}

/// How many memory channels each package has at least, where the processor's name settles it.
fn channels_per_package(processor: &Processor) -> Option<usize> {
    let is_scalable = |name: &String| {
        ["Platinum", "Gold", "Silver", "Bronze"]
            .iter()
            .any(|metal| name.contains(metal))
    };
    match (
        processor.vendor.known()?,
        processor.family.known()?,
        processor.model.known()?,
    ) {
        // Skylake-SP and Cascade Lake ("Purley"): two controllers of three channels. The desktop
        // parts of the same model have fewer and carry other names.
        (Vendor::Intel, 6, 85) => processor
            .model_name
            .known()
            .filter(|&name| is_scalable(name)),
        _ => None,
    }
    .map(|_| 6)
}

/// Too few modules to fill all channels, however they are spread.
fn empty_channels_by_count(
    topology: &Topology,
    slots: &[MemorySlot],
    modules: usize,
) -> Option<Warning> {
    let per_package = channels_per_package(&topology.processor)?;
    let packages = topology.packages.len();
    let known = topology
        .packages
        .iter()
        .all(|package| package.grouped_by != GroupedBy::Mask);
    let channels = per_package * packages;
    // A list shorter than the channels is not the list of the board.
    (known && modules < channels && slots.len() >= channels).then(|| {
        let message = format!(
            "{} on {} fill at most {modules} of {channels} memory channels{}",
            count(modules, "module"),
            count(packages, "package"),
            if packages > 1 && modules.is_multiple_of(packages) {
                format!(
                    " ({} of {per_package} each, when spread evenly)",
                    modules / packages
                )
            } else {
                String::new()
            }
        );
        warning("memory slots", message).advise(ONE_PER_CHANNEL)
    })
}

/// Processors with different numbers of modules or amounts of memory.
fn uneven_processors(slots: &[MemorySlot]) -> Option<Warning> {
    let processors = by_processor(slots)?;
    let fill: Vec<(String, usize, Option<Bytes>)> = processors
        .into_iter()
        .map(|(processor, slots)| {
            let filled: Vec<&MemorySlot> = slots
                .iter()
                .map(|(_, slot)| *slot)
                .filter(|slot| is_filled(slot))
                .collect();
            let sizes = filled.iter().map(|slot| size(slot));
            (processor, filled.len(), sizes.sum::<Option<Bytes>>())
        })
        .collect();
    let (first, others) = fill.split_first()?;
    // An amount that is not known is no difference.
    let differs = |other: &(String, usize, Option<Bytes>)| {
        other.1 != first.1
            || first
                .2
                .zip(other.2)
                .is_some_and(|(one, other)| one != other)
    };
    if !others.iter().any(differs) {
        return None;
    }
    let parts: Vec<String> = fill
        .iter()
        .map(|(processor, modules, sum)| {
            let sum = sum.map_or_else(String::new, |sum| format!(" ({sum})"));
            format!("{processor} has {}{sum}", count(*modules, "module"))
        })
        .collect();
    let message = format!("processors differ in memory: {}", parts.join(", "));
    Some(warning("memory slots", message).advise("give every processor the same modules"))
}

/// Modules of different sizes.
fn mixed_sizes(modules: &[&MemorySlot]) -> Option<Warning> {
    let mut sizes: BTreeMap<Bytes, usize> = BTreeMap::new();
    for module in modules {
        *sizes.entry(size(module)?).or_default() += 1;
    }
    (sizes.len() > 1).then(|| {
        let parts: Vec<String> = sizes
            .iter()
            .map(|(size, number)| format!("{number} of {size}"))
            .collect();
        let message = format!("modules differ in size: {}", parts.join(", "));
        warning("memory slots", message).advise(
            "channels of different size are interleaved only in part; persistent memory beside \
             ordinary modules is meant to be larger",
        )
    })
}

/// Modules that the system does not get to use.
fn missing_memory(topology: &Topology, slots: &[MemorySlot]) -> Option<Warning> {
    let filled = slots.iter().filter(|slot| is_filled(slot));
    let fitted: Bytes = filled.map(size).sum::<Option<Bytes>>()?;
    let counted = *topology.memory_total.known()?;
    let missing = fitted.saturating_sub(counted);
    (missing.0 > fitted.0 / HELD_BACK_PART).then(|| {
        let message = format!("the slots hold {fitted}, and the kernel counts {counted}");
        warning("memory", message).advise(
            "look for a limit (mem=, a licence), mirroring or sparing in the firmware, a module \
             that failed, or persistent memory, which is not counted",
        )
    })
}
