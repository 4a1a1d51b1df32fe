//! A machine made up for tests.

use std::cell::Cell;
use std::time::Duration;

use homenode_host::{Buffer, Clock, FileError, Files, PageStatus, Probe, QueryError, Snapshot};
use homenode_units::{Bytes, NodeId, Pid};

/// A machine with two nodes of two CPUs, whose processes have all pages on node 1.
pub(crate) struct Machine {
    pub(crate) files: Snapshot,
    pub(crate) now: Cell<Duration>,
    /// How often pages were asked about.
    pub(crate) asked: Cell<u32>,
    /// The files once pages were asked about, where they change.
    pub(crate) later: Option<Snapshot>,
}

impl Files for Machine {
    fn read_head<'buffer>(
        &self,
        path: &str,
        limit_bytes: usize,
        buffer: &'buffer mut Buffer,
    ) -> Result<&'buffer [u8], FileError> {
        let later = self.later.as_ref().filter(|_| self.asked.get() > 0);
        let files = later.unwrap_or(&self.files);
        files.read_head(path, limit_bytes, buffer)
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
        _: &[usize],
        statuses: &mut [PageStatus],
    ) -> Result<(), QueryError> {
        self.asked.set(self.asked.get() + 1);
        // Asking takes a millisecond.
        self.now.set(self.now.get() + Duration::from_millis(1));
        statuses.fill(PageStatus::OnNode(NodeId(1)));
        Ok(())
    }
}

impl Machine {
    pub(crate) fn new() -> Self {
        let mut files = Snapshot::default();
        files.add_file("/sys/devices/system/node/online", "0-1\n");
        files.add_file("/etc/passwd", "db:x:5:5::/:/bin/sh\n");
        Self {
            files,
            now: Cell::new(Duration::from_secs(100)),
            asked: Cell::new(0),
            later: None,
        }
    }

    /// `numbers`: start, ticks, threads, CPU.
    pub(crate) fn task(&mut self, path: &str, pid: u32, name: &str, numbers: [u64; 4]) {
        let [started, ticks, threads, cpu] = numbers;
        self.files.add_file(
            &format!("{path}/stat"),
            format!(
                "{pid} ({name}) S 1 1 1 0 -1 4194560 0 0 0 0 {ticks} 0 0 0 20 0 {threads} 0 \
                 {started} 900000 2560 1 1 1 0 0 0 0 0 0 0 0 0 0 17 {cpu} 0 0\n"
            ),
        );
    }

    pub(crate) fn process(&mut self, pid: u32, name: &str, numbers: [u64; 4]) {
        let folder = format!("/proc/{pid}");
        self.task(&folder, pid, name, numbers);
        self.files.add_file(
            &format!("{folder}/status"),
            format!(
                "Name:\t{name}\nUid:\t5\t5\t5\t5\nVmRSS:\t 10240 kB\nThreads:\t1\n\
                 Cpus_allowed_list:\t0-3\n"
            ),
        );
        self.files.add_file(
            &format!("{folder}/maps"),
            "10000000-10a00000 rw-p 00000000 00:00 0 \n",
        );
    }
}
