//! Writes the archive format that the kernel unpacks as its first file system.
//!
//! The format is cpio's "newc", Documentation/driver-api/early-userspace/buffer-format.rst of
//! Linux. Archives may be put one behind the other: the kernel unpacks them in order, and a later
//! file replaces an earlier one.

/// An archive in the making.
#[derive(Debug, Default)]
pub struct Archive {
    bytes: Vec<u8>,
    entries: u32,
}

/// The upper bits of a mode: what kind of file it is, as in stat(2).
const DIRECTORY: u32 = 0o040_000;
const REGULAR: u32 = 0o100_000;
const SYMLINK: u32 = 0o120_000;

impl Archive {
    /// Adds a directory. Parents must come before their children: the kernel makes none itself.
    pub fn directory(&mut self, path: &str) {
        self.entry(path, DIRECTORY | 0o755, &[]);
    }

    /// Adds a file that everyone may read.
    pub fn file(&mut self, path: &str, content: &[u8]) {
        self.entry(path, REGULAR | 0o644, content);
    }

    /// Adds a file that everyone may run.
    pub fn program(&mut self, path: &str, content: &[u8]) {
        self.entry(path, REGULAR | 0o755, content);
    }

    /// Adds a symbolic link.
    pub fn symlink(&mut self, path: &str, target: &str) {
        self.entry(path, SYMLINK | 0o777, target.as_bytes());
    }

    /// The finished archive.
    #[must_use]
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    /// One entry: 6 bytes of magic, 13 numbers of 8 hexadecimal digits, the name with its zero,
    /// the content; name and content are each padded to a multiple of 4.
    fn entry(&mut self, path: &str, mode: u32, content: &[u8]) {
        let name = path.trim_start_matches('/');
        let length = |bytes: usize| u32::try_from(bytes).expect("newc holds files below 4 GiB");
        self.entries += 1;
        let fields = [
            self.entries, // inode: distinct, or the kernel takes files for hard links
            mode,
            0, // user
            0, // group
            1, // links
            0, // time: fixed, so that equal input is an equal archive
            length(content.len()),
            0, // major and minor of the device that holds it
            0,
            0, // major and minor of the device that it is
            0,
            length(name.len() + 1),
            0, // checksum: none in this variant
        ];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes
                .extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Name, mode and content of each entry, read as the kernel's init/initramfs.c reads them.
    fn read(mut bytes: &[u8]) -> Vec<(String, u32, Vec<u8>)> {
        let mut entries = Vec::new();
        let whole = bytes.len();
        loop {
            assert_eq!(&bytes[..6], b"070701", "at {}", whole - bytes.len());
            let field = |index: usize| {
                let digits = &bytes[6 + 8 * index..14 + 8 * index];
                u32::from_str_radix(std::str::from_utf8(digits).unwrap(), 16).unwrap()
            };
            let (mode, size, name_size) = (field(1), field(6) as usize, field(11) as usize);
            let name = String::from_utf8(bytes[110..110 + name_size - 1].to_vec()).unwrap();
            assert_eq!(bytes[110 + name_size - 1], 0);
            let content = (110 + name_size).next_multiple_of(4);
            let next = (content + size).next_multiple_of(4);
            entries.push((name, mode, bytes[content..content + size].to_vec()));
            bytes = &bytes[next..];
            if entries.last().unwrap().0 == "TRAILER!!!" {
                assert!(bytes.is_empty());
                return entries;
            }
        }
    }

    #[test]
    fn entries_come_back() {
        let mut archive = Archive::default();
        archive.directory("/lab");
        // Lengths around the padding of 4.
        for length in 0..9 {
            archive.file(
                &format!("/lab/{}", "n".repeat(length + 1)),
                &vec![b'c'; length],
            );
        }
        archive.program("/init", b"\x7fELF");
        archive.symlink("/lib", "usr/lib");
        let entries = read(&archive.finish());
        assert_eq!(entries.len(), 13);
        assert_eq!(entries[0], ("lab".to_owned(), 0o040_755, vec![]));
        assert_eq!(
            entries[4],
            ("lab/nnnn".to_owned(), 0o100_644, b"ccc".to_vec())
        );
        assert_eq!(
            entries[10],
            ("init".to_owned(), 0o100_755, b"\x7fELF".to_vec())
        );
        assert_eq!(
            entries[11],
            ("lib".to_owned(), 0o120_777, b"usr/lib".to_vec())
        );
    }

    #[test]
    fn an_archive_can_follow_another() {
        let mut first = Archive::default();
        first.file("/a", b"x");
        assert_eq!(first.finish().len() % 4, 0);
    }
}
