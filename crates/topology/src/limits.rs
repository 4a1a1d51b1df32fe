//! How large a described machine may be. Files and strings of others are not trusted.

/// CPU ids of a described machine lie below this: 8 times what Linux supports (`CONFIG_NR_CPUS`
/// 8,192).
pub(crate) const CPU_LIMIT: u32 = 1 << 16;
/// Node ids of a described machine lie below this, as in Linux (`CONFIG_NODES_SHIFT` 10).
pub(crate) const NODE_LIMIT: u32 = 1 << 10;
/// Devices of a described machine; each keeps a set of CPUs.
pub(crate) const DEVICE_LIMIT: usize = 1 << 12;
/// CPUs of a synthetic machine: twice what Linux supports. A string of a few characters asks for
/// all of them, and each core and cache keeps a set.
pub(crate) const SYNTHETIC_CPU_LIMIT: usize = 1 << 14;
/// Levels of a synthetic machine, as in hwloc.
pub(crate) const SYNTHETIC_LEVEL_LIMIT: usize = 128;
