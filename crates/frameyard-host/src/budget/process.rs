//! The identity of a process: its number and its start time.

use std::fs::File;
use std::io::{ErrorKind, Read, Write};

/// Process number in the high half, start time in clock ticks since boot (its low 32 bits) in the low half. 0 for no process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Identity(pub(super) u64);

/// What `/proc` says of a process.
enum State {
    Alive(Identity),
    Ended,
    Unknown,
}

impl Identity {
    pub(super) fn own() -> Option<Self> {
        match state(std::process::id()) {
            State::Alive(own) => Some(own),
            State::Ended | State::Unknown => None,
        }
    }

    pub(super) fn process(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Whether the process has certainly ended.
    pub(super) fn has_ended(self) -> bool {
        match state(self.process()) {
            State::Alive(identity) => identity != self,
            State::Ended => true,
            State::Unknown => false,
        }
    }
}

/// Reads `/proc/PID/stat`. Allocates nothing: it may run in a hook of a heap.
fn state(process: u32) -> State {
    let mut path = [0_u8; 32];
    let mut rest = &mut path[..];
    // The buffer is long enough for any number.
    let _ = write!(rest, "/proc/{process}/stat");
    let unused = rest.len();
    let length = path.len() - unused;
    let Ok(path) = std::str::from_utf8(&path[..length]) else { return State::Unknown };
    let mut file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return State::Ended,
        Err(_) => return State::Unknown,
    };
    let mut text = [0_u8; 1024];
    match file.read(&mut text) {
        Ok(read) => parsed(process, &text[..read]).unwrap_or(State::Unknown),
        // The process has ended after its file was opened.
        Err(error) if error.raw_os_error() == Some(rustix::io::Errno::SRCH.raw_os_error()) => State::Ended,
        Err(_) => State::Unknown,
    }
}

/// `PID (NAME) STATE …`, with the start time as the 22nd field. The name may contain anything.
fn parsed(process: u32, text: &[u8]) -> Option<State> {
    let name_end = text.iter().rposition(|byte| *byte == b')')?;
    let fields = std::str::from_utf8(text.get(name_end + 1..)?).ok()?;
    let mut fields = fields.split_ascii_whitespace();
    // A zombie has no memory any more.
    if matches!(fields.next()?, "Z" | "X" | "x") {
        return Some(State::Ended);
    }
    let started: u64 = fields.nth(18)?.parse().ok()?;
    Some(State::Alive(Identity(u64::from(process) << 32 | started & 0xFFFF_FFFF)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identities_are_of_living_processes() {
        let own = Identity::own().unwrap();
        assert_eq!(own.process(), std::process::id());
        assert!(!own.has_ended());
        assert!(Identity(own.0 ^ 1).has_ended(), "another start time");
        let mut child = std::process::Command::new("sleep").arg("1000").spawn().unwrap();
        let State::Alive(other) = state(child.id()) else { panic!("a living process") };
        assert!(!other.has_ended());
        child.kill().unwrap();
        // A zombie until the parent waits for it.
        while !other.has_ended() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(other.has_ended());
    }

    #[test]
    fn a_name_may_contain_anything() {
        let fields = "S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 777 20";
        let State::Alive(found) = parsed(5, format!("5 (a) S (b) {fields}").as_bytes()).unwrap() else {
            panic!("alive")
        };
        assert_eq!(found, Identity(5 << 32 | 777));
        assert!(matches!(parsed(5, b"5 (a) Z 1"), Some(State::Ended)));
        assert!(parsed(5, b"5 (a) S 1").is_none() && parsed(5, b"nothing").is_none());
    }
}
