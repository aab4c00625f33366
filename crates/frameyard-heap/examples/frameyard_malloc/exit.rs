//! The summary at exit, on request.

use std::env;
use std::ffi::{OsString, c_int};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use frameyard_heap::jemalloc::{HeapYard, installed};

use crate::mimalloc;

/// The variable that asks for a summary.
const SUMMARY: &str = "FRAMEYARD_SUMMARY";

/// The lowest number of the descriptor that summaries go to, beyond those that programs choose.
const LEAST_DESCRIPTOR: c_int = 200;

/// Where a summary goes.
enum Target {
    StandardError,
    File(OsString),
}

/// The process that writes a summary, and where it goes.
struct Request {
    process: u32,
    target: Target,
    /// Standard error, as it was at the start: programs close theirs in handlers that run before this one.
    error: Duplicate,
}

static REQUEST: OnceLock<Request> = OnceLock::new();

/// Has the summary written at exit if the environment asks for it.
pub(crate) fn arrange() {
    let target = match env::var_os(SUMMARY) {
        None => return,
        Some(value) if value.is_empty() || value == "0" => return,
        Some(value) if value == "1" => Target::StandardError,
        Some(value) if value.as_encoded_bytes().contains(&b'/') => Target::File(value),
        Some(value) => {
            let line =
                format!("frameyard: {SUMMARY}={value:?} is not 0, 1 or a path with a slash; there will be no summary");
            return write_line(libc::STDERR_FILENO, &line);
        }
    };
    let error = Duplicate::of(libc::STDERR_FILENO);
    if REQUEST.set(Request { process: std::process::id(), target, error }).is_ok() {
        // SAFETY: the function may run in any thread and never unwinds. Without it there is no summary.
        let _ = unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    let summary = mimalloc::summary().or_else(|| installed().map(HeapYard::summary));
    let Some((Request { process, target, error }, summary)) = REQUEST.get().zip(summary) else { return };
    // A forked child has inherited the request of its parent.
    if *process != std::process::id() {
        return;
    }
    let line = format!("frameyard: process={process} {summary}");
    let Target::File(path) = target else { return error.write_line(&line) };
    match OpenOptions::new().append(true).create(true).open(path) {
        Ok(file) => write_line(file.as_raw_fd(), &line),
        Err(problem) => error.write_line(&format!("frameyard: no summary in {}: {problem}", path.display())),
    }
}

/// A copy of a descriptor, and the file that it refers to.
struct Duplicate {
    descriptor: c_int,
    file: Option<(libc::dev_t, libc::ino_t)>,
}

impl Duplicate {
    fn of(descriptor: c_int) -> Self {
        // SAFETY: a new descriptor, or none.
        let descriptor = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR) };
        Self { descriptor, file: file_of(descriptor) }
    }

    /// Writes a line, unless the program has closed the descriptor, and perhaps opened another file with its number.
    fn write_line(&self, line: &str) {
        if self.file.is_some() && self.file == file_of(self.descriptor) {
            write_line(self.descriptor, line);
        }
    }
}

/// The file that an open descriptor refers to.
fn file_of(descriptor: c_int) -> Option<(libc::dev_t, libc::ino_t)> {
    // SAFETY: a structure of integers, which the call fills.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is valid. A descriptor that is not open is refused.
    let is_open = unsafe { libc::fstat(descriptor, &raw mut status) } == 0;
    is_open.then_some((status.st_dev, status.st_ino))
}

/// Writes a line in one call, so that lines of several processes do not mix.
pub(crate) fn write_line(descriptor: c_int, line: &str) {
    let line = format!("{}\n", line.replace('\n', " "));
    // SAFETY: the bytes of the line. A closed or full descriptor loses it.
    let _ = unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
}
