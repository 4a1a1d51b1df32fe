use super::*;
use crate::parse_maps;

fn words(line: &str) -> Vec<String> {
    line.split(' ').map(str::to_owned).collect()
}

fn vm(line: &str) -> Vm {
    Vm::of_command(&words(line)).unwrap()
}

fn sizes(vm: &Vm) -> Vec<u64> {
    vm.memory.iter().map(|block| block.size.mib()).collect()
}

#[test]
fn qemu_is_known_under_all_its_names() {
    let libvirt = vm(
        "/usr/bin/qemu-system-x86_64 -name guest=web,debug-threads=on -m size=2097152k \
         -object {\"qom-type\":\"memory-backend-memfd\",\"id\":\"pc.ram\",\"share\":true,\"size\":2147483648} \
         -smp 4,sockets=4",
    );
    assert_eq!(libvirt.name.as_deref(), Some("web"));
    assert_eq!(sizes(&libvirt), [2048]);
    let proxmox = vm("/usr/bin/kvm -id 100 -name db,debug-threads=on -m 4096");
    assert_eq!(proxmox.name.as_deref(), Some("db"));
    assert_eq!(sizes(&proxmox), [4096]);
    let nodes = vm(
        "qemu-kvm --name a,,b -m 2G -object memory-backend-ram,id=r0,size=1G,host-nodes=0,policy=bind \
         -object memory-backend-file,id=r1,size=1G,mem-path=/dev/hugepages/x",
    );
    assert_eq!(nodes.name.as_deref(), Some("a,b"));
    assert_eq!(sizes(&nodes), [1024, 1024]);
    assert_eq!(nodes.memory[1].path.as_deref(), Some("/dev/hugepages/x"));
    assert_eq!(sizes(&vm("qemu-system-aarch64 -nographic")), [128]);
    assert!(Vm::of_command(&words("/usr/bin/qemu-img info x")).is_none());
    assert!(Vm::of_command(&[]).is_none());
}

#[test]
fn other_monitors_are_known() {
    let small = vm("/firecracker --id fc1 --api-sock /run/x");
    assert_eq!(small.monitor, Monitor::Firecracker);
    assert_eq!(small.name.as_deref(), Some("fc1"));
    assert!(small.memory.is_empty());
    let cloud = vm("cloud-hypervisor --api-socket /run/vm/web.sock --memory size=4G,shared=on");
    assert_eq!(cloud.name.as_deref(), Some("web"));
    assert_eq!(sizes(&cloud), [4096]);
}

#[test]
fn vcpu_threads_are_told_by_their_names() {
    for (name, number) in [
        ("CPU 3/KVM", Some(3)),
        ("CPU 0/TCG", Some(0)),
        ("fc_vcpu 1", Some(1)),
        ("vcpu12", Some(12)),
        ("IO mon_iothread", None),
        ("CPU x/KVM", None),
        ("vhost-812", None),
    ] {
        assert_eq!(vcpu_of_thread(name), number, "{name}");
    }
}

#[test]
fn guest_memory_is_the_mapping_of_its_size() {
    let vm = vm("qemu-system-x86_64 -m 64M");
    let maps = parse_maps(
        "10000000-11000000 rw-p 0 0:0 0 [heap]\n\
         20000000-24000000 rw-p 0 0:0 0 \n\
         24000000-24001000 ---p 0 0:0 0 \n\
         30000000-38000000 rw-p 0 0:0 0 \n",
    )
    .unwrap();
    assert_eq!(vm.guest_mappings(&maps), [false, true, false, false]);
    // Split by a policy for its second half.
    let split = parse_maps(
        "20000000-22000000 rw-p 0 0:0 0 \n22000000-24000000 rw-p 0 0:0 0 \n\
         30000000-31000000 rw-p 0 0:0 0 \n",
    )
    .unwrap();
    assert_eq!(vm.guest_mappings(&split), [true, true, false]);
    // In pieces around a hole.
    let pieces = parse_maps(
        "20000000-23000000 rw-p 0 0:0 0 \n30000000-31000000 rw-p 0 0:0 0 \n\
         40000000-40001000 rw-p 0 0:0 0 \n",
    )
    .unwrap();
    assert_eq!(vm.guest_mappings(&pieces), [true, true, false]);
}

#[test]
fn guest_memory_in_a_file_is_told_by_its_path() {
    let vm = vm("qemu-kvm -m 64M -mem-path /dev/hugepages");
    let maps = parse_maps(
        "20000000-24000000 rw-p 0 0:0 0 \n\
         30000000-34000000 rw-s 0 0:0 7 /dev/hugepages/qemu_back_mem.x (deleted)\n",
    )
    .unwrap();
    assert_eq!(vm.guest_mappings(&maps), [false, true]);
}

#[test]
fn control_groups_name_workloads() {
    let id = "0123456789abcdef".repeat(4);
    for (path, kind, name) in [
        ("/system.slice/db.service", Kind::Unit, "db.service"),
        (
            "/user.slice/user-0.slice/user@0.service/app.slice/a\\x2db.service/sub",
            Kind::Unit,
            "a-b.service",
        ),
        (
            "/machine.slice/machine-qemu\\x2d1\\x2dweb\\x2d2.scope/libvirt/vcpu0",
            Kind::Vm,
            "web-2",
        ),
        ("/qemu.slice/100.scope", Kind::Vm, "100"),
        ("/machine.slice/machine-box.scope", Kind::Container, "box"),
        ("/lxc.payload.web/init.scope", Kind::Container, "web"),
        ("/lxc/old/x", Kind::Container, "old"),
        (
            &format!("/docker/{id}/init.scope"),
            Kind::Container,
            "0123456789ab",
        ),
        (
            &format!("/kubepods.slice/kubepods-pod7.slice/cri-containerd-{id}.scope"),
            Kind::Container,
            "cri-containerd-0123456789ab",
        ),
    ] {
        let found = Workload::find(path, None, "x");
        assert_eq!((found.kind, found.name.as_str()), (kind, name), "{path}");
        assert!(path.starts_with(&found.cgroup));
    }
    let none = Workload::find("/", None, "sh");
    assert_eq!((none.kind, none.name.as_str()), (Kind::Process, "sh"));
    assert_eq!(
        Workload::find("/init.scope", None, "systemd").kind,
        Kind::Process
    );
}

#[test]
fn a_vm_started_by_hand_does_not_own_the_group_of_its_shell() {
    let vm = vm("qemu-system-x86_64 -name web");
    let found = Workload::find("/user.slice/session-1.scope", Some(&vm), "qemu-system-x86");
    assert_eq!((found.kind, found.name.as_str()), (Kind::Vm, "web"));
    assert_eq!(found.cgroup, "");
}
