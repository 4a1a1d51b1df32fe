//! Process 1 of a guest: makes the file systems, runs one command, reports, powers off.

#![expect(
    clippy::disallowed_methods,
    reason = "process 1 works on the guest itself; there is nothing to capture or replay"
)]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use homenode_lab::frame::Frame;
use homenode_lab::guest_paths;
use rustix::mount::{MountFlags, mount};
use rustix::system::{RebootCommand, reboot};
use rustix::termios::{self, OptionalActions};

fn main() {
    // An error here has no other reader than the console, which the lab prints when a guest ends
    // without a status.
    if let Err(error) = start() {
        let _ = writeln!(io::stderr(), "lab-init: {error}");
    }
    // Returns only with an error; process 1 then ends and the kernel panics, which is as final.
    let _ = reboot(RebootCommand::PowerOff);
}

fn start() -> Result<(), String> {
    mount_all()?;
    let port = Port::open()
        .map_err(|error| format!("cannot open {}: {error}", guest_paths::REPORT_PORT))?;
    port.send(&Frame::Started);
    let status = prepare_and_run(&port).unwrap_or_else(|(status, message)| {
        port.send(&Frame::Stderr(
            format!("lab-init: {message}\n").into_bytes(),
        ));
        status
    });
    port.send(&Frame::Status(status));
    port.drain()
        .map_err(|error| format!("cannot drain {}: {error}", guest_paths::REPORT_PORT))
}

fn mount_all() -> Result<(), String> {
    for (kind, target) in [
        ("devtmpfs", "/dev"),
        ("proc", "/proc"),
        ("sysfs", "/sys"),
        ("cgroup2", "/sys/fs/cgroup"),
        ("tmpfs", "/tmp"),
    ] {
        mount(kind, target, kind, MountFlags::empty(), None)
            .map_err(|error| format!("cannot mount {kind} on {target}: {error}"))?;
    }
    Ok(())
}

/// The command's exit status, or a shell's status for "cannot" with the reason.
fn prepare_and_run(port: &Port) -> Result<u8, (u8, String)> {
    const CANNOT_RUN: u8 = 126;
    const NOT_FOUND: u8 = 127;
    // Makes a link for each applet. It leaves existing files alone.
    let busybox = Command::new("/usr/bin/busybox")
        .args(["--install", "-s", "/bin"])
        .status();
    if !busybox.is_ok_and(|status| status.success()) {
        return Err((CANNOT_RUN, "cannot install busybox".to_owned()));
    }
    let words = fs::read(guest_paths::COMMAND).map_err(|error| {
        (
            CANNOT_RUN,
            format!("cannot read {}: {error}", guest_paths::COMMAND),
        )
    })?;
    let words = split_words(&words);
    let Some((program, arguments)) = words.split_first() else {
        return Err((CANNOT_RUN, "expected a command, found none".to_owned()));
    };
    let child = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("HOME", "/root")
        .env("PATH", guest_paths::SEARCH_PATH)
        .env("RUST_BACKTRACE", "1")
        .env("TERM", "dumb")
        .current_dir("/tmp")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|error| {
            let status = match error.kind() {
                io::ErrorKind::NotFound => NOT_FOUND,
                _ => CANNOT_RUN,
            };
            (status, format!("cannot run {program}: {error}"))
        })?;
    follow(child, port).map_err(|error| (CANNOT_RUN, format!("cannot wait for {program}: {error}")))
}

/// The words of the command file, each ended by a zero byte.
fn split_words(bytes: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(bytes);
    text.strip_suffix('\0')
        .map(|text| text.split('\0').map(str::to_owned).collect())
        .unwrap_or_default()
}

/// Passes the child's output on until it has ended.
fn follow(mut child: Child, port: &Port) -> io::Result<u8> {
    /// What the child left behind may hold its pipes open for ever; what is already in them is
    /// still wanted.
    const LEFT_BEHIND: Duration = Duration::from_secs(1);
    let (sender, ended) = mpsc::channel();
    let stdout = child.stdout.take().expect("a pipe was asked for");
    let stderr = child.stderr.take().expect("a pipe was asked for");
    forward(stdout, Frame::Stdout, port.clone(), sender.clone());
    forward(stderr, Frame::Stderr, port.clone(), sender);
    let status = exit_code(child.wait()?);
    for _stream in 0..2 {
        if ended.recv_timeout(LEFT_BEHIND).is_err() {
            break;
        }
    }
    Ok(status)
}

fn forward(
    mut pipe: impl Read + Send + 'static,
    frame: fn(Vec<u8>) -> Frame,
    port: Port,
    ended: mpsc::Sender<()>,
) {
    thread::spawn(move || {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = pipe.read(&mut buffer) {
            port.send(&frame(buffer[..length].to_vec()));
        }
        // The receiver is gone when it no longer waits for us.
        let _ = ended.send(());
    });
}

/// As a shell says it: the code, or 128 + signal.
fn exit_code(status: ExitStatus) -> u8 {
    let code = status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or_default());
    u8::try_from(code).unwrap_or(u8::MAX)
}

/// The serial port that carries the report.
#[derive(Clone)]
struct Port(Arc<Mutex<File>>);

impl Port {
    fn open() -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(guest_paths::REPORT_PORT)?;
        let mut settings = termios::tcgetattr(&file)?;
        // Or the terminal layer would turn each \n into \r\n.
        settings.make_raw();
        termios::tcsetattr(&file, OptionalActions::Now, &settings)?;
        Ok(Self(Arc::new(Mutex::new(file))))
    }

    /// Sends a whole frame. A port that fails leaves no way to say so; the lab then misses the
    /// status and calls the guest broken.
    fn send(&self, frame: &Frame) {
        if let Ok(mut file) = self.0.lock() {
            let _ = file.write_all(&frame.encode());
        }
    }

    fn drain(&self) -> io::Result<()> {
        match self.0.lock() {
            Ok(file) => Ok(termios::tcdrain(&*file)?),
            Err(_) => Ok(()),
        }
    }
}
