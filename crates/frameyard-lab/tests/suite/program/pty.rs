//! A program on a pseudo-terminal of its own.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, ExitStatus};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, OutputModes, Winsize, tcgetattr, tcsetwinsize};

/// Longer than any step of a test takes.
const PATIENCE: Duration = Duration::from_secs(60);
const STEP: Duration = Duration::from_millis(20);

/// A program and its pseudo-terminal.
pub(crate) struct Pty {
    main: File,
    /// Open as long as the program may be, and longer: the terminal keeps its settings.
    side: File,
    before: (LocalModes, OutputModes),
    child: Child,
    output: Vec<u8>,
}

impl Pty {
    /// Starts a program on a new terminal of that many columns and lines. `None`, with the reason on standard output, where that is
    /// impossible here.
    pub(crate) fn start(
        program: &Path,
        arguments: &[&str],
        variables: &[(&str, &str)],
        size: (u16, u16),
    ) -> Option<Self> {
        let skipped = |why: &dyn std::fmt::Display| {
            println!("skipped: no program runs on a pseudo-terminal here: {why}");
            None
        };
        let opened = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC);
        let main = match opened.and_then(|main| grantpt(&main).and_then(|()| unlockpt(&main)).map(|()| main)) {
            Ok(main) => File::from(main),
            Err(error) => return skipped(&error),
        };
        let name = ptsname(&main, Vec::new()).unwrap();
        let noctty = OFlags::NOCTTY.bits() as i32;
        let path = Path::new(std::ffi::OsStr::from_bytes(name.as_bytes()));
        let side = File::options().read(true).write(true).custom_flags(noctty).open(path).unwrap();
        let (ws_col, ws_row) = size;
        tcsetwinsize(&main, Winsize { ws_row, ws_col, ws_xpixel: 0, ws_ypixel: 0 }).unwrap();
        let copy = || side.try_clone().unwrap();
        let before = modes(&side);
        // The terminal becomes the controlling one of the program.
        let child = Command::new("setsid")
            .arg("--ctty")
            .arg(program)
            .args(arguments)
            .envs(variables.iter().copied())
            .stdin(copy())
            .stdout(copy())
            .stderr(copy())
            .spawn();
        match child {
            Ok(child) => Some(Self { main, side, before, child, output: Vec::new() }),
            Err(error) => skipped(&format_args!("setsid: {error}")),
        }
    }

    /// The number of the program's process: `setsid` becomes it.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the program has written until now.
    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.output).into_owned()
    }

    /// Waits until the program has written a text.
    pub(crate) fn until(&mut self, text: &str) {
        self.during(|pty| !pty.text().contains(text), text);
    }

    /// Presses keys.
    pub(crate) fn press(&mut self, keys: &[u8]) {
        self.main.write_all(keys).unwrap();
    }

    /// Waits until the program has ended.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        let mut status = None;
        self.during(
            |pty| {
                status = pty.child.try_wait().unwrap();
                status.is_none()
            },
            "the end of the program",
        );
        while self.read() {}
        status.unwrap()
    }

    /// Whether the terminal's settings are those from before the start.
    pub(crate) fn is_as_before(&self) -> bool {
        modes(&self.side) == self.before
    }

    /// Reads as long as a condition holds.
    fn during(&mut self, mut goes_on: impl FnMut(&mut Self) -> bool, what: &str) {
        let begin = std::time::Instant::now();
        while goes_on(self) {
            self.read();
            assert!(begin.elapsed() < PATIENCE, "waited for {what:?}: {:?}", self.text().chars().take(4000));
        }
    }

    /// Reads what is there; `false` if nothing came.
    fn read(&mut self) -> bool {
        let limit = Timespec::try_from(STEP).unwrap();
        let mut ready = [PollFd::new(&self.main, PollFlags::IN)];
        if poll(&mut ready, Some(&limit)).unwrap() == 0 {
            return false;
        }
        let mut bytes = [0; 4096];
        let count = self.main.read(&mut bytes).unwrap();
        self.output.extend(&bytes[..count]);
        count > 0
    }
}

impl Drop for Pty {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn modes(terminal: &File) -> (LocalModes, OutputModes) {
    let settings = tcgetattr(terminal).unwrap();
    (settings.local_modes, settings.output_modes)
}
