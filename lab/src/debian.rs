//! Fetches packages from the Debian archive without touching the host's package system.
//!
//! apt does the work, as it knows the host's proxies and checks signatures; a configuration of our
//! own gives it other lists, caches and sources. Nothing is installed, no lock of the host is
//! taken, and no mirror is named here: the host's own configuration says where Debian is.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Why a package could not be had.
#[derive(Debug, thiserror::Error)]
pub enum DebianError {
    /// A program could not be started.
    #[error("cannot start {program}\nhelp: the lab needs a Debian host with apt and dpkg")]
    Start {
        /// The program.
        program: String,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A program failed.
    #[error("{command} failed: {message}")]
    Failed {
        /// The program with its arguments.
        command: String,
        /// What it said.
        message: String,
    },
    /// The host's package sources name no Debian archive.
    #[error(
        "expected the Debian archive among the host's package sources, found none\nhelp: run `apt-get update` as root; the lab takes the mirror from apt's configuration"
    )]
    NoMirror,
    /// The keys that sign the archive are not here.
    #[error(
        "expected the archive's keys in {KEYRINGS:?}, found neither\nhelp: apt-get install debian-archive-keyring"
    )]
    NoKeyring,
    /// The archive has no such package, or not what was expected in it.
    #[error("package {package} of {suite}: expected {expected}")]
    Package {
        /// The package.
        package: String,
        /// The distribution's release.
        suite: String,
        /// What is missing.
        expected: String,
    },
    /// The lab's own files could not be kept.
    #[error("cannot write {}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
}

const KEYRINGS: [&str; 2] = [
    "/usr/share/keyrings/debian-archive-keyring.pgp",
    "/usr/share/keyrings/debian-archive-keyring.gpg",
];

/// One release of Debian, seen through an apt configuration of our own.
#[derive(Debug)]
pub(crate) struct Suite {
    name: String,
    directory: PathBuf,
    config: PathBuf,
}

/// What the archive says about a package.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) depends: Vec<String>,
}

impl Suite {
    /// Fetches the package lists of a release into `lab/apt/<suite>`.
    pub(crate) fn open(lab: &Path, name: &str) -> Result<Self, DebianError> {
        let directory = lab.join("apt").join(name);
        for part in ["state/lists/partial", "cache/archives/partial", "packages"] {
            create(&directory.join(part))?;
        }
        let directory = directory
            .canonicalize()
            .map_err(|source| DebianError::Write {
                path: directory,
                source,
            })?;
        let sources = directory.join("debian.sources");
        let text = sources_text(&mirror()?, name, keyring()?);
        write(&sources, &text)?;
        let config = directory.join("apt.conf");
        write(&config, &config_text(&directory, &sources))?;
        let suite = Self {
            name: name.to_owned(),
            directory,
            config,
        };
        suite.apt("apt-get", &["--quiet", "--quiet", "update"])?;
        Ok(suite)
    }

    /// The newest version of a package.
    pub(crate) fn package(&self, package: &str) -> Result<Package, DebianError> {
        let text = self.apt("apt-cache", &["show", "--no-all-versions", package])?;
        parse_package(&text).ok_or_else(|| self.lacking(package, "a version in its description"))
    }

    /// Downloads that version and unpacks its files below `into`.
    pub(crate) fn unpack(&self, package: &Package, into: &Path) -> Result<(), DebianError> {
        let packages = self.directory.join("packages");
        let wanted = format!("{}={}", package.name, package.version);
        self.apt("apt-get", &["--quiet", "--quiet", "download", &wanted])?;
        // apt chooses the file's name (it writes `:` of a version as %3a), so look for it.
        let prefix = format!("{}_", package.name);
        let file = fs::read_dir(&packages)
            .map_err(|source| DebianError::Write {
                path: packages.clone(),
                source,
            })?
            .filter_map(Result::ok)
            .find(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
            .ok_or_else(|| self.lacking(&package.name, "a downloaded file"))?
            .path();
        let unpacked = run(Command::new("dpkg-deb")
            .arg("--extract")
            .arg(&file)
            .arg(into));
        // A kernel package is 100 MB, and what is needed of it is kept elsewhere.
        fs::remove_file(&file).map_err(|source| DebianError::Write { path: file, source })?;
        unpacked.map(drop)
    }

    pub(crate) fn lacking(&self, package: &str, expected: impl Into<String>) -> DebianError {
        DebianError::Package {
            package: package.to_owned(),
            suite: self.name.clone(),
            expected: expected.into(),
        }
    }

    fn apt(&self, program: &str, arguments: &[&str]) -> Result<String, DebianError> {
        run(Command::new(program)
            .arg("--config-file")
            .arg(&self.config)
            .args(arguments)
            // `apt-get download` writes into the working directory.
            .current_dir(self.directory.join("packages"))
            .env("LC_ALL", "C"))
    }
}

/// The address of the Debian archive, as the host's apt knows it.
fn mirror() -> Result<String, DebianError> {
    let format = "$(REPO_URI)|$(ORIGIN)|$(LABEL)|$(RELEASE)";
    let targets = run(Command::new("apt-get").args(["indextargets", "--format", format]))?;
    parse_mirror(&targets).ok_or(DebianError::NoMirror)
}

/// Picks the main archive. Its updates share its address, its security archive has a label and an
/// address of its own; before the first `apt-get update` nothing is known but the release's name.
fn parse_mirror(targets: &str) -> Option<String> {
    targets.lines().find_map(|line| {
        let mut fields = line.split('|');
        let uri = fields.next()?;
        let (origin, label) = (fields.next()?, fields.next()?);
        (origin == "Debian" && label == "Debian").then(|| uri.to_owned())
    })
}

fn keyring() -> Result<&'static str, DebianError> {
    KEYRINGS
        .into_iter()
        .find(|path| Path::new(path).exists())
        .ok_or(DebianError::NoKeyring)
}

fn sources_text(mirror: &str, suite: &str, keyring: &str) -> String {
    format!(
        "Types: deb\nURIs: {mirror}\nSuites: {suite}\nComponents: main\nArchitectures: amd64\nSigned-By: {keyring}\n"
    )
}

/// Read after the host's configuration, of which proxies and certificates stay in force.
fn config_text(directory: &Path, sources: &Path) -> String {
    let directory = directory.display();
    let sources = sources.display();
    format!(
        r#"Dir::Etc::sourcelist "{sources}";
Dir::Etc::sourceparts "-";
Dir::State "{directory}/state";
Dir::State::status "/dev/null";
Dir::Cache "{directory}/cache";
APT::Architecture "amd64";
// Our directories may be closed to apt's own user; signatures are checked all the same.
APT::Sandbox::User "root";
// Packages only: no translations, no software centre metadata.
Acquire::Languages "none";
Acquire::IndexTargets::deb::DEP-11::DefaultEnabled "false";
// Hooks of the host, which would work on the host's own caches.
#clear APT::Update::Pre-Invoke;
#clear APT::Update::Post-Invoke;
#clear APT::Update::Post-Invoke-Success;
"#
    )
}

/// Reads the first paragraph of `apt-cache show`.
fn parse_package(text: &str) -> Option<Package> {
    let field = |name: &str| {
        text.lines()
            .take_while(|line| !line.is_empty())
            .find_map(|line| line.strip_prefix(name)?.strip_prefix(": "))
    };
    let depends = field("Depends").unwrap_or_default();
    Some(Package {
        name: field("Package")?.to_owned(),
        version: field("Version")?.to_owned(),
        depends: depends
            .split([',', '|'])
            .filter_map(|part| part.split_whitespace().next())
            .map(str::to_owned)
            .collect(),
    })
}

/// Runs a program and returns what it printed.
fn run(command: &mut Command) -> Result<String, DebianError> {
    let program = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|source| DebianError::Start {
        program: program.clone(),
        source,
    })?;
    if !output.status.success() {
        let arguments: Vec<_> = command
            .get_args()
            .map(|word| word.to_string_lossy())
            .collect();
        return Err(DebianError::Failed {
            command: format!("{program} {}", arguments.join(" ")),
            message: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        });
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

pub(crate) fn create(directory: &Path) -> Result<(), DebianError> {
    fs::create_dir_all(directory).map_err(|source| DebianError::Write {
        path: directory.to_owned(),
        source,
    })
}

pub(crate) fn write(path: &Path, text: &str) -> Result<(), DebianError> {
    fs::write(path, text).map_err(|source| DebianError::Write {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mirror_is_the_main_archive() {
        let targets = "\
http://mirror.example/debian-security/|Debian|Debian-Security|stable-security
http://packages.example/apt|Somebody|Somebody|stable
http://mirror.example/debian/|Debian|Debian|stable
";
        assert_eq!(
            parse_mirror(targets).as_deref(),
            Some("http://mirror.example/debian/")
        );
        assert_eq!(
            parse_mirror("http://mirror.example/ubuntu|Ubuntu|Ubuntu|lts\n"),
            None
        );
    }

    #[test]
    fn packages_are_read_from_their_first_paragraph() {
        let text = "\
Package: linux-image-amd64
Version: 7.2.13-1
Depends: linux-base-amd64 (= 7.2.13-1), linux-image-7.2.13+deb14-amd64 (= 7.2.13-1) | other

Package: unrelated
Version: 1
";
        let package = parse_package(text).unwrap();
        assert_eq!(package.version, "7.2.13-1");
        assert_eq!(
            package.depends,
            [
                "linux-base-amd64",
                "linux-image-7.2.13+deb14-amd64",
                "other"
            ]
        );
        assert_eq!(parse_package("N: nothing found\n"), None);
    }
}
