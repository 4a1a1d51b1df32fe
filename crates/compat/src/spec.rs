//! Node and CPU specifications, as libnuma's tools take them: `0-3,8`, `+0`, `!all`, `netdev:eth0`.
//!
//! ```text
//! spec := "" | ["!"]["+"] item ("," item)*
//! item := "all" | NUM ["-" NUM] | device          "all" and devices last
//! NUM  := as strtoul(3) with base 0 reads it
//! ```
//!
//! `!` takes what is not named, `+` counts within what is allowed; both hold for the whole text.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;

use homenode_units::{Id, IdSet, NodeId, NodeSet};

/// Why a specification means nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct BadSpec {
    /// The line that libnuma would warn with, and the empty line where it has one; some faults are
    /// only told by the tool.
    pub(crate) warning: Option<String>,
}

impl BadSpec {
    fn silent() -> Self {
        Self::default()
    }

    fn new(warning: fmt::Arguments<'_>) -> Self {
        Self {
            warning: Some(format!("{warning}\n")),
        }
    }

    /// A fault whose line stands alone: those of devices.
    pub(crate) fn device(warning: impl Into<String>) -> Self {
        Self {
            warning: Some(warning.into()),
        }
    }
}

/// What numbers may be named.
#[derive(Clone, Debug)]
pub(crate) struct Universe<T: Id> {
    /// What the task may use, or, under `--all`, what is possible.
    pub(crate) allowed: IdSet<T>,
    /// `node` or `cpu`, as the warnings say it.
    pub(crate) noun: &'static str,
}

/// Finds the nodes of a device; `None` when the text names no kind of device.
pub(crate) type DeviceNodes<'a> = &'a dyn Fn(&OsStr) -> Option<Result<NodeSet, BadSpec>>;

/// Reads a node specification.
///
/// # Errors
///
/// [`BadSpec`] with the warning to print.
pub(crate) fn parse_nodes(
    text: &OsStr,
    universe: &Universe<NodeId>,
    devices: DeviceNodes<'_>,
) -> Result<NodeSet, BadSpec> {
    parse(text.as_bytes(), universe, &|item| {
        devices(OsStr::from_bytes(item))
    })
}

/// Reads a CPU specification, which knows no devices.
///
/// # Errors
///
/// As [`parse_nodes`].
pub(crate) fn parse_cpus<T: Id>(text: &OsStr, universe: &Universe<T>) -> Result<IdSet<T>, BadSpec> {
    parse(text.as_bytes(), universe, &|_| None)
}

type Devices<'a, T> = &'a dyn Fn(&[u8]) -> Option<Result<IdSet<T>, BadSpec>>;

fn parse<T: Id>(
    text: &[u8],
    universe: &Universe<T>,
    devices: Devices<'_, T>,
) -> Result<IdSet<T>, BadSpec> {
    if text.is_empty() {
        return Ok(IdSet::new());
    }
    let (inverted, text) = strip(text, b'!');
    let (relative, mut rest) = strip(text, b'+');
    let mut set = IdSet::new();
    loop {
        if rest == b"all" {
            set = set.union(&universe.allowed);
            break;
        }
        if rest.first().is_some_and(u8::is_ascii_alphabetic)
            && let Some(nodes) = devices(rest)
        {
            set = set.union(&nodes?);
            break;
        }
        let (ids, after) = range(rest, universe, relative)?;
        set = set.union(&ids);
        match after.split_first() {
            None => break,
            Some((b',', next)) => rest = next,
            Some(_) => return Err(BadSpec::silent()),
        }
    }
    // Within what is allowed, unlike libnuma: docs/drop-ins.md, "inverted".
    Ok(if inverted {
        universe.allowed.difference(&set)
    } else {
        set
    })
}

fn strip(text: &[u8], mark: u8) -> (bool, &[u8]) {
    match text.split_first() {
        Some((&first, rest)) if first == mark => (true, rest),
        _ => (false, text),
    }
}

/// One number or range, and what follows it.
fn range<'a, T: Id>(
    text: &'a [u8],
    universe: &Universe<T>,
    relative: bool,
) -> Result<(IdSet<T>, &'a [u8]), BadSpec> {
    let noun = universe.noun;
    let Some((first, after)) = number(text) else {
        let text = String::from_utf8_lossy(text);
        return Err(BadSpec::new(format_args!(
            "unparseable {noun} description `{text}'"
        )));
    };
    let first = member(first, universe, relative).ok_or_else(|| {
        let plus = if relative { "+" } else { "" };
        BadSpec::new(format_args!(
            "{noun} argument {plus}{first} is out of range"
        ))
    })?;
    let Some((b'-', after)) = after.split_first() else {
        return Ok((std::iter::once(first).collect(), after));
    };
    let Some((last, after)) = number(after) else {
        let text = String::from_utf8_lossy(after);
        return Err(BadSpec::new(format_args!("missing {noun} argument {text}")));
    };
    let last = member(last, universe, relative).ok_or_else(|| {
        let plus = if relative { "+" } else { "" };
        BadSpec::new(format_args!("{noun} argument {plus}{last} out of range"))
    })?;
    // A range that runs backwards is its first number.
    let ids = universe
        .allowed
        .iter()
        .filter(|id| *id == first || (first..=last).contains(id))
        .collect();
    Ok((ids, after))
}

/// The id of this number, or with `+` the id at this position, if it is allowed.
fn member<T: Id>(number: Number, universe: &Universe<T>, relative: bool) -> Option<T> {
    let number = u32::try_from(number.0).ok()?;
    if relative {
        let position = usize::try_from(number).ok()?;
        return universe.allowed.iter().nth(position);
    }
    Some(T::new(number)).filter(|&id| universe.allowed.contains(id))
}

/// A number as C holds it; shown with a sign, so that `-1` is shown as it was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Number(pub(crate) u64);

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.cast_signed().fmt(f)
    }
}

/// Reads a number as strtoul(3) with base 0: blanks, a sign, `0x` for hexadecimal, `0` for octal.
/// Too large a number is the largest one. `None` when there is no digit.
pub(crate) fn number(text: &[u8]) -> Option<(Number, &[u8])> {
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t'..=b'\r');
    let start = text.iter().position(|byte| !is_blank(byte))?;
    let (negative, digits) = match &text[start..] {
        [b'-', rest @ ..] => (true, rest),
        [b'+', rest @ ..] => (false, rest),
        rest => (false, rest),
    };
    let (base, digits) = match digits {
        [b'0', b'x' | b'X', rest @ ..] if rest.first().is_some_and(u8::is_ascii_hexdigit) => {
            (16, rest)
        }
        [b'0', ..] => (8, digits),
        _ => (10, digits),
    };
    let digit = |byte: &u8| char::from(*byte).to_digit(base);
    let end = digits
        .iter()
        .position(|byte| digit(byte).is_none())
        .unwrap_or(digits.len());
    if end == 0 {
        return None;
    }
    let value = digits[..end]
        .iter()
        .filter_map(digit)
        .try_fold(0u64, |value, digit| {
            value
                .checked_mul(u64::from(base))?
                .checked_add(u64::from(digit))
        });
    let value = match value {
        None => u64::MAX,
        Some(value) if negative => value.wrapping_neg(),
        Some(value) => value,
    };
    Some((Number(value), &digits[end..]))
}

#[cfg(test)]
#[path = "spec_tests.rs"]
mod tests;
