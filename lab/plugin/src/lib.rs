//! Puts the lab's model of memory ([`homenode_lab_model`]) into QEMU.
//!
//! QEMU loads this library with `-plugin` and calls it for every block of instructions, load and
//! store of the guest. Nothing is worked out here: the model is told, and its time becomes the
//! guest's. Two parts of QEMU are used for that:
//!
//! * its plugin interface, version 1 ([`api`]), as QEMU 7.2 documents it, and
//! * a few functions that it exports beside that ([`qemu`]): the clock of `-icount`, which this
//!   library puts itself in front of, and the way to take a CPU's turn away. They are looked up by
//!   name and checked when the guest's first CPU is made; where something is missing or different,
//!   the emulator ends with a message and no guest runs on a wrong clock.
//!
//! The guest has to run on one thread (`-accel tcg,thread=single -icount shift=0,sleep=off`): all
//! its CPUs take turns on it, so that nothing here is ever called twice at a time.
//!
//! Arguments: `machine=FILE`, the machine as JSON; `truth=FILE`, to which counters are added, a line
//! of JSON each.

#![expect(
    unsafe_code,
    reason = "a library called by C: with crate sys the only place for unsafe code"
)]
#![expect(
    clippy::disallowed_methods,
    reason = "the lab is a test bench: files and the host's clock are its own"
)]

mod api;
mod qemu;
mod shell;

use std::ffi::{CStr, c_char, c_int};
use std::io::{self, Write};
use std::slice;

use api::{Info, PluginId};

/// The version of the interface that this library was written for; QEMU refuses to load it where
/// it no longer has that version.
#[unsafe(no_mangle)]
pub static qemu_plugin_version: c_int = 1;

/// Called by QEMU once, before the guest has CPUs.
///
/// # Safety
///
/// `info` and `arguments` are as qemu-plugin.h of QEMU 7.2 says: one valid structure, and `count`
/// strings.
#[unsafe(no_mangle)]
unsafe extern "C" fn qemu_plugin_install(
    id: PluginId,
    info: *const Info,
    count: c_int,
    arguments: *const *const c_char,
) -> c_int {
    // SAFETY: QEMU passes a pointer to a structure of its own that outlives this call.
    let info = unsafe { &*info };
    let count = usize::try_from(count).unwrap_or(0);
    let mut words = Vec::new();
    if count > 0 {
        // SAFETY: QEMU passes an array of `count` pointers.
        let arguments = unsafe { slice::from_raw_parts(arguments, count) };
        for &word in arguments {
            // SAFETY: each points to a string that ends with a zero byte.
            let word = unsafe { CStr::from_ptr(word) };
            words.push(word.to_string_lossy().into_owned());
        }
    }
    match shell::install(id, info, &words) {
        Ok(()) => 0,
        Err(problem) => {
            complain(&problem);
            -1
        }
    }
}

/// Tells why the emulator ends. Its standard error is where the lab looks.
pub(crate) fn complain(problem: &str) {
    // There is nobody else to tell.
    let _ = writeln!(io::stderr(), "lab plugin: {problem}");
}
