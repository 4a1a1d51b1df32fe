//! Packs a guest's first file system: our binaries, the userland, and what to run.

use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::cpio::Archive;
use crate::{Shape, Userland, guest_paths};

/// A guest's file system in two archives: what all guests share, and what one guest runs.
#[derive(Clone, Debug)]
pub struct Initramfs {
    shared: Vec<u8>,
}

/// Why a file system could not be packed.
#[derive(Debug, thiserror::Error)]
#[error("cannot read {} for the guest", path.display())]
pub struct PackError {
    path: PathBuf,
    #[source]
    source: io::Error,
}

impl Initramfs {
    /// Packs what all guests share: `init` is process 1, `programs` are put into the search path
    /// under their own names.
    ///
    /// Nothing is compressed: Linux 6.12 under TCG unpacks 20 MB in 0.4 s, and takes 0.4 to 0.8 s
    /// for the same as zstd or gzip (QEMU 7.2, 2 cores); to compress costs the host more than that.
    ///
    /// # Errors
    ///
    /// [`PackError`] with the file that cannot be read.
    pub fn pack(
        init: &Path,
        programs: &[(&str, &Path)],
        userland: &Userland,
    ) -> Result<Self, PackError> {
        let mut archive = Archive::default();
        for directory in DIRECTORIES {
            archive.directory(directory);
        }
        // The loader's path is compiled into every dynamic program.
        archive.symlink("/lib64", "usr/lib64");
        archive.symlink("/lib", "usr/lib");
        archive.program("/init", &read(init)?);
        for (name, path) in programs {
            archive.program(&format!("{}/{name}", guest_paths::BINARIES), &read(path)?);
        }
        for (inside, outside) in userland.files() {
            archive.program(inside, &read(&outside)?);
        }
        Ok(Self {
            shared: archive.finish(),
        })
    }

    /// Packs what lies in a folder, to be put over the root of a guest: directories, files with
    /// their permission to be run, and links as they are.
    ///
    /// # Errors
    ///
    /// [`PackError`] with the file that cannot be read.
    pub fn folder(path: &Path) -> Result<Vec<u8>, PackError> {
        let mut archive = Archive::default();
        add_folder(&mut archive, path, "")?;
        Ok(archive.finish())
    }

    /// What all guests share.
    #[must_use]
    pub fn shared(&self) -> &[u8] {
        &self.shared
    }

    /// What one guest runs, and on which shape.
    #[must_use]
    pub fn command(shape: &Shape, command: &[String]) -> Vec<u8> {
        let mut archive = Archive::default();
        let words: Vec<u8> = command
            .iter()
            .flat_map(|word| word.bytes().chain([0]))
            .collect();
        archive.file(guest_paths::COMMAND, &words);
        archive.file(guest_paths::SHAPE_NAME, shape.name.as_bytes());
        archive.file(guest_paths::SHAPE, shape.text.as_bytes());
        archive.finish()
    }
}

/// Parents before children. `/dev` and its console come with the kernel.
const DIRECTORIES: &[&str] = &[
    "/bin",
    "/lab",
    guest_paths::BINARIES,
    "/proc",
    "/root",
    "/sys",
    "/tmp",
    "/usr",
    "/usr/bin",
    "/usr/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib64",
];

/// Adds what is below `outside`, parents first; neither sockets nor devices.
fn add_folder(archive: &mut Archive, outside: &Path, inside: &str) -> Result<(), PackError> {
    let problem = |path: &Path| {
        let path = path.to_owned();
        move |source| PackError { path, source }
    };
    let mut entries = fs::read_dir(outside)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(problem(outside))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = format!("{inside}/{}", entry.file_name().to_string_lossy());
        let metadata = entry.metadata().map_err(problem(&path))?;
        if metadata.is_dir() {
            archive.directory(&name);
            add_folder(archive, &path, &name)?;
        } else if metadata.is_symlink() {
            let target = fs::read_link(&path).map_err(problem(&path))?;
            archive.symlink(&name, &target.to_string_lossy());
        } else if metadata.is_file() {
            let content = read(&path)?;
            if metadata.permissions().mode() & 0o111 == 0 {
                archive.file(&name, &content);
            } else {
                archive.program(&name, &content);
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<Vec<u8>, PackError> {
    fs::read(path).map_err(|source| PackError {
        path: path.to_owned(),
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_is_packed_with_links_and_permissions() {
        let folder = std::env::temp_dir().join(format!("lab-add-{}", std::process::id()));
        fs::create_dir_all(folder.join("usr/bin")).unwrap();
        fs::write(folder.join("usr/bin/tool"), "#!").unwrap();
        fs::set_permissions(
            folder.join("usr/bin/tool"),
            fs::Permissions::from_mode(0o755),
        )
        .unwrap();
        fs::write(folder.join("usr/note"), "text").unwrap();
        fs::set_permissions(folder.join("usr/note"), fs::Permissions::from_mode(0o644)).unwrap();
        std::os::unix::fs::symlink("tool", folder.join("usr/bin/again")).unwrap();
        let packed = Initramfs::folder(&folder);
        fs::remove_dir_all(&folder).unwrap();
        let mut expected = Archive::default();
        expected.directory("/usr");
        expected.directory("/usr/bin");
        expected.symlink("/usr/bin/again", "tool");
        expected.program("/usr/bin/tool", b"#!");
        expected.file("/usr/note", b"text");
        assert_eq!(packed.unwrap(), expected.finish());
        let error = Initramfs::folder(&folder).unwrap_err();
        assert!(error.to_string().contains("lab-add-"), "{error}");
    }
}
