//! QEMU's interface for plugins, version 1, as far as it is used here.
//!
//! Declared after the documentation of `qemu-plugin.h` in QEMU 7.2
//! (<https://www.qemu.org/docs/master/devel/tcg-plugins.html>).

use std::ffi::{c_char, c_int, c_uint, c_void};

/// What QEMU knows this plugin by.
pub(crate) type PluginId = u64;

/// What QEMU tells about a guest and itself.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Info {
    pub(crate) target: *const c_char,
    pub(crate) version_min: c_int,
    pub(crate) version_current: c_int,
    pub(crate) system_emulation: bool,
    pub(crate) cpus: c_int,
    pub(crate) cpus_max: c_int,
}

/// Instructions that are translated together.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Block([u8; 0]);

/// An instruction of a [`Block`].
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Instruction([u8; 0]);

/// Where an access went.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct Address([u8; 0]);

/// Kind and size of an access.
pub(crate) type AccessInfo = u32;

/// `QEMU_PLUGIN_CB_NO_REGS`: a callback that looks at no register.
pub(crate) const NO_REGISTERS: c_int = 0;
/// `QEMU_PLUGIN_MEM_RW`: loads and stores.
pub(crate) const LOADS_AND_STORES: c_int = 3;

pub(crate) type CpuCallback = extern "C" fn(PluginId, c_uint);
pub(crate) type TranslateCallback = extern "C" fn(PluginId, *mut Block);
pub(crate) type ExecuteCallback = extern "C" fn(c_uint, *mut c_void);
pub(crate) type AccessCallback = extern "C" fn(c_uint, AccessInfo, u64, *mut c_void);

unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_init_cb(id: PluginId, callback: CpuCallback);
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, callback: TranslateCallback);
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        callback: ExecuteCallback,
        registers: c_int,
        user: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        instruction: *mut Instruction,
        callback: ExecuteCallback,
        registers: c_int,
        user: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        instruction: *mut Instruction,
        callback: AccessCallback,
        registers: c_int,
        kinds: c_int,
        user: *mut c_void,
    );
    pub(crate) fn qemu_plugin_reset(id: PluginId, callback: extern "C" fn(PluginId));
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, position: usize)
    -> *mut Instruction;
    pub(crate) fn qemu_plugin_insn_data(instruction: *const Instruction) -> *const c_void;
    pub(crate) fn qemu_plugin_insn_size(instruction: *const Instruction) -> usize;
    pub(crate) fn qemu_plugin_mem_is_store(info: AccessInfo) -> bool;
    pub(crate) fn qemu_plugin_get_hwaddr(info: AccessInfo, virtual_address: u64) -> *mut Address;
    pub(crate) fn qemu_plugin_hwaddr_is_io(address: *const Address) -> bool;
    pub(crate) fn qemu_plugin_hwaddr_phys_addr(address: *const Address) -> u64;
}
