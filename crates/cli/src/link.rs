//! `homenode link`: links by which homenode answers as the tools that it replaces.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::symlink;
use std::path::Path;

use anyhow::{Context, Result};

use crate::args::LinkArgs;
use crate::error::Helped;

pub(crate) fn run(args: &LinkArgs, out: &mut dyn Write) -> Result<()> {
    let program = std::env::current_exe().context("cannot tell where this program lies")?;
    for name in homenode_compat::NAMES {
        let link = args.folder.join(name);
        if make(&program, &link)? {
            writeln!(out, "{}", link.display())?;
        }
    }
    Ok(())
}

/// Makes a link, unless it is there; whether it was made. What is not ours stays.
fn make(program: &Path, link: &Path) -> Result<bool> {
    match symlink(program, link) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            let leads_here = fs::canonicalize(link)
                .ok()
                .zip(fs::canonicalize(program).ok())
                .is_some_and(|(found, ours)| found == ours);
            if leads_here {
                return Ok(false);
            }
            Err(Helped::wrap(
                format!("cannot make {}", link.display()),
                io::Error::new(
                    io::ErrorKind::AlreadyExists,
                    "expected no file or a link to homenode, found something else",
                ),
                "remove it yourself if it is not needed, or choose another folder",
            ))
        }
        Err(error) => Err(Helped::wrap(
            format!("cannot make {}", link.display()),
            error,
            "name a folder that you may write to; the folder above it has to be there",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_made_once_and_foreign_files_stay() {
        let folder = std::env::temp_dir().join(format!("homenode-link-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let program = folder.join("homenode");
        fs::write(&program, "").unwrap();
        let link = folder.join("numactl");
        assert!(make(&program, &link).unwrap());
        assert!(!make(&program, &link).unwrap());
        let foreign = folder.join("numastat");
        fs::write(&foreign, "theirs").unwrap();
        let error = make(&program, &foreign).unwrap_err();
        assert!(
            format!("{error:#}").contains("found something else"),
            "{error:#}"
        );
        assert_eq!(fs::metadata(&foreign).unwrap().len(), 6);
        let error = make(&program, &folder.join("none/numactl")).unwrap_err();
        assert!(error.downcast_ref::<Helped>().is_some(), "{error:#}");
        fs::remove_dir_all(&folder).unwrap();
    }
}
