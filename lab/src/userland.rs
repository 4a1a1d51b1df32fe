//! The few programs in a guest that are not ours: numactl as the second opinion, busybox as shell,
//! mbw to feel how fast memory is.

use std::fs;
use std::path::{Path, PathBuf};

use crate::debian::{self, DebianError, Suite};

/// Debian's numactl and busybox, unpacked beside the host and not installed on it.
#[derive(Clone, Debug)]
pub struct Userland {
    root: PathBuf,
}

/// Debian 13: its numactl and C library also run on the older kernels.
const SUITE: &str = "trixie";

const PACKAGES: [&str; 5] = ["busybox-static", "libc6", "libnuma1", "mbw", "numactl"];

/// The files that a guest gets; all others stay behind, as a guest's memory is small.
const FILES: [&str; 10] = [
    "/usr/bin/busybox",
    "/usr/bin/mbw",
    "/usr/bin/memhog",
    "/usr/bin/migratepages",
    "/usr/bin/numactl",
    "/usr/bin/numastat",
    "/usr/lib/x86_64-linux-gnu/libc.so.6",
    "/usr/lib/x86_64-linux-gnu/libm.so.6",
    "/usr/lib/x86_64-linux-gnu/libnuma.so.1",
    "/usr/lib64/ld-linux-x86-64.so.2",
];

impl Userland {
    /// The userland from the cache in `lab/userland`, or else from the archive.
    ///
    /// # Errors
    ///
    /// [`DebianError`] when it is not cached and cannot be fetched.
    pub fn fetch(lab: &Path) -> Result<Self, DebianError> {
        let root = lab.join("userland");
        let versions = root.join("packages");
        let cached = Self { root: root.clone() };
        // A cache of an earlier version of the lab may lack a file.
        if versions.exists() && cached.files().all(|(_, outside)| outside.exists()) {
            return Ok(cached);
        }
        let suite = Suite::open(lab, SUITE)?;
        debian::create(&root)?;
        let mut lines = String::new();
        for name in PACKAGES {
            let package = suite.package(name)?;
            suite.unpack(&package, &root)?;
            lines.push_str(&format!("{} {}\n", package.name, package.version));
        }
        let userland = Self { root };
        for (inside, outside) in userland.files() {
            if fs::metadata(&outside).is_err() {
                return Err(suite.lacking(&PACKAGES.join(", "), format!("{inside} in one of them")));
            }
        }
        // Written last, so that a broken download is no userland.
        debian::write(&versions, &lines)?;
        Ok(userland)
    }

    /// Each file's path in the guest and on the host.
    pub(crate) fn files(&self) -> impl Iterator<Item = (&'static str, PathBuf)> {
        FILES
            .into_iter()
            .map(|path| (path, self.root.join(path.trim_start_matches('/'))))
    }
}
