//! What QEMU exports beside its plugin interface: its clock, and turns of CPUs.
//!
//! QEMU 9.1 gave plugins `qemu_plugin_update_ns` for that, but TCG does not follow it: only the
//! accelerator for QEMU's own tests sets its clock (`set_virtual_clock` in QEMU 10). So the clock
//! is replaced where QEMU itself looks it up: in the table of the accelerator's operations, which
//! has two entries for `icount_get`, one for device time and one for the guest's TSC.

use std::ffi::{CStr, c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI64, Ordering};

/// QEMU's functions.
#[derive(Debug)]
struct Functions {
    /// Nanoseconds of `-icount`: instructions, and the time that was skipped while none ran.
    icount_get: extern "C" fn() -> i64,
    /// Instructions alone. At `shift=0` one is a nanosecond.
    icount_get_raw: extern "C" fn() -> i64,
    /// The table of the accelerator's operations.
    cpus_get_accel: extern "C" fn() -> *mut c_void,
    /// A CPU by its number.
    qemu_get_cpu: extern "C" fn(c_int) -> *mut c_void,
    /// Makes a CPU stop before its next block.
    cpu_exit: extern "C" fn(*mut c_void),
}

static FUNCTIONS: OnceLock<Functions> = OnceLock::new();

/// The model's time while it runs. Unit: nanoseconds.
static MODEL_NS: AtomicI64 = AtomicI64::new(NO_MODEL);
const NO_MODEL: i64 = -1;
/// What the guest's clock is ahead of QEMU's count while no model runs. Unit: nanoseconds.
static AHEAD_NS: AtomicI64 = AtomicI64::new(0);

/// Words of the operations' table: QEMU 7.2 has 30, of which the 25th and 26th are the clocks.
const TABLE_WORDS: usize = 30;

/// Looks up the functions.
///
/// # Errors
///
/// The name of one that this QEMU does not export.
pub(crate) fn look_up() -> Result<(), String> {
    // Declared like this since QEMU 5.2: include/sysemu/cpu-timers.h and cpus.h, hw/core/cpu.h.
    let functions = Functions {
        // SAFETY: int64_t icount_get(void)
        icount_get: unsafe { function(c"icount_get")? },
        // SAFETY: int64_t icount_get_raw(void)
        icount_get_raw: unsafe { function(c"icount_get_raw")? },
        // SAFETY: const AccelOpsClass *cpus_get_accel(void)
        cpus_get_accel: unsafe { function(c"cpus_get_accel")? },
        // SAFETY: CPUState *qemu_get_cpu(int)
        qemu_get_cpu: unsafe { function(c"qemu_get_cpu")? },
        // SAFETY: void cpu_exit(CPUState *)
        cpu_exit: unsafe { function(c"cpu_exit")? },
    };
    FUNCTIONS
        .set(functions)
        .map_err(|_| "expected to be loaded once".to_owned())
}

/// A function that QEMU exports.
///
/// # Safety
///
/// `F` is a pointer to a function of the type that QEMU declares for that name.
unsafe fn function<F: Copy>(name: &CStr) -> Result<F, String> {
    assert_eq!(size_of::<F>(), size_of::<*mut c_void>());
    let address = symbol(name)?;
    // SAFETY: of the same size, and of that type as the caller says.
    Ok(unsafe { mem::transmute_copy(&address) })
}

fn symbol(name: &CStr) -> Result<*mut c_void, String> {
    // SAFETY: the name ends with a zero byte; the default scope needs no handle.
    let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if address.is_null() {
        Err(format!(
            "expected QEMU to export {}, found it does not; known to work: Debian's QEMU 7.2",
            name.to_string_lossy()
        ))
    } else {
        Ok(address)
    }
}

fn functions() -> &'static Functions {
    FUNCTIONS
        .get()
        .expect("look_up() comes before any callback is registered")
}

/// Puts our clock in front of QEMU's.
///
/// # Errors
///
/// When the clock is not where it should be: `-icount` is not in use, or this QEMU differs.
pub(crate) fn take_over_clock() -> Result<(), String> {
    let table = (functions().cpus_get_accel)().cast::<*const c_void>();
    if table.is_null() {
        return Err("expected an accelerator, found none".to_owned());
    }
    let theirs = functions().icount_get as *const c_void;
    let ours = clock as *const c_void;
    let is_clock = |position: &usize| {
        // SAFETY: the table of QEMU 7.2 is this long, and later ones are longer.
        let entry = unsafe { table.add(*position) };
        // SAFETY: every word of the table is readable.
        unsafe { entry.read() == theirs }
    };
    let entries: Vec<usize> = (0..TABLE_WORDS).filter(is_clock).collect();
    if entries.len() != 2 {
        return Err(format!(
            "expected two uses of QEMU's -icount clock, found {}; known to work: Debian's QEMU 7.2 with -icount",
            entries.len()
        ));
    }
    for position in entries {
        // SAFETY: as above.
        let entry = unsafe { table.add(position) };
        // SAFETY: the table lies in memory that QEMU writes when it starts, and this runs on the
        // thread that does so, before the first CPU; the entry has the type of `clock`.
        unsafe { ptr::write(entry, ours) };
    }
    Ok(())
}

/// The guest's clock. Unit: nanoseconds.
///
/// QEMU skips time while no CPU runs, by adding to the difference between its two counts; that is
/// added to the model's time.
extern "C" fn clock() -> i64 {
    let functions = functions();
    let skipped_and_counted = (functions.icount_get)();
    match MODEL_NS.load(Ordering::Relaxed) {
        NO_MODEL => skipped_and_counted + AHEAD_NS.load(Ordering::Relaxed),
        model => model + skipped_and_counted - (functions.icount_get_raw)(),
    }
}

/// The time without a model, an instruction being a nanosecond: what the model's goes on from.
///
/// To be called between blocks only: QEMU ends when it is asked within one.
pub(crate) fn counted_ns() -> i64 {
    (functions().icount_get_raw)() + AHEAD_NS.load(Ordering::Relaxed)
}

/// Lets QEMU's count go on from a time, without a model. To be called between blocks only.
pub(crate) fn count_from_ns(now: i64) {
    AHEAD_NS.store(now - (functions().icount_get_raw)(), Ordering::Relaxed);
    MODEL_NS.store(NO_MODEL, Ordering::Relaxed);
}

/// Sets the model's time.
#[inline]
pub(crate) fn publish_ns(now: i64) {
    MODEL_NS.store(now, Ordering::Relaxed);
}

/// A CPU, to be given to [`end_turn`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cpu(*mut c_void);

/// Finds a CPU; `None` where there is none of that number.
pub(crate) fn cpu(number: usize) -> Option<Cpu> {
    let cpu = (functions().qemu_get_cpu)(c_int::try_from(number).ok()?);
    (!cpu.is_null()).then_some(Cpu(cpu))
}

/// Takes a CPU's turn away: the next CPU runs when its block has ended.
pub(crate) fn end_turn(cpu: Cpu) {
    (functions().cpu_exit)(cpu.0);
}
