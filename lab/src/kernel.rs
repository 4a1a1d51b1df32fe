//! The kernels that guests boot.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::debian::{self, DebianError, Package, Suite};

/// Which kernel to boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum KernelName {
    /// Linux 6.1, the oldest we promise to work with: Debian 12's.
    V6_1,
    /// Linux 6.12, the stable one: Debian 13's.
    V6_12,
    /// The newest release that the archive has.
    Next,
}

impl KernelName {
    /// All of them, oldest first.
    pub const ALL: [Self; 3] = [Self::V6_1, Self::V6_12, Self::Next];

    /// Its name on the command line and in the cache.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::Next => "next",
        }
    }

    /// The releases of Debian to take it from, best first. `next` stays away from experimental,
    /// whose kernels are release candidates.
    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::V6_1 => &["bookworm"],
            Self::V6_12 => &["trixie"],
            Self::Next => &["sid", "trixie-backports"],
        }
    }
}

impl fmt::Display for KernelName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for KernelName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL
            .into_iter()
            .find(|name| name.as_str() == text)
            .ok_or_else(|| "expected 6.1, 6.12 or next".to_owned())
    }
}

/// A kernel on disk.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kernel {
    /// Which one.
    pub name: KernelName,
    /// Its image.
    pub image: PathBuf,
    /// The package and version that it came from: `linux-image-6.12.1-amd64 6.12.1-1`.
    pub package: String,
}

/// Depends on the package that depends on the newest kernel.
///
/// The generic flavour: the cloud flavour lacks `CONFIG_NUMA_EMU` (`numa=fake=`), and its 6.12.107
/// crashed under TCG where the generic one boots.
const META_PACKAGE: &str = "linux-image-amd64";

impl Kernel {
    /// The kernel from the cache in `lab/kernels`, or else from the archive.
    ///
    /// # Errors
    ///
    /// [`DebianError`] when it is not cached and cannot be fetched.
    pub fn fetch(name: KernelName, lab: &Path) -> Result<Self, DebianError> {
        let directory = lab.join("kernels").join(name.as_str());
        if let Some(kernel) = Self::cached(name, &directory) {
            return Ok(kernel);
        }
        let mut result = Err(DebianError::NoMirror);
        for suite in name.suites() {
            result = Suite::open(lab, suite).and_then(|suite| fetch_image(&suite, &directory));
            if result.is_ok() {
                break;
            }
        }
        result.map(|package| Self {
            name,
            image: directory.join("vmlinuz"),
            package,
        })
    }

    fn cached(name: KernelName, directory: &Path) -> Option<Self> {
        let image = directory.join("vmlinuz");
        // Written last, so that a broken download is no kernel.
        let package = fs::read_to_string(directory.join("package")).ok()?;
        image.exists().then(|| Self {
            name,
            image,
            package: package.trim().to_owned(),
        })
    }
}

/// Puts the image and the package's name into `directory`; returns the latter.
fn fetch_image(suite: &Suite, directory: &Path) -> Result<String, DebianError> {
    let mut package = suite.package(META_PACKAGE)?;
    // Kernels up to 6.12 are in the package that the meta package names; later ones are one step
    // further on, in linux-binary-*.
    while let Some(next) = next_package(&package) {
        package = suite.package(next)?;
    }
    let unpacked = directory.join("unpacked");
    debian::create(&unpacked)?;
    suite.unpack(&package, &unpacked)?;
    let image = find_image(&unpacked)
        .ok_or_else(|| suite.lacking(&package.name, "a vmlinuz in boot or usr/lib/modules"))?;
    let kept = directory.join("vmlinuz");
    fs::rename(&image, &kept).map_err(|source| DebianError::Write { path: kept, source })?;
    fs::remove_dir_all(&unpacked).map_err(|source| DebianError::Write {
        path: unpacked,
        source,
    })?;
    let source = format!("{} {}", package.name, package.version);
    debian::write(&directory.join("package"), &format!("{source}\n"))?;
    Ok(source)
}

fn next_package(package: &Package) -> Option<&str> {
    ["linux-binary-", "linux-image-"]
        .into_iter()
        .find_map(|prefix| {
            package
                .depends
                .iter()
                .find(|name| name.starts_with(prefix))
                .map(String::as_str)
        })
}

fn find_image(unpacked: &Path) -> Option<PathBuf> {
    let entries = |directory: PathBuf| {
        fs::read_dir(directory)
            .into_iter()
            .flatten()
            .filter_map(|entry| Some(entry.ok()?.path()))
    };
    entries(unpacked.join("boot"))
        .chain(entries(unpacked.join("usr/lib/modules")).map(|version| version.join("vmlinuz")))
        .find(|path| {
            path.exists()
                && path
                    .file_name()
                    .is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for name in KernelName::ALL {
            assert_eq!(name.to_string().parse(), Ok(name));
        }
        assert_eq!(
            "5.10".parse::<KernelName>(),
            Err("expected 6.1, 6.12 or next".to_owned())
        );
    }

    #[test]
    fn the_image_is_followed_through_the_packages() {
        let package = |depends: &[&str]| Package {
            name: "p".to_owned(),
            version: "1".to_owned(),
            depends: depends.iter().map(|&name| name.to_owned()).collect(),
        };
        let meta = package(&["linux-base-amd64", "linux-image-7.2-amd64"]);
        assert_eq!(next_package(&meta), Some("linux-image-7.2-amd64"));
        let split = package(&["initramfs-tools", "linux-binary-7.2-amd64"]);
        assert_eq!(next_package(&split), Some("linux-binary-7.2-amd64"));
        assert_eq!(next_package(&package(&["kmod", "linux-base"])), None);
    }
}
