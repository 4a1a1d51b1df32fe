//! The callbacks: what QEMU tells is passed to the model.

use std::cell::UnsafeCell;
use std::ffi::{c_uint, c_void};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::process;
use std::ptr;
use std::slice;
use std::time::{Duration, Instant};

use homenode_lab_model::{Access, LINE_BYTES, Machine, Model, Truth, mark};

use crate::api::{self, AccessInfo, Block, Info, Instruction, PluginId};
use crate::{complain, qemu};

/// What the callbacks work on.
struct Shell {
    id: PluginId,
    model: Model,
    /// By number; found when the model starts.
    cpus: Vec<qemu::Cpu>,
    truth: File,
    /// How long the host worked since the counters were set to zero, without `running_since`.
    host: Duration,
    /// Since when the model runs, if it does.
    running_since: Option<Instant>,
}

/// Holds the shell for C callbacks, which can be given no reference.
struct Holder(UnsafeCell<Option<Shell>>);

// SAFETY: filled once, before QEMU makes CPUs; from then on only callbacks look into it, and with
// `thread=single`, which `install` is told and the clock's check implies (`-icount` has no other
// mode), QEMU calls them from one thread, one after the other.
unsafe impl Sync for Holder {}

static SHELL: Holder = Holder(UnsafeCell::new(None));

/// The shell, for the length of one callback.
#[inline]
fn with_shell(work: impl FnOnce(&mut Shell)) {
    // SAFETY: as said at `Holder`; no callback calls another, so there is no second reference.
    let shell = unsafe { &mut *SHELL.0.get() };
    if let Some(shell) = shell {
        work(shell);
    }
}

/// Reads the machine and registers what is needed until the guest starts the model.
///
/// # Errors
///
/// What was expected and not found.
pub(crate) fn install(id: PluginId, info: &Info, words: &[String]) -> Result<(), String> {
    let argument = |name: &str| {
        words
            .iter()
            .find_map(|word| word.strip_prefix(name)?.strip_prefix('='))
            .ok_or_else(|| format!("expected an argument {name}=FILE"))
    };
    if !info.system_emulation {
        return Err("expected a whole machine, found a single program".to_owned());
    }
    let path = argument("machine")?;
    let text = fs::read_to_string(path).map_err(|error| format!("cannot read {path}: {error}"))?;
    let machine: Machine =
        serde_json::from_str(&text).map_err(|error| format!("cannot parse {path}: {error}"))?;
    if usize::try_from(info.cpus) != Ok(machine.cpus.len()) {
        let expected = machine.cpus.len();
        return Err(format!("expected {expected} CPUs, found {}", info.cpus));
    }
    let model = Model::try_new(machine).map_err(|error| error.to_string())?;
    let path = argument("truth")?;
    let truth = OpenOptions::new()
        .append(true)
        .open(path)
        .map_err(|error| format!("cannot open {path}: {error}"))?;
    qemu::look_up()?;
    let shell = Shell {
        id,
        model,
        cpus: Vec::new(),
        truth,
        host: Duration::ZERO,
        running_since: None,
    };
    // SAFETY: QEMU calls nothing of ours before this returns.
    unsafe { *SHELL.0.get() = Some(shell) };
    // SAFETY: `id` is ours, and the callback has the declared type.
    unsafe { api::qemu_plugin_register_vcpu_init_cb(id, on_cpu) };
    // SAFETY: as above.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate) };
    Ok(())
}

/// A CPU was made; the accelerator is there from the first on.
extern "C" fn on_cpu(_id: PluginId, number: c_uint) {
    if number == 0
        && let Err(problem) = qemu::take_over_clock()
    {
        complain(&problem);
        // No way to tell QEMU, and a guest on a wrong clock is worse than none.
        process::abort();
    }
}

/// A block was translated: says which of its instructions are to be told.
extern "C" fn on_translate(_id: PluginId, block: *mut Block) {
    let mut runs = false;
    with_shell(|shell| runs = shell.running_since.is_some());
    // SAFETY: QEMU's block is valid for this call.
    let count = unsafe { api::qemu_plugin_tb_n_insns(block) };
    if runs {
        let user = ptr::without_provenance_mut(count);
        // SAFETY: as above; `user` is a number for our own callback.
        unsafe {
            api::qemu_plugin_register_vcpu_tb_exec_cb(block, on_block, api::NO_REGISTERS, user);
        };
    }
    for position in 0..count {
        // SAFETY: the block has `count` instructions.
        let instruction = unsafe { api::qemu_plugin_tb_get_insn(block, position) };
        watch(instruction, runs);
    }
}

/// `hlt`, and `pause`, and `mwait`, which TCG treats as `pause`.
const WAITING: [&[u8]; 3] = [&[0xf4], &[0xf3, 0x90], &[0x0f, 0x01, 0xc9]];

/// Whether an instruction ends its block: jumps, calls, returns, and what changes the CPU's state.
///
/// Their accesses are not asked for: they have none, or those of a stack that is in the nearest cache,
/// or restore registers for a thread. Asking is not safe where the model stops: QEMU 7.2 keeps the
/// list of an instruction's callbacks at hand while a function of its own works for the instruction,
/// does not let go of it where the block ends there, and follows it at the next access that a
/// function does, when the list may be gone (mended in QEMU 8.0: "tcg: Clear `plugin_mem_cbs` on TB
/// exit").
fn ends_its_block(code: &[u8]) -> bool {
    let is_prefix = |byte: &u8| matches!(byte, 0x26 | 0x2e | 0x36 | 0x3e | 0x40..=0x4f | 0x64..=0x67 | 0xf0 | 0xf2 | 0xf3);
    let start = code.iter().take_while(|byte| is_prefix(byte)).count();
    // The part of a ModRM byte that tells instructions of the same opcode apart.
    let extension = |modrm: u8| (modrm >> 3) & 7;
    match code[start..] {
        // ins, outs, jcc, mov to a segment, pause, popf
        [0x6c..=0x6f | 0x70..=0x7f | 0x8e | 0x90 | 0x9d, ..]
        // ret, far ret, int3, int, iret, loop, jrcxz, in, out, call, jmp, hlt, sti
        | [0xc2 | 0xc3 | 0xca..=0xcd | 0xcf | 0xe0..=0xef | 0xf4 | 0xfb, ..] => true,
        // call and jmp through a register or memory
        [0xff, modrm, ..] => (2..=5).contains(&extension(modrm)),
        // ltr, swapgs, mwait and their like; syscall, clts, sysret, wbinvd, ud2, mov to and from
        // control registers, wrmsr, rdtsc, rdmsr, rdpmc, sysenter, sysexit
        [0x0f, 0x00 | 0x01 | 0x05..=0x09 | 0x0b | 0x20..=0x23 | 0x30..=0x35, ..]
        // jcc, pop of a segment
        | [0x0f, 0x80..=0x8f | 0xa1 | 0xa9, ..] => true,
        // xrstor
        [0x0f, 0xae, modrm, ..] => extension(modrm) == 5,
        // xrstors, rdrand, rdseed
        [0x0f, 0xc7, modrm, ..] => extension(modrm) == 3 || modrm >= 0xc0,
        _ => false,
    }
}

fn watch(instruction: *mut Instruction, model_runs: bool) {
    let told = |callback: api::ExecuteCallback, user: *mut c_void| {
        // SAFETY: QEMU's instruction is valid while its block is translated.
        unsafe {
            api::qemu_plugin_register_vcpu_insn_exec_cb(
                instruction,
                callback,
                api::NO_REGISTERS,
                user,
            );
        };
    };
    // SAFETY: as above.
    let size = unsafe { api::qemu_plugin_insn_size(instruction) };
    // SAFETY: as above.
    let data = unsafe { api::qemu_plugin_insn_data(instruction) };
    // SAFETY: the instruction's machine code has `size` bytes.
    let code = unsafe { slice::from_raw_parts(data.cast::<u8>(), size) };
    if let Some(mark) = mark::of_instruction(code) {
        told(on_mark, ptr::without_provenance_mut(usize::from(mark)));
    }
    if !model_runs {
        return;
    }
    if WAITING.contains(&code) {
        told(on_wait, ptr::null_mut());
    }
    if ends_its_block(code) {
        return;
    }
    // SAFETY: as above.
    unsafe {
        api::qemu_plugin_register_vcpu_mem_cb(
            instruction,
            on_access,
            api::NO_REGISTERS,
            api::LOADS_AND_STORES,
            ptr::null_mut(),
        );
    };
}

impl Shell {
    /// Passes the model's time on, and the turn where the model says so.
    #[inline]
    fn publish(&self, cpu: usize, turn_is_over: bool) {
        qemu::publish_ns(nanoseconds(self.model.now()));
        if turn_is_over {
            qemu::end_turn(self.cpus[cpu]);
        }
    }

    fn start(&mut self) {
        self.cpus = (0..self.model.cpus()).filter_map(qemu::cpu).collect();
        if self.cpus.len() != self.model.cpus() {
            complain("expected every CPU to be there when the model starts");
            process::abort();
        }
        let now = qemu::counted_ns();
        self.model.start_at(u64::try_from(now).unwrap_or(0) * 1_000);
        self.running_since = Some(Instant::now());
        qemu::publish_ns(now);
    }

    fn stop(&mut self) {
        self.host = self.host_time();
        self.running_since = None;
        qemu::count_from_ns(nanoseconds(self.model.latest()));
    }

    fn host_time(&self) -> Duration {
        self.host
            + self
                .running_since
                .map_or(Duration::ZERO, |since| since.elapsed())
    }

    fn report(&mut self) {
        let truth = Truth {
            host_ns: u64::try_from(self.host_time().as_nanos()).unwrap_or(u64::MAX),
            ..self.model.truth()
        };
        let line = serde_json::to_string(&truth)
            .map_err(|error| error.to_string())
            .and_then(|line| writeln!(self.truth, "{line}").map_err(|error| error.to_string()));
        if let Err(problem) = line {
            complain(&format!("cannot write the counters: {problem}"));
        }
    }
}

fn nanoseconds(picoseconds: u64) -> i64 {
    i64::try_from(picoseconds / 1_000).unwrap_or(i64::MAX)
}

fn index(cpu: c_uint) -> usize {
    usize::try_from(cpu).unwrap_or(usize::MAX)
}

/// A block of instructions is about to run.
extern "C" fn on_block(cpu: c_uint, user: *mut c_void) {
    with_shell(|shell| {
        let cpu = index(cpu);
        shell.model.begin(cpu);
        let count = u32::try_from(user.addr()).unwrap_or(u32::MAX);
        let over = shell.model.execute(cpu, count);
        shell.publish(cpu, over);
    });
}

/// A load or a store was done.
extern "C" fn on_access(cpu: c_uint, info: AccessInfo, virtual_address: u64, _user: *mut c_void) {
    // SAFETY: QEMU's description of the access that it tells of.
    let address = unsafe { api::qemu_plugin_get_hwaddr(info, virtual_address) };
    // SAFETY: null or valid until the next call of qemu_plugin_get_hwaddr().
    if address.is_null() || unsafe { api::qemu_plugin_hwaddr_is_io(address) } {
        return;
    }
    // SAFETY: as above.
    let physical = unsafe { api::qemu_plugin_hwaddr_phys_addr(address) };
    // SAFETY: a number in, a truth value out.
    let store = unsafe { api::qemu_plugin_mem_is_store(info) };
    let access = Access {
        virtual_line: virtual_address / LINE_BYTES,
        line: physical / LINE_BYTES,
        store,
    };
    with_shell(|shell| {
        let cpu = index(cpu);
        let over = shell.model.access(cpu, access);
        shell.publish(cpu, over);
    });
}

/// The CPU halts or pauses.
extern "C" fn on_wait(_cpu: c_uint, _user: *mut c_void) {
    with_shell(|shell| shell.model.yields());
}

/// The guest executed a mark.
extern "C" fn on_mark(_cpu: c_uint, user: *mut c_void) {
    with_shell(|shell| match u16::try_from(user.addr()) {
        // Everything is translated anew, with more or less to tell; QEMU does that between blocks.
        Ok(mark::START) if shell.running_since.is_none() => {
            // SAFETY: `id` is ours, and the callback has the declared type.
            unsafe { api::qemu_plugin_reset(shell.id, on_start) };
        }
        Ok(mark::STOP) if shell.running_since.is_some() => {
            // SAFETY: as above.
            unsafe { api::qemu_plugin_reset(shell.id, on_stop) };
        }
        Ok(mark::REPORT) => shell.report(),
        Ok(mark::RESET) => {
            shell.model.reset_truth();
            shell.host = Duration::ZERO;
            shell.running_since = shell.running_since.map(|_| Instant::now());
        }
        _ => {}
    });
}

/// Nothing is translated and no CPU runs: the model takes over.
extern "C" fn on_start(id: PluginId) {
    with_shell(|shell| {
        // Two CPUs may have asked.
        if shell.running_since.is_none() {
            shell.start();
        }
    });
    // SAFETY: as in `install`.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate) };
}

/// As [`on_start`]: the model stands still.
extern "C" fn on_stop(id: PluginId) {
    with_shell(|shell| {
        if shell.running_since.is_some() {
            shell.stop();
        }
    });
    // SAFETY: as in `install`.
    unsafe { api::qemu_plugin_register_vcpu_tb_trans_cb(id, on_translate) };
}
