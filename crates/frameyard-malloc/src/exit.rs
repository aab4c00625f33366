//! The summary at exit, on request.

use std::env;
use std::ffi::{OsString, c_int};
use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use frameyard_jemalloc::installed;

/// The variable that asks for a summary.
const SUMMARY: &str = "FRAMEYARD_SUMMARY";

/// The lowest number of the descriptor that summaries go to, beyond those that programs choose.
const LEAST_DESCRIPTOR: c_int = 200;

/// The process that writes a summary, and where it goes.
struct Request {
    process: u32,
    target: OsString,
    /// Standard error, as it was at the start: programs close theirs in handlers that run before this one.
    error: c_int,
}

static REQUEST: OnceLock<Request> = OnceLock::new();

/// Has the summary written at exit if the environment asks for it.
pub(crate) fn arrange() {
    let Some(target) = env::var_os(SUMMARY).filter(|target| !target.is_empty() && target != "0") else { return };
    // SAFETY: a new descriptor, or none.
    let error = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_DUPFD_CLOEXEC, LEAST_DESCRIPTOR) };
    if REQUEST.set(Request { process: std::process::id(), target, error }).is_ok() {
        // SAFETY: the function may run in any thread and never unwinds. Without it there is no summary.
        let _ = unsafe { libc::atexit(at_exit) };
    }
}

extern "C" fn at_exit() {
    let Some((Request { process, target, error }, yard)) = REQUEST.get().zip(installed()) else { return };
    // A forked child has inherited the request of its parent.
    if *process != std::process::id() {
        return;
    }
    let line = format!("frameyard: process={process} {}", yard.summary());
    if !target.as_encoded_bytes().contains(&b'/') {
        return write_line(*error, &line);
    }
    if let Ok(file) = OpenOptions::new().append(true).create(true).open(target) {
        write_line(file.as_raw_fd(), &line);
    }
}

/// Writes a line in one call, so that lines of several processes do not mix.
pub(crate) fn write_line(descriptor: c_int, line: &str) {
    let line = format!("{}\n", line.replace('\n', " "));
    // SAFETY: the bytes of the line. A closed or full descriptor loses it.
    let _ = unsafe { libc::write(descriptor, line.as_ptr().cast(), line.len()) };
}
