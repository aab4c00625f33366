//! Identities of processes that survive the reuse of process numbers.

use std::fs;

/// A process: its number in the high 32 bits, and the low 32 bits of its start time in clock ticks since boot in the
/// low half. Never 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Process(pub(crate) u64);

impl Process {
    /// The calling process.
    pub(crate) fn this() -> Self {
        let id = std::process::id();
        Self(u64::from(id) << 32 | u64::from(started(id).unwrap_or(0)))
    }

    /// The process number.
    pub(crate) fn id(self) -> u32 {
        (self.0 >> 32) as u32
    }

    /// Whether the process exists and has not ended. A zombie has ended.
    pub(crate) fn is_alive(self) -> bool {
        started(self.id()) == Some(self.0 as u32)
    }
}

/// The start time of the process with that number; `None` if there is none or it has ended.
fn started(id: u32) -> Option<u32> {
    let stat = fs::read_to_string(format!("/proc/{id}/stat")).ok()?;
    parse(&stat)
}

/// The start time in a line of `/proc/PID/stat`; `None` for a process that has ended.
///
/// The program's name is in parentheses and may contain any characters.
fn parse(stat: &str) -> Option<u32> {
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_ascii_whitespace();
    let state = fields.next()?;
    // The start time is the 22nd field. The state was the third.
    let start: u64 = fields.nth(18)?.parse().ok()?;
    (!matches!(state, "Z" | "X")).then_some(start as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_start_time_is_found_whatever_the_program_is_called() {
        let line = |state| format!("17 (a ) b) {state} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4711 20 21\n");
        assert_eq!(parse(&line("S")), Some(4711));
        assert_eq!(parse(&line("Z")), None);
        assert_eq!(parse("17"), None);
    }

    #[test]
    fn a_process_is_alive_until_it_ends() {
        let this = Process::this();
        assert!(this.is_alive() && this.id() == std::process::id());
        assert!(!Process(this.0 ^ 1).is_alive(), "another start time means another process");
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let id = child.id();
        let process = Process(u64::from(id) << 32 | u64::from(started(id).unwrap_or(0)));
        // Not waited for yet, so it stays behind as a zombie.
        while process.is_alive() {
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(!process.is_alive());
    }
}
