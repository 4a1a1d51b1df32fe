//! What processes, control groups and nodes say of themselves: any content gives rows and mappings
//! that can be shown, or an error.
//!
//! An input is lines of `path TAB content`; `\` at the end of a content stands for a line feed.

#![no_main]

use std::cell::Cell;
use std::time::Duration;

use homenode_host::{
    Buffer, Clock, FileError, Files, PageStatus, Probe, QueryError, Snapshot,
};
use homenode_observe::{
    Random, Reach, View, WatchOptions, Watcher, read_process_maps, read_threads, rows,
};
use homenode_report::{PdhCsv, maps_json, maps_text, stat_report, stat_text};
use homenode_units::{Bytes, CpuSet, NodeId, NodeSet, Pid};
use libfuzzer_sys::fuzz_target;

/// A machine made of an input: half of its pages are resident, on two nodes.
struct Machine {
    files: Snapshot,
    now: Cell<Duration>,
}

impl Files for Machine {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        self.files.read_head(path, limit_bytes, buffer)
    }
    fn list(&self, directory: &str) -> Result<Vec<String>, FileError> {
        self.files.list(directory)
    }
    fn link(&self, path: &str) -> Result<String, FileError> {
        self.files.link(path)
    }
    fn is_folder(&self, path: &str) -> bool {
        self.files.is_folder(path)
    }
}

impl Clock for Machine {
    fn now(&self) -> Duration {
        self.now.get()
    }
    fn since_epoch(&self) -> Duration {
        self.now.get()
    }
    fn sleep(&self, time: Duration) {
        self.now.set(self.now.get() + time);
    }
}

impl Probe for Machine {
    fn page_size(&self) -> Bytes {
        Bytes(4096)
    }
    fn page_nodes(
        &self,
        _: Pid,
        addresses: &[usize],
        statuses: &mut [PageStatus],
    ) -> Result<(), QueryError> {
        self.now.set(self.now.get() + Duration::from_micros(10));
        for (address, status) in addresses.iter().zip(statuses) {
            *status = match address / 4096 % 4 {
                0 => PageStatus::OnNode(NodeId(0)),
                1 => PageStatus::OnNode(NodeId(1)),
                _ => PageStatus::NotResident,
            };
        }
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let text = String::from_utf8_lossy(data);
    let mut machine = Machine { files: Snapshot::default(), now: Cell::new(Duration::from_secs(9)) };
    for line in text.lines() {
        match line.split_once('\t') {
            Some((path, content)) => machine.files.add_file(path, content.replace('\\', "\n")),
            None => machine.files.add_folder(line),
        }
    }
    let cpus = vec![
        (NodeId(0), CpuSet::first(2)),
        (NodeId(1), CpuSet::parse_list("2-3").expect("a list")),
    ];
    for pid in [7, 8].map(Pid) {
        for reach in [Reach::Exact, Reach::Sampled] {
            let read = read_process_maps(&machine, pid, &cpus, reach, &mut Random::new(1));
            let Ok(maps) = read else { continue };
            let _ = maps_text(&maps, 10, 80);
            maps_json(&maps).expect("it can be written");
        }
        let _ = read_threads(&machine, pid, &cpus);
    }
    let mut watcher = Watcher::new(cpus, WatchOptions::default());
    let Ok(first) = watcher.observe(&machine) else { return };
    machine.sleep(Duration::from_secs(2));
    let second = watcher.observe(&machine).expect("it worked once");
    let all: NodeSet = NodeSet::first(2);
    for view in [View::Processes, View::Workloads, View::Vms, View::Containers, View::Trees] {
        for row in rows(Some(&first), &second, view) {
            assert!(row.locality.known().is_none_or(|share| (0.0..=1.0).contains(share)), "{row:?}");
            assert!(row.home.iter().all(|node| all.contains(node)), "{row:?}");
        }
        let _ = stat_text(&stat_report(&[], &first, &second, view, 20), 80);
        let csv = PdhCsv::new("host", &first, view, 20);
        let _ = (csv.header(), csv.line(Some(&first), &second));
    }
});
