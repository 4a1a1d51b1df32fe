use serde::Serialize;

use crate::ParseError;

/// A range of addresses that a process has mapped.
///
/// Source: a line of `/proc/<pid>/maps`, `proc_pid_maps(5)`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Mapping {
    /// First address.
    pub start: usize,
    /// First address after it; above `start`.
    pub end: usize,
    /// Whether reading, writing or executing is allowed: a range with none is only reserved.
    pub accessible: bool,
    /// What is mapped: a path, `[heap]`, `[stack]`, …; empty for plain memory. As the kernel
    /// writes it, so a process chooses what stands here.
    pub name: String,
}

impl Mapping {
    /// Whether sampling can meet the process's own memory here.
    ///
    /// The kernel's own ranges (`[vdso]`, `[vvar]`, `[vsyscall]`) are not the process's.
    #[must_use]
    pub fn holds_memory(&self) -> bool {
        let of_kernel = ["[vdso]", "[vsyscall]"].contains(&self.name.as_str())
            || self.name.starts_with("[vvar");
        self.accessible && !of_kernel
    }
}

/// Reads the text of `/proc/<pid>/maps`.
///
/// # Errors
///
/// [`ParseError`] with the first line that is no mapping, or does not lie above the one before it:
/// "mapped addresses never go backwards, which implies no two regions will ever overlap"
/// (Documentation/filesystems/proc.rst).
pub fn parse_maps(text: &str) -> Result<Vec<Mapping>, ParseError> {
    let mut mappings: Vec<Mapping> = Vec::new();
    for line in text.lines() {
        let mapping = parse_line(line).ok_or_else(|| {
            ParseError::new("a mapping, such as 7f00-8f00 rw-p 0 00:00 0 [heap]", line)
        })?;
        if mappings
            .last()
            .is_some_and(|before| before.end > mapping.start)
        {
            return Err(ParseError::new("a mapping above the one before it", line));
        }
        mappings.push(mapping);
    }
    Ok(mappings)
}

fn parse_line(line: &str) -> Option<Mapping> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(end, 16).ok()?;
    let rights = words.next()?;
    // Offset, device and inode; the name behind them may hold blanks, and is there or not.
    let name = words.nth(3).unwrap_or_default().trim_start();
    (start < end && rights.len() == 4).then(|| Mapping {
        start,
        end,
        accessible: !rights.starts_with("---"),
        name: name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_rights_and_names_are_read() {
        let text = "\
55d0c8a00000-55d0c8a02000 r--p 00000000 fe:00 1234                       /usr/bin/my tool
7f0000000000-7f0004000000 ---p 00000000 00:00 0 
7ffd1c1e0000-7ffd1c201000 rw-p 00000000 00:00 0                          [stack]
7ffd1c3f6000-7ffd1c3fa000 r--p 00000000 00:00 0                          [vvar]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";
        let maps = parse_maps(text).unwrap();
        assert_eq!(
            maps[0].start..maps[0].end,
            0x55d0_c8a0_0000..0x55d0_c8a0_2000
        );
        assert_eq!(maps[0].name, "/usr/bin/my tool");
        let held: Vec<bool> = maps.iter().map(Mapping::holds_memory).collect();
        assert_eq!(held, [true, false, true, false, false]);
        assert!(parse_maps("").unwrap().is_empty());
    }

    #[test]
    fn lines_that_are_no_mapping_are_refused() {
        for text in [
            "x",
            "2-1 rw-p 0 0:0 0",
            "1-2",
            "1-2 rw",
            "\n",
            "-1-2 rw-p 0 0:0 0",
            "2-4 rw-p 0 0:0 0\n3-5 rw-p 0 0:0 0",
        ] {
            parse_maps(text).unwrap_err();
        }
    }
}
