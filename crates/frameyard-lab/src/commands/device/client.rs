//! Finds, starts and asks a session.

use std::fs::{self, DirBuilder};
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use super::exchange::{Answer, DeviceRow, Request};
use super::session::{READY, TAKEN};
use super::{SESSION_COMMAND, SessionArgs};
use crate::Failure;

/// How long the client waits for a session that another process starts.
const PATIENCE: Duration = Duration::from_secs(10);
/// Between two attempts to connect.
const NAP: Duration = Duration::from_millis(10);

/// The socket of the session. Its folder exists; the default folder belongs to this user alone.
pub(super) fn socket(args: &SessionArgs) -> Result<PathBuf, Failure> {
    if let Some(path) = &args.session {
        return std::path::absolute(path).map_err(Failure::run_time);
    }
    let user = fs::metadata("/proc/self").map_err(Failure::run_time)?.uid();
    let folder = match std::env::var_os("XDG_RUNTIME_DIR").filter(|folder| !folder.is_empty()) {
        Some(folder) => PathBuf::from(folder).join("frameyard"),
        None => PathBuf::from(format!("/dev/shm/frameyard-{user}")),
    };
    let refused = |error: &dyn std::fmt::Display| {
        Failure::run_time(format!("{}: no folder for a session: {error}; choose one with --session", folder.display()))
    };
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => return Err(refused(&error)),
        _ => {}
    }
    let found = fs::symlink_metadata(&folder).map_err(|error| refused(&error))?;
    if !found.is_dir() || found.uid() != user || found.mode() & 0o077 != 0 {
        return Err(refused(&"it must be a folder that this user alone can use"));
    }
    Ok(folder.join("session"))
}

/// Connects to a session; `None` where there is none.
fn connect(socket: &Path) -> Result<Option<UnixStream>, Failure> {
    let refused = |reason: &dyn std::fmt::Display| {
        Failure::input(format!("{}: not the socket of a session: {reason}; name another", socket.display()))
    };
    match UnixStream::connect(socket) {
        Ok(stream) => Ok(Some(stream)),
        // A session ended without removing its socket, or the path is something else.
        Err(error) if error.kind() == ErrorKind::ConnectionRefused => match fs::symlink_metadata(socket) {
            Ok(found) if !found.file_type().is_socket() => Err(refused(&"there is something else")),
            _ => Ok(None),
        },
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(refused(&error)),
    }
}

/// Sends a request; `None` without a session, or if the session ended before it read the request.
pub(super) fn ask(socket: &Path, request: &Request) -> Result<Option<Vec<DeviceRow>>, Failure> {
    let Some(stream) = connect(socket)? else { return Ok(None) };
    let line = serde_json::to_string(request).map_err(Failure::run_time)? + "\n";
    let answer = match exchange(stream, &line) {
        // A session that ends does not read the requests of later connections.
        Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => return Ok(None),
        Err(error) => {
            return Err(Failure::run_time(format!("{}: cannot ask the session: {error}", socket.display())));
        }
        Ok(answer) if answer.is_empty() => return Ok(None),
        Ok(answer) => answer,
    };
    let not_ours = |error| format!("{}: the session is of another version of this program: {error}", socket.display());
    match serde_json::from_str(&answer).map_err(|error| Failure::run_time(not_ours(error)))? {
        Answer::Devices(rows) => Ok(Some(rows)),
        Answer::Refused { is_input: true, reason } => Err(Failure::input(reason)),
        Answer::Refused { is_input: false, reason } => Err(Failure::run_time(reason)),
    }
}

/// Sends one line and reads one; an empty answer if the other side closes first.
fn exchange(mut stream: UnixStream, line: &str) -> io::Result<String> {
    stream.write_all(line.as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    Ok(answer)
}

/// Whether a session had to be started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Start {
    /// There was one.
    Found,
    /// It was started.
    Started,
}

/// Starts a session if there is none: a process that outlives this one.
pub(super) fn start(socket: &Path) -> Result<Start, Failure> {
    let begin = Instant::now();
    let mut start = Start::Found;
    while connect(socket)?.is_none() {
        let failed =
            |reason: String| Failure::run_time(format!("{}: cannot start a session: {reason}", socket.display()));
        let program = std::env::current_exe().map_err(|error| failed(error.to_string()))?;
        let mut command = Command::new(program);
        command.arg(SESSION_COMMAND).arg(socket).current_dir("/").process_group(0);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
        let mut line = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut line).map_err(|error| failed(error.to_string()))?;
        }
        match line.trim_end() {
            READY => start = Start::Started,
            // Another process is starting a session, or a session is ending.
            TAKEN if begin.elapsed() < PATIENCE => thread::sleep(NAP),
            TAKEN => return Err(failed("another process holds it and does not answer".to_owned())),
            "" => return Err(failed("it ended at once".to_owned())),
            reason => return Err(failed(reason.to_owned())),
        }
    }
    Ok(start)
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn a_session_that_ends_before_it_reads_a_request_counts_as_none() {
        let socket = std::env::temp_dir().join(format!("frameyard-ends-{}", std::process::id()));
        for _ in 0..20 {
            let listener = UnixListener::bind(&socket).unwrap();
            let asked = thread::spawn({
                let socket = socket.clone();
                move || ask(&socket, &Request::List)
            });
            // The request arrives and is never accepted.
            thread::sleep(Duration::from_millis(5));
            drop(listener);
            assert!(asked.join().unwrap().unwrap().is_none());
            fs::remove_file(&socket).unwrap();
        }
    }
}
