//! What every guest needs: an emulator, kernels, and the file system to boot from.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Error, Result};
use homenode_lab::{Guest, GuestTime, Initramfs, Kernel, KernelName, Shape, Userland, qemu};

use crate::build::{self, Profile, StaticBuild};
use crate::host::{self, Needed};

/// The guest test binary's name inside guests.
pub(crate) const GUEST_TESTS: &str = "guest-tests";

/// The program that talks to the model, inside guests.
pub(crate) const MARK: &str = "lab-mark";

/// The program that feels how far memory is, inside guests.
const PROBE: &str = "lab-probe";

const QEMU: Needed = Needed {
    program: qemu::PROGRAM,
    package: "qemu-system-x86",
};

/// Everything fetched and built; guests boot from it.
#[derive(Debug)]
pub(crate) struct Machinery {
    kernels: BTreeMap<KernelName, Kernel>,
    initramfs: Initramfs,
    /// Put over the root of each guest.
    added: Vec<u8>,
    time: GuestTime,
}

impl Machinery {
    /// Installs, fetches and builds whatever is not there yet.
    ///
    /// # Errors
    ///
    /// When one of these fails; the message names what and what to do.
    pub(crate) fn prepare(kernels: &[KernelName]) -> Result<Self> {
        Self::prepare_as(kernels, Profile::Dev, GuestTime::Host)
    }

    /// As [`Self::prepare`], for guests in which accesses cost what their shape says.
    ///
    /// # Errors
    ///
    /// As [`Self::prepare`].
    pub(crate) fn prepare_modelled(
        kernels: &[KernelName],
        profile: Profile,
        seed: u64,
    ) -> Result<Self> {
        host::ensure(&[QEMU])?;
        let version = Command::new(qemu::PROGRAM)
            .arg("--version")
            .output()
            .with_context(|| format!("cannot start {}", qemu::PROGRAM))?;
        qemu::check_models(&String::from_utf8_lossy(&version.stdout)).map_err(Error::msg)?;
        let plugin = build::host_library("homenode-lab-plugin")?;
        Self::prepare_as(kernels, profile, GuestTime::Modelled { plugin, seed })
    }

    fn prepare_as(kernels: &[KernelName], profile: Profile, time: GuestTime) -> Result<Self> {
        host::ensure(&[
            QEMU,
            Needed {
                program: "setpriv",
                package: "util-linux",
            },
        ])?;
        let lab = host::root().join("target/lab");
        let (kernels, userland) = fetch(kernels, &lab)?;

        let build = StaticBuild::new(profile)?;
        let init = build.binary("homenode-lab", "lab-init")?;
        let victim = build.binary("homenode-lab", "lab-victim")?;
        let bench = build.binary("homenode-lab", "lab-bench-migrate")?;
        let tests = build.test("homenode-lab", "guest")?;
        let mark = build.binary("homenode-lab-plugin", MARK)?;
        // Optimised always, as it is there for its times.
        let probe = StaticBuild::new(Profile::Release)?.binary("homenode-lab-probe", PROBE)?;
        let homenode = build
            .binary("homenode", "homenode")
            .inspect_err(|error| eprintln!("warning: {error:#}: the guest goes without it"))
            .ok();
        let mut programs: Vec<(&str, &Path)> = vec![
            (GUEST_TESTS, &tests),
            (MARK, &mark),
            (PROBE, &probe),
            ("lab-victim", &victim),
            ("lab-bench-migrate", &bench),
        ];
        programs.extend(homenode.as_deref().map(|path| ("homenode", path)));
        let initramfs = Initramfs::pack(&init, &programs, &userland)?;
        Ok(Self {
            kernels,
            initramfs,
            added: Vec::new(),
            time,
        })
    }

    /// Puts what lies in a folder over the root of each guest.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub(crate) fn add(&mut self, folder: &Path) -> Result<()> {
        self.added = Initramfs::folder(folder)?;
        Ok(())
    }

    /// The kernel of that name.
    ///
    /// # Panics
    ///
    /// When it was not among those prepared.
    pub(crate) fn kernel(&self, name: KernelName) -> &Kernel {
        &self.kernels[&name]
    }

    /// Boots a shape with a command and hands the guest to `follow`. A modelled machine's costs begin
    /// with the command.
    pub(crate) fn boot<T>(
        &self,
        shape: &Shape,
        kernel: KernelName,
        timeout: Duration,
        command: &[String],
        follow: impl FnOnce(&Guest<'_>) -> T,
    ) -> T {
        let mut words = Vec::new();
        if let GuestTime::Modelled { .. } = self.time {
            words.extend([MARK.to_owned(), "start".to_owned()]);
        }
        words.extend_from_slice(command);
        follow(&Guest {
            shape,
            kernel: &self.kernel(kernel).image,
            initramfs: &[
                self.initramfs.shared(),
                &self.added,
                &Initramfs::command(shape, &words),
            ],
            timeout,
            time: &self.time,
        })
    }
}

/// Takes kernels and userland from the cache or the archive, one process at a time.
fn fetch(names: &[KernelName], lab: &Path) -> Result<(BTreeMap<KernelName, Kernel>, Userland)> {
    fs::create_dir_all(lab).with_context(|| format!("cannot create {}", lab.display()))?;
    let path = lab.join("lock");
    // Freed when the file is closed, however this process ends.
    let lock = File::create(&path).with_context(|| format!("cannot create {}", path.display()))?;
    lock.lock()
        .with_context(|| format!("cannot lock {}", path.display()))?;
    let mut kernels = BTreeMap::new();
    for &name in names {
        let kernel =
            Kernel::fetch(name, lab).with_context(|| format!("cannot fetch kernel {name}"))?;
        kernels.insert(name, kernel);
    }
    let userland = Userland::fetch(lab).context("cannot fetch the guest's userland")?;
    Ok((kernels, userland))
}

/// Reads a time limit: `90s` or `2m`.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    let seconds = match (text.strip_suffix('s'), text.strip_suffix('m')) {
        (Some(seconds), _) => seconds.parse().ok(),
        (_, Some(minutes)) => minutes.parse().ok().and_then(|m: u64| m.checked_mul(60)),
        _ => None,
    };
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| format!("expected a duration such as 90s or 2m, found `{text}`"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_units() {
        assert_eq!(parse_duration("90s"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["90", "s", "-1s", "1h", ""] {
            assert!(parse_duration(wrong).is_err(), "{wrong}");
        }
    }
}
