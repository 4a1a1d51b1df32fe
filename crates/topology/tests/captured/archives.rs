//! The captured machines: archives, in memory or unpacked.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use homenode_host::Snapshot;

/// A captured machine, as an archive.
#[derive(Debug)]
pub(crate) struct Archive {
    /// The archive's file name without its ending.
    pub(crate) name: String,
    path: PathBuf,
}

/// The archives; empty, after saying so, where the folder is absent.
pub(crate) fn archives() -> Vec<Archive> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/corpus");
    let Ok(entries) = fs::read_dir(&folder) else {
        println!("skipped: no captured machines (expected the folder ../shared/corpus)");
        return Vec::new();
    };
    let mut archives: Vec<Archive> = entries
        .filter_map(|entry| {
            let path = entry.ok()?.path();
            let name = path
                .file_name()?
                .to_str()?
                .strip_suffix(".tar.bz2")?
                .to_owned();
            Some(Archive { name, path })
        })
        .collect();
    archives.sort_by(|a, b| a.name.cmp(&b.name));
    assert!(
        !archives.is_empty(),
        "{} holds no archive",
        folder.display()
    );
    archives
}

impl Archive {
    fn open(&self) -> tar::Archive<impl std::io::Read + use<>> {
        let file = fs::File::open(&self.path).expect("the archive was just listed");
        tar::Archive::new(bzip2::read::BzDecoder::new(file))
    }

    /// The machines in the archive, each with the folder it lies in, in memory.
    pub(crate) fn machines(&self) -> Vec<(String, Snapshot)> {
        let mut entries = Vec::new();
        for entry in self.open().entries().expect("a readable archive") {
            let mut entry = entry.expect("a readable entry");
            let path = entry.path().expect("a path").to_string_lossy().into_owned();
            let path = path
                .trim_start_matches("./")
                .trim_end_matches('/')
                .to_owned();
            let link = entry
                .link_name()
                .expect("a link")
                .map(|t| t.to_string_lossy().into_owned());
            let mut content = Vec::new();
            let kind = entry.header().entry_type();
            entry.read_to_end(&mut content).expect("a readable file");
            entries.push((path, kind, link, content));
        }
        let mut roots: Vec<String> = entries
            .iter()
            .filter_map(|(path, ..)| root_of(path))
            .map(str::to_owned)
            .collect();
        roots.sort_unstable();
        roots.dedup();
        roots
            .into_iter()
            .map(|root| {
                let mut machine = Snapshot::default();
                for (path, kind, link, content) in &entries {
                    let Some(path) = path.strip_prefix(&root) else {
                        continue;
                    };
                    match (kind, link) {
                        (tar::EntryType::Symlink, Some(target)) => machine.add_link(path, target),
                        (tar::EntryType::Directory, _) => machine.add_folder(path),
                        _ => machine.add_file(path, content.as_slice()),
                    }
                }
                (root, machine)
            })
            .collect()
    }

    /// Unpacks the archive, once, and returns the folders of its machines.
    pub(crate) fn unpacked(&self) -> Vec<PathBuf> {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"))
            .join("corpus")
            .join(&self.name);
        if !folder.exists() {
            let partial = folder.with_extension(format!("partial-{}", std::process::id()));
            self.open()
                .unpack(&partial)
                .expect("room for the unpacked archive");
            // Another test may have been quicker.
            let _ = fs::rename(&partial, &folder);
        }
        self.machines()
            .into_iter()
            .map(|(root, _)| folder.join(root))
            .collect()
    }
}

/// The part of a path before `/sys/devices/system`.
fn root_of(path: &str) -> Option<&str> {
    path.find("/sys/devices/system/cpu").map(|end| &path[..end])
}
