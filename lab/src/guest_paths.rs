//! Where things lie inside a guest; the side that packs and the side that runs agree on these.

/// What the guest runs: the program and its arguments, each ended by a zero byte.
pub const COMMAND: &str = "/lab/command";
/// The TOML text of the shape that the guest has.
pub const SHAPE: &str = "/lab/shape.toml";
/// The name of that shape.
pub const SHAPE_NAME: &str = "/lab/shape-name";
/// Our binaries.
pub const BINARIES: &str = "/lab/bin";
/// The command search path.
pub const SEARCH_PATH: &str = "/lab/bin:/usr/bin:/bin";
/// The serial port that carries [`frame`](crate::frame)s.
pub const REPORT_PORT: &str = "/dev/ttyS1";
