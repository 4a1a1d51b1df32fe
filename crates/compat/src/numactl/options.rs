//! The options of numactl, and its usage text.

use crate::getopt::Known;

/// What an option asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flag {
    All,
    Balancing,
    Bind,
    CpuCompress,
    CpuNodeBind,
    Dump,
    DumpNodes,
    File,
    Hardware,
    Huge,
    Interleave,
    Length,
    Local,
    Offset,
    PhysCpuBind,
    Preferred,
    PreferredMany,
    Shm,
    ShmId,
    ShmMode,
    Show,
    Strict,
    Touch,
    Verify,
    Version,
    Weighted,
}

const fn option(long: &'static str, short: u8, takes_argument: bool, meaning: Flag) -> Known<Flag> {
    Known {
        long,
        short: Some(short),
        takes_argument,
        meaning,
        wins_abbreviation: true,
    }
}

/// An option that 2.0.16 does not have: abbreviations that 2.0.16 took keep their meaning.
const fn newer(
    long: &'static str,
    short: Option<u8>,
    takes_argument: bool,
    meaning: Flag,
) -> Known<Flag> {
    Known {
        long,
        short,
        takes_argument,
        meaning,
        wins_abbreviation: false,
    }
}

/// All of 2.0.19.
pub(super) const OPTIONS: [Known<Flag>; 27] = [
    option("all", b'a', false, Flag::All),
    option("interleave", b'i', true, Flag::Interleave),
    newer("weighted-interleave", Some(b'w'), true, Flag::Weighted),
    option("preferred", b'p', true, Flag::Preferred),
    option("preferred-many", b'P', true, Flag::PreferredMany),
    option("cpubind", b'c', true, Flag::CpuNodeBind),
    option("cpunodebind", b'N', true, Flag::CpuNodeBind),
    option("physcpubind", b'C', true, Flag::PhysCpuBind),
    option("membind", b'm', true, Flag::Bind),
    option("show", b's', false, Flag::Show),
    option("localalloc", b'l', false, Flag::Local),
    option("balancing", b'b', false, Flag::Balancing),
    option("hardware", b'H', false, Flag::Hardware),
    newer("cpu-compress", None, false, Flag::CpuCompress),
    newer("version", None, false, Flag::Version),
    option("shm", b'S', true, Flag::Shm),
    option("file", b'f', true, Flag::File),
    option("offset", b'o', true, Flag::Offset),
    option("length", b'L', true, Flag::Length),
    option("strict", b't', false, Flag::Strict),
    option("shmmode", b'M', true, Flag::ShmMode),
    option("dump", b'd', false, Flag::Dump),
    option("dump-nodes", b'D', false, Flag::DumpNodes),
    option("shmid", b'I', true, Flag::ShmId),
    option("huge", b'u', false, Flag::Huge),
    option("touch", b'T', false, Flag::Touch),
    option("verify", b'V', false, Flag::Verify),
];

/// Shown on the error output after a wrong command line.
pub(super) const USAGE: &str = "\
usage: numactl [OPTION]... COMMAND [ARGUMENT]...
       numactl --show | --hardware [--cpu-compress] | --version
       numactl [REGION OPTION]... --shm KEYFILE | --file FILE [POLICY] [REGION ACTION]...

Where memory comes from (POLICY; at most one):
  -i, --interleave NODES           these nodes in turn
  -w, --weighted-interleave NODES  these nodes in turn, by weight
  -p, --preferred NODE             this node first
  -P, --preferred-many NODES       these nodes first
  -m, --membind NODES              these nodes only
  -l, --localalloc                 the node of the CPU that touches it first
  -b, --balancing                  before --membind: let the kernel balance among the nodes
Where the command runs:
  -N, --cpunodebind NODES          the CPUs of these nodes (old name: -c, --cpubind)
  -C, --physcpubind CPUS           these CPUs
  -a, --all                        before all others: name any node and CPU, not only allowed ones
What there is:
  -s, --show                       the policy and the CPUs of this process
  -H, --hardware                   nodes, CPUs, memory and distances
Shared memory (REGION OPTION and REGION ACTION):
  -L, --length SIZE    -o, --offset SIZE   -I, --shmid ID   -M, --shmmode MODE
  -u, --huge           -t, --strict
  -T, --touch          -V, --verify        -d, --dump       -D, --dump-nodes

NODES: 0,2-3 | all | same | netdev:DEV | ip:HOST | file:PATH | block:DEV | pci:[SEG:]BUS:DEV[.FUNC]
CPUS:  0,2-3 | all
A leading ! takes all others, a leading + counts within the allowed ones. SIZE takes k, m or g.
";
