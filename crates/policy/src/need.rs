use std::fmt;
use std::str::FromStr;

use homenode_units::{Bytes, QuantityError};
use serde::Serialize;

/// What a workload needs.
///
/// Read from `8cpu,32GiB`, `8cpu` or `32GiB`; what is not said is one CPU and no memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Need {
    /// Logical CPUs; at least 1.
    pub cpus: u32,
    /// Unit: bytes.
    pub memory: Bytes,
}

/// Why a text is no need.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NeedError {
    /// Neither CPUs nor a size.
    #[error("expected CPUs and memory, such as 8cpu,32GiB, found `{found}`")]
    Part {
        /// The part.
        found: String,
    },
    /// CPUs or memory twice.
    #[error("expected CPUs and memory once each, found `{found}` besides")]
    Twice {
        /// The second one.
        found: String,
    },
    /// Not even one CPU.
    #[error("expected at least 1 CPU, found `{found}`")]
    NoCpu {
        /// The part.
        found: String,
    },
    /// A size that no machine has.
    #[error(transparent)]
    Size(#[from] QuantityError),
}

impl Default for Need {
    fn default() -> Self {
        Self {
            cpus: 1,
            memory: Bytes(0),
        }
    }
}

impl FromStr for Need {
    type Err = NeedError;

    fn from_str(text: &str) -> Result<Self, NeedError> {
        let (mut cpus, mut memory) = (None, None);
        for part in text.split(',').map(str::trim) {
            let found = || part.to_owned();
            let lower = part.to_ascii_lowercase();
            let count = lower
                .strip_suffix("cpus")
                .or_else(|| lower.strip_suffix("cpu"))
                .map(str::trim_end);
            let is_second = match count {
                Some(count) => cpus.replace(parse_count(count, part)?).is_some(),
                None => {
                    let size = part.parse().map_err(|error| match error {
                        QuantityError::Size { .. } => NeedError::Part { found: found() },
                        too_large @ QuantityError::TooLarge { .. } => NeedError::Size(too_large),
                    })?;
                    memory.replace(size).is_some()
                }
            };
            if is_second {
                return Err(NeedError::Twice { found: found() });
            }
        }
        let default = Self::default();
        Ok(Self {
            cpus: cpus.unwrap_or(default.cpus),
            memory: memory.unwrap_or(default.memory),
        })
    }
}

fn parse_count(count: &str, part: &str) -> Result<u32, NeedError> {
    let found = part.to_owned();
    match count.parse() {
        Ok(0) => Err(NeedError::NoCpu { found }),
        Ok(count) => Ok(count),
        Err(_) => Err(NeedError::Part { found }),
    }
}

impl fmt::Display for Need {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.cpus == 1 { "" } else { "s" };
        write!(f, "{} CPU{plural}", self.cpus)?;
        if self.memory > Bytes(0) {
            write!(f, " and {}", self.memory)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_and_memory_in_any_order() {
        let need = |cpus, gib: u64| Need {
            cpus,
            memory: Bytes(gib << 30),
        };
        for (text, expected) in [
            ("8cpu,32GiB", need(8, 32)),
            ("32GiB, 8 CPUs", need(8, 32)),
            ("8cpu", need(8, 0)),
            ("2GiB", need(1, 2)),
        ] {
            assert_eq!(text.parse(), Ok(expected), "{text}");
        }
        assert_eq!(need(8, 32).to_string(), "8 CPUs and 32 GiB");
        assert_eq!(Need::default().to_string(), "1 CPU");
    }

    #[test]
    fn anything_else_is_named() {
        for (text, message) in [
            ("", "expected CPUs and memory, such as 8cpu,32GiB, found ``"),
            ("8", "8 bytes"),
            ("8core", "found `8core`"),
            ("8cpu,", "found ``"),
            ("-1cpu", "found `-1cpu`"),
            ("0cpu", "at least 1 CPU"),
            ("1cpu,2cpu", "found `2cpu` besides"),
            ("1GiB,2GiB", "found `2GiB` besides"),
            ("99999999PiB", "below 16 EiB"),
        ] {
            match text.parse::<Need>() {
                Err(error) => assert!(error.to_string().contains(message), "{text}: {error}"),
                Ok(need) => assert_eq!((text, need.memory), ("8", Bytes(8))),
            }
        }
    }
}
